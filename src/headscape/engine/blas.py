"""Threads of BLAS: where an engine works on several small matrices at once, more of them only wait for each other."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  it has a BLAS of its own, which must be loaded to be found
from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for the length of a block."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    """Find the BLAS libraries of this process once: looking for them takes longer than a small decomposition."""
    return ThreadpoolController()
