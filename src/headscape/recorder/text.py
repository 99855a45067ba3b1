"""Text as token ids: reading files, cutting windows, and the strings that label tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError

TEXT_ENDINGS = (".txt", ".text", ".md", ".rst", ".html", ".csv", ".json", ".jsonl", ".tex", ".py")
TEXT_COLUMNS = ("text", "content", "sentence", "document")


@dataclass(frozen=True, eq=False)
class Tokens:
    """A run of token ids, and the special ones that the tokenizer puts around every window."""

    ids: NDArray[np.int64]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def pieces(self, length: int | None, what: str) -> Iterator[NDArray[np.int64]]:
        """Yield consecutive windows of ``length`` tokens, special ones included; a rest is left out."""
        special = len(self.before) + len(self.after)
        inner = max(1, len(self.ids)) if length is None else length - special
        if inner < 1:
            raise InputError(
                f"length must leave room for {special} special tokens of this tokenizer, but is {length}."
            )
        if len(self.ids) < inner:
            raise InputError(
                f"{what} has {len(self.ids) + special} tokens, but one window needs {length}. Give more text, or "
                f"a smaller length (--length)."
            )
        for start in range(0, len(self.ids) - inner + 1, inner):
            yield np.concatenate([self.before, self.ids[start : start + inner], self.after]).astype(np.int64)


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a tokenizer puts before and after a text, read off a sample."""
    sample = "a"
    whole = list(tokenizer(sample)["input_ids"])
    bare = list(tokenizer(sample, add_special_tokens=False)["input_ids"])
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def require_text(text: str) -> None:
    """Raise if a text is nothing but the name of a text file, which then does not exist."""
    if Path(text).suffix.lower() in TEXT_ENDINGS and not any(letter.isspace() for letter in text):
        raise InputError(f"the text file {text} does not exist.")


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 text file, or raise one clear error."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"the text file {path} does not exist.") from None
    except OSError as error:
        raise InputError(f"the text file {path} cannot be read ({error.strerror}).") from error
    if not raw.strip():
        raise InputError(f"the text file {path} is empty.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{path} is no text file: it is not UTF-8. Save it as UTF-8, or give another file.")
    return text


def column_of(row: Mapping[str, Any]) -> str:
    """Return the name of the column of a dataset that holds text."""
    texts = [name for name, value in row.items() if isinstance(value, str)]
    for name in (*TEXT_COLUMNS, *(texts if len(texts) == 1 else ())):
        if name in texts:
            return str(name)
    raise InputError(
        f"a dataset row must have a text column ({', '.join(TEXT_COLUMNS)}) or input_ids, but has "
        f"{', '.join(map(str, row)) or 'nothing'}. Give the texts: [row['name'] for row in rows]."
    )


def token_labels(ids: Sequence[int], tokenizer: Any) -> tuple[str, ...]:
    """Return a readable string per token: its text, or the token's own name where it has none by itself."""
    if tokenizer is None or not hasattr(tokenizer, "convert_ids_to_tokens"):
        return tuple(str(token) for token in ids)
    names = tokenizer.convert_ids_to_tokens(list(ids))
    texts = [tokenizer.decode([token]) for token in ids]
    # A byte of a longer character decodes to the replacement character: its name says more.
    return tuple(
        str(name) if not text or "\ufffd" in text else text for name, text in zip(names, texts, strict=True)
    )
