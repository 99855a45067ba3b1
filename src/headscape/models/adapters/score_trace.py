"""Where the logits of a softmax come from: the product of queries and keys, followed through what is done to it.

Inline attention computes softmax(s Q K^T + B) in steps, and only the first of them shows Q and K. Between that product
and the softmax a model multiplies by numbers, adds biases and masks, and changes shapes or types. These steps are
followed, so that at the softmax Q, K and s are known; B is what is left of the logits. Anything else that is done to
the product (a soft cap, for example) ends its trace: then only the finished logits are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headscape.models.lazy_torch import torch

_FACTORS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
_DIVISORS = {"div", "__truediv__", "__div__", "__itruediv__", "__idiv__", "div_", "divide", "true_divide"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__isub__", "sub_"}
_MASKS = {"masked_fill", "masked_fill_", "__setitem__"}
_SHAPES = {"view", "reshape", "to", "float", "type", "type_as", "contiguous", "clone"}
_FOLLOWED = _FACTORS | _DIVISORS | _SUMS | _MASKS | _SHAPES | {"where"}


@dataclass(frozen=True, eq=False)
class Product:
    """A product of queries (..., query, d) and keys (..., key, d), times a factor."""

    queries: torch.Tensor
    keys: torch.Tensor
    factor: float = 1.0

    def of_heads(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return queries and keys as (batch, head, point, d) for scores (batch, head, query, key), if they fit."""
        batch, n_heads, n_queries, n_keys = scores.shape
        queries, keys = (_four_axes(x, batch) for x in (self.queries, self.keys))
        if queries is None or keys is None or n_heads % max(1, keys.shape[1]):
            return None
        fits = queries.shape[:3] == (batch, n_heads, n_queries) and keys.shape[0] == batch
        return (queries, keys) if fits and keys.shape[2] == n_keys else None


class ScoreTrace:
    """Follows products of queries and keys through the functions that a module calls."""

    def __init__(self) -> None:
        # The tensors are kept beside their products, so that their ids are not given to others.
        self._known: dict[int, tuple[torch.Tensor, Product]] = {}

    def product_of(self, scores: torch.Tensor) -> Product | None:
        """Return the product that scores are made of, if it could be followed."""
        found = self._known.get(id(scores))
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def see(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Take note of a function that was called."""
        if name in _PRODUCTS:
            made = _PRODUCTS[name](args, kwargs)
            if made is not None and isinstance(result, torch.Tensor):
                self._known[id(result)] = (result, made)
        elif self._known:
            self._follow(name, args, kwargs, result)

    def _follow(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        given = [*args, *kwargs.values()]
        traced = [x for x in given if isinstance(x, torch.Tensor) and id(x) in self._known]
        if not traced:
            return
        _, product = self._known[id(traced[0])]
        changed = name in ("__setitem__",) or (name.endswith("_") and result is traced[0])
        if name not in _FOLLOWED or len(traced) > 1:
            if changed:  # in place, so that the trace no longer holds
                del self._known[id(traced[0])]
            return
        others = [x for x in given if x is not traced[0]]
        after = _after(name, product, others)
        del self._known[id(traced[0])]
        if after is not None:
            target = traced[0] if name == "__setitem__" else result
            self._known[id(target)] = (target, after)


def _after(name: str, product: Product, others: Sequence[Any]) -> Product | None:
    """Return the product after a function was applied to it, None if it cannot be followed."""
    if name not in _FACTORS | _DIVISORS:
        return product
    number = _number(others[0]) if len(others) == 1 else None
    if not number:
        return None
    return replace(product, factor=product.factor * number if name in _FACTORS else product.factor / number)


def _number(x: Any) -> float | None:
    """Return a number, or a tensor that holds just one, as a float."""
    if isinstance(x, torch.Tensor):
        return float(x) if x.numel() == 1 else None
    return float(x) if isinstance(x, int | float) else None


def _matmul(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    if len(args) != 2 or not all(isinstance(x, torch.Tensor) and x.dim() >= 3 for x in args):
        return None
    return Product(args[0], args[1].transpose(-1, -2))


def _baddbmm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    queries, keys = (kwargs.get(f"batch{i}", args[i] if len(args) > i else None) for i in (1, 2))
    if queries is None or keys is None:
        return None
    return Product(queries, keys.transpose(-1, -2), float(kwargs.get("alpha", 1.0)))


def _einsum(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """Return the factors of a sum over one index of two tensors, both with the batch and head of the result."""
    if len(args) != 3 or not isinstance(args[0], str):
        return None
    parts = re.fullmatch(r"([a-z]{4}),([a-z]{4})->([a-z]{4})", args[0].replace(" ", ""))
    if parts is None:
        return None
    left, right, out = parts.groups()
    summed = set(left) & set(right) - set(out)
    if len(summed) != 1:
        return None
    last = summed.pop()
    orders = [out[:2] + point + last for point in out[2:]]
    for operands in ((args[1], args[2]), (args[2], args[1])):
        if sorted(left) == sorted(orders[0]) and sorted(right) == sorted(orders[1]):
            queries, keys = (
                x.permute([names.index(letter) for letter in order])
                for x, names, order in zip(operands, (left, right), orders, strict=True)
            )
            return Product(queries, keys)
        left, right = right, left
    return None


_PRODUCTS: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Product | None]] = {
    "matmul": _matmul,
    "__matmul__": _matmul,
    "bmm": _matmul,
    "baddbmm": _baddbmm,
    "einsum": _einsum,
}


def _four_axes(x: torch.Tensor, batch: int) -> torch.Tensor | None:
    """Return (batch, head, point, d) of a tensor that may have batch and head in one axis."""
    if x.dim() == 3 and x.shape[0] % batch == 0:
        return torch.unflatten(x, 0, (batch, -1))
    return x if x.dim() == 4 else None
