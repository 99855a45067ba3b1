"""A capture: queries, keys, scale and mask of every attention module, window by window.

Only queries and keys are kept (L x d a head), never the L x L matrices; the fields are computed from them on
demand. Where queries and keys are not known, the logits or probabilities themselves are kept. A capture
lives in memory or in a store, where each window is a part of its own.
"""

import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Self

import numpy as np

from headscape.engine import LocalEngine
from headscape.engine.blas import one_blas_thread
from headscape.errors import FileFormatError, InputError
from headscape.tensor.attention_record import (
    AttentionRecord,
    BoolArray,
    Float32Array,
    causal_visibility,
    full_visibility,
)
from headscape.tensor.capture_window import (
    Labels,
    LayerInfo,
    MemoryWindow,
    StoredWindow,
    Window,
    chosen_heads,
    write_window,
)
from headscape.tensor.checks import as_float_array, require_finite
from headscape.tensor.fields import field_of_head
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.sinks import without_sinks
from headscape.tensor.store import Store, content_hash

__all__ = ["AttentionRecord", "Capture", "window_name"]

KIND = "capture"
PROBABILITY_SLACK = 1e-2
"""What rounding may add to the sum of a row: half precision keeps three digits."""
logger = logging.getLogger(__name__)


def window_name(window: int) -> str:
    """Return the name of a window's part in the store."""
    return f"window-{window:05d}"


class Capture:
    """Queries and keys of a model, for several windows.

    A model with one stack of attention has the stack "self". Models with several keep them apart
    ("encoder", "decoder" and "cross"; "text" and "vision"): :attr:`stacks` names them, :meth:`select` gives
    the capture of another one, and everything else speaks of the selected stack, at first the first.

    Parameters
    ----------
    windows
        The captured windows.
    provenance
        Model, tokenizer, input, parameters and versions.
    stack
        The selected stack; by default the first that the model called.
    heads
        Limits the capture to these (layer, head) pairs of the selected stack.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 8, 3)), rng.normal(size=(2, 2, 8, 3)), 0.5)
    >>> capture
    Capture(1 window, 8 heads, 4 key-value heads, stack 'self')
    >>> capture.tensor(0, "energy")
    NetworkTensor(query 8 x key 8 x head 8, field='energy', dtype=float32)
    """

    def __init__(
        self,
        windows: Sequence[Window],
        provenance: Mapping[str, Any],
        stack: str | None = None,
        heads: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        if not windows or not windows[0].layers:
            raise InputError("a capture needs at least one window and one layer, but none was given.")
        self._windows = tuple(windows)
        self._layers: tuple[LayerInfo, ...] = windows[0].layers
        self.provenance: Mapping[str, Any] = dict(provenance)
        self.stack = self.stacks[0] if stack is None else stack
        if self.stack not in self.stacks:
            raise InputError(f"stack must be one of {', '.join(self.stacks)}, but is {stack!r}.")
        self._keep = None if heads is None else frozenset((int(layer), int(head)) for layer, head in heads)
        everything = set(chosen_heads(self._layers, self.stack, None))
        if self._keep is not None:
            _require_known(sorted(self._keep), everything, self.stack)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a capture on disk; nothing but the header is read yet.

        A capture that was interrupted opens with the windows that were finished.
        """
        with explain_read_errors(path):
            return cls._open(Store.open(path, KIND))

    @classmethod
    def _open(cls, store: Store) -> Self:
        names = [name for name in store.parts() if name.startswith("window-")]
        if names != [window_name(i) for i in range(len(names))] or not names:
            raise FileFormatError(
                f"{store.path} has no finished window, or lacks one in between. Run the same capture again: it resumes."
            )
        parameters = store.header["parameters"]
        wanted = parameters.get("n_windows", len(names))
        if len(names) < wanted:
            logger.warning("%s is unfinished: %d of %d windows are there", store.path, len(names), wanted)
        heads = parameters.get("heads")
        windows = [StoredWindow(store, name) for name in names]
        known = {name: store.header[name] for name in ("versions", "input_hash")}
        return cls(
            windows,
            {**parameters, **windows[0].observed, **known},
            stack=parameters.get("stack"),
            heads=None if heads is None else [(layer, head) for layer, head in heads],
        )

    def with_records(self, records: Mapping[int, Sequence[AttentionRecord]]) -> "Capture":
        """Return the same capture with the records of some windows in memory: they are not read from disk."""
        windows = [
            dataclasses.replace(window, kept=tuple(records.get(number, ())))
            if isinstance(window, StoredWindow)
            else window
            for number, window in enumerate(self._windows)
        ]
        return Capture(windows, self.provenance, self.stack, self._keep)

    @classmethod
    def from_records(
        cls,
        windows: Sequence[Sequence[AttentionRecord]],
        *,
        tokens: Sequence[Labels] | None = None,
        provenance: Mapping[str, Any] | None = None,
        heads: Iterable[tuple[int, int]] | None = None,
    ) -> Self:
        """Build a capture in memory from the records of each window, and their labels per stack and axis."""
        labels: Sequence[Labels] = tokens if tokens is not None else [{}] * len(windows)
        kept = [MemoryWindow(tuple(records), names) for records, names in zip(windows, labels, strict=True)]
        return cls(kept, provenance or {}, heads=heads)

    @classmethod
    def from_arrays(
        cls,
        queries: object,
        keys: object,
        scale: float | None = None,
        *,
        causal: bool = True,
        visible: BoolArray | None = None,
        tokens: Sequence[str] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Self:
        """Build a capture from queries and keys that are already there.

        Parameters
        ----------
        queries : ([[window,] layer,] head, query, d) array
            Queries after position encoding.
        keys : ([[window,] layer,] kv_head, key, d) array
            Keys after position encoding; fewer heads than the queries where they are shared.
        scale
            The factor of the dot product; by default d ** -1/2.
        causal
            Whether a query sees only the keys up to its own place; without it, all.
        visible : (query, key) bool
            Which keys each query sees, in place of ``causal``.
        tokens
            One string per query (and key), the same for every window.
        """
        q, k = _five_axes(queries, "queries"), _five_axes(keys, "keys")
        if q.shape[:2] != k.shape[:2]:
            raise InputError(
                f"queries and keys must have the same windows and layers, but are {q.shape} and {k.shape}."
            )
        if visible is None:
            visible = (causal_visibility if causal else full_visibility)(q.shape[3], k.shape[3])
        factor = float(q.shape[-1] ** -0.5 if scale is None else scale)
        windows = [
            [AttentionRecord(layer, q[w, layer], k[w, layer], factor, visible) for layer in range(q.shape[1])]
            for w in range(len(q))
        ]
        labels: Labels = {} if tokens is None else {"self": {"query": tokens}}
        return cls.from_records(windows, tokens=[labels] * len(windows), provenance=provenance)

    @classmethod
    def from_probabilities(
        cls,
        probs: object,
        *,
        causal: bool | None = None,
        visible: BoolArray | None = None,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Self:
        """Build a capture from attention probabilities, where queries and keys are not known.

        Parameters
        ----------
        probs : ([[window,] layer,] head, query, key) array
            Rows sum to at most 1, and are 0 at keys that the query does not see.
        causal
            Whether a query sees only the keys up to its own place; by default, if nothing else has a probability.
        visible : (query, key) bool
            Which keys each query sees, in place of ``causal``.
        tokens, key_tokens
            One string per query, and per key where keys are others than queries; the same for every window.

        Notes
        -----
        The fields "probs", "log_ratio", "logits" (up to a constant in each row) and "probs_without_sinks" are there;
        "energy" and the measures of queries and keys are not. Memory: 4 L^2 bytes a head.

        Examples
        --------
        >>> capture = Capture.from_probabilities(np.full((2, 4, 8, 8), 1 / 8))
        >>> capture.has_products, capture.tensor(0, "log_ratio").shape
        (False, (8, 8, 8))
        """
        p = _five_axes(probs, "probs")
        require_finite(p, "probs")
        if p.min() < 0 or p.sum(axis=-1, dtype=np.float64).max() > 1 + PROBABILITY_SLACK:
            raise InputError(
                "probs must be at least 0 and sum to at most 1 over the keys, but the smallest is "
                f"{p.min():.3g} and the largest sum {p.sum(axis=-1, dtype=np.float64).max():.6g}: the axes must be "
                "([[window,] layer,] head, query, key)."
            )
        if visible is None:
            n_queries, n_keys = p.shape[3:]
            if causal is None:
                later = ~causal_visibility(n_queries, n_keys)
                causal = n_queries == n_keys > 1 and not p[..., later].any()
            visible = (causal_visibility if causal else full_visibility)(n_queries, n_keys)
        if np.shape(visible) == p.shape[3:] and p[..., ~np.asarray(visible)].any():
            raise InputError(
                "probs must be 0 at keys that are not visible, but some are not: check visible or causal."
            )
        windows = [
            [
                AttentionRecord.without_products(layer, visible, probs=p[w, layer])
                for layer in range(p.shape[1])
            ]
            for w in range(len(p))
        ]
        sides = {"query": tokens, "key": key_tokens}
        labels: Labels = {"self": {axis: names for axis, names in sides.items() if names is not None}}
        return cls.from_records(windows, tokens=[labels] * len(windows), provenance=provenance)

    @property
    def has_products(self) -> bool:
        """Whether queries and keys of the selected stack are known, and not only logits or probabilities."""
        layers = set(self.layers)
        return all(
            info.has_products for info in self._layers if info.stack == self.stack and info.layer in layers
        )

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self._windows)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks of attention, in the order in which the model calls them."""
        return tuple(dict.fromkeys(info.stack for info in self._layers))

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The layers of the selected stack."""
        return tuple(dict.fromkeys(layer for layer, _ in self.heads))

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, head) pairs, layer-major."""
        return tuple(chosen_heads(self._layers, self.stack, self._keep))

    @property
    def kv_heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, key-value head) pairs, layer-major."""
        return tuple(dict.fromkeys(self.kv_head_of_heads))

    @property
    def kv_head_of_heads(self) -> tuple[tuple[int, int], ...]:
        """The (layer, key-value head) pair that each of the heads reads."""
        groups = {i.layer: i.n_heads // i.n_kv_heads for i in self._layers if i.stack == self.stack}
        return tuple((layer, head // groups[layer]) for layer, head in self.heads)

    def select(
        self,
        stack: str | None = None,
        *,
        heads: Iterable[tuple[int, int]] | None = None,
        windows: Sequence[int] | None = None,
    ) -> "Capture":
        """Return the same capture with another stack selected, or limited to some heads or windows.

        Nothing is copied.

        Examples
        --------
        >>> capture = Capture.from_arrays(np.ones((2, 4, 8, 3)), np.ones((2, 2, 8, 3)))
        >>> capture.select(heads=[(1, 3)]).heads
        ((1, 3),)
        """
        if heads is None and stack in (None, self.stack):
            heads = self._keep
        if windows is None or list(windows) == list(range(self.n_windows)):
            return Capture(self._windows, self.provenance, stack or self.stack, heads)
        provenance = dict(self.provenance)
        if "input_hash" in provenance:  # other windows are another input
            known = np.frombuffer(str(provenance["input_hash"]).encode(), dtype=np.uint8)
            provenance["input_hash"] = content_hash(known, np.asarray(windows, dtype=np.int64))
        return Capture([self._window(window) for window in windows], provenance, stack or self.stack, heads)

    def window(self, window: int) -> "Capture":
        """Return one window of the selected stack as a capture of its own, in memory: its layers are read once."""
        source = self._window(window)
        labels = {self.stack: {axis: source.tokens(self.stack, axis) for axis in ("query", "key")}}
        kept = MemoryWindow(tuple(self.records(window)), labels)
        return Capture([kept], {**self.provenance, "window": window}, self.stack, self._keep)

    def tokens(self, window: int) -> tuple[str, ...]:
        """Return the token strings of the queries of a window; empty if they are not known."""
        return self._window(window).tokens(self.stack, "query")

    def key_tokens(self, window: int) -> tuple[str, ...]:
        """Return the token strings of the keys of a window: those of the queries but in cross-attention."""
        return self._window(window).tokens(self.stack, "key") or self.tokens(window)

    def record(self, window: int, layer: int) -> AttentionRecord:
        """Return one layer of one window, with all its heads, reading only that layer."""
        if layer not in self.layers:
            raise InputError(f"layer must be one of {_span(self.layers)}, but is {layer!r}.")
        return self._window(window).record(self.stack, layer)

    def head(self, window: int, layer: int, head: int) -> AttentionRecord:
        """Return one head of one window, as a record with one head, reading nothing else."""
        _require_known([(layer, head)], set(self.heads), self.stack)
        return self._window(window).head(self.stack, layer, head)

    def records(self, window: int) -> Iterator[AttentionRecord]:
        """Yield the layers of one window, one at a time."""
        for layer in self.layers:
            yield self.record(window, layer)

    def tensor(
        self,
        window: int,
        field: str = "probs",
        layers: Iterable[int] | None = None,
        heads: Iterable[tuple[int, int]] | None = None,
    ) -> NetworkTensor:
        """Build the network tensor of one window, layers side by side on local threads.

        Parameters
        ----------
        window
            Number of the window.
        field
            "probs", "logits", "energy" or "log_ratio" (see :mod:`headscape.tensor.fields`), or
            "probs_without_sinks" (see :mod:`headscape.tensor.sinks`; sinks are found in the heads that are asked for).
        layers
            Only these layers.
        heads
            Only these (layer, head) pairs.

        Notes
        -----
        Time O(H L^2 d); memory 4 H L^2 bytes for the result and a layer beside it. Heads that are not asked
        for are not read.
        """
        if field == WITHOUT_SINKS:
            return without_sinks(self.tensor(window, "probs", layers, heads))
        pairs = self._pairs(layers, heads)
        groups = [list(group) for _, group in groupby(enumerate(pairs), key=lambda one: one[1][0])]
        with one_blas_thread():  # the layers have a thread each
            data = self._built(window, field, groups)
        return NetworkTensor(
            data.transpose(1, 2, 0),
            heads=pairs,
            tokens=self.tokens(window) or None,
            key_tokens=self.key_tokens(window) or None,
            field=field,
            provenance={"window": window, **self.provenance, "stack": self.stack},
        )

    def save(self, path: str | os.PathLike[str]) -> "Capture":
        """Write the capture to a folder and return it as it is there; windows that are there already stay."""
        chosen = {"n_windows": self.n_windows, "stack": self.stack, "heads": _listed(self._keep)}
        parameters = {**self.provenance, **chosen}
        versions = parameters.pop("versions", None)
        known_hash = parameters.pop("input_hash", None)
        with Store.create(
            path, KIND, parameters=parameters, input_hash=known_hash or self._hash(), versions=versions
        ) as store:
            for window, source in enumerate(self._windows):
                if store.has(window_name(window)):
                    continue
                records = [source.record(info.stack, info.layer) for info in self._layers]
                labels = {s: {a: source.tokens(s, a) for a in ("query", "key")} for s in self.stacks}
                with store.writing(window_name(window)) as part:
                    write_window(part, records, labels)
        return Capture.load(path)

    def __repr__(self) -> str:
        plural = "" if self.n_windows == 1 else "s"
        return (
            f"Capture({self.n_windows} window{plural}, {len(self.heads)} heads, {len(self.kv_heads)} "
            f"key-value heads, stack {self.stack!r})"
        )

    def _window(self, window: int) -> Window:
        if not 0 <= window < self.n_windows:
            raise InputError(f"window must be from 0 to {self.n_windows - 1}, but is {window!r}.")
        return self._windows[window]

    def _built(
        self, window: int, field: str, groups: Sequence[Sequence[tuple[int, tuple[int, int]]]]
    ) -> Float32Array:
        """Return a field of the heads of some layers, (head, query, key)."""
        first = [values for _, values in self._fields(window, groups[0], field)]
        # The head axis is the slowest in memory: each head is written, and later read, in one run.
        data = np.empty((sum(map(len, groups)), *first[0].shape), dtype=np.float32)
        data[: len(first)] = first

        def build(group: Sequence[tuple[int, tuple[int, int]]]) -> None:
            for index, values in self._fields(window, group, field):
                if values.shape != data.shape[1:]:
                    raise InputError(
                        f"layer {group[0][1][0]} has {values.shape} queries x keys, but layer {groups[0][0][1][0]} has "
                        f"{data.shape[1:]}: choose layers of one size with layers=[...]."
                    )
                data[index] = values

        for _ in LocalEngine().map(build, groups[1:]):
            pass
        return data

    def _fields(
        self, window: int, group: Sequence[tuple[int, tuple[int, int]]], field: str
    ) -> Iterator[tuple[int, Float32Array]]:
        """Yield number and field of heads of one layer, which is read at once if all are asked for."""
        source, layer = self._window(window), group[0][1][0]
        sizes = {info.layer: info.n_heads for info in self._layers if info.stack == self.stack}
        whole = source.record(self.stack, layer) if len(group) == sizes[layer] else None
        for index, (_, head) in group:
            if whole is not None:
                yield index, field_of_head(whole, head, field)
            else:
                yield index, field_of_head(source.head(self.stack, layer, head), 0, field)

    def _pairs(
        self, layers: Iterable[int] | None, heads: Iterable[tuple[int, int]] | None
    ) -> list[tuple[int, int]]:
        """Return the asked-for pairs in layer-major order, or raise if one is not there."""
        have = self.heads
        wanted_layers = set(self.layers if layers is None else layers)
        if unknown := wanted_layers - set(self.layers):
            raise InputError(
                f"layers must be among {_span(self.layers)}, but {sorted(unknown)} was asked for."
            )
        wanted = set(have if heads is None else ((int(layer), int(head)) for layer, head in heads))
        _require_known(sorted(wanted), set(have), self.stack)
        pairs = [pair for pair in have if pair in wanted and pair[0] in wanted_layers]
        if not pairs:
            raise InputError("no head is left: layers and heads must have heads in common.")
        return pairs

    def _hash(self) -> str:
        window = self._windows[0]
        records = (window.record(info.stack, info.layer) for info in self._layers)
        kept = ((r.queries, r.keys) if r.has_products else (r.scores, r.probs) for r in records)
        return content_hash(*(array for arrays in kept for array in arrays if array is not None))


def _five_axes(x: object, name: str) -> Float32Array:
    array = as_float_array(x, name).astype(np.float32, copy=False)
    if not 3 <= array.ndim <= 5:
        raise InputError(
            f"{name} must be ([[window,] layer,] head, point, d), 3 to 5 axes, but are {array.shape}."
        )
    if 0 in array.shape:
        raise InputError(f"{name} must not have an empty axis, but their shape is {array.shape}.")
    return array.reshape((1,) * (5 - array.ndim) + array.shape)


def _require_known(wanted: list[tuple[int, int]], known: set[tuple[int, int]], stack: str) -> None:
    unknown = [pair for pair in wanted if pair not in known]
    if unknown:
        names = ", ".join(f"{layer}.{head}" for layer, head in unknown[:5])
        last = max(known)
        raise InputError(
            f"there is no head {names} (layer.head) in the stack {stack!r}: it has {len(known)} heads, "
            f"the last is {last[0]}.{last[1]}."
        )


def _listed(heads: frozenset[tuple[int, int]] | None) -> list[list[int]] | None:
    return None if heads is None else [list(pair) for pair in sorted(heads)]


def _span(layers: tuple[int, ...]) -> str:
    whole = layers == tuple(range(layers[0], layers[-1] + 1))
    return f"{layers[0]} to {layers[-1]}" if whole else ", ".join(map(str, layers))
