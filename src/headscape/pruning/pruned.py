"""A pruned model with its manifest: what ``prune`` and ``load_pruned`` return."""

import dataclasses
from typing import Any, Self

from headscape.models.fewer_heads import KEY
from headscape.models.plain_facts import config_of
from headscape.output import counted
from headscape.pruning.manifest import Manifest, Pairs
from headscape.pruning.plan import listed
from headscape.pruning.savings import Savings
from headscape.pruning.speed import Speed


@dataclasses.dataclass(frozen=True, eq=False)
class Pruned:
    """A model without some of its heads.

    Attributes
    ----------
    model
        The smaller model; ``forward``, ``generate``, training and ``save_pretrained`` work as before.
    manifest
        What was removed from which model. All its numbers are those of the original model, also if a pruned
        model was pruned again.
    speed
        Of both models, if it was measured.
    card
        The model card, if there is more to say than the manifest does.
    tokenizer
        Of the original, if it is known; saved with the model.
    """

    model: Any
    manifest: Manifest
    speed: Speed | None = None
    card: str = ""
    tokenizer: Any = None

    @property
    def removed(self) -> Pairs:
        """The (layer, head) pairs that are gone, in the original's numbers, sorted."""
        return self.manifest.removed

    @property
    def kept_back(self) -> Pairs:
        """The pairs that were asked for but stay, because they share keys with heads that stay."""
        return self.manifest.kept_back

    @property
    def savings(self) -> Savings:
        """What it saves against the original."""
        return self.manifest.savings

    @property
    def description(self) -> str:
        """What was removed, what was rounded, and what it saves, in a few sentences."""
        layers = self.manifest.layers
        touched = sum(bool(layer.removed) for layer in layers)
        heads = counted(sum(layer.n_heads for layer in layers), "head")
        verb = "was" if len(self.removed) == 1 else "were"
        text = f"{len(self.removed)} of {heads} {verb} removed, from {touched} of {counted(len(layers), 'layer')}."
        if self.kept_back:
            text += (
                f" {len(self.kept_back)} more were asked for but stay ({listed(self.kept_back)}), because a layer "
                "with shared keys loses whole groups of heads, or the same number from every group."
            )
        if self.manifest.repaired:
            repaired = counted(len(self.manifest.repaired), "layer")
            text += f" The output projections of {repaired} were adjusted to make up for it."
        saved = self.savings
        text += f" Saved: {100 * saved.parameters.share:.1f} % of the parameters, "
        text += f"{100 * saved.flops_per_token.share:.1f} % of the FLOPs per token"
        if saved.cache_bytes_per_token.before:
            text += f", {100 * saved.cache_bytes_per_token.share:.1f} % of the key-value cache"
        return text + "."

    def summary(self) -> dict[str, Any]:
        """Return what was removed and what it saves as one dict that JSON can hold."""
        return {
            "format": "headscape/pruned/1",
            "removed": [list(pair) for pair in self.removed],
            "kept_back": [list(pair) for pair in self.kept_back],
            "plain": self.manifest.plain,
            "savings": self.savings.to_dict(),
            "speed": None if self.speed is None else self.speed.summary(),
            "description": self.description,
        }

    def described(self, *, method: str = "", calibration: str = "", evaluation: str = "") -> Self:
        """Return this with words on how the heads were chosen, on what data, and what it cost.

        They are written into the model's config, too, and what is left out stays as it was.
        """
        words: Any = {"method": method, "calibration": calibration, "evaluation": evaluation}
        given = {name: text for name, text in words.items() if text}
        manifest = dataclasses.replace(self.manifest, **given)
        return dataclasses.replace(self, manifest=noted(self.model, manifest))

    def __repr__(self) -> str:
        return f"Pruned({type(self.model).__name__}: {self.description})"


def noted(model: Any, manifest: Manifest) -> Manifest:
    """Write a manifest into a model's config, and return it."""
    setattr(config_of(model), KEY, manifest.to_dict())
    return manifest
