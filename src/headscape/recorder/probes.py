"""Probe inputs: token windows that show what a head does whatever the text - random repeats, and replaced tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscape.errors import InputError
from headscape.models.forward_pass import MEMORY
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model
from headscape.models.plain_facts import config_of, is_plain, vocabulary
from headscape.recorder.capturing import capture_windows
from headscape.recorder.inputs import InputReader, WindowInput
from headscape.recorder.window_sampling import special_tokens
from headscape.tensor.capture import Capture

SMALLEST_VOCABULARY = 50
"""Random tokens of a smaller vocabulary repeat by themselves."""
_IDS = ("input_ids", "decoder_input_ids", MEMORY)


def repeated_tokens(model: Model, length: int, seed: int = 0) -> WindowInput:
    """Return a window of random tokens that are repeated once, between the tokenizer's special tokens.

    Parameters
    ----------
    model
        A model that reads tokens; its own vocabulary is drawn from, special tokens left out.
    length
        Tokens of the window; the period is half of what the special tokens leave.
    seed
        Of the draw.

    Returns
    -------
    WindowInput
        Labelled by token numbers. No token occurs twice in a period, unless the vocabulary is smaller than it.

    Notes
    -----
    Raises InputError where that is not possible: no tokens, fewer than 50 of them, or a window of less than 4.
    """
    if is_plain(model.model):
        size, reads = vocabulary(model.model), "input_ids"
    else:
        size = getattr(model.model.config.get_text_config(), "vocab_size", None)
        reads = getattr(model.model, "main_input_name", "")
    if not isinstance(size, int) or reads != "input_ids":
        raise InputError("the model does not read tokens")
    size = min(size, len(model.tokenizer)) if hasattr(model.tokenizer, "__len__") else size
    ordinary = np.setdiff1d(np.arange(size), list(_special_ids(model)))
    if size < SMALLEST_VOCABULARY or not len(ordinary):
        raise InputError(f"a vocabulary of {size} tokens is too small (at least {SMALLEST_VOCABULARY})")
    before, after = ((), ()) if model.tokenizer is None else special_tokens(model.tokenizer)
    period = (length - len(before) - len(after)) // 2
    if period < 2:
        raise InputError("the windows are too short")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(ordinary, period, replace=len(ordinary) < period)
    ids = np.concatenate([before, drawn, drawn, after]).astype(np.int64)
    return InputReader(model.model, length=None).read({"input_ids": ids[None]})[0]


def replaced_tokens(
    model: Model, windows: Sequence[Mapping[str, Any]], window: int, seed: int = 0
) -> WindowInput:
    """Return a window whose tokens are replaced by others drawn from all windows; special tokens stay.

    Parameters
    ----------
    model
        The model, which says what is special.
    windows
        The arguments of the forward passes of all windows.
    window
        Which of them.
    seed
        Of the draw.
    """
    if "input_ids" not in windows[window]:
        raise InputError("the model does not read tokens")
    special = np.array(sorted(_special_ids(model)), dtype=np.int64)
    rng = np.random.default_rng([seed, window])
    found = dict(windows[window])
    for name in _IDS:
        if name in found:
            pool = np.concatenate([of[name].numpy(force=True).ravel() for of in windows])
            pool = pool[~np.isin(pool, special)]
            ids = found[name].numpy(force=True).copy()
            changed = ~np.isin(ids, special)
            ids[changed] = rng.choice(pool, int(changed.sum()), replace=False)
            found[name] = torch.from_numpy(ids)
    return WindowInput(found, {})


def probed(model: Model, window: WindowInput, like: Capture) -> Capture:
    """Capture one more window of a model, with the stack and the heads of another capture."""
    found = capture_windows(model, [window], layers=like.layers)
    return found.select(like.stack, heads=like.heads)


def _special_ids(model: Model) -> set[int]:
    """Return the special tokens that the tokenizer or the config names."""
    config = config_of(model.model).get_text_config()
    named = [value for name, value in config.to_dict().items() if name.endswith("_token_id")]
    found = {value for value in named if isinstance(value, int)}
    return found | {int(value) for value in getattr(model.tokenizer, "all_special_ids", ())}
