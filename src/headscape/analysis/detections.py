"""Detection matrices: which keys a query attends to if a head follows one attention pattern and nothing else.

Previous token, duplicate token and induction mean what they mean in TransformerLens (``head_detector``).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]

LOCAL = 8
"""Nearest visible keys that count as local."""
MOST_CHANCE = 0.7
"""A pattern that even spread of attention fulfills to this degree says nothing about a head."""
FEWEST_ROWS = 8
"""Queries with a target that scores over such queries alone need."""
SENTENCE_ENDS = frozenset(".!?\n。！？")

NO_TOKENS = "the token strings are not known"
NO_TOKENIZER = "the tokens are numbers, since no tokenizer was given"
NO_SEPARATOR = "the windows have no punctuation and no special tokens"
NO_REPEAT = "too few tokens of the windows occur twice"
TOO_SHORT = "the windows are too short"

_PATCH = re.compile(r"(\d+),(\d+)")
_OWN_TOKEN = re.compile(r"\[\d+\]")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARKS = str.maketrans("", "", "Ġ▁Ċ")


@dataclass(frozen=True, eq=False)
class Layout:
    """What the queries and keys of a window are, as far as patterns depend on it.

    Where there are more keys than queries and no cross-attention, the first keys are of a memory: tokens before those
    of the window.

    Parameters
    ----------
    visible : (query, key) bool
        True where a query may attend to a key.
    tokens
        One string per key; image patches are "row,column" after the model's own tokens "[0]", "[1]", ... Empty if
        unknown.
    special
        Those of the tokens that are special tokens.
    cross
        Whether queries and keys are different sequences (cross-attention).
    """

    visible: BoolArray
    tokens: tuple[str, ...] = ()
    special: frozenset[str] = frozenset()
    cross: bool = False

    @property
    def bidirectional(self) -> bool:
        """Whether some query sees a later key."""
        return bool(np.triu(self.visible, 1 + self.n_memory).any())

    @property
    def n_memory(self) -> int:
        """How many keys stand before the first query."""
        n_queries, n_keys = self.visible.shape
        return 0 if self.cross else n_keys - n_queries


@dataclass(frozen=True, eq=False)
class Detections:
    """Detection matrices of a window.

    Parameters
    ----------
    matrices
        By the name of the score, (query, key) bool.
    rows
        By the name of the score, (query,) bool: the queries that count.
    left_out
        Scores that say nothing for this window, with the reason.
    """

    matrices: Mapping[str, BoolArray]
    rows: Mapping[str, BoolArray]
    left_out: Mapping[str, str] = field(default_factory=dict)


def detections(layout: Layout) -> Detections:
    """Return the detection matrices of all patterns that a window can show.

    Examples
    --------
    >>> found = detections(Layout(np.tri(12, dtype=bool), tokens=tuple("abababcdefgh")))
    >>> found.matrices["induction"].astype(int)[3, :5], found.matrices["duplicate_token"].astype(int)[3, :5]
    (array([0, 0, 1, 0, 0]), array([0, 1, 0, 0, 0]))
    >>> found.left_out["separator"]
    'the windows have no punctuation and no special tokens'
    """
    matrices = _places(layout)
    left_out: dict[str, str] = {}
    patches = patch_places(layout.tokens)
    if layout.cross:
        matrices |= {"diagonal_alignment": _alignment(layout.visible.shape)}
    elif patches is not None:
        matrices |= _grid(*patches)
    elif layout.tokens:
        matrices |= _repeats(layout)
    else:
        left_out |= dict.fromkeys(
            ("duplicate_token", "duplicate_token_repeats", "induction", "induction_repeats"), NO_TOKENS
        )
    if patches is None:
        found, missing = _separated(layout)
        matrices |= found
        left_out |= missing
    seen = np.asarray(layout.visible.any(axis=1))
    rows: dict[str, BoolArray] = {}
    for name in list(matrices):
        matrices[name] = matrices[name] & layout.visible
        limited = name.endswith("_repeats")
        rows[name] = np.asarray(matrices[name].any(axis=1)) if limited else seen
        reason = _says_nothing(matrices[name], rows[name], layout.visible, limited)
        if reason:
            left_out[name] = reason
            del matrices[name], rows[name]
    return Detections(matrices, rows, left_out)


def _says_nothing(matrix: BoolArray, rows: BoolArray, visible: BoolArray, limited: bool) -> str:
    """Return why a pattern cannot be told from even attention in this window; empty if it can."""
    if limited and rows.sum() < FEWEST_ROWS:
        return NO_REPEAT
    if not matrix.any():
        return TOO_SHORT
    even = matrix[rows].sum(axis=1) / visible[rows].sum(axis=1)
    return TOO_SHORT if even.mean() > MOST_CHANCE else ""


def _places(layout: Layout) -> dict[str, BoolArray]:
    """Return the patterns that depend on places alone."""
    shape = n_queries, n_keys = layout.visible.shape
    first = np.zeros(shape, dtype=bool)
    first[:, 0] = True
    if layout.cross:
        return {"first_token": first}
    found = {
        "first_token": first,
        "self": np.eye(n_queries, n_keys, k=layout.n_memory, dtype=bool),
        "previous_token": np.eye(n_queries, n_keys, k=layout.n_memory - 1, dtype=bool),
        "local": _nearest(layout),
    }
    if layout.bidirectional:
        found["next_token"] = np.eye(n_queries, n_keys, k=layout.n_memory + 1, dtype=bool)
    return found


def _nearest(layout: Layout) -> BoolArray:
    """Return the nearest visible keys of every query, of two at the same distance the earlier one first."""
    visible = layout.visible
    n_keys = visible.shape[1]
    after = np.arange(n_keys) - np.arange(layout.n_memory, n_keys)[:, None]
    distance = np.where(visible, 2 * np.abs(after) + (after > 0), np.iinfo(np.int64).max)
    if n_keys <= LOCAL:
        return visible
    farthest = np.partition(distance, LOCAL - 1, axis=1)[:, LOCAL - 1 : LOCAL]
    nearest: BoolArray = visible & (distance <= farthest)
    return nearest


def _repeats(layout: Layout) -> dict[str, BoolArray]:
    """Return attention to earlier equal tokens, and to what followed them; bidirectional: to all other equal ones."""
    tokens = np.array(layout.tokens)
    equal = tokens[:, None] == tokens
    np.fill_diagonal(equal, False)
    if not layout.bidirectional:
        equal = np.tril(equal)
    after = np.zeros_like(equal)
    after[:, 1:] = equal[:, :-1]
    equal, after = equal[layout.n_memory :], after[layout.n_memory :]
    return {
        "duplicate_token": equal,
        "duplicate_token_repeats": equal,
        "induction": after,
        "induction_repeats": after,
    }


def _separated(layout: Layout) -> tuple[dict[str, BoolArray], dict[str, str]]:
    """Return attention to separators but the first key, and inside a sentence; or why they are left out."""
    names = ("separator",) if layout.cross else ("separator", "segment")
    if not layout.tokens:
        return {}, dict.fromkeys(names, NO_TOKENS)
    if all(token.isdigit() for token in layout.tokens):
        return {}, dict.fromkeys(names, NO_TOKENIZER)
    at = np.array([token in layout.special or is_separator(token) for token in layout.tokens])
    ends = at & np.array([t in layout.special or bool(SENTENCE_ENDS & set(t)) for t in layout.tokens])
    number = np.cumsum(ends) - ends
    at[0] = False
    found, left_out = {}, {}
    if at.any():
        found["separator"] = np.broadcast_to(at, layout.visible.shape)
    else:
        left_out["separator"] = NO_SEPARATOR
    if not layout.cross and number[-1] > 0:
        found["segment"] = number[layout.n_memory :, None] == number
    elif not layout.cross:
        left_out["segment"] = NO_SEPARATOR
    return found, left_out


def is_separator(token: str) -> bool:
    r"""Tell whether a token has no letter and no digit: punctuation or whitespace.

    Examples
    --------
    >>> [is_separator(token) for token in (".", " (", "Ċ", "<0x0A>", " the", "##s", "<0xE2>", "\ufffd")]
    [True, True, True, True, False, False, False, False]
    """
    byte = _BYTE.fullmatch(token)
    text = chr(int(byte.group(1), 16)) if byte else token.translate(_SPACE_MARKS)
    # A byte of a longer character may be part of a letter.
    part = (byte is not None and ord(text) > 127) or "\ufffd" in text
    return not part and not any(letter.isalnum() for letter in text)


def patch_places(tokens: tuple[str, ...]) -> tuple[int, NDArray[np.int64]] | None:
    """Return the number of the model's own tokens and the (row, column) of every patch; None for text.

    Examples
    --------
    >>> patch_places(("[0]", "0,0", "0,1"))
    (1, array([[0, 0],
           [0, 1]]))
    """
    own = next((i for i, token in enumerate(tokens) if not _OWN_TOKEN.fullmatch(token)), len(tokens))
    places = [_PATCH.fullmatch(token) for token in tokens[own:]]
    found = [(int(place.group(1)), int(place.group(2))) for place in places if place is not None]
    return (own, np.array(found)) if found and len(found) == len(places) else None


def _grid(own: int, places: NDArray[np.int64]) -> dict[str, BoolArray]:
    """Return the patterns of image patches after the model's own tokens."""
    n = own + len(places)
    apart = np.abs(places[:, None] - places)
    rules: dict[str, Callable[[], BoolArray]] = {
        "same_row": lambda: apart[:, :, 0] == 0,
        "same_column": lambda: apart[:, :, 1] == 0,
        "neighbors": lambda: apart.max(axis=2) == 1,
    }
    found = {}
    for name, rule in rules.items():
        found[name] = np.zeros((n, n), dtype=bool)
        found[name][own:, own:] = rule()
    if own:
        found["class_token"] = np.zeros((n, n), dtype=bool)
        found["class_token"][:, 0] = True
    return found


def _alignment(shape: tuple[int, ...]) -> BoolArray:
    """Return the keys at the place of the query, both sequences stretched to one length, and those beside it."""
    n_queries, n_keys = shape
    at = np.arange(n_queries) * (n_keys - 1) / max(1, n_queries - 1)
    aligned: BoolArray = np.abs(np.arange(n_keys) - at[:, None]) <= 1
    return aligned
