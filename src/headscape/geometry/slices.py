"""The slices of a tensor along its axes, as the questionnaire asks for them; here of a tensor in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress
from headscape.geometry.affinity import INITIAL_AFFINITIES, OF_GRAM
from headscape.geometry.arranged import Arrangements
from headscape.geometry.data_order import data_order
from headscape.geometry.l1_kernel import SMALL_WORK
from headscape.geometry.partition_tree import IntArray, PartitionTree
from headscape.geometry.tree_emd import DEFAULT_MAX_BYTES, tree_emd
from headscape.tensor.network_tensor import axis_names


class Slices(Protocol):
    """What the questionnaire needs to know of a tensor."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        ...

    def initial_affinity(self, axis: str, init: str, progress: Progress) -> NDArray[np.float64]:
        """Return the initial affinity of the slices along an axis."""
        ...

    def data_order(self, totals: NDArray[np.float64], axis: str) -> IntArray:
        """Sort the slices along an axis: see :func:`headscape.geometry.data_order.data_order`."""
        ...

    def prepare(self, axis: str, trees: Mapping[str, PartitionTree]) -> None:
        """Begin what the next EMD along an axis takes, while the trees that are not among these are still growing."""
        ...

    def emd(
        self, axis: str, trees: Mapping[str, PartitionTree], alpha: float, beta: float, progress: Progress
    ) -> NDArray[np.float64]:
        """Return the tree EMD between the slices along an axis."""
        ...


@dataclass(eq=False)
class ArraySlices:
    """The slices of an array with its smallest and largest entry; arrangements in memory are made once for all EMDs."""

    x: NDArray[Any]
    bounds: tuple[float, float]
    max_bytes: int = DEFAULT_MAX_BYTES
    engine: Engine = field(default_factory=LocalEngine)

    def __post_init__(self) -> None:
        self._arrangements = Arrangements(self.x, self.max_bytes, self.bounds, self.engine)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        return axis_names(self.x.ndim)

    def initial_affinity(self, axis: str, init: str, progress: Progress) -> NDArray[np.float64]:
        """Return the initial affinity of the slices along an axis."""
        if not self._compiled(axis):
            return INITIAL_AFFINITIES[init](self.x, self.axes.index(axis), progress)
        progress("initial affinity", 0, 1)
        return OF_GRAM[init](self._arrangements.inner_products(self.axes.index(axis)))

    def data_order(self, totals: NDArray[np.float64], axis: str) -> IntArray:
        """Sort the slices along an axis by data."""
        return data_order(totals, self.x, self.axes.index(axis))

    def prepare(self, axis: str, trees: Mapping[str, PartitionTree]) -> None:
        """Begin to arrange a tensor that is large enough for the compiled kernel, whatever the trees."""
        if self._compiled(axis):
            outer = next(name for name in self.axes if name != axis)
            self._arrangements.prepare(self.axes.index(axis), trees.get(outer))

    def _compiled(self, axis: str) -> bool:
        """Tell whether compiled kernels will take the slices along an axis, whatever the trees."""
        return self.x.ndim == 3 and 0.5 * self.x.shape[self.axes.index(axis)] * self.x.size >= SMALL_WORK

    def emd(
        self, axis: str, trees: Mapping[str, PartitionTree], alpha: float, beta: float, progress: Progress
    ) -> NDArray[np.float64]:
        """Return the tree EMD between the slices along an axis."""
        how: Any = {"max_bytes": self.max_bytes, "engine": self.engine, "progress": progress}
        return tree_emd(self.x, trees, axis, alpha, beta, arrangements=self._arrangements, **how)
