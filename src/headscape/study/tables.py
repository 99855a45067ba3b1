"""The head table as files: CSV and JSON always, Parquet where pyarrow is installed."""

import json
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pandas as pd

from headscape.output import json_ready
from headscape.tensor.store import explain_write_errors, write_text_atomically


def table_records(heads: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a head table as JSON has them: what is not a number becomes null.

    Examples
    --------
    >>> frame = pd.DataFrame({"layer": [0], "head": [1], "mu_K": [float("nan")]}).set_index(["layer", "head"])
    >>> table_records(frame)
    [{'layer': 0, 'head': 1, 'mu_K': None}]
    """
    records: list[dict[str, Any]] = json_ready(heads.reset_index().to_dict("records"))
    return records


def write_tables(
    heads: pd.DataFrame, extra: Mapping[str, pd.DataFrame], summary: Mapping[str, Any], folder: Path
) -> None:
    """Write heads.csv, heads.json, summary.json, further tables as CSV, and heads.parquet where pyarrow is."""
    write_text_atomically(folder / "heads.csv", heads.to_csv(lineterminator="\n"))
    for name, table in extra.items():
        write_text_atomically(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n"))
    records = {"format": "headscape/head-table/1", "heads": table_records(heads)}
    write_text_atomically(folder / "heads.json", json.dumps(records, indent=1, allow_nan=False) + "\n")
    write_text_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    if util.find_spec("pyarrow") is not None:
        with explain_write_errors(folder):
            partial = folder / ".partial-heads.parquet"
            heads.to_parquet(partial)
            partial.replace(folder / "heads.parquet")
