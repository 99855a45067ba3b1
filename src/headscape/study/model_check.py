"""The tests of ``hs.check`` that run a model: its own attention code, its mode, its positions, its reference."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headscape.energy.causality import causal_stacks
from headscape.energy.invariants import judge_record
from headscape.energy.judgement import Judgement, Status, Tolerances
from headscape.engine import Progress, no_progress
from headscape.engine.blas import one_blas_thread
from headscape.models.forward_pass import arguments_for, evaluating, forward
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model
from headscape.models.plain_facts import config_of, is_plain
from headscape.models.random_inputs import default_length, probe_windows
from headscape.recorder.inputs import InputReader
from headscape.recorder.own_attention import OwnAttention, module_outputs, own_attention, own_records, padded
from headscape.recorder.recording import record_batch
from headscape.study.reference_check import head_differences, judge_differences, relative_difference
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import logits, probs

if TYPE_CHECKING:
    import pandas as pd

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
) -> tuple[list[Judgement], Rows, pd.DataFrame | None]:
    """Return the judgements of all tests on a model, its records, and its differences to a reference.

    Windows are the arguments of its forward, batches of one; all else is as for :func:`headscape.check`.
    """
    limits = Tolerances.of_eps(_eps(model))
    judgements: list[Judgement] = []
    records: Rows = []
    references: Rows = []
    for number, window in enumerate(windows):
        progress("checking", number, len(windows))
        arguments = _unpadded(window, model)
        modules = own_attention(model, arguments, seed=seed)
        for own in modules:
            own.record.require_finite()
        records.append([own.record.replace(probs=None) for own in modules])
        # Heads are small matrices, for which threads of BLAS only wait for each other.
        with one_blas_thread():
            found = list(_judge_modules(modules, causal, limits))
        found += _as_configured(model, arguments, records[-1], limits, found)
        judgements += found + _position_shift(model, arguments, records[-1], limits)
        if against is not None:
            references.append(own_records(against, _unpadded(window, against)))
    progress("checking", len(windows), len(windows))
    judgements += _dropout(model, records[0]) + _unseen(model, records[0])
    if against is None:
        return judgements, records, None
    differences = head_differences(records, references)
    limit = tolerance or Tolerances.of_eps(max(_eps(model), _eps(against))).relative
    return judgements + judge_differences(differences, limit), records, differences


def read_windows(
    loaded: Model, inputs: Any, *, length: int | None, windows: int, sample: str, seed: int
) -> list[Mapping[str, Any]]:
    """Return the arguments of the forward pass for each window: of the inputs, or random ones."""
    if inputs is None:
        return list(probe_windows(loaded.model, length=length, windows=windows, seed=seed))
    wanted = length if length or is_plain(loaded.model) else default_length(loaded.model.config)
    how: dict[str, Any] = {"at_most": True, "sample": sample, "seed": seed}
    reader = InputReader(loaded.model, loaded.tokenizer, wanted, windows, **how)
    return [window.arguments for window in reader.read(inputs)]


def _judge_modules(
    modules: Sequence[OwnAttention], causal: bool | None, limits: Tolerances
) -> Iterator[Judgement]:
    """Judge each module: its record, then its output and the shift of its logits, head by head."""
    stacks = causal_stacks(own.record for own in modules)
    for own in modules:
        record = own.record
        expected = own.causal or record.stack in stacks if causal is None else causal
        failed: dict[int | None, str] = {}
        for judgement in judge_record(record, causal=expected, tolerances=limits):
            if judgement.status == Status.failed:
                failed.setdefault(judgement.head, judgement.test)
            yield judgement
        for head in range(record.n_heads):
            cause = f"follows from {failed[head]!r}" if head in failed else ""
            yield _shift(own, head, limits, cause)
            yield _output(own, head, limits, cause)


def _shift(own: OwnAttention, head: int, limits: Tolerances, cause: str) -> Judgement:
    test, record = "softmax shift", own.record
    if cause or own.shifted is None or own.output is None:
        return Judgement.not_judged(test, record.layer, head, cause or own.missing, record.stack)
    value = relative_difference(own.shifted[head], own.output[head])
    detail = "the output moves when a constant is added to the logits of each row"
    return Judgement.measured(test, record.layer, head, value, limits.relative, detail, record.stack)


def _output(own: OwnAttention, head: int, limits: Tolerances, cause: str) -> Judgement:
    test, record = "output", own.record
    if cause or own.values is None or own.output is None:
        return Judgement.not_judged(test, record.layer, head, cause or own.missing, record.stack)
    seen = record.visible_to(head).any(axis=1)
    expected = probs(record, head) @ own.values[record.kv_head(head)]
    value = relative_difference(own.output[head][seen], expected[seen])
    detail = "the output is not the probabilities times the values"
    return Judgement.measured(test, record.layer, head, value, limits.relative, detail, record.stack)


def _as_configured(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    records: Sequence[AttentionRecord],
    limits: Tolerances,
    judgements: Sequence[Judgement],
) -> list[Judgement]:
    """Compare each module's output in the model's own run with a recorded run, up to the first that differs.

    This sees what the tests of single calls cannot: a mask that is made for the model's implementation only and
    differs from the one of a capture, such as a sliding window that was lost.
    """
    test = "run as configured"
    if any(judgement.status == Status.failed for judgement in judgements):
        why = "follows from the failures above"
        return [Judgement.not_judged(test, r.layer, None, why, r.stack) for r in records]
    names = [record.module for record in records]
    with module_outputs(model, names) as own, evaluating(model), torch.no_grad():
        forward(model, inputs, "a window")
    with module_outputs(model, names) as recorded:
        record_batch(model, inputs)
    detail = (
        "the output differs from that of a capture: the model's implementation gets another mask or input"
    )
    found = []
    for record in records:
        value = relative_difference(own[record.module], recorded[record.module])
        found.append(
            Judgement.measured(test, record.layer, None, value, limits.relative, detail, record.stack)
        )
        if found[-1].status == Status.failed:
            break
    return found


def _position_shift(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    records: Sequence[AttentionRecord],
    limits: Tolerances,
) -> list[Judgement]:
    """Move all positions of a rotary model and compare the logits, up to the first layer that differs."""
    test = "position shift"
    why = _no_positions(model, inputs)
    if why:
        return [Judgement.not_judged(test, r.layer, None, why, r.stack) for r in records]
    shape = inputs["input_ids"].shape
    positions = torch.arange(shape[1], device=inputs["input_ids"].device).expand(shape)
    moved = own_records(model, {**inputs, "position_ids": positions + POSITION_SHIFT})
    detail = (
        f"logits change when all positions move by {POSITION_SHIFT}: queries and keys are not rotated alike"
    )
    found: list[Judgement] = []
    for record, other in zip(records, moved, strict=True):
        for head in range(record.n_heads):
            seen = record.visible_to(head)
            value = relative_difference(logits(other, head)[seen], logits(record, head)[seen])
            found.append(
                Judgement.measured(test, record.layer, head, value, limits.relative, detail, record.stack)
            )
        if any(judgement.status == Status.failed for judgement in found):
            # Every later layer gets another input.
            break
    return found


def _no_positions(model: torch.nn.Module, inputs: Mapping[str, Any]) -> str:
    """Say why positions cannot be moved, if so."""
    if is_plain(model):
        return "it is not known how a plain PyTorch module is told its positions"
    config: Any = model.config
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    if not rotary:
        return "positions are not rotary"
    if "position_ids" not in inspect.signature(model.forward).parameters or "input_ids" not in inputs:
        return "the model takes no position_ids"
    return ""


def _dropout(model: torch.nn.Module, records: Sequence[AttentionRecord]) -> list[Judgement]:
    """Test that no attention module of the model, in the mode in which it was given, has active dropout."""
    parts = dict(model.named_modules())
    found = []
    for record in records:
        rate = max(map(_active_dropout, parts[record.module].modules()))
        detail = f"{record.module} is in training mode with dropout {rate:g}: call model.eval()"
        found.append(Judgement.measured("dropout", record.layer, None, rate, 0.0, detail, record.stack))
    return found


def _active_dropout(module: torch.nn.Module) -> float:
    """Return the largest dropout rate of a module that is in training mode: as a layer, or as a number it keeps."""
    if not module.training:
        return 0.0
    rates = [float(x) for name, x in vars(module).items() if "dropout" in name and type(x) in (int, float)]
    if isinstance(module, torch.nn.Dropout):
        rates.append(module.p)
    return max(rates, default=0.0)


def _unseen(model: torch.nn.Module, records: Sequence[AttentionRecord]) -> list[Judgement]:
    """Name the layers of a model with one stack in which no attention was seen, so that none is passed over."""
    n_layers = getattr(config_of(model).get_text_config(), "num_hidden_layers", 0)
    if len({record.stack for record in records}) > 1:
        return []
    why = "no attention was seen in this layer: it has none, or computes it in code of its own"
    seen = {record.layer for record in records}
    missing = [layer for layer in range(n_layers) if layer not in seen]
    return [Judgement.not_judged("seen", layer, None, why) for layer in missing]


def _unpadded(window: Mapping[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """Return the arguments of a window for a model, or raise if they are padded."""
    mask = window.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise padded()
    return arguments_for(model, window)


def _eps(model: torch.nn.Module) -> float:
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()] or [torch.float32]
    return float(max(torch.finfo(dtype).eps for dtype in dtypes))
