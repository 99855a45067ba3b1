"""The tests of ``hs.check`` that run a model: its own code, its positions, its reference."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.energy.invariants import Finding, Status, Tolerances, judge_record
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.study.reference_check import head_differences, judge_differences, relative_difference
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import logits, probs

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from headscape.recorder.own_attention import OwnAttention

POSITION_SHIFT = 64

Rows = list[list[AttentionRecord]]


def check_model(
    model: torch.nn.Module,
    inputs: Mapping[str, Any] | None,
    against: torch.nn.Module | None,
    *,
    causal: bool | None,
    tolerance: float | None,
    seed: int,
    progress: Progress = no_progress,
) -> tuple[list[Finding], Rows, pd.DataFrame | None]:
    """Return the findings of all tests on a model, its records, and its differences to a reference."""
    from headscape.recorder.own_attention import own_attention
    from headscape.recorder.probe import on_device, probe_inputs
    from headscape.recorder.recording import record_batch

    arguments = _forward_arguments(model, inputs) if inputs is not None else probe_inputs(model, seed=seed)
    limits = Tolerances.of_eps(_eps(model))
    progress("own attention", 0, 4)
    rows = own_attention(model, arguments, seed=seed)
    for own in (own for row in rows for own in row):
        own.record.require_finite()
    progress("invariants", 1, 4)
    findings = [f for row in rows for own in row for f in _judge_own(own, causal, limits)]
    records = [[own.record for own in row] for row in rows]
    progress("whole output", 2, 4)
    findings += _whole_output(model, arguments, records[0], limits, findings)
    progress("positions", 3, 4)
    findings += _position_shift(model, arguments, records, limits)
    differences = None
    if against is not None:
        progress("reference", 3, 4)
        reference = record_batch(against, on_device(arguments, next(against.parameters()).device))
        differences = head_differences(records, reference)
        limit = tolerance or Tolerances.of_eps(max(_eps(model), _eps(against))).relative
        findings += judge_differences(differences, limit)
    progress("done", 4, 4)
    return findings, records, differences


def _judge_own(own: OwnAttention, causal: bool | None, limits: Tolerances) -> Iterator[Finding]:
    """Judge one module: its record, then its output and the shift of its logits, head by head."""
    failed: dict[int, str] = {}
    for finding in judge_record(
        own.record, causal=own.causal if causal is None else causal, tolerances=limits
    ):
        if finding.status == Status.failed and finding.head is not None:
            failed.setdefault(finding.head, finding.test)
        yield finding
    for head in range(own.record.n_heads):
        cause = failed.get(head, "")
        yield _shift(own, head, limits, cause)
        yield _output(own, head, limits, cause)


def _shift(own: OwnAttention, head: int, limits: Tolerances, cause: str) -> Finding:
    test, record = "softmax shift", own.record
    if cause or own.shifted is None or own.output is None:
        why = f"follows from {cause!r}" if cause else own.no_shift
        return Finding(test, record.layer, head, Status.not_judged, detail=why, stack=record.stack)
    value = relative_difference(own.shifted[head], own.output[head])
    detail = "the output moves when a constant is added to the logits of each row"
    return _finding(test, record, head, value, limits.relative, detail)


def _output(own: OwnAttention, head: int, limits: Tolerances, cause: str) -> Finding:
    test, record = "output", own.record
    if cause or own.output is None:
        why = f"follows from {cause!r}" if cause else "the implementation does not take an explicit mask"
        return Finding(test, record.layer, head, Status.not_judged, detail=why, stack=record.stack)
    seen = record.visible_to(head).any(axis=1)
    expected = probs(record, head) @ own.values[record.kv_head(head)]
    value = relative_difference(own.output[head][seen], expected[seen])
    return _finding(
        test, record, head, value, limits.relative, "the output is not probabilities times values"
    )


def _whole_output(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    records: Sequence[AttentionRecord],
    limits: Tolerances,
    findings: Sequence[Finding],
) -> list[Finding]:
    """Compare each module's output in the model's own run with the recorded run, up to the first that differs.

    This sees what the call by call tests cannot: a mask that the model builds for its own implementation only.
    """
    from headscape.recorder.own_attention import module_outputs

    test = "run as configured"
    if any(f.status == Status.failed for f in findings):
        why = "follows from the failures above"
        return [Finding(test, r.layer, None, Status.not_judged, detail=why, stack=r.stack) for r in records]
    names = [record.module for record in records]
    own = module_outputs(model, inputs, names, recorded=False)
    recorded = module_outputs(model, inputs, names, recorded=True)
    found = []
    for record in records:
        value = relative_difference(own[record.module], recorded[record.module])
        detail = "the module's output is not what its queries, keys, values and mask give"
        found.append(_finding(test, record, None, value, limits.relative, detail))
        if found[-1].status == Status.failed:
            break
    return found


def _position_shift(
    model: torch.nn.Module, inputs: Mapping[str, Any], rows: Rows, limits: Tolerances
) -> list[Finding]:
    """Move all positions of a rotary model and compare the logits, up to the first layer that differs."""
    import torch

    from headscape.recorder.recording import record_batch

    test = "position shift"
    why = _no_positions(model, inputs)
    if why:
        return [Finding(test, r.layer, None, Status.not_judged, detail=why, stack=r.stack) for r in rows[0]]
    shape = inputs["input_ids"].shape
    positions = torch.arange(shape[1], device=inputs["input_ids"].device).expand(shape)
    plain = record_batch(model, {**inputs, "position_ids": positions})
    moved = record_batch(model, {**inputs, "position_ids": positions + POSITION_SHIFT})
    found: list[Finding] = []
    for before, after in zip(plain, moved, strict=True):
        for record, other in zip(before, after, strict=True):
            part = [_moved_head(record, other, head, limits) for head in range(record.n_heads)]
            found += part
            if any(f.status == Status.failed for f in part):
                # Every later layer gets another input.
                break
    return found


def _moved_head(record: AttentionRecord, other: AttentionRecord, head: int, limits: Tolerances) -> Finding:
    seen = record.visible_to(head)
    value = relative_difference(logits(other, head)[seen], logits(record, head)[seen])
    detail = (
        f"logits change when all positions move by {POSITION_SHIFT}: queries and keys are not rotated alike"
    )
    return _finding("position shift", record, head, value, limits.relative, detail)


def _no_positions(model: torch.nn.Module, inputs: Mapping[str, Any]) -> str:
    """Say why positions cannot be moved, if so."""
    config: Any = model.config
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    if not rotary:
        return "positions are not rotary"
    if "position_ids" not in inspect.signature(model.forward).parameters or "input_ids" not in inputs:
        return "the model takes no position_ids"
    return ""


def _forward_arguments(model: torch.nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs on the model's device, or raise if they are padded."""
    import torch

    from headscape.recorder.probe import on_device

    if not isinstance(inputs, Mapping):
        raise InputError(
            "inputs must be the arguments of the model's forward, such as {'input_ids': ids}, but are a "
            f"{type(inputs).__name__}."
        )
    tensors = {
        name: torch.as_tensor(x) if isinstance(x, np.ndarray | list) else x for name, x in inputs.items()
    }
    mask = tensors.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise InputError(
            "inputs must not be padded: the tests look at whole windows. Give windows of one length."
        )
    return on_device(tensors, next(model.parameters()).device)


def _eps(model: torch.nn.Module) -> float:
    import torch

    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    return float(max(torch.finfo(dtype).eps for dtype in dtypes))


def _finding(
    test: str, record: AttentionRecord, head: int | None, value: float, limit: float, detail: str
) -> Finding:
    good = value <= limit
    status = Status.passed if good else Status.failed
    return Finding(test, record.layer, head, status, value, limit, "" if good else detail, record.stack)
