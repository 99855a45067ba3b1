"""What removing heads saves: parameters, arithmetic per token, and bytes of the key-value cache.

FLOPs per token = 2 (weights of all linear layers) + sum over layers of 4 H d L

where H d is the width of a layer's heads and L the number of keys a query sees (q.k and p.v, 2 H d L each).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from headscape.models.anatomy import AttentionModule
from headscape.models.projection import products

LENGTH = 256
Cost = tuple[int, int, int]
"""Parameters, FLOPs per token and cache bytes per token of a model: see :class:`Savings`."""
_COSTS = ("parameters", "flops_per_token", "cache_bytes_per_token")


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
        parameters, flops, cache = map(Change, before, after)
        return cls(parameters, flops, cache)

    @property
    def before(self) -> Cost:
        """What the original model costs."""
        return self.parameters.before, self.flops_per_token.before, self.cache_bytes_per_token.before

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them: [before, after] each."""
        return {name: [*vars(getattr(self, name)).values()] for name in _COSTS} | {"length": self.length}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote."""
        changes: Any = {name: Change(*map(int, values[name])) for name in _COSTS}
        return cls(**changes, length=int(values["length"]))

    def __str__(self) -> str:
        lines = [
            f"parameters {self.parameters}",
            f"FLOPs per token at {self.length} tokens {self.flops_per_token}",
        ]
        if self.cache_bytes_per_token.before:
            lines.append(f"key-value cache in bytes per token {self.cache_bytes_per_token}")
        return "\n".join(lines)


def cost(modules: Sequence[AttentionModule], length: int = LENGTH) -> Cost:
    """Return what a model costs with so many keys for a query to see, counted from its weights' shapes."""
    model = modules[0].model
    flops = sum(2 * products(part) for part in model.modules())
    cached = 0
    for module in modules:
        d = module.output.head_dim
        flops += 4 * module.n_heads * d * length
        if getattr(module.module, "is_causal", False):
            cached += 2 * module.n_kv_heads * d
    itemsize = next(model.parameters()).element_size()
    return sum(weight.numel() for weight in model.parameters()), flops, cached * itemsize


def _short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.2f} {letter}"
    return str(number)
