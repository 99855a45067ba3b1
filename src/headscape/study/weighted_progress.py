"""Progress of a whole analysis: steps of different cost as one count."""

from collections.abc import Iterator
from contextlib import contextmanager

from headscape.engine import Progress


class WeightedProgress:
    """Adds up planned and finished cost, so that one display can show the time left.

    Examples
    --------
    >>> steps = WeightedProgress(lambda stage, done, total: print(stage, done, total))
    >>> steps.plan(3.0)
    >>> with steps.step("organizing", 2.0) as tell:
    ...     tell("tree", 1, 2)
    organizing 0.0 3.0
    organizing 1.0 3.0
    organizing 2.0 3.0
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = self._total = 0.0

    def plan(self, cost: float) -> None:
        """Say how much work is still to be done, in place of what was said before."""
        self._total = self._done + cost

    @contextmanager
    def step(self, text: str, cost: float) -> Iterator[Progress]:
        """Do one step; what is yielded takes the progress inside it."""
        start = self._done
        self._progress(text, start, self._total)

        def tell(stage: str, done: float, total: float) -> None:
            share = min(1.0, done / total) if total else 0.0
            # An inner count that begins anew must not move the display back.
            self._done = max(self._done, start + cost * share)
            self._progress(text, self._done, self._total)

        yield tell
        self._done = start + cost
        self._progress(text, self._done, self._total)
