"""Recording: what an observer keeps of a forward pass, as one list of records per row of the batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError, ModelError
from headscape.models.adapters.attention_interface import MASKED_BELOW, is_plain_causal, own_probabilities
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.anatomy import seen_by_any, unseen
from headscape.models.forward_pass import forward
from headscape.models.lazy_torch import torch
from headscape.models.stacks import stack_names
from headscape.tensor.attention_record import (
    AttentionRecord,
    BoolArray,
    Float32Array,
    causal_visibility,
    describe_visibility,
    full_visibility,
)

# Masks differ between a few kinds of layers only (full, sliding, cross): so many are remembered at a time.
_REMEMBERED_MASKS = 4

Points = NDArray[np.intp] | slice


@dataclass
class Recording:
    """Keeps queries and keys of every attention call, for each row of the batch.

    Parameters
    ----------
    rows
        Rows of the batch that the model is given.
    layers
        Only these layers; the others are computed but not kept.
    exact
        Also keep the probabilities that the model's own code computes.
    kept_tokens
        Which tokens of each row are no padding, for the model's input and for its decoder; padding is cut
        out of what is recorded. None where nothing is padded.
    """

    rows: int
    layers: Collection[int] | None = None
    exact: bool = False
    kept_tokens: Mapping[str, NDArray[np.bool_] | None] = field(default_factory=dict)
    _seen: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    _records: list[list[tuple[tuple[str, str], AttentionRecord]]] = field(default_factory=list)
    _padded: dict[tuple[str, int], NDArray[np.bool_]] = field(default_factory=dict)
    _terms: OrderedDict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=OrderedDict)

    def see(self, call: AttentionCall) -> None:
        """Copy the queries and keys of a call."""
        self._seen.setdefault(call.group, set()).add(call.layer)
        batch = len(call.queries)
        if batch != self.rows:
            raise ModelError(
                f"{call.name} splits a window into pieces ({batch} rows where the model was given {self.rows}), "
                "so that it has no single query x key matrix. Models with shifted windows such as Swin cannot "
                "be captured. A plain PyTorch module that takes (token, batch), or folds its heads into the batch, "
                "has to be wrapped in one that takes (batch, token), or registered (hs.register_attention)."
            )
        if not self._records:
            self._records += [[] for _ in range(batch)]
        if self.layers is not None and call.layer not in self.layers:
            return
        probs = own_probabilities(call) if self.exact else None
        if self.exact and probs is None:
            raise ModelError(
                f"{call.name} has no eager code of its own, so that exact (--exact) has nothing to compare with. Leave "
                "it out."
            )
        for row in range(batch):
            self._records[row].append((call.group, self._record(call, row, probs)))

    def records(self) -> list[list[AttentionRecord]]:
        """Return the records of each row, stacks named, or raise if there is nothing."""
        if not self._seen:
            raise unseen("this model")
        have = sorted(set().union(*self._seen.values()))
        if self.layers is not None and (unknown := set(self.layers) - set(have)):
            raise InputError(
                f"layers must be from {have[0]} to {have[-1]}, but {', '.join(map(str, sorted(unknown)))} was "
                "asked for."
            )
        names = stack_names(list(self._seen))
        return [[record.replace(stack=names[group]) for group, record in row] for row in self._records]

    def _record(self, call: AttentionCall, row: int, probs: torch.Tensor | None) -> AttentionRecord:
        queries_at, keys_at = self._kept(call, row)
        visible, bias = self._additive_terms(call, row, queries_at, keys_at)
        if call.scores is not None:
            scores = _copy(call.scores[row], queries_at)[:, :, keys_at]
            return AttentionRecord.without_products(
                call.layer,
                visible,
                scores=np.where(scores > MASKED_BELOW, scores, np.float32(0.0)),
                probs=None if probs is None else _copy(probs[row], queries_at)[:, :, keys_at],
                module=call.name,
                kind=call.group[1],
            )
        return AttentionRecord(
            layer=call.layer,
            queries=_copy(call.queries[row], queries_at),
            keys=_copy(call.keys[row], keys_at),
            scale=call.scale,
            visible=visible,
            module=call.name,
            kind=call.group[1],
            softcap=None if call.softcap is None else float(call.softcap),
            bias=bias,
            sinks=None if call.sinks is None else _to_numpy(call.sinks),
            probs=None if probs is None else _copy(probs[row], queries_at)[:, :, keys_at],
        )

    def _kept(self, call: AttentionCall, row: int) -> tuple[Points, Points]:
        """Return the queries and keys that are no padding."""
        cross = call.group[1] == "cross"
        in_decoder = cross or "decoder" in call.name
        side = "decoder" if in_decoder and "decoder" in self.kept_tokens else "input"
        queries_at = self._points(side, row, call.queries.shape[2])
        keys_at = self._points("input" if cross else side, row, call.keys.shape[2])
        place = (call.group[0], row)
        if call.padding is not None:
            kept = ~call.padding[row].cpu().numpy()
            keys_at = _places(kept, keys_at)
            if not cross and len(kept) == call.queries.shape[2]:
                queries_at, self._padded[place] = keys_at, kept
        if cross and len(self._padded.get(place, ())) == call.queries.shape[2]:
            # The queries of cross-attention are the tokens of the self-attention before it.
            queries_at = _places(self._padded[place], queries_at)
        return queries_at, keys_at

    def _points(self, side: str, row: int, n: int) -> Points:
        kept = self.kept_tokens.get(side)
        # Where the model changes the number of points (audio frames, patches) padding cannot be followed.
        if kept is None or kept.shape[1] != n or kept[row].all():
            return slice(None)
        return np.flatnonzero(kept[row])

    def _additive_terms(
        self, call: AttentionCall, row: int, queries_at: Points, keys_at: Points
    ) -> tuple[BoolArray, Float32Array | None]:
        """Return visibility and bias of a row; layers that share a mask share the arrays."""
        terms = [term for term in (call.mask, call.bias) if term is not None]
        cut = [points.tobytes() for points in (queries_at, keys_at) if not isinstance(points, slice)]
        key = (row, call.queries.shape[1:3], call.keys.shape[2], *cut, *(id(term) for term in terms))
        if key not in self._terms:
            if len(self._terms) >= _REMEMBERED_MASKS * self.rows:
                self._terms.popitem(last=False)
            visible, bias = _split_terms(call, terms, row, queries_at, keys_at)
            # The terms are remembered with the result, so that their ids are not given to other tensors.
            self._terms[key] = (visible, bias, terms)
        visible, bias, _ = self._terms[key]
        return visible, bias


def record_batch(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    layers: Collection[int] | None = None,
    exact: bool = False,
    what: str = "the batch",
) -> list[list[AttentionRecord]]:
    """Run one forward pass without gradients and return the records of each row of the batch.

    Padding that the attention masks mark is cut out of the records. ``exact`` also keeps the model's own probabilities
    (forms them: O(L^2) memory a head); ``what`` names the inputs in an error of the model's own code.
    """
    masks = {"input": inputs.get("attention_mask")}
    if "decoder_input_ids" in inputs:
        masks["decoder"] = inputs.get("decoder_attention_mask")
    kept = {
        side: None if mask is None else np.asarray(torch.as_tensor(mask).cpu()).astype(bool)
        for side, mask in masks.items()
    }
    rows = next((len(value) for value in inputs.values() if isinstance(value, torch.Tensor)), None)
    if rows is None:
        raise InputError(
            f"inputs must hold tensors, such as input_ids, but have {', '.join(inputs) or 'nothing'}."
        )
    recording = Recording(rows, layers=layers, exact=exact, kept_tokens=kept)
    seen_by_any(model, recording, lambda: forward(model, inputs, what))
    return recording.records()


def _split_terms(
    call: AttentionCall, terms: Sequence[torch.Tensor], row: int, queries_at: Points, keys_at: Points
) -> tuple[BoolArray, Float32Array | None]:
    """Split what the model adds to its logits into which keys are visible, and a bias on those."""
    n_heads, n_queries, n_keys = *call.queries.shape[1:3], call.keys.shape[2]
    unpadded = isinstance(queries_at, slice) and isinstance(keys_at, slice)
    if len(terms) == 1 and unpadded and is_plain_causal(terms[0]):
        return causal_visibility(n_queries, n_keys), None
    visible: NDArray[np.bool_] | None = None
    bias: NDArray[np.float32] | None = None
    for term in terms:
        rows = term[row if len(term) > 1 else 0]
        values = _to_numpy(torch.where(rows, 0.0, -torch.inf) if rows.dtype == torch.bool else rows)
        values = values[:, queries_at][:, :, keys_at]
        seen = values > MASKED_BELOW
        visible = seen if visible is None else visible & seen
        if np.any(values, where=seen):
            added = np.where(seen, values, np.float32(0.0))
            bias = added if bias is None else bias + added
    if bias is not None:
        bias = np.ascontiguousarray(np.broadcast_to(bias, (n_heads, *bias.shape[1:])))
    shape = (len(np.arange(n_queries)[queries_at]), len(np.arange(n_keys)[keys_at]))
    if visible is None:
        return full_visibility(*shape), bias
    one = visible[0] if len(visible) == 1 or (visible == visible[:1]).all() else None
    if one is None:
        return visible, bias
    word = describe_visibility(one)
    known = {"full": full_visibility, "causal": causal_visibility}
    return (known[word](*shape) if word in known else np.ascontiguousarray(one)), bias


def _places(kept: NDArray[np.bool_], otherwise: Points) -> Points:
    """Return the places of the tokens that are kept; if all are, what was known before."""
    return otherwise if kept.all() else np.flatnonzero(kept)


def _to_numpy(x: torch.Tensor) -> Float32Array:
    array: Float32Array = x.detach().to(device="cpu", dtype=torch.float32).numpy()
    return array


def _copy(x: torch.Tensor, points: Points) -> Float32Array:
    """Copy (head, point, ...) to float32: a view would keep the model's larger tensors alive."""
    return np.array(_to_numpy(x)[:, points], dtype=np.float32, order="C")
