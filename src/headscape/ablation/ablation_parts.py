"""The finished parts of an ablation study: in memory, and in a folder if there is one."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from headscape.tensor.store import Store, software_versions

KIND = "ablation"


class AblationParts:
    """Arrays by the name of their part; with a folder, a study that was stopped goes on after the last one."""

    def __init__(
        self, path: str | os.PathLike[str] | None, parameters: Mapping[str, Any], input_hash: str, seed: int
    ) -> None:
        self.parameters, self.input_hash = parameters, input_hash
        self._path, self._seed = path, seed
        self._store: Store | None = None
        self._kept: dict[str, dict[str, NDArray[Any]]] = {}

    def __enter__(self) -> Self:
        if self._path is not None:
            self._store = Store.create(
                self._path,
                KIND,
                parameters=self.parameters,
                input_hash=self.input_hash,
                seed=self._seed,
                versions=software_versions("torch", "transformers"),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            self._store.__exit__(kind, error, trace)

    def has(self, name: str) -> bool:
        """Tell whether a part is finished."""
        return name in self._kept or (self._store is not None and self._store.has(name))

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a finished part."""
        if name not in self._kept:
            assert self._store is not None  # has() said that it is finished
            part = self._store.read(name)
            self._kept[name] = {array: part.array(array) for array in part.names()}
        return self._kept[name]

    def write(
        self, name: str, arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Finish a part."""
        self._kept[name] = dict(arrays)
        if self._store is not None:
            with self._store.writing(name) as part:
                for array, values in arrays.items():
                    part.array(array, values)
                part.attributes(**(attributes or {}))
