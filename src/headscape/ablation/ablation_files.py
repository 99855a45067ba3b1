"""The files of an ablation study: finished parts, so that it resumes if interrupted, and the finished study.

OUT/
summary.json     what the study says, and the name of the part that holds it
curves.csv       one row per method and count
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import FileFormatError
from headscape.tensor.safe_reading import read_json_object
from headscape.tensor.store import Store, content_hash, software_versions, write_text_atomically

Arrays = Mapping[str, NDArray[Any]]
Attributes = Mapping[str, Any]

KIND = "ablation"
SUMMARY, CURVES = "summary.json", "curves.csv"


@dataclass
class AblationParts:
    """Arrays by the name of their part, in memory, and in a folder if there is one."""

    store: Store | None = None
    _kept: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Tell whether a part is finished."""
        return name in self._kept or (self.store is not None and self.store.has(name))

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a finished part."""
        if name not in self._kept:
            assert self.store is not None  # has() said that it is finished
            part = self.store.read(name)
            self._kept[name] = {array: part.array(array) for array in part.names()}
        return self._kept[name]

    def write(self, name: str, arrays: Arrays, attributes: Attributes | None = None) -> None:
        """Finish a part."""
        self._kept[name] = dict(arrays)
        if self.store is not None:
            with self.store.writing(name) as part:
                for array, values in arrays.items():
                    part.array(array, values)
                part.attributes(**(attributes or {}))

    def finish(self, arrays: Arrays, attributes: Attributes, table: str, summary: Attributes) -> None:
        """Write the study itself, which :func:`finished` reads, with its table and summary beside it."""
        assert self.store is not None  # without a folder there is nothing to write
        words = np.frombuffer(json.dumps(attributes, sort_keys=True).encode(), dtype=np.uint8)
        part = f"study-{content_hash(words, *arrays.values())[:12]}"
        if not self.has(part):
            self.write(part, arrays, attributes)
        folder = self.store.path
        write_text_atomically(folder / CURVES, table)
        text = json.dumps({**summary, "part": part}, indent=2, allow_nan=False)
        write_text_atomically(folder / SUMMARY, text + "\n")


@contextmanager
def ablation_parts(
    path: str | os.PathLike[str] | None, parameters: Attributes, input_hash: str, seed: int
) -> Iterator[AblationParts]:
    """Open the parts of a study for the length of a block; finished ones are there already."""
    if path is None:
        yield AblationParts()
        return
    known: Any = {"versions": software_versions("torch", "transformers"), "seed": seed}
    with Store.create(path, KIND, parameters=parameters, input_hash=input_hash, **known) as store:
        yield AblationParts(store)


def finished(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and attributes of the study that was finished last in a folder."""
    store = Store.open(path, KIND)
    try:
        name = str((read_json_object(Path(path) / SUMMARY, Path(path)) or {})["part"])
    except (FileFormatError, KeyError) as error:
        raise FileFormatError(
            f"{path} holds no finished study ({error}). Run the same command again: it resumes there."
        ) from error
    part = store.read(name)
    return {array: part.array(array) for array in part.names()}, dict(part.attributes)


def part_name(text: str) -> str:
    """Return a name as a store can hold it.

    Examples
    --------
    >>> part_name("haar:reversed+repair")
    'haar.reversed+repair'
    """
    return re.sub(r"[^A-Za-z0-9_+-]", ".", text)
