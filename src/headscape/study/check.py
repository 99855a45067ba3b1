"""``hs.check``: a linter for attention implementations, made of the invariants of softmax attention.

They are those of the invariants paper (IS, arXiv 2605.02907).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headscape.energy.causality import causal_stacks, judge_causality, looks_causal
from headscape.energy.incoherence import incoherence_of
from headscape.energy.invariants import judge_field, judge_record
from headscape.energy.judgement import Judgement
from headscape.energy.outliers import standing_out
from headscape.energy.query_key import as_double, require_keys
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models.loading import Model, as_model
from headscape.study.check_report import CheckReport, worst_judgements
from headscape.study.model_check import check_model, read_windows
from headscape.study.source import open_source, require_model
from headscape.study.study import Study
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.tensor_windows import TensorWindows


def check(
    source: Any,
    inputs: Any = None,
    *,
    against: Any = None,
    tokenizer: Any = None,
    length: int | None = None,
    windows: int = 2,
    sample: str = "spread",
    causal: bool | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> CheckReport:
    """Check that an attention implementation obeys what softmax attention must obey.

    Of every head: rows of the energy sum to zero; the rank of its field is at most the head dimension; no key
    exceeds the delocalization bound; every query of a causal model sees its own key and no later one; the model's
    own probabilities sum to one, are zero under the mask, and are the softmax of its queries and keys; its output
    is those times the values, and does not move when a constant is added to the logits of a row; in rotary models
    the logits do not move when all positions do. Of every attention module: no dropout is active.

    Parameters
    ----------
    source
        A transformers model or its name (checked as it is configured, with its own attention implementation and
        mask); a plain PyTorch module (with torch's own code); a capture (queries, keys, and probabilities if it holds
        them), or the study that holds it; or tensors of energies or probabilities. Paths of all of these, too.
    inputs
        Text, token ids, images, ... as for :func:`headscape.capture`, without padding; by default random tokens
        or pixels. Models only.
    against
        A reference model or its name: another dtype or implementation, or the model before conversion or
        quantization. The relative difference of keys, logits and probabilities of every head is then tested.
    tokenizer
        For text; models that are loaded by name bring theirs.
    length, windows
        Tokens per window, by default enough to make every test meaningful; number of windows.
    causal
        Whether queries must not see later keys. By default, where the model says so of itself or most masks look
        causal; causality of other attention is not judged.
    tolerance
        Largest relative difference to the reference; by default what the coarser dtype explains (float32:
        1e-3).
    seed
        Of the random inputs and constants.
    progress
        Progress callback.

    Returns
    -------
    CheckReport
        ``.ok``, ``.failures`` (each with test, layer and head), ``.outliers`` (heads whose mu_K is far from the
        rest: not failures), ``.differences``, ``.table()``, ``.summary()``, ``.text()``.

    Notes
    -----
    Four to six forward passes, and O(L^2 d) per head. Tests that do not apply, such as to soft-cap, position bias
    and sinks, are "not judged", with the reason.

    References
    ----------
    The invariants paper (IS, arXiv 2605.02907), mechanism-level invariants.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 40, 8)), rng.normal(size=(2, 2, 40, 8)))
    >>> report = check(capture)
    >>> report.ok, report.tests
    (True, ('zero-sum', 'delocalization bound', 'causality', 'own key', 'rank bound'))
    """
    opened = open_source(source, tokenizer=tokenizer)
    if not isinstance(opened, Model):
        if inputs is not None or against is not None:
            require_model(opened, "a check with inputs or against a reference")
        held = opened.capture if isinstance(opened, Study) else opened
        return _check_capture(held, causal) if isinstance(held, Capture) else _check_tensors(held, causal)
    reference = None if against is None else as_model(against).model
    arguments = read_windows(opened, inputs, length=length, windows=windows, sample=sample, seed=seed)
    judgements, records, differences = check_model(
        opened.model, arguments, reference, causal=causal, tolerance=tolerance, seed=seed, progress=progress
    )
    outliers = {} if against is not None else _incoherence_outliers(records)
    return CheckReport(opened.name, worst_judgements(judgements), outliers, differences)


def _incoherence_outliers(rows: Iterable[Sequence[AttentionRecord]]) -> dict[tuple[int, int], float]:
    """Return the key-value heads whose mu_K stands out from the others, with it (the median over windows)."""
    found: dict[tuple[int, int], list[float]] = {}
    stack = None
    for records in rows:
        for record in records:
            stack = stack or record.stack
            # Keys of cross-attention and of a second stack are another population.
            if record.stack != stack or record.n_keys < 2 or not record.has_products:
                continue
            for kv_head in range(record.n_kv_heads):
                keys = as_double(require_keys(record.keys[kv_head]))
                found.setdefault((record.layer, kv_head), []).append(incoherence_of(keys).raw)
    heads = list(found)
    values = np.array([np.median(found[head]) for head in heads])
    return {heads[i]: float(values[i]) for i in np.flatnonzero(standing_out(values))}


def _check_capture(capture: Capture, causal: bool | None) -> CheckReport:
    stacks = causal_stacks(capture.records(0))

    def judgements() -> Iterator[Judgement]:
        for window in range(capture.n_windows):
            for record in capture.records(window):
                record.require_finite()
                yield from judge_record(record, causal=record.stack in stacks if causal is None else causal)

    rows = (list(capture.records(window)) for window in range(capture.n_windows))
    model = capture.provenance.get("model", {})
    name = model.get("name", "capture") if isinstance(model, dict) else str(model)
    return CheckReport(str(name), worst_judgements(judgements()), _incoherence_outliers(rows))


def _check_tensors(tensors: TensorWindows, causal: bool | None) -> CheckReport:
    if tensors.field not in ("energy", "probs"):
        raise InputError(
            f"tensors must hold energies or probabilities to be checked, but their field is {tensors.field!r}. "
            "Say what they hold with field (--field): energy or probs."
        )
    if causal is None:
        first = tensors.tensor(0)
        causal = 2 * sum(looks_causal(first.head(*head) != 0) for head in first.heads) > len(first.heads)
    judgements = []
    for window in range(tensors.n_windows):
        tensor = tensors.tensor(window)
        for layer, head in tensor.heads:
            field = tensor.head(layer, head)
            judgements.append(judge_field(field, tensor.field, layer, head))
            judgements.append(judge_causality(field != 0, layer, head, causal=causal))
    return CheckReport(f"{tensors.field} tensor", worst_judgements(judgements))
