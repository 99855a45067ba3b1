"""One attention module in one window: queries and keys exactly as they enter the dot product.

Where they are not known (attention that is read at its softmax, probabilities that somebody else saved), a record holds
the finished logits or the probabilities in their place.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.tensor.checks import require_finite

Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """One attention module in one window: all that its logits, probabilities and energy need.

    Parameters
    ----------
    layer
        Number of the layer within its stack.
    queries : (head, query, d) float32
        Queries after position encoding, before ``scale``.
    keys : (kv_head, key, d) float32
        Keys after position encoding, not repeated: with grouped queries there are fewer than heads.
    scale
        The factor s of s Q K^T, as the model uses it (not always d ** -1/2).
    visible : (query, key) or (head, query, key) bool
        True where the query may attend to the key.
    module
        Name of the module in the model.
    kind
        "self" or "cross".
    stack
        Which part of the model: "self" for a model with one stack, else "encoder", "decoder", "cross", ...
    softcap
        The model's soft cap c: c tanh(S / c) takes the place of S = s Q K^T. None if it has none.
    bias : (head, query, key) float32
        Added to the logits after the soft cap (relative positions, ALiBi). None if the model has none.
    sinks : (head,) float32
        One more logit per head that takes probability but belongs to no key. None if the model has none.
    probs : (head, query, key) float32
        The probabilities that the model itself computed, if they were asked for.
    scores : (head, query, key) float32
        The finished logits, as they enter the softmax, where queries and keys are not known; see
        :meth:`without_products`.

    Examples
    --------
    >>> q, k = np.ones((4, 3, 2), np.float32), np.ones((2, 3, 2), np.float32)
    >>> record = AttentionRecord(0, q, k, 0.5, causal_visibility(3))
    >>> record.n_heads, record.n_kv_heads, record.kv_head(3)
    (4, 2, 1)
    """

    layer: int
    queries: Float32Array
    keys: Float32Array
    scale: float
    visible: BoolArray
    module: str = ""
    kind: str = "self"
    stack: str = "self"
    softcap: float | None = None
    bias: Float32Array | None = None
    sinks: Float32Array | None = None
    probs: Float32Array | None = None
    scores: Float32Array | None = None

    @classmethod
    def without_products(
        cls,
        layer: int,
        visible: BoolArray,
        *,
        scores: Float32Array | None = None,
        probs: Float32Array | None = None,
        **more: Any,
    ) -> "AttentionRecord":
        """Return a record whose queries and keys are not known: of finished logits, of probabilities, or of both.

        Its queries and keys have no width, so that their number is known. ``scores`` count at visible keys only.

        Examples
        --------
        >>> record = AttentionRecord.without_products(0, causal_visibility(2), scores=np.zeros((1, 2, 2), np.float32))
        >>> record.has_products, record.n_heads, record.n_queries
        (False, 1, 2)
        """
        known = probs if scores is None else scores
        if known is None or known.ndim != 3:
            raise InputError(
                "a record without queries and keys needs scores or probs (head, query, key), but got "
                f"{'neither' if known is None else f'the shape {known.shape}'}."
            )
        n_heads, n_queries, n_keys = known.shape
        queries, keys = (np.zeros((n_heads, n, 0), np.float32) for n in (n_queries, n_keys))
        return cls(layer, queries, keys, 1.0, visible, scores=scores, probs=probs, **more)

    def __post_init__(self) -> None:
        queries, keys = self.queries, self.keys
        if queries.ndim != 3 or keys.ndim != 3 or queries.shape[2] != keys.shape[2]:
            raise InputError(
                "queries must be (head, query, d) and keys (kv_head, key, d) with the same d, but their "
                f"shapes are {queries.shape} and {keys.shape}."
            )
        finished = self.scores is not None or (self.probs is not None and not self.has_products)
        if self.has_products == finished:
            raise InputError(
                "a record holds queries and keys of at least one coordinate, or scores or probs in their place, but "
                f"queries are {queries.shape} and scores are {'given too' if finished else 'missing'}."
            )
        if 0 in queries.shape[:2] or 0 in keys.shape[:2] or queries.shape[0] % keys.shape[0]:
            raise InputError(
                f"the number of heads must be a multiple of the key-value heads and nothing may be empty, "
                f"but queries are {queries.shape} and keys {keys.shape}."
            )
        for name in ("scale", "softcap"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{name} must be a finite number, but is {value!r}.")
        pair = (queries.shape[1], keys.shape[1])
        self._require_shape("visible", {pair, (self.n_heads, *pair)})
        self._require_shape("bias", {(self.n_heads, *pair)})
        self._require_shape("probs", {(self.n_heads, *pair)})
        self._require_shape("scores", {(self.n_heads, *pair)})
        self._require_shape("sinks", {(self.n_heads,)})
        if self.visible.dtype != np.bool_:
            raise InputError(f"visible must be boolean, but its dtype is {self.visible.dtype}.")

    def _require_shape(self, name: str, wanted: set[tuple[int, ...]]) -> None:
        value = getattr(self, name)
        if value is not None and value.shape not in wanted:
            shapes = " or ".join(str(shape) for shape in sorted(wanted))
            raise InputError(f"{name} must have the shape {shapes}, but it is {value.shape}.")

    @property
    def n_heads(self) -> int:
        """Number of query heads."""
        return len(self.queries)

    @property
    def n_kv_heads(self) -> int:
        """Number of key-value heads."""
        return len(self.keys)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return int(self.queries.shape[1])

    @property
    def n_keys(self) -> int:
        """Number of keys."""
        return int(self.keys.shape[1])

    @property
    def head_dim(self) -> int:
        """Length d of a query or key; 0 where they are not known."""
        return int(self.queries.shape[2])

    @property
    def has_products(self) -> bool:
        """Whether queries and keys are known, and not only the logits or probabilities made of them."""
        return self.head_dim > 0

    def kv_head(self, head: int) -> int:
        """Return the key-value head that a query head reads."""
        if not 0 <= head < self.n_heads:
            raise InputError(
                f"layer {self.layer} has heads 0 to {self.n_heads - 1}, but {head} was asked for."
            )
        return head // (self.n_heads // self.n_kv_heads)

    def visible_to(self, head: int) -> BoolArray:
        """Return the (query, key) visibility of one head."""
        return self.visible if self.visible.ndim == 2 else self.visible[head]

    def require_finite(self) -> None:
        """Raise if a query or key, or what is known in their place, is NaN or infinite, naming the module."""
        place = f"layer {self.layer} ({self.module or self.stack})"
        if not self.has_products:
            for name, values in (("logits", self.scores), ("probabilities", self.probs)):
                if values is not None:
                    require_finite(values, f"the {name} of {place}")
            return
        require_finite(self.queries, f"the queries of {place}")
        require_finite(self.keys, f"the keys of {place}")

    def replace(self, **changes: Any) -> "AttentionRecord":
        """Return a copy with some values changed."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return AttentionRecord(**{**values, **changes})


def causal_visibility(n_queries: int, n_keys: int | None = None) -> BoolArray:
    """Return the plain causal visibility: the last query sees all keys, each earlier one a key less.

    It is a read-only view of ``n_queries + n_keys`` bytes, so a window of any length costs next to nothing.

    Examples
    --------
    >>> causal_visibility(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    n_keys = n_queries if n_keys is None else n_keys
    # visible[i, j] = line[n_queries - 1 - i + j], True while j <= i + n_keys - n_queries.
    line = np.zeros(n_queries + n_keys - 1, dtype=np.bool_)
    line[: max(0, n_keys)] = True
    view = np.lib.stride_tricks.sliding_window_view(line, n_keys)[::-1]
    view.flags.writeable = False
    return view


def full_visibility(n_queries: int, n_keys: int | None = None) -> BoolArray:
    """Return the visibility where every query sees every key, as a read-only view of one byte."""
    return np.broadcast_to(np.True_, (n_queries, n_queries if n_keys is None else n_keys))


def describe_visibility(visible: BoolArray) -> str:
    """Name a visibility: "full", "causal", or "explicit" for everything else.

    Examples
    --------
    >>> describe_visibility(causal_visibility(5))
    'causal'
    """
    if bool(visible.all()):
        return "full"
    if visible.ndim == 2 and np.array_equal(visible, causal_visibility(*visible.shape)):
        return "causal"
    return "explicit"
