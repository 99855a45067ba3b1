"""How the geometry of a large capture is cut so that it stays within a limit of memory."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headscape.engine import Engine
from headscape.errors import InputError
from headscape.geometry.feature_sample import SHARE
from headscape.geometry.streamed_blocks import COLUMNS, MIN_BLOCKS, axis_sizes
from headscape.output import counted
from headscape.tensor.capture import Capture

DEFAULT_MEMORY = 4 << 30
LOCAL_BASE, WORKER_BASE = 200 << 20, 260 << 20
"""Compiled code, its compiler and libraries: once on this machine, and what a worker process takes when it starts."""
FOLDERS = 1.6
"""Folders of a flexible tree per point, about: only for plans that are made before there are trees."""
DEPTH = 12
"""Folders of heads inside each other whose sums are held at the same time, at most in usual trees."""
HELD_SHARE = 4
"""Queries and keys are read once and held if they take at most one part in so many of the memory."""


@dataclass(frozen=True)
class StreamedPlan:
    """How work is cut, and what it takes.

    Parameters
    ----------
    sizes, folders
        Points of every axis, and folders of its tree.
    d
        Length of a query.
    visible
        Share of the keys that a query sees: half of them under a causal mask.
    blocks
        Outer folders per task, by the axis of the EMD; as many features, if only some are kept.
    held
        Whether queries and keys are read once and held.
    workers
        Tasks that run at once.
    memory
        Bytes that all of them take together at most, over what this process takes already.
    dithered
        Whether distances are computed from features of 8 bits, a share of all.
    """

    sizes: Mapping[str, int]
    folders: Mapping[str, int]
    d: int
    visible: float
    blocks: Mapping[str, int]
    held: bool
    workers: int
    memory: int
    dithered: bool

    def n_blocks(self, axis: str) -> int:
        """Return the number of tasks of the EMD along an axis."""
        outer = self.folders["query" if axis == "head" else "head"]
        return -(-_kept(outer, self.dithered) // self.blocks[axis])


def streamed_plan(
    capture: Capture,
    window: int,
    memory: int,
    engine: Engine,
    *,
    heads_only: bool = False,
    dithered: bool = False,
    folders: Mapping[str, int] | None = None,
    itemsize: int = 4,
) -> StreamedPlan:
    """Return the largest blocks that stay within the memory, or raise if not even the smallest do.

    ``folders`` are those of the trees, about 1.6 per point if there are none yet.
    """
    sizes = axis_sizes(capture, window)
    record = capture.head(window, *capture.heads[0])
    folders = {axis: int(FOLDERS * n) + 1 for axis, n in sizes.items()} | dict(folders or {})
    workers, areas = engine.workers, {axis: 8 * n * n for axis, n in sizes.items()}
    field = sizes["query"] * sizes["key"]
    read = 4 * record.head_dim * (sizes["head"] * sizes["query"] + len(capture.kv_heads) * sizes["key"])
    held = not engine.remote and HELD_SHARE * read <= memory
    # For the whole run: compiled code, EMD and affinity of each axis with its standard error, and what is held.
    kept = areas if not heads_only else {"head": areas["head"]}
    base = (workers * WORKER_BASE if engine.remote else LOCAL_BASE) + 3 * sum(kept.values()) + read * held
    # Initial affinities: for each worker fields of some heads and a copy, sums at work and those that wait; totals.
    grams = areas["query"] + areas["key"]
    need = base + 2 * grams + workers * (field * 9 * itemsize + 3 * grams)
    block, least = _head_block(sizes, folders, (memory - base) / workers, dithered, itemsize)
    need = max(need, base + int(workers * least))
    blocks = {"head": block}
    if not heads_only:
        blocks |= dict.fromkeys(("query", "key"), -(-_kept(folders["head"], dithered) // MIN_BLOCKS))
        need = max(need, base + workers * _position_bytes(sizes, folders, dithered, itemsize))
    if need > memory:
        raise InputError(
            f"memory must be at least {need / 2**20:.0f} MiB for {sizes['head']} heads of {sizes['query']} x "
            f"{sizes['key']} on {counted(workers, 'worker')}, but is {memory / 2**20:.0f} MiB. Allow more memory"
            f"{' or use fewer workers (of local threads: fewer threads)' * (workers > 1)}."
        )
    visible = float(record.visible.mean())
    return StreamedPlan(sizes, folders, record.head_dim, visible, blocks, held, workers, need, dithered)


def _head_block(
    sizes: Mapping[str, int], folders: Mapping[str, int], free: float, dithered: bool, itemsize: int
) -> tuple[int, float]:
    """Return the outer folders of a task of the EMD between heads, at least 1, and the bytes that the task takes."""
    n = sizes["head"]
    rows = sizes["query"] * sizes["key"] * 4 * itemsize
    fixed = rows + _distance_bytes(n, folders["key"], dithered, itemsize)
    # Where a share is kept, ranges over the pilots take three arrays of all features, of folders that keep few of them.
    per_folder = int(folders["key"] * (n + dithered * 6 / SHARE) * itemsize)
    block = max(
        1, min(int((free - fixed) // per_folder), -(-_kept(folders["query"], dithered) // MIN_BLOCKS))
    )
    return block, fixed + block * per_folder


def _position_bytes(
    sizes: Mapping[str, int], folders: Mapping[str, int], dithered: bool, itemsize: int
) -> int:
    """Return the bytes that a task of the EMD between queries, or keys, takes."""
    fields = (DEPTH + 5) * sizes["query"] * sizes["key"] * itemsize
    return fields + max(
        sizes[axis] * folders[inner] * itemsize
        + _distance_bytes(sizes[axis], folders[inner], dithered, itemsize)
        for axis, inner in (("query", "key"), ("key", "query"))
    )


def _kept(folders: int, dithered: bool) -> int:
    """Return how many whole folders have as many features as are kept."""
    return math.ceil(SHARE * folders) if dithered else folders


def _distance_bytes(n: int, features: int, dithered: bool, itemsize: int) -> int:
    """Return the bytes of the kernel: sums, made symmetric; the total, and a result that waits; features at work."""
    if dithered:
        return 10 * 8 * n * n + n * (features + COLUMNS) * (2 * itemsize + 2)
    return 7 * 8 * n * n + 2 * n * min(features, COLUMNS) * itemsize
