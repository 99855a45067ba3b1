"""The EMD along an axis of a capture from queries and keys, without the tensor: exact, or estimated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.geometry.dithered import variance
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.streamed_blocks import FolderBlocks, folder_blocks
from headscape.geometry.streamed_plan import DEFAULT_MEMORY, streamed_plan
from headscape.tensor.capture import Capture
from headscape.tensor.store import Store


@dataclass(frozen=True, eq=False)
class StreamedEMD:
    """An EMD, (n, n), and its standard error if it is an estimate."""

    emd: NDArray[np.float64]
    standard_error: NDArray[np.float64] | None = None

    def relative_error(self, quantile: float = 0.95) -> float:
        """Return a quantile, over all pairs of points, of the expected relative error; 0 if it is exact.

        The expected size of a normal error is its standard deviation times sqrt(2 / pi).
        """
        if self.standard_error is None:
            return 0.0
        above = np.triu_indices(len(self.emd), 1)
        distance = np.maximum(self.emd[above], np.finfo(float).tiny)
        return float(np.quantile(np.sqrt(2 / np.pi) * self.standard_error[above] / distance, quantile))

    def summary(self) -> dict[str, float]:
        """Return what a result records of its error."""
        return {"relative_error_median": self.relative_error(0.5), "relative_error_95": self.relative_error()}


def streamed_emd(
    capture: Capture,
    window: int,
    trees: Mapping[str, PartitionTree],
    axis: str = "head",
    alpha: float = 0.0,
    beta: float = 1.0,
    *,
    field: str = "probs",
    approximate: bool = False,
    seed: int = 0,
    dtype: Any = np.float32,
    memory: int = DEFAULT_MEMORY,
    block: int | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> StreamedEMD:
    """Return the tree EMD along an axis of one window of a capture, block by block.

    It is ``tree_emd(capture.tensor(window, field), trees, axis, alpha, beta)``, without the tensor.

    Parameters
    ----------
    capture
        On disk, if workers are other processes: they read it themselves.
    window
        Number of the window.
    trees
        Those of the two other axes.
    axis
        "query", "key" or "head".
    alpha, beta
        As for :func:`headscape.tree_emd`.
    field
        "probs", "logits", "energy" or "log_ratio".
    approximate
        Whether distances are estimated from a sample of the features in 8 bits, with a standard error: see
        :mod:`headscape.geometry.feature_sample` and :mod:`headscape.geometry.dithered`.
    seed
        Of the estimate: the result does not depend on engine and blocks.
    dtype
        In which field and exact distances are computed: float32, as those of a tensor are, or float64, with which the
        result is the same to 1e-10 whatever the blocks. (In float32, a row differs in its last digit with the rows that
        are computed beside it.)
    memory
        Bytes that all tasks together may take; it decides how many folders a block has.
    block
        That number itself, in place of ``memory``.
    engine, progress
        How the blocks are spread; progress callback.

    Notes
    -----
    O(n^2 / 2 * folders^2) absolute differences for n points. The estimate is symmetric and unbiased, and the triangle
    inequality holds: it is an L1 distance.
    """
    engine = engine or LocalEngine()
    how: Any = {"alpha": alpha, "beta": beta, "field": field, "dtype": dtype}
    blocks = folder_blocks(capture, window, axis, trees, **how, seed=seed if approximate else None)
    if block is None:
        block = planned_block(blocks, memory, engine)
    total: Any = 0.0
    for part in kept_parts(blocks, blocks.tasks(block), None, "", engine, progress):
        total = total + part
    return emd_of(total)


def planned_block(blocks: FolderBlocks, memory: int, engine: Engine) -> int:
    """Return the outer folders per task that stay within the memory."""
    folders = {axis: tree.n_folders for axis, tree in blocks.trees.items()}
    plan = streamed_plan(
        blocks.capture,
        blocks.window,
        memory,
        engine,
        heads_only=blocks.axis == "head",
        dithered=blocks.seed is not None,
        folders=folders,
        itemsize=np.dtype(blocks.dtype).itemsize,
    )
    return plan.blocks[blocks.axis]


def kept_parts(
    blocks: FolderBlocks,
    tasks: list[range],
    store: Store | None,
    prefix: str,
    engine: Engine,
    progress: Progress,
) -> Iterator[NDArray[np.float64]]:
    """Yield what every block contributes, in order; those that are finished in a store are read, others kept there."""
    names = [f"{prefix}block-{task.start:06d}-{task.stop:06d}" for task in tasks]
    done = [store is not None and store.sound(name) for name in names]
    found = engine.map(blocks.distances, [task for task, known in zip(tasks, done, strict=True) if not known])
    for place, (name, known) in enumerate(zip(names, done, strict=True)):
        if known and store is not None:
            part = store.read(name).array("sums")
        else:
            part = next(found)
            if store is not None:
                with store.writing(name) as writer:
                    writer.array("sums", part)
        yield part
        progress(f"EMD of {blocks.axis}", place + 1, len(tasks))


def emd_of(total: NDArray[np.float64]) -> StreamedEMD:
    """Return the EMD from the sum over all blocks."""
    n = total.shape[1]
    return StreamedEMD(total[:n], np.sqrt(variance(total)) if len(total) > n else None)
