"""The manifest of a pruned model: which heads of which model are gone, in the numbers of the original.

It goes into the model's config.json, so that the model can be built again, and can be handed on alone, so
that others make the same model from the original weights.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headscape.errors import FileFormatError
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.fewer_heads import layers_of, pruning_record
from headscape.models.plain_facts import config_of
from headscape.pruning.savings import Savings

FORMAT = "headscape/pruning/1"
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Manifest:
    """What was removed from which model, and why.

    Attributes
    ----------
    model
        Of the original: "name", "class", "type" and "weights_hash".
    config
        The head counts in the original's config, under its own names.
    layers
        Every layer of the stack with the heads it had and those it keeps, in the original's numbers.
    kept_back
        Heads that were asked for but stay, because they share keys with others.
    repaired
        Layers whose output projection was re-fitted.
    savings
        Against the original.
    plain
        Whether the config was edited so that plain ``from_pretrained`` builds the right shapes.
    versions
        Of the software.
    method, calibration, evaluation
        Free text: how the heads were chosen, on what data, and what it cost.
    """

    model: Mapping[str, Any]
    config: Mapping[str, Any]
    layers: tuple[LayerHeads, ...]
    kept_back: Pairs
    repaired: tuple[int, ...]
    savings: Savings
    plain: bool
    versions: Mapping[str, str]
    method: str = ""
    calibration: str = ""
    evaluation: str = ""
    format: str = FORMAT

    @property
    def removed(self) -> Pairs:
        """The (layer, head) pairs that are gone, in the original's numbers, sorted."""
        return tuple((layer.layer, head) for layer in self.layers for head in layer.removed)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON can hold it."""
        values = {**asdict(self), "removed": self.removed, "savings": self.savings.to_dict()}
        found: dict[str, Any] = json.loads(json.dumps(values))
        return found

    @classmethod
    def from_dict(cls, values: Any, path: Path) -> Self:
        """Read what :meth:`to_dict` wrote; ``path`` is for messages.

        Raises
        ------
        FileFormatError
            If something is missing, impossible, or written by a newer headscape.
        """
        layers = layers_of(values, path)
        try:
            manifest = cls(
                model=dict(values["model"]),
                config=dict(values["config"]),
                layers=layers,
                kept_back=tuple((int(layer), int(head)) for layer, head in values["kept_back"]),
                repaired=tuple(map(int, values["repaired"])),
                savings=Savings.from_dict(values["savings"]),
                plain=bool(values["plain"]),
                versions=dict(values["versions"]),
                **{name: str(values[name]) for name in ("method", "calibration", "evaluation", "format")},
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileFormatError(
                f"the pruning manifest in {path} is damaged ({error!r}). Write it again."
            ) from error
        if [list(pair) for pair in manifest.removed] != values.get("removed"):
            raise FileFormatError(
                f"the pruning manifest in {path} contradicts itself: its removed heads are not those its layers "
                "lack. Write it again."
            )
        return manifest


def manifest_of(model: Any) -> Manifest | None:
    """Return the manifest in a model's config, or None if it was not pruned."""
    record = pruning_record(config_of(model))
    return None if record is None else Manifest.from_dict(record, Path("the model's config"))
