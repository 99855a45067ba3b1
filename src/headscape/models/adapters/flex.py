"""``torch.nn.attention.flex_attention``: a call taken apart, with what its functions make of the logits.

    logits = score_mod(s Q K^T),   hidden where mask_mod is False

Both are functions of one entry and its place (batch, head, query, key). They are asked about all places at once, and
what ``score_mod`` changes is recorded as a bias: also where it depends on the logit itself, as a soft cap does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headscape.models.adapters.seen_call import SeenCall
from headscape.models.lazy_torch import torch

_NAMES = ("query", "key", "value", "score_mod", "block_mask", "scale")


def is_flex(function: Any) -> bool:
    """Tell whether a function is the operator behind ``flex_attention``."""
    return type(function).__name__ == "FlexAttentionHOP"


def seen_flex(
    function: Any, args: Sequence[Any], named: Mapping[str, Any], rows: int | None = None
) -> SeenCall:
    """Return queries, keys, values, and one mask that holds the bias too, of the first rows or of all of them.

    O(L^2) memory a row and head.
    """
    given = {**dict(zip(_NAMES, args, strict=False)), **named}
    queries, keys, values = (given[name][:rows] for name in _NAMES[:3])
    scale, d = float(given["scale"]), queries.shape[-1]
    mask = _mask(given, queries, keys, scale)
    changed = mask is not None and mask.dtype != torch.bool

    def again(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        if changed and queries.shape[-1] != d:
            raise NotImplementedError("what a score_mod adds may depend on s q.k")
        named_now = {name: value for name, value in named.items() if name not in (*_NAMES[:3], "scale")}
        output: torch.Tensor = function(
            queries, keys, values, given["score_mod"], given["block_mask"], scale, *args[6:], **named_now
        )[0]
        return output

    return SeenCall(queries, keys, values, mask=mask, scale=scale, again=again)


def _mask(
    given: Mapping[str, Any], queries: torch.Tensor, keys: torch.Tensor, scale: float
) -> torch.Tensor | None:
    """Return what is added to s q.k, (batch, head, query, key); True where a key is visible if there is no bias."""
    shape = (*queries.shape[:3], keys.shape[2])
    places = [torch.arange(n, device=queries.device) for n in shape]
    visible: torch.Tensor = _everywhere(given["block_mask"][-1], 0)(*places)
    visible = visible.expand(shape)
    with torch.no_grad():
        shared = queries.shape[1] // keys.shape[1]
        scores = queries.float() @ keys.float().repeat_interleave(shared, dim=1).mT * scale
        added: torch.Tensor = _everywhere(given["score_mod"], 1)(scores, *places) - scores
    if not bool(added.any()):
        return None if bool(visible.all()) else visible
    return added.masked_fill(~visible, -torch.inf)


def _everywhere(function: Callable[..., Any], leading: int) -> Callable[..., Any]:
    """Return a function of one place as one of all places; so many arguments before these have one entry per place."""
    for place in (3, 2, 1, 0):
        axes = [0 if i == place else None for i in range(4)]
        function = torch.vmap(function, in_dims=(*[0] * leading, *axes))
    return function
