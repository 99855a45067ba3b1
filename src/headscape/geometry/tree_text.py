"""A partition tree as text: the large folders first, as many as fit into some lines."""

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscape.geometry.partition_tree import PartitionTree

LISTED = 6
"""Points that are named in a folder that is not opened."""


def tree_text(
    tree: "PartitionTree",
    name: Callable[[int], str],
    folder_names: Sequence[str] | None = None,
    max_lines: int = 40,
) -> str:
    """Return the tree with one line per folder; the largest are opened as long as there are lines.

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> tree = PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]])
    >>> print(tree_text(tree, str, max_lines=3))
    3 points
    ├─ 2
    └─ 2 points: 0, 1
    """
    folders, opened = tree.folders, _opened(tree, max_lines)

    def words(index: int) -> str:
        points = tree.folder(index)
        if len(points) == 1:
            return name(int(points[0]))
        called = f" ({folder_names[index]})" if folder_names is not None and folder_names[index] else ""
        if index in opened:
            return f"{len(points)} points{called}"
        more = ", ..." if len(points) > LISTED else ""
        return f"{len(points)} points{called}: {', '.join(name(int(p)) for p in points[:LISTED])}{more}"

    lines = []
    pending = [(0, "", "")]
    while pending:
        index, first, rest = pending.pop()
        if index < 0:  # stands for children that found no line
            lines.append(f"{first}... {-index} more")
            continue
        lines.append(f"{first}{words(index)}")
        if index not in opened:
            continue
        inside = list(range(int(folders.child_start[index]), int(folders.child_stop[index])))
        if len(inside) > opened[index]:
            kept = max(1, opened[index] - 1)
            inside = [*inside[:kept], kept - len(inside)]
        # The last is pushed first: what is on top is drawn next.
        for place, child in reversed(list(enumerate(inside))):
            last = place == len(inside) - 1
            pending.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
    return "\n".join(lines)


def _opened(tree: "PartitionTree", max_lines: int) -> dict[int, int]:
    """Return which folders are opened, and how many lines their children get; the root always is."""
    folders = tree.folders
    left = max_lines - 1
    opened: dict[int, int] = {}
    waiting = [(-tree.n_points, 0)]
    while waiting and left > 0:
        _, index = heapq.heappop(waiting)
        children = range(int(folders.child_start[index]), int(folders.child_stop[index]))
        if not children or (len(children) > left and index != 0):
            continue
        opened[index] = min(len(children), max(left, 2))
        left -= opened[index]
        if len(children) == opened[index]:
            for child in children:
                heapq.heappush(waiting, (-int(folders.size[child]), child))
    return opened
