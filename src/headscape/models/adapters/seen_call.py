"""One attention call of a plain PyTorch module, before it is known which layer of which model made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headscape.errors import ModelError
from headscape.models.lazy_torch import torch


@dataclass(frozen=True, eq=False)
class SeenCall:
    """Queries (batch, head, query, d), keys and values (batch, kv_head, key, d), and what is added to the logits.

    ``mask`` is (batch or 1, head or 1, query, key): True or 0 where a key is visible. ``kind`` is "self" or "cross", or
    None where the name of the module has to tell. ``again`` is as in
    :class:`~headscape.models.adapters.protocol.AttentionCall`.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    kind: str | None = None
    padding: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    dropout: float = 0.0
    again: Callable[..., torch.Tensor] | None = None

    def terms(self) -> dict[str, Any]:
        """Return what an :class:`AttentionCall` holds besides its place in the model."""
        values = {name: value for name, value in vars(self).items() if name != "kind"}
        return {**values, "bias": None, "softcap": None}


def require_fit(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, where: str) -> None:
    """Raise unless queries, keys and values are (batch, head, token, d) and fit each other."""
    shapes = [tuple(x.shape) for x in (queries, keys, values)]
    told = f"queries are {shapes[0]}, keys {shapes[1]} and values {shapes[2]}"
    if any(len(shape) != 4 for shape in shapes):
        raise ModelError(f"{where}: queries, keys and values must be (batch, head, token, d), but {told}.")
    (rows, heads, _, d), (key_rows, kv_heads, n_keys, key_d), (value_rows, value_heads, n_values, _) = shapes
    if heads % kv_heads or value_heads != kv_heads:
        raise ModelError(
            f"{where}: the number of heads must be a multiple of the key-value heads, but {told}: {heads} heads, "
            f"{kv_heads} of keys and {value_heads} of values."
        )
    if d != key_d or n_keys != n_values or not rows == key_rows == value_rows:
        raise ModelError(
            f"{where}: queries and keys must have the same d, keys and values the same tokens, and all the same "
            f"batch, but {told}."
        )


_masks: dict[tuple[Any, ...], tuple[Any, torch.Tensor | None]] = {}


def shared_mask(
    sources: tuple[torch.Tensor | None, ...], how: tuple[Any, ...], make: Callable[[], torch.Tensor | None]
) -> torch.Tensor | None:
    """Return what ``make`` builds from masks, the same object for every layer that is given the same masks."""
    key = (*((id(x), getattr(x, "_version", 0)) for x in sources), *how)
    # With its sources, so that their ids are not given to other tensors.
    found = _masks.get(key) or (sources, make())
    _masks[key] = found
    return found[1]


def forget_masks() -> None:
    """Let go of the masks of a forward pass that is over."""
    _masks.clear()


def causal_mask(n_queries: int, n_keys: int, device: Any) -> torch.Tensor:
    """Return what ``is_causal`` means to torch: query i sees the keys 0 to i, however many there are."""
    visible: Any = torch.ones(1, 1, n_queries, n_keys, dtype=torch.bool, device=device).tril()
    if n_queries == n_keys:
        visible._headscape_causal = True  # spares the look at every entry
    return visible  # type: ignore[no-any-return]
