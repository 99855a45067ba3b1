"""The tests of ``hs.check`` that run a model: its own code, its positions, its reference."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from headscape.energy.invariants import Finding, Status, Tolerances, judge_record
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.study.reference_check import head_differences, judge_differences, relative_difference
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import logits, probs

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from headscape.models.loading import Model
    from headscape.recorder.own_attention import OwnAttention

POSITION_SHIFT = 64

Rows = list[list[AttentionRecord]]


def check_model(
    model: torch.nn.Module,
    windows: Sequence[Mapping[str, Any]],
    against: torch.nn.Module | None,
    *,
    causal: bool | None,
    tolerance: float | None,
    seed: int,
    progress: Progress = no_progress,
) -> tuple[list[Finding], Rows, pd.DataFrame | None]:
    """Return the findings of all tests on a model, its records, and its differences to a reference.

    Parameters
    ----------
    model
        The model to check.
    windows
        The arguments of its forward for each window (a batch of one).
    against, causal, tolerance, seed, progress
        As for :func:`headscape.study.check.check`.
    """
    from headscape.recorder.own_attention import own_attention
    from headscape.recorder.recording import record_batch

    limits = Tolerances.of_eps(_eps(model))
    findings: list[Finding] = []
    records: Rows = []
    references: Rows = []
    for number, window in enumerate(windows):
        progress("checking", number, len(windows))
        arguments = _unpadded(window, model)
        modules = own_attention(model, arguments, seed=seed)[0]
        for own in modules:
            own.record.require_finite()
        records.append([own.record.replace(probs=None) for own in modules])
        # Heads are small matrices, for which threads of BLAS only wait for each other.
        with threadpool_limits(1, user_api="blas"):
            found = [f for own in modules for f in _judge_own(own, causal, limits)]
        found += _whole_output(model, arguments, records[-1], limits, found)
        findings += found + _position_shift(model, arguments, records[-1], limits)
        if against is not None:
            references += record_batch(against, _unpadded(window, against))
    progress("checking", len(windows), len(windows))
    findings += _unseen(model, records[0])
    if against is None:
        return findings, records, None
    differences = head_differences(records, references)
    limit = tolerance or Tolerances.of_eps(max(_eps(model), _eps(against))).relative
    return findings + judge_differences(differences, limit), records, differences


def with_tokenizer(model: Any, tokenizer: Any) -> Model:
    """Return a model, loaded if a name was given, with the tokenizer that reads its text."""
    from headscape.models.loading import Model, load_model

    if isinstance(model, str | os.PathLike):
        model = load_model(model)
    if isinstance(model, Model):
        return Model(model.model, tokenizer or model.tokenizer, model.name, model.revision)
    if not hasattr(model, "named_modules"):
        raise InputError(
            "check takes a transformers model or its name, a capture, or a network tensor, but got "
            f"{type(model).__name__}."
        )
    name = getattr(getattr(model, "config", None), "name_or_path", "") or type(model).__name__
    return Model(model, tokenizer, str(name))


def read_windows(
    loaded: Model, inputs: Any, *, length: int | None, windows: int, seed: int
) -> list[Mapping[str, Any]]:
    """Return the arguments of the forward pass for each window: of the inputs, or of a probe."""
    from headscape.models.random_inputs import default_length, probe_windows
    from headscape.recorder.inputs import InputReader

    if inputs is None:
        return list(probe_windows(loaded.model, length=length, windows=windows, seed=seed))
    wanted = length or default_length(loaded.model.config)
    found = InputReader(loaded.model, loaded.tokenizer, wanted).read(inputs)
    return [window.arguments for window in found[:windows]]


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
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    records: Sequence[AttentionRecord],
    limits: Tolerances,
) -> list[Finding]:
    """Move all positions of a rotary model and compare the logits, up to the first layer that differs."""
    import torch

    from headscape.recorder.recording import record_batch

    test = "position shift"
    why = _no_positions(model, inputs)
    if why:
        return [Finding(test, r.layer, None, Status.not_judged, detail=why, stack=r.stack) for r in records]
    shape = inputs["input_ids"].shape
    positions = torch.arange(shape[1], device=inputs["input_ids"].device).expand(shape)
    moved = record_batch(model, {**inputs, "position_ids": positions + POSITION_SHIFT})[0]
    found: list[Finding] = []
    for record, other in zip(records, moved, strict=True):
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


def _unseen(model: torch.nn.Module, records: Sequence[AttentionRecord]) -> list[Finding]:
    """Name the layers of a model with one stack in which no attention was seen, so that none is passed over."""
    config: Any = model.config
    n_layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if len({record.stack for record in records}) > 1:
        return []
    why = "no attention was seen in this layer: it has none, or computes it in code of its own"
    seen = {record.layer for record in records}
    missing = [layer for layer in range(n_layers) if layer not in seen]
    return [Finding("seen", layer, None, Status.not_judged, detail=why) for layer in missing]


def _unpadded(window: Mapping[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """Return the arguments of a window for a model, in its dtype and on its device, or raise if they are padded."""
    mask = window.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise InputError(
            "inputs must not be padded: the tests look at whole windows. Give windows of one length."
        )
    weight = next(model.parameters())
    return {
        name: x.to(device=weight.device, dtype=weight.dtype if x.is_floating_point() else None)
        for name, x in window.items()
    }


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
