"""Named states in which a result says little; they travel with it."""

from dataclasses import dataclass

FLAT_GEOMETRY = "flat-geometry"
DISCONNECTED_AFFINITY = "disconnected-affinity"
EMD_NOT_SETTLED = "emd-not-settled"
TREE_CLOSED = "tree-closed-early"
UNSTABLE_RANKING = "unstable-ranking"
PARAMETER_SENSITIVE = "parameter-sensitive"


@dataclass(frozen=True)
class Notice:
    """A state that a reader must know before reading a result.

    ``name`` is a constant such as those of this module; ``message`` says what was seen, what it means for the
    heads, and what to do; ``axis`` is the axis it was seen on. ``affects_heads`` is False where nothing that is said
    about the heads changes.
    """

    name: str
    message: str
    axis: str = ""
    affects_heads: bool = True

    def __str__(self) -> str:
        return f"{self.name} ({self.axis}): {self.message}" if self.axis else f"{self.name}: {self.message}"
