"""Every energy measure of the heads of one attention module, on prefixes of one window."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from headscape.energy.delocalization import field_delocalization
from headscape.energy.factors import ModuleFactors, module_factors
from headscape.energy.field import energy_field, zero_sum_error
from headscape.energy.incoherence import KeyIncoherence, incoherence_of
from headscape.energy.query_key import as_double
from headscape.energy.signatures import spectral_signatures
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import energy, probs

KEY_MEASURES = ("mu_K", "mu_K_centered", "mu_K_without_first", "mu_K_norm", "mu_K_norm_centered", "leverage")
FIELD_MEASURES = (
    "rank",
    "k50",
    "k90",
    "k95",
    "k99",
    "effective_rank",
    "stable_rank",
    "participation",
    "peak",
    "peak_bound",
    "peak_key",
)
SIGNATURE_MEASURES = (
    "zero_sum",
    "low_band",
    "low_band_logits",
    "comb_share",
    "low_band_visible",
    "comb_share_visible",
    "probs_participation",
    "probs_peak",
)
"""Of the fully centered field, but for the two that say "visible"."""

Measures = dict[str, float]


@dataclass(frozen=True)
class ModuleMeasures:
    """The measures of one module in one window: per (length, key-value head) and per (length, head)."""

    layer: int
    n_queries_per_key: int
    keys: Mapping[tuple[int, int], Measures]
    fields: Mapping[tuple[int, int], Measures]
    notes: Mapping[tuple[int, int], str]
    beyond_products: str
    rank_bounds: Mapping[int, int]


def module_measures(
    record: AttentionRecord, lengths: Sequence[int], heads: Iterable[int], *, signatures: bool = False
) -> ModuleMeasures:
    """Measure the chosen heads of one module on the first ``n`` queries and keys, for every n in ``lengths``.

    Parameters
    ----------
    record
        One attention module in one window.
    lengths
        Numbers of keys; queries are cut to the same number (fewer, where there are fewer).
    heads
        Query heads to measure; keys that several of them share are measured once.
    signatures
        Also the measures that need the whole L x L field.

    Notes
    -----
    O(L d^2) per head, all heads of the module in one batch; the queries of a length are factored with the factors of
    the length before. O(L^2 (d + log L)) with ``signatures``.
    """
    keys: dict[tuple[int, int], Measures] = {}
    measured: dict[tuple[int, int], Measures] = {}
    notes: dict[tuple[int, int], str] = {}
    chosen = list(heads)
    factors: ModuleFactors | None = None
    done = 0
    for n in sorted(lengths):
        factors = module_factors(record, n, n, factors, done)
        done = min(n, record.queries.shape[1])
        for kv_head in sorted({record.kv_head(head) for head in chosen}):
            found = incoherence_of(as_double(record.keys[kv_head][:n]))
            keys[n, kv_head] = _key_measures(found)
            notes[n, kv_head] = "; ".join(sorted(set(found.undefined.values())))
        for head in chosen:
            measured[n, head] = _field_measures(factors, head)
            if signatures:
                measured[n, head].update(_signature_measures(record, head, n))
    n_queries = record.queries.shape[1]
    return ModuleMeasures(
        layer=record.layer,
        n_queries_per_key=record.n_heads // record.n_kv_heads,
        keys=keys,
        fields=measured,
        notes=notes,
        beyond_products=beyond_products(record),
        rank_bounds={n: min(record.head_dim, n_queries, n - 1) for n in lengths},
    )


def beyond_products(record: AttentionRecord) -> str:
    """Name what enters the attention of a module beside s q.k, for which the rank bound does not hold."""
    parts = []
    if record.softcap is not None:
        parts.append(f"soft-cap {record.softcap:g}")
    if record.bias is not None:
        parts.append("position bias")
    if record.sinks is not None:
        parts.append("sinks")
    return ", ".join(parts)


def _key_measures(found: KeyIncoherence) -> Measures:
    values = [getattr(found, item.name) for item in fields(found) if item.name != "undefined"]
    return dict(zip(KEY_MEASURES, values, strict=True))


def _field_measures(factors: ModuleFactors, head: int) -> Measures:
    spectrum, spread = factors.spectrum(head), factors.delocalization(head)
    measures = {name: float(getattr(spectrum, name)) for name in FIELD_MEASURES[:7]}
    measures["participation"] = spread.participation
    measures["peak"] = spread.peak
    measures["peak_bound"] = spread.bound
    measures["peak_key"] = float(spread.peak_key) if np.isfinite(spread.peak) else float("nan")
    return measures


def _signature_measures(record: AttentionRecord, head: int, n: int) -> Measures:
    cut = record.replace(
        queries=record.queries[head : head + 1, :n],
        keys=record.keys[record.kv_head(head)][None, :n],
        visible=record.visible_to(head)[:n, :n],
        bias=None if record.bias is None else record.bias[head : head + 1, :n, :n],
        sinks=None if record.sinks is None else record.sinks[head : head + 1],
        probs=None,
    )
    field = energy_field(cut.queries[0], cut.keys[0], cut.scale)
    attention = field_delocalization(probs(cut, 0))
    measures = {name: float("nan") for name in SIGNATURE_MEASURES}
    measures["zero_sum"] = zero_sum_error(field)
    measures["probs_participation"], measures["probs_peak"] = attention.participation, attention.peak
    if field.any() and len(field) > 8:
        raw = (cut.queries[0] * np.float32(cut.scale)) @ cut.keys[0].T
        found = spectral_signatures(field, raw)
        measures["low_band"], measures["low_band_logits"] = found.low_band, found.low_band_logits
        measures["comb_share"] = found.comb_share
    visible = energy(cut, 0)
    if visible.any() and len(visible) > 8:
        found = spectral_signatures(visible)
        measures["low_band_visible"], measures["comb_share_visible"] = found.low_band, found.comb_share
    return measures
