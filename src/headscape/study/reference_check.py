"""Comparison of a model with a reference, head by head: keys, logits, probabilities."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headscape.energy.judgement import Judgement, Status
from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.checks import FloatArray
from headscape.tensor.fields import logits, probs

QUANTITIES = ("keys", "logits", "probabilities")


def relative_difference(x: FloatArray, reference: FloatArray) -> float:
    """Return |x - reference| / |reference| in the Euclidean norm; 0 if both are zero.

    Examples
    --------
    >>> relative_difference(np.array([3.0, 5.0]), np.array([3.0, 4.0]))
    0.2
    """
    gap, size = float(np.linalg.norm(x - reference)), float(np.linalg.norm(reference))
    return gap / size if size > 0 else (0.0 if gap == 0 else float("inf"))


def head_differences(
    rows: Sequence[Sequence[AttentionRecord]], references: Sequence[Sequence[AttentionRecord]]
) -> "pd.DataFrame":
    """Return, per head, the largest relative difference over the windows of keys, logits and probabilities.

    The records are those of each window, of the model and of its reference on the same input.
    """
    table = []
    for records, others in zip(rows, references, strict=True):
        _require_same_heads(records, others)
        for record, other in zip(records, others, strict=True):
            for head in range(record.n_heads):
                kv_head = record.kv_head(head)
                # Keys that no query sees, and logits under the mask, play no part.
                seen = record.visible_to(head) & other.visible_to(head)
                row: dict[str, object] = {"stack": record.stack, "layer": record.layer, "head": head}
                row["kv_head"] = kv_head
                keys = (record.keys[kv_head], other.keys[kv_head])
                row["keys"] = relative_difference(*keys) if record.has_products else 0.0
                row["logits"] = relative_difference(logits(record, head)[seen], logits(other, head)[seen])
                row["probabilities"] = relative_difference(probs(record, head), probs(other, head))
                table.append(row)
    frame = pd.DataFrame(table)
    labels = ["stack", "layer", "head", "kv_head"]
    return frame.groupby(labels, sort=False)[list(QUANTITIES)].max().reset_index()


def judge_differences(differences: "pd.DataFrame", tolerance: float) -> list[Judgement]:
    """Return one judgement per head and quantity; what only follows from an earlier difference is not judged.

    Keys come before logits and logits before probabilities; and behind the first layer that differs every layer
    gets other input, so its differences say nothing about itself.
    """
    judgements = []
    for _, part in differences.groupby("stack", sort=False):
        over = part[(part[list(QUANTITIES)] > tolerance).any(axis=1)]
        first = None if over.empty else int(over["layer"].min())
        for row in part.to_dict(orient="records"):
            layer, head, stack = int(row["layer"]), int(row["head"]), str(row["stack"])
            cause = ""
            if first is not None and layer > first:
                cause = f"follows from layer {first}, where the difference begins"
            for quantity in QUANTITIES:
                test, value = f"{quantity} against reference", float(row[quantity])
                bad = value > tolerance
                status = Status.not_judged if bad and cause else Status.failed if bad else Status.passed
                detail = cause if bad and cause else f"{quantity} differ from the reference's" if bad else ""
                judgements.append(Judgement(test, layer, head, status, value, tolerance, detail, stack))
                if bad and not cause:
                    cause = f"follows from {quantity}"
    return judgements


def _require_same_heads(records: Sequence[AttentionRecord], others: Sequence[AttentionRecord]) -> None:
    shapes = [[(r.stack, r.layer, r.queries.shape, r.keys.shape) for r in side] for side in (records, others)]
    if shapes[0] != shapes[1]:
        counts = [
            f"{len(side)} modules with {sum(r.n_heads for r in side)} heads" for side in (records, others)
        ]
        raise InputError(
            f"model and reference must have the same layers, heads and head dimensions, but have {counts[0]} and "
            f"{counts[1]}. Compare models of one architecture."
        )
