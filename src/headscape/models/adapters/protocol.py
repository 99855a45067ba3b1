"""What headscape asks of a kind of model: the calls of its attention, its weights per head, and fewer heads.

Everything above (capture, gates, rankings, removal) is written against this protocol. A new kind of model is
one more adapter in ``headscape.models.anatomy.ADAPTERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection

if TYPE_CHECKING:
    from headscape.models.anatomy import AttentionModule

Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of an attention module, as the model made it.

    ``group`` and ``layer`` number the call within its forward pass (see :class:`LayerNumbers`). ``queries``
    (batch, head, query, d) and ``keys`` (batch, kv_head, key, d) come after position encoding; ``mask`` and
    ``bias`` are what the model adds to the logits, if anything; ``sinks`` is (head,). ``causal`` and ``window`` are set
    where the model's own kernel hides later keys, and keys further back than ``window``, without a mask that says so.
    ``padding`` (batch, key) is True at keys that the model calls padding, ``dropout`` the rate of this call; both only
    where the model says so.
    ``scores`` are the finished logits, masks included, where queries and keys could not be seen, which then have no
    width (d = 0); ``probs`` the model's own probabilities where the call showed them, ``values`` having no width then.
    ``again(queries, keys, values, scale)`` calls the model's own kernel, masks included, on other tensors, if it is one
    of torch's functions.
    """

    name: str
    group: tuple[str, str]
    layer: int
    module: torch.nn.Module
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    scale: float
    softcap: float | None
    sinks: torch.Tensor | None
    causal: bool = False
    window: int | None = None
    padding: torch.Tensor | None = None
    dropout: float = 0.0
    scores: torch.Tensor | None = None
    probs: torch.Tensor | None = None
    again: Callable[..., torch.Tensor] | None = None


class Observer(Protocol):
    """Sees every attention call of a model while it is observed.

    One with an attribute ``only_gates`` that is true looks at group and layer alone; adapters may leave out the rest.
    One with a number ``first_rows`` looks at the queries, keys and masks of so many rows of the batch alone: adapters
    that compute them for the observer may leave out the other rows, and the values. One with a method ``fail(error)``
    is told of a call that cannot be read, and the model runs on; else the error is raised.
    """

    def see(self, call: AttentionCall) -> torch.Tensor | None:
        """Take what is wanted from a call; tensors must be copied, never changed.

        Returns a factor per head, (head,) or (batch, head), for the module's output, or None to leave it.
        """


@contextmanager
def spared(observers: Iterable[Observer]) -> Iterator[None]:
    """Tell observers what goes wrong while a call is read for them, if all have a method ``fail``; else raise it."""
    told: list[Any] = [getattr(observer, "fail", None) for observer in observers]
    try:
        yield
    except Exception as error:
        if not told or None in told:
            raise
        for fail in told:
            fail(error)


def rows_wanted(observers: Iterable[Observer]) -> int | None:
    """Return how many rows of a batch are enough for all observers; None if one of them looks at all."""
    wanted: list[Any] = [getattr(observer, "first_rows", None) for observer in observers]
    return max(wanted) if wanted and None not in wanted else None


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one attention module: how many there were, and which of them are kept.

    Examples
    --------
    >>> layer = LayerHeads(0, "model.layers.0.self_attn", 4, 2, (2, 3))
    >>> layer.removed, layer.kept_kv
    ((0, 1), (1,))
    """

    layer: int
    module: str
    n_heads: int
    n_kv_heads: int
    kept: tuple[int, ...]

    @property
    def removed(self) -> tuple[int, ...]:
        """The heads that go."""
        return tuple(head for head in range(self.n_heads) if head not in self.kept)

    @property
    def kept_kv(self) -> tuple[int, ...]:
        """The key-value heads that kept heads read."""
        size = self.n_heads // self.n_kv_heads
        return tuple(sorted({head // size for head in self.kept}))


class Adapter(Protocol):
    """Knows one kind of model; ``name`` says how it sees attention."""

    name: str

    def accepts(self, model: torch.nn.Module) -> bool:
        """Tell whether a model is of this kind."""

    def observe(self, model: torch.nn.Module, observer: Observer) -> AbstractContextManager[None]:
        """Show every attention call to an observer for the length of a block, and apply the gates it returns.

        The model is left as it was afterwards. Blocks may be nested: gates multiply.
        """

    def watch(self, model: torch.nn.Module, observer: Observer) -> AbstractContextManager[None]:
        """Show every attention call of a model that trains: outputs and gradients stay the same, bit for bit.

        Where :meth:`observe` leaves them so while it applies no gates, it can serve for both.
        """

    def weights(self, module: AttentionModule) -> tuple[Weights, Weights, Weights]:
        """Return W_Q (head, d, model), W_K and W_V (kv_head, d, model), or raise a :class:`ModelError`."""

    def output(self, module: AttentionModule) -> Projection:
        """Return the output projection, or raise a :class:`ModelError`."""

    def require_sliceable(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Raise a :class:`ModelError` unless heads can be cut out of these modules."""

    def slice(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut."""
