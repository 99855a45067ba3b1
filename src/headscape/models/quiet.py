"""Keeps transformers off the terminal: a library does not print."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep progress bars and notes of transformers and the hub back for the length of a block."""
    from transformers import utils

    their_logging: Any = utils.logging
    level, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    # The hub tells of every attempt to reach it; our own error says in one line what came of them.
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging.ERROR)
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            yield
    finally:
        hub.setLevel(hub_level)
        their_logging.set_verbosity(level)
        if bars:
            their_logging.enable_progress_bar()
