"""The stage "pictures": attention and energy of every head in the first window, small enough for the report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.report.pictures import gray_png, root_bytes, signed_bytes
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Outcome, Stage
from headscape.tensor.capture import Capture
from headscape.tensor.fields import field_of_head
from headscape.tensor.network_tensor import WITHOUT_SINKS
from headscape.tensor.sinks import LEFT_OUT

if TYPE_CHECKING:
    from headscape.study.study import Study

SIZE, SMALL_SIZE, MANY_HEADS = 128, 64, 512
"""Tokens a side; fewer past so many heads, to keep the report small."""


class Pictures(Stage):
    """Keeps what the panel of a head shows of its attention: at most 128 x 128 tokens, 8 bits a value."""

    name, title, doing, unit, always = "pictures", "Attention of the heads", "drawing heads", "model", True

    def measure(self, context: Context, piece: int) -> Result:
        """Return attention and energy of every head as bytes, and the values that the bytes stand for."""
        size = SMALL_SIZE if len(context.heads) > MANY_HEADS else SIZE
        window = context.window(0)
        attention: list[tuple[NDArray[np.uint8], float]] = []
        energy: list[tuple[NDArray[np.uint8], float]] = []
        if isinstance(window, Capture):
            for record in window.records(0):
                for head in (head for layer, head in window.heads if layer == record.layer):
                    visible = record.visible_to(head)[:size, :size]
                    attention.append(root_bytes(field_of_head(record, head, "probs")[:size, :size]))
                    energy.append(signed_bytes(field_of_head(record, head, "energy")[:size, :size], visible))
        else:
            x = window.tensor(0)
            for pair in x.heads:
                values = x.head(*pair)[:size, :size]
                attention.append(root_bytes(np.clip(values - min(0.0, float(values.min())), 0, None)))
        arrays = {
            "attention": np.stack([pixels for pixels, _ in attention]),
            "attention_high": np.array([high for _, high in attention]),
        }
        if energy:
            arrays |= {
                "energy": np.stack([pixels for pixels, _ in energy]),
                "energy_limit": np.array([limit for _, limit in energy]),
            }
        return Result(arrays)

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Say nothing: the pictures speak."""
        return Outcome(context.frame({}))

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the pictures of every head with their tokens."""
        arrays = study.results[self.name][0].arrays
        rows, columns = arrays["attention"].shape[1:]
        queries, keys = study.data.tokens(0), study.data.key_tokens(0)
        cut = f", the first {columns} of {len(keys)} tokens" if len(keys) > columns else ""
        order = _window_order(study) if study.organizations else {}
        orders = {
            axis: np.asarray(order.get(axis, np.arange(n))) for axis, n in (("query", rows), ("key", columns))
        }
        data: dict[str, Any] = {
            "rows": rows,
            "columns": columns,
            "tokens": {"query": list(queries[:rows]), "key": list(keys[:columns])},
            "query_order": orders["query"][orders["query"] < rows].tolist(),
            "key_order": orders["key"][orders["key"] < columns].tolist(),
            "attention": {
                "png": [gray_png(pixels) for pixels in arrays["attention"]],
                "high": arrays["attention_high"].tolist(),
            },
            "note": f"Window 1{cut}. Colors of the attention follow its cube root.",
        }
        if "energy" in arrays:
            data["energy"] = {
                "png": [gray_png(pixels) for pixels in arrays["energy"]],
                "limit": arrays["energy_limit"].tolist(),
            }
        return (
            Section("window", data=data, panel=page_file("pictures.html"), script=page_file("pictures.js")),
        )


def _window_order(study: "Study") -> dict[str, NDArray[np.int64]]:
    """Return the organizing permutations of the first window; sinks that the trees leave out come first."""
    order, field = study.organization.order, study.parameters["field"]
    if field != WITHOUT_SINKS:
        return order
    x = study.data.tensor(0, field)
    found = {}
    for axis, left in x.provenance.get(LEFT_OUT, {}).items():
        kept = np.setdiff1d(np.arange(len(order[axis]) + len(left)), left)
        found[axis] = np.concatenate([np.asarray(left, dtype=np.int64), kept[order[axis]]])
    return found
