"""Which windows of a long run of tokens are taken, and as little tokenizing as they need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.output import counted
from headscape.recorder.text import NEAR, Text

SAMPLES = ("spread", "first", "random")
BYTES_PER_TOKEN = 16
"""Bytes of text that hold one token, with room to spare (English: 4 to 5)."""
ROOM = 4
"""A text this many times larger than its windows need is not tokenized whole."""
MOST = 1 << 22
"""Bytes that are searched for the tokens of a window: more of blanks, or of one word, would take all memory."""
TAIL = 32
"""Tokens at the end of a region that may change if more text follows."""


def window_starts(n: int, length: int, count: int, sample: str = "spread", seed: int = 0) -> list[int]:
    """Return where windows start in a run, in order and without overlap.

    With m = floor(n / length) windows in the run, window i of ``count`` starts at i length ("first"),
    floor(i (m - 1) length / (count - 1)) ("spread"), or at a random multiple of length below m length ("random").

    A run of fewer than ``count`` windows gives all it has.

    Examples
    --------
    >>> window_starts(100, 10, 4)
    [0, 30, 60, 90]
    >>> window_starts(100, 10, 4, "first")
    [0, 10, 20, 30]
    >>> window_starts(100, 10, 4, "random", seed=0)
    [20, 40, 50, 70]
    """
    m = n // length
    count = min(count, m)
    if sample == "random":
        drawn = np.random.default_rng(seed).choice(m, count, replace=False) if count else ()
        return [int(i) * length for i in sorted(drawn)]
    if sample == "spread" and count > 1:
        return [i * (m - 1) * length // (count - 1) for i in range(count)]
    return [i * length for i in range(count)]


@dataclass(frozen=True)
class WindowSampler:
    """Takes windows from one text or one run of token ids, by the rule of :func:`window_starts`.

    ``length`` counts special tokens too; None takes everything as one window.
    """

    length: int | None = 256
    sample: str = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample not in SAMPLES:
            raise InputError(f"sample must be one of {', '.join(SAMPLES)}, but is {self.sample!r}.")
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise InputError(f"seed must be a non-negative integer, but is {self.seed!r}.")

    def of_ids(self, ids: NDArray[Any], count: int) -> list[NDArray[np.int64]]:
        """Return at most ``count`` windows of a run of token ids, each (length,)."""
        if self.length is not None and len(ids) < self.length:
            raise InputError(
                f"got {len(ids)} token ids, but length={self.length}: pass length={len(ids)} or more tokens."
            )
        return self._cut(ids.astype(np.int64), self.length, count)

    def of_text(self, text: Text, tokenizer: Any, count: int) -> list[NDArray[np.int64]]:
        """Return at most ``count`` windows of a text, each (length,) with the special tokens around it.

        Notes
        -----
        Of a text much larger than its windows, only a region per window is read and tokenized: windows are placed
        by bytes, and each starts at a word; those in stretches of megabytes without enough tokens are left out.
        Windows of shorter texts are placed by tokens.
        """
        if tokenizer is None:
            raise InputError(
                "text needs a tokenizer, and the model comes with none: put the tokenizer's files into the model's "
                "folder, or pass tokenizer=... or token ids."
            )
        text.require_content()
        before, after = special_tokens(tokenizer)
        special = len(before) + len(after)
        inner = None if self.length is None else self.length - special
        if inner is not None and inner < 1:
            raise InputError(
                f"length (--length) is {self.length}, which leaves no room beside the {special} special tokens of this "
                "tokenizer."
            )
        pieces = None if inner is None else self._regions(text, tokenizer, inner, count)
        if pieces is None:
            wanted = inner * count if inner is not None and self.sample == "first" else None
            ids = _leading_ids(text, tokenizer, text.start, text.stop, wanted)
            if inner is not None and len(ids) < inner:
                raise InputError(
                    f"{text} has {counted(len(ids) + special, 'token')}, but length (--length) is {self.length}: pass "
                    "a smaller length or more text."
                )
            pieces = self._cut(ids, inner, count)
        if not pieces:
            raise InputError(
                f"{text} has fewer than {self.length} tokens in {MOST >> 20} MB: pass text, with spaces between words."
            )
        return [np.concatenate([before, ids, after]).astype(np.int64) for ids in pieces]

    def _cut(self, ids: NDArray[np.int64], length: int | None, count: int) -> list[NDArray[np.int64]]:
        if length is None:
            return [ids]
        starts = window_starts(len(ids), length, count, self.sample, self.seed)
        return [ids[start : start + length] for start in starts]

    def _regions(self, text: Text, tokenizer: Any, inner: int, count: int) -> list[NDArray[np.int64]] | None:
        """Return windows placed by bytes, or None if the text has no room for that."""
        # A place moves by less than NEAR bytes to the next word: windows stay in order and keep their room.
        cell = BYTES_PER_TOKEN * inner + 4 * NEAR
        if self.sample == "first" or text.size < ROOM * count * cell:
            return None
        starts = window_starts(text.size, cell, count, self.sample, self.seed)
        places = [text.word_start(text.start + start) for start in starts]
        pieces = [
            _leading_ids(text, tokenizer, place, stop, inner)
            for place, stop in zip(places, [*places[1:], text.stop], strict=True)
        ]
        full = [piece for piece in pieces if len(piece) == inner]
        return full if len(full) == len(pieces) or text.size > MOST else None


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a tokenizer puts before and after a text, read off a sample."""
    sample = "a"
    whole = list(tokenizer(sample)["input_ids"])
    bare = list(tokenizer(sample, add_special_tokens=False)["input_ids"])
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def special_token_names(tokenizer: Any) -> dict[str, list[str]]:
    """Return the names of the special tokens that a tokenizer puts before and after a text."""
    sides = zip(("before", "after"), special_tokens(tokenizer), strict=True)
    names = getattr(tokenizer, "convert_ids_to_tokens", lambda ids: ids)
    return {side: [str(name) for name in names(list(ids))] for side, ids in sides}


def _leading_ids(text: Text, tokenizer: Any, start: int, stop: int, wanted: int | None) -> NDArray[np.int64]:
    """Return the first ``wanted`` tokens of a region (all if None), tokenizing hardly more than those.

    They equal those of the whole region, because the last tokens before the cut are dropped. A unigram tokenizer may
    differ in a run of thousands of characters without whitespace, where one segmentation reaches over all of it.
    """
    n_bytes = stop - start if wanted is None else BYTES_PER_TOKEN // 2 * wanted + 2 * NEAR
    most = stop - start if wanted is None else max(MOST, ROOM * BYTES_PER_TOKEN * wanted)
    while True:
        end = min(start + n_bytes, stop)
        ids: Sequence[int] = tokenizer(text.decoded(start, end), add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        if end == stop or n_bytes >= most or (wanted is not None and len(ids) >= wanted + TAIL):
            return np.asarray(ids[:wanted], dtype=np.int64)
        n_bytes *= 2
