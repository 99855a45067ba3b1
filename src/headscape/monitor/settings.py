"""Checks of what a monitor is told: counts, and modes that exclude each other."""

from __future__ import annotations

from collections.abc import Sequence

from headscape.errors import InputError
from headscape.monitor.alert import TITLES


def require_counts(**counts: int) -> None:
    """Raise unless all numbers are whole and at least 1."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, but is {value!r}.")


def require_modes(reduce: str | None, stop_on: Sequence[str], n_processes: int) -> None:
    """Raise unless the processes are combined in a known way, and stop together if they stop on alerts."""
    if reduce not in (None, "mean"):
        raise InputError(f'reduce must be None or "mean", but is {reduce!r}.')
    unknown = [kind for kind in stop_on if kind not in (*TITLES, "any")]
    if isinstance(stop_on, str) or unknown:
        raise InputError(f'stop_on must be some of {", ".join(TITLES)} or "any", but is {stop_on!r}.')
    if stop_on and reduce is None and n_processes > 1:
        raise InputError(
            'stop_on with several processes needs reduce="mean", so that all of them stop together.'
        )
