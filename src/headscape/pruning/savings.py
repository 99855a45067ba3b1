"""What removing heads saves: parameters, arithmetic per token, and bytes of the key-value cache.

FLOPs per token = 2 (weights of all linear layers) + sum over layers of 4 H d L

where H d is the width of a layer's heads and L the number of keys a query sees (q.k and p.v, 2 H d L each).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch

    from headscape.models.attention_modules import AttentionSite

LENGTH = 256


@dataclass(frozen=True)
class Change:
    """A number before and after.

    Examples
    --------
    >>> print(Change(2_000_000, 1_500_000))
    2.00 M -> 1.50 M (25.0 % less)
    """

    before: int
    after: int

    @property
    def share(self) -> float:
        """The share that is saved, 0 of nothing."""
        return 1 - self.after / self.before if self.before else 0.0

    def __str__(self) -> str:
        return f"{_short(self.before)} -> {_short(self.after)} ({100 * self.share:.1f} % less)"


@dataclass(frozen=True)
class Cost:
    """What a model costs: see :class:`Savings`."""

    parameters: int
    flops_per_token: int
    cache_bytes_per_token: int


@dataclass(frozen=True)
class Savings:
    """What a pruned model saves.

    Attributes
    ----------
    parameters
        All weights, tied ones once.
    flops_per_token
        Of the matrix products, at ``length`` keys; every linear layer counts as if each token passed it.
    cache_bytes_per_token
        Of keys and values in the dtype of the model when it was pruned; 0 for models without a cache.
    length
        The number of keys in ``flops_per_token``.
    """

    parameters: Change
    flops_per_token: Change
    cache_bytes_per_token: Change
    length: int = LENGTH

    @classmethod
    def between(cls, before: Cost, after: Cost) -> Self:
        """Return the savings from one cost to another."""
        return cls(
            Change(before.parameters, after.parameters),
            Change(before.flops_per_token, after.flops_per_token),
            Change(before.cache_bytes_per_token, after.cache_bytes_per_token),
        )

    @property
    def before(self) -> Cost:
        """What the original model costs."""
        return Cost(self.parameters.before, self.flops_per_token.before, self.cache_bytes_per_token.before)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them: [before, after] each."""
        names = ("parameters", "flops_per_token", "cache_bytes_per_token")
        changes: dict[str, Change] = {name: getattr(self, name) for name in names}
        return {
            **{name: [change.before, change.after] for name, change in changes.items()},
            "length": self.length,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote."""
        return cls(
            Change(*map(int, values["parameters"])),
            Change(*map(int, values["flops_per_token"])),
            Change(*map(int, values["cache_bytes_per_token"])),
            int(values["length"]),
        )

    def __str__(self) -> str:
        lines = [
            f"parameters {self.parameters}",
            f"FLOPs per token at {self.length} tokens {self.flops_per_token}",
        ]
        if self.cache_bytes_per_token.before:
            lines.append(f"key-value cache in bytes per token {self.cache_bytes_per_token}")
        return "\n".join(lines)


def cost(model: "torch.nn.Module", sites: "Sequence[AttentionSite]", length: int = LENGTH) -> Cost:
    """Return what a model costs, counted from its weights' shapes.

    Parameters
    ----------
    model
        A model of a family that can be pruned.
    sites
        Its self-attention.
    length
        Keys that a query sees.
    """
    import torch

    from headscape.models.adapters.slicing import head_dim

    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D"]
    flops = sum(2 * module.get_parameter("weight").numel() for module in linear)
    cached = 0
    for site in sites:
        d = head_dim(model, site.module, site.n_heads)
        flops += 4 * site.n_heads * d * length
        if getattr(model.get_submodule(site.module), "is_causal", False):
            cached += 2 * site.n_kv_heads * d
    itemsize = next(model.parameters()).element_size()
    return Cost(sum(weight.numel() for weight in model.parameters()), flops, cached * itemsize)


def _short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.2f} {letter}"
    return str(number)
