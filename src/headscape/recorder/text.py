"""Texts and what they are made of: regions of large files, dataset columns, the strings that label tokens."""

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.recorder.image_files import is_image_file

TEXT_ENDINGS = (".txt", ".text", ".md", ".rst", ".html", ".csv", ".json", ".jsonl", ".tex", ".py")
TEXT_COLUMNS = ("text", "content", "sentence", "document")
NEAR = 1024
"""Bytes within which whitespace is looked for, to cut a text between words."""
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"
NEWLINES = "CRLF read as LF"


@dataclass(frozen=True, eq=False)
class Text:
    """A text that is read in regions, so that a few windows of a large file cost only their own bytes.

    Positions are bytes of the UTF-8 encoding: a string and a file with the same content give the same regions.
    Line ends of other systems (CR LF, CR) are read as LF.

    Parameters
    ----------
    read
        Returns the bytes from a start to a stop.
    start, stop
        Where the text begins and ends.
    name
        Names the text in results, if it has a name.
    changes
        What reading has changed so far, such as line ends; shared with the text's parts.
    """

    read: Callable[[int, int], bytes]
    start: int
    stop: int
    name: str | None = None
    changes: set[str] = field(default_factory=set)

    @classmethod
    def of_string(cls, text: str) -> Self:
        """Return a text without a name."""
        # A lone surrogate is refused when its region is decoded.
        raw = text.encode("utf-8", "surrogatepass")
        return cls(lambda start, stop: raw[start:stop], 0, len(raw))

    @classmethod
    def of_file(cls, path: Path, name: str | None = None) -> Self:
        """Return the text of a UTF-8 file, of which nothing but the beginning is read yet."""
        try:
            about = path.stat()
        except FileNotFoundError:
            raise InputError(f"the text file {path} does not exist.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"the text file {path} cannot be read ({error}).") from error
        if not stat.S_ISREG(about.st_mode):  # a pipe would block, and /dev/zero never end
            kind = "a folder" if stat.S_ISDIR(about.st_mode) else "not a regular file: save its text to one"
            raise InputError(f"expected a text file, but {path} is {kind}.")
        read = _file_reader(path)
        begin = len(_BOM) if read(0, len(_BOM)) == _BOM else 0
        return cls(read, begin, about.st_size, name or path.name)

    def __str__(self) -> str:
        return self.name or "the text"

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Self:
        """Return the text between two positions."""
        return replace(self, start=start, stop=stop)

    def decoded(self, start: int, stop: int) -> str:
        """Return a region as a string; one that ends before the text does is cut between words, if possible."""
        raw = self.read(start, stop)
        whole = stop >= self.stop
        if not whole:
            space = max(raw.rfind(b" "), raw.rfind(b"\n"))
            raw = raw[:space].removesuffix(b"\r") if space >= len(raw) - NEAR else raw
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(raw, final=whole)
        except UnicodeDecodeError:
            raise InputError(
                f"{self} is not UTF-8 text. Convert it to UTF-8, or pass another file."
            ) from None
        if "\0" in text:
            raise InputError(
                f"{self} contains NUL bytes, which text does not have. Pass a text file in UTF-8."
            )
        if "\r" in text:
            self.changes.add(NEWLINES)
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    def word_start(self, position: int) -> int:
        """Return where the first word after a position starts, or the next character if words are long."""
        if position <= self.start:
            return self.start
        raw = self.read(position, min(position + NEAR, self.stop))
        found = re.search(rb"\s+(?=\S)", raw)
        if found is not None:
            return position + found.end()
        character = re.search(rb"[^\x80-\xbf]", raw)
        return position + (0 if character is None else character.start())

    def middle_line(self) -> int:
        """Return where the line starts that holds the middle character; without lines, that character itself."""
        counts = [(at, int(np.count_nonzero(_character_starts(raw)))) for at, raw in self._blocks()]
        half = sum(count for _, count in counts) // 2
        middle = self.start
        for at, count in counts:
            if half < count:
                raw = self.read(at, min(at + _BLOCK, self.stop))
                middle = at + int(np.flatnonzero(_character_starts(raw))[half])
                break
            half -= count
        for at, raw in self._blocks(middle, backwards=True):
            if (line := raw.rfind(b"\n")) >= 0:
                return at + line + 1
        return middle

    def _blocks(self, stop: int | None = None, backwards: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of consecutive blocks."""
        end = self.stop if stop is None else stop
        places = range(self.start, end, _BLOCK)
        for at in reversed(places) if backwards else places:
            yield at, self.read(at, min(at + _BLOCK, end))

    def require_content(self) -> None:
        """Raise if the text is empty or blank."""
        if all(not raw.strip() for _, raw in self._blocks()):
            what = f"the text file {self.name}" if self.name else "the text"
            raise InputError(f"{what} is empty.")


def _character_starts(raw: bytes) -> NDArray[np.bool_]:
    # Every byte of UTF-8 but 0b10xxxxxx begins a character.
    starts: NDArray[np.bool_] = (np.frombuffer(raw, dtype=np.uint8) & 0xC0) != 0x80
    return starts


def _file_reader(path: Path) -> Callable[[int, int], bytes]:
    def read(start: int, stop: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except OSError as error:
            raise InputError(f"the text file {path} cannot be read ({error.strerror}).") from error

    return read


def texts_of(inputs: Any) -> list[Text] | None:
    """Return the texts that windows are sampled from: of a string, the path of a file, or a list of paths; else None.

    Examples
    --------
    >>> [text] = texts_of("Call me Ishmael.")
    >>> text.size
    16
    >>> texts_of(["a list of strings", "is a window each"]) is None
    True
    """
    if isinstance(inputs, Text):
        return [inputs]
    if isinstance(inputs, os.PathLike) or (isinstance(inputs, str) and _names_file(inputs)):
        path = Path(inputs)
        return None if is_image_file(path) or path.is_dir() else [Text.of_file(path)]
    if isinstance(inputs, str):
        _require_text(inputs)
        return [Text.of_string(inputs)]
    if not isinstance(inputs, Sequence) or not inputs:
        return None
    if all(isinstance(item, Text) for item in inputs):
        return list(inputs)
    paths = [Path(item) for item in inputs if isinstance(item, os.PathLike)]
    if not paths or all(map(is_image_file, paths)):
        return None
    if len(paths) < len(inputs):
        raise InputError("a list must hold text files (paths) or strings, but not both.")
    return [Text.of_file(path, name) for path, name in zip(paths, _distinct_names(paths), strict=True)]


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return file names, with as many of their folders as tell them apart."""
    for n_parts in range(1, 1 + max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-n_parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    twice = next(name for number, name in enumerate(names) if name in names[:number])
    raise InputError(f"the text file {twice} is given twice.")


def _names_file(name: str) -> bool:
    """Tell whether a string is the name of a file, pipe or device."""
    # Unlike those of Path, these say no to what is too long for a name.
    return os.path.exists(name) and not os.path.isdir(name)


def _require_text(text: str) -> None:
    """Raise if a string is nothing but the name of a text file, which then does not exist."""
    if Path(text).suffix.lower() in TEXT_ENDINGS and not any(letter.isspace() for letter in text):
        raise InputError(f"the text file {text} does not exist.")


def column_of(row: Mapping[str, Any]) -> str:
    """Return the name of the column of a dataset that holds text."""
    texts = [name for name, value in row.items() if isinstance(value, str)]
    for name in (*TEXT_COLUMNS, *(texts if len(texts) == 1 else ())):
        if name in texts:
            return str(name)
    raise InputError(
        f"a dataset row must have a text column ({', '.join(TEXT_COLUMNS)}) or input_ids, but has "
        f"{', '.join(map(str, row)) or 'no columns'}. Pass the texts: [row['name'] for row in rows]."
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
