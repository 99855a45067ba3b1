"""The head table as files: CSV and JSON always, Parquet where pyarrow is installed."""

import json
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.tensor.store import explain_write_errors, write_text_atomically

if TYPE_CHECKING:
    import pandas as pd


def table_records(heads: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a head table as JSON has them: what is not a number becomes null.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"layer": [0], "head": [1], "mu_K": [float("nan")]}).set_index(["layer", "head"])
    >>> table_records(frame)
    [{'layer': 0, 'head': 1, 'mu_K': None}]
    """
    return [
        {str(name): json_value(value) for name, value in row.items()}
        for row in heads.reset_index().to_dict("records")
    ]


def json_value(value: Any) -> Any:
    """Return a cell as a plain Python value; NaN and infinities, which JSON does not have, become None."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not np.isfinite(plain):
        return None
    return plain


def write_tables(heads: "pd.DataFrame", summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write heads.csv, heads.json, summary.json, and heads.parquet if that is possible; return their paths."""
    write_text_atomically(folder / "heads.csv", heads.to_csv(lineterminator="\n"))
    records = {"format": "headscape/head-table/1", "heads": table_records(heads)}
    write_text_atomically(folder / "heads.json", json.dumps(records, indent=1, allow_nan=False) + "\n")
    write_text_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    paths = [folder / name for name in ("heads.csv", "heads.json", "summary.json")]
    if util.find_spec("pyarrow") is not None:
        with explain_write_errors(folder):
            partial = folder / ".partial-heads.parquet"
            heads.to_parquet(partial)
            partial.replace(folder / "heads.parquet")
        paths.append(folder / "heads.parquet")
    return paths
