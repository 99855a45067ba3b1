"""What a stage measured in one piece of its work: arrays, tables and attributes that save and load themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.tensor.store import Part, PartWriter

_TABLES = "tables"


@dataclass(frozen=True, eq=False)
class Result:
    """The result of one piece of work: arrays by name, attributes that JSON can hold, and data frames by name.

    Tables hold numbers and words; any index is dropped.
    """

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tables: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)

    @property
    def missing(self) -> str:
        """Why nothing was measured; empty if something was."""
        return str(self.attributes.get("missing", ""))

    def write(self, part: PartWriter) -> None:
        """Write into a part of a store: the numbers of a table as one array, its words as attributes."""
        for name, array in self.arrays.items():
            part.array(name, array)
        described = {}
        for name, table in self.tables.items():
            numbers = table.select_dtypes("number")
            part.array(f"{_TABLES}.{name}", numbers.to_numpy(dtype=np.float64))
            words = table.drop(columns=list(numbers))
            described[name] = {
                "columns": list(table),
                "numbers": list(numbers),
                "integers": list(numbers.select_dtypes("integer")),
                "words": {str(column): [str(value) for value in words[column]] for column in words},
            }
        part.attributes(**self.attributes, **({_TABLES: described} if described else {}))

    @classmethod
    def read(cls, part: Part) -> Self:
        """Read what :meth:`write` wrote."""
        attributes = part.attributes
        described = attributes.pop(_TABLES, {})
        names = [name for name in part.names() if not name.startswith(f"{_TABLES}.")]
        return cls(
            {name: part.array(name) for name in names},
            attributes,
            {name: _table(part.array(f"{_TABLES}.{name}"), words) for name, words in described.items()},
        )


def _table(numbers: NDArray[np.float64], described: Mapping[str, Any]) -> "pd.DataFrame":
    table = pd.DataFrame(numbers, columns=described["numbers"])
    table = table.astype(dict.fromkeys(described["integers"], np.int64))
    for column, values in described["words"].items():
        table[column] = values
    columns: list[str] = described["columns"]
    return table[columns]
