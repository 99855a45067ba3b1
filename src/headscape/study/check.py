"""``hs.check``: a linter for attention implementations, made of the invariants of softmax attention (IS)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headscape.energy.incoherence import incoherence_of
from headscape.energy.invariants import Finding, Status, Tolerances, judge_field, judge_record
from headscape.energy.outliers import standing_out
from headscape.energy.query_key import as_double, require_keys
from headscape.energy.table import is_prefix_closed
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.study.check_report import CheckReport, worst_findings
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.network_tensor import NetworkTensor


def check(
    model: Any,
    inputs: Any = None,
    *,
    against: Any = None,
    tokenizer: Any = None,
    length: int | None = None,
    windows: int = 2,
    causal: bool | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> CheckReport:
    """Check that an attention implementation obeys what softmax attention must obey.

    Of every head: rows of the energy sum to zero; the rank of its field is at most the head dimension; no key
    exceeds the delocalization bound; no query of a causal model sees a later key; the model's own
    probabilities sum to one, are zero under the mask, and are softmax of its queries and keys; its output is
    those times the values, and does not move when a constant is added to the logits of a row; and in rotary
    models the logits do not move when all positions do.

    Parameters
    ----------
    model
        A transformers model (checked as it is configured, whatever its attention implementation) or its name as
        for :func:`headscape.capture`; a capture (queries, keys, and probabilities if it holds them); or a
        network tensor of energies or probabilities.
    inputs
        Text, token ids, images, ... as for :func:`headscape.capture`, without padding; by default random tokens
        or pixels.
    against
        A reference model or its name: another dtype or implementation, the one before conversion or
        quantization. The relative difference of keys, logits and probabilities of every head is then tested.
    tokenizer
        For text; models that are loaded by name bring theirs.
    length, windows
        Tokens per window, by default enough to make every test say something; number of windows.
    causal
        Whether queries must not see later keys; by default what the model says of itself, or, for a capture,
        what most of its layers do.
    tolerance
        Largest relative difference to the reference; by default what the coarser dtype explains (float32:
        1e-3).
    seed
        Of the probe inputs and shifts.
    progress
        Who hears how far it is.

    Returns
    -------
    CheckReport
        ``.ok``, ``.failures`` (each with test, layer and head), ``.outliers`` (heads whose mu_K is far from the
        rest: no failures), ``.differences``, ``.text()``.

    Notes
    -----
    Four to six forward passes, and O(L^2 d) per head. Soft-cap, position bias and sinks are reported for what
    they are: tests that do not apply to them are "not judged", with the reason.

    References
    ----------
    IS, mechanism-level invariants.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 40, 8)), rng.normal(size=(2, 2, 40, 8)))
    >>> report = check(capture)
    >>> report.ok, report.tests
    (True, ('zero-sum', 'delocalization bound', 'causality', 'rank bound'))
    """
    if isinstance(model, Capture | NetworkTensor):
        if against is not None:
            raise InputError(
                "against compares two models: give a model, or compare the captures' energy tables."
            )
        return _check_capture(model, causal) if isinstance(model, Capture) else _check_tensor(model, causal)
    from headscape.study.model_check import check_model, read_windows, with_tokenizer

    loaded = with_tokenizer(model, tokenizer)
    reference = None if against is None else with_tokenizer(against, None).model
    arguments = read_windows(loaded, inputs, length=length, windows=windows, seed=seed)
    findings, records, differences = check_model(
        loaded.model, arguments, reference, causal=causal, tolerance=tolerance, seed=seed, progress=progress
    )
    outliers = {} if against is not None else incoherence_outliers(records)
    return CheckReport(loaded.name, worst_findings(findings), outliers, differences)


def incoherence_outliers(rows: Iterable[Sequence[AttentionRecord]]) -> dict[tuple[int, int], float]:
    """Return the key-value heads whose mu_K stands out from the others, with it (the median over windows)."""
    found: dict[tuple[int, int], list[float]] = {}
    stack = None
    for records in rows:
        for record in records:
            stack = stack or record.stack
            # Keys of cross-attention and of a second stack are another population.
            if record.stack != stack or record.keys.shape[1] < 2:
                continue
            for kv_head in range(record.n_kv_heads):
                keys = as_double(require_keys(record.keys[kv_head]))
                found.setdefault((record.layer, kv_head), []).append(incoherence_of(keys).raw)
    heads = list(found)
    values = np.array([np.median(found[head]) for head in heads])
    return {heads[i]: float(values[i]) for i in np.flatnonzero(standing_out(values))}


def _check_capture(capture: Capture, causal: bool | None) -> CheckReport:
    closed = [is_prefix_closed(record) for record in capture.records(0)]
    expected = float(np.mean(closed)) > 0.5 if causal is None else causal

    def findings() -> Iterator[Finding]:
        for window in range(capture.n_windows):
            for record in capture.records(window):
                record.require_finite()
                yield from judge_record(record, causal=expected)

    rows = (list(capture.records(window)) for window in range(capture.n_windows))
    source = capture.provenance.get("model", {})
    name = source.get("name", "capture") if isinstance(source, dict) else str(source)
    return CheckReport(str(name), worst_findings(findings()), incoherence_outliers(rows))


def _check_tensor(tensor: NetworkTensor, causal: bool | None) -> CheckReport:
    if tensor.field not in ("energy", "probs"):
        raise InputError(
            f"a network tensor must hold energies or probabilities to be checked, but its field is {tensor.field!r}. "
            "Say field='energy' or field='probs' when you load it."
        )
    findings = []
    for layer, head in tensor.heads:
        field = tensor.head(layer, head)
        findings.append(judge_field(field, tensor.field, layer, head))
        if causal:
            findings.append(_future_entries(field, layer, head))
    return CheckReport(f"{tensor.field} tensor", worst_findings(findings))


def _future_entries(field: Any, layer: int, head: int) -> Finding:
    later = np.abs(np.triu(field, k=1))
    value = float(later.max())
    query, key = np.unravel_index(int(later.argmax()), later.shape)
    detail = f"query {query} has {value:.3g} at the later key {key}" if value else ""
    status = Status.failed if value else Status.passed
    return Finding("causality", layer, head, status, value, 0.0, detail)


__all__ = ["CheckReport", "Tolerances", "check", "incoherence_outliers"]
