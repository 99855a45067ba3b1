"""What every engine offers to the mathematics: an ordered map, and a way to tell how far it is."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[str, float, float], None]
"""Called as ``progress(stage, done, total)``; cheap, and safe to call often."""


def no_progress(stage: str, done: float, total: float) -> None:
    """Tell nobody: the default of every function that takes ``progress``."""


class Engine(Protocol):
    """Applies one function to many independent tasks.

    Results come back in the order of the tasks, whatever finishes first, so that sums over them do not
    depend on how many workers there are.
    """

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        ...

    @property
    def remote(self) -> bool:
        """Whether tasks run in other processes, each with a copy of its own of what the function holds."""
        ...

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task, in order, holding only a few results at a time.

        What the function holds (a bound method's object, the variables of a closure) goes to a remote worker once,
        a task whenever it runs: data belong into the function, numbers and ranges into the tasks.
        """
        ...
