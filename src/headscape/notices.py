"""Named states in which the geometry says little or nothing (they travel with the results)."""

from dataclasses import dataclass

FLAT_GEOMETRY = "flat-geometry"
DISCONNECTED_AFFINITY = "disconnected-affinity"
EMD_NOT_SETTLED = "emd-not-settled"
TREE_CLOSED = "tree-closed-early"


@dataclass(frozen=True)
class Notice:
    """A state of one axis that a reader must know before reading its pictures.

    ``name`` is one of the constants of this module, ``message`` says what was seen, with numbers.
    """

    name: str
    message: str
    axis: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.axis}): {self.message}" if self.axis else f"{self.name}: {self.message}"
