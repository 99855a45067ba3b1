"""The logits of heads one by one, from a capture or from a network tensor of any field."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscape.analysis.log_softmax import as_visibility
from headscape.errors import InputError
from headscape.tensor.attention_record import BoolArray
from headscape.tensor.capture import Capture
from headscape.tensor.checks import FloatArray
from headscape.tensor.fields import logits as logits_of
from headscape.tensor.network_tensor import NetworkTensor

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class HeadLogits:
    """The logits of one head, which keys are visible (None for all), and the sink's logit, if there is one.

    ``rows_known`` is False if the logits are known only up to a constant in every row, as from probabilities.
    """

    head: Pair
    logits: FloatArray
    visible: BoolArray | None = None
    sink: float | None = None
    rows_known: bool = True


class LogitSource:
    """The windows and heads of a capture, or the one window of a tensor.

    Parameters
    ----------
    source
        A capture, a network tensor, or a (query, key[, head]) array of logits. A tensor of probabilities
        gives log-probabilities, with zeros taken for masked; one of energies gives these.
    heads
        Only these (layer, head) pairs.
    visible : (query, key) bool, or "causal"
        Which keys each query sees, for tensors, which do not know; all by default.

    Examples
    --------
    >>> source = LogitSource(np.zeros((3, 4, 2)))
    >>> source.heads, [head.logits.shape for head in source.window(0)]
    (((0, 0), (0, 1)), [(3, 4), (3, 4)])
    """

    def __init__(
        self, source: Any, heads: Iterable[Pair] | None = None, visible: BoolArray | str | None = None
    ) -> None:
        wanted = None if heads is None else [(int(layer), int(head)) for layer, head in heads]
        if wanted is not None and not wanted:
            raise InputError("heads must name at least one (layer, head) pair, but is empty.")
        self._visible = visible
        self._capture: Capture | None = None
        self._tensor: NetworkTensor | None = None
        if isinstance(source, Capture):
            if visible is not None:
                raise InputError("a capture knows which keys are visible: leave out visible.")
            self._capture = source if wanted is None else source.select(heads=wanted)
            self.heads = self._capture.heads
            self.n_windows = source.n_windows
            self.field = "logits"
        else:
            self._tensor = source if isinstance(source, NetworkTensor) else NetworkTensor(source)
            have = tuple(self._tensor.heads)
            for pair in wanted or ():
                self._tensor.head(*pair)
            self.heads = have if wanted is None else tuple(pair for pair in have if pair in set(wanted))
            self.n_windows = 1
            self.field = self._tensor.field

    def window(self, number: int) -> Iterator[HeadLogits]:
        """Yield the heads of a window, layer-major; one layer of a capture is in memory at a time."""
        if self._capture is not None:
            yield from self._captured(self._capture, number)
        else:
            assert self._tensor is not None
            yield from (self._of_tensor(self._tensor, pair) for pair in self.heads)

    def _captured(self, capture: Capture, window: int) -> Iterator[HeadLogits]:
        for layer in capture.layers:
            record = capture.record(window, layer)
            for head in (head for at, head in self.heads if at == layer):
                sink = None if record.sinks is None else float(record.sinks[head])
                visible = as_visibility(np.asarray(record.visible_to(head)), _shape(record.visible_to(head)))
                if record.scores is None and not record.has_products:
                    assert record.probs is not None  # a record has one of the three
                    yield _of_probabilities((layer, head), record.probs[head], visible)
                    continue
                yield HeadLogits((layer, head), logits_of(record, head), visible, sink)

    def _of_tensor(self, tensor: NetworkTensor, pair: Pair) -> HeadLogits:
        matrix = tensor.head(*pair)
        if tensor.field != "probs":
            visible = as_visibility(self._visible, _shape(matrix))
            return HeadLogits(pair, matrix, visible, rows_known=tensor.field not in ("energy", "log_ratio"))
        if matrix.min() < 0:
            raise InputError(
                f"probabilities must not be negative, but head {pair[0]}.{pair[1]} has {matrix.min():.3g}. Name the "
                "field of the tensor."
            )
        return _of_probabilities(pair, matrix, as_visibility(self._visible, _shape(matrix)))


def _of_probabilities(pair: Pair, matrix: Any, visible: BoolArray | None) -> HeadLogits:
    """Return logarithms of probabilities, which are logits up to a constant in each row; those of 0 are not seen."""
    positive = matrix > 0
    logs = np.log(np.where(positive, matrix, 1.0))
    seen = positive if visible is None else positive & visible
    return HeadLogits(pair, logs, as_visibility(seen, _shape(matrix)), rows_known=False)


def _shape(matrix: Any) -> tuple[int, int]:
    return (int(matrix.shape[0]), int(matrix.shape[1]))
