"""The energy table: one row a head, medians and quartiles over windows, at several lengths (IS)."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from headscape.energy.measures import (
    FIELD_MEASURES,
    KEY_MEASURES,
    SIGNATURE_MEASURES,
    ModuleMeasures,
    module_measures,
)
from headscape.energy.spectrum import Spectrum
from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture

FIRST_LENGTH = 64


@dataclass(frozen=True, eq=False)
class EnergyTables:
    """The two views of the energy measures.

    Parameters
    ----------
    heads : DataFrame
        One row per (text, length, layer, head): all measures; those of the keys are repeated where heads
        share them.
    kv_heads : DataFrame
        One row per (text, length, layer, kv_head): the measures of the keys, each key-value head once.
    """

    heads: "pd.DataFrame"
    kv_heads: "pd.DataFrame"

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were measured, shortest first."""
        return tuple(sorted(int(n) for n in self.heads["length"].unique()))


def energy_table(
    capture: Capture,
    lengths: Sequence[int] | None = None,
    *,
    view: Literal["head", "kv_head"] = "head",
    **options: Any,
) -> "pd.DataFrame":
    """Return the energy measures of every head: medians and quartiles over the windows of a capture.

    Parameters
    ----------
    capture
        Queries and keys of one or more windows.
    lengths
        Numbers of keys to measure at: prefixes of each window. By default 64, 128, 256, ... and the whole
        window for causal models, and the whole window alone for others, where a prefix is not a shorter text.
    view
        "head": one row a query head. "kv_head": one row a key-value head with the measures of its keys, so
        that shared keys count once.
    **options
        ``texts``, ``signatures``, ``interaction``, ``engine``, ``progress``: see :func:`energy_tables`.

    Returns
    -------
    DataFrame
        Columns ``layer``, ``head`` (or ``kv_head``), ``length``, ``n_windows``, ``centering``; for every
        measure its median under its own name, and the quartiles as ``name_q25`` and ``name_q75``.

    Notes
    -----
    O(windows x heads x lengths x L d^2); fully centered fields throughout.

    References
    ----------
    IS, sections on key incoherence and delocalization.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 80, 8)), rng.normal(size=(2, 2, 80, 8)))
    >>> table = energy_table(capture)
    >>> table[["layer", "head", "kv_head", "length", "rank"]].head(2)
       layer  head  kv_head  length  rank
    0      0     0        0      64   8.0
    1      0     1        0      64   8.0
    >>> len(table), len(energy_table(capture, view="kv_head"))
    (16, 8)
    """
    if view not in ("head", "kv_head"):
        raise InputError(f"view must be 'head' or 'kv_head', but is {view!r}.")
    tables = energy_tables(capture, lengths, **options)
    return tables.heads if view == "head" else tables.kv_heads


def energy_tables(
    capture: Capture,
    lengths: Sequence[int] | None = None,
    *,
    texts: Sequence[str] | None = None,
    signatures: bool = False,
    interaction: Mapping[tuple[int, int], Spectrum] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> EnergyTables:
    """Return both views of the energy measures of a capture, computed once.

    Parameters
    ----------
    capture, lengths
        As for :func:`energy_table`.
    texts
        A name per window, if the windows come from several texts: they are then summed up text by text.
    signatures
        Also zero-sum, spectral signatures and the spread of the probabilities, which need the L x L field.
    interaction
        The spectrum of W_Q^T W_K by (layer, head): adds its ``interaction_k90`` and ``interaction_rank``.
    engine, progress
        Where the layers are measured, and who hears how far it is.

    Returns
    -------
    EnergyTables
    """
    if texts is not None and len(texts) != capture.n_windows:
        raise InputError(f"texts must name every window ({capture.n_windows}), but has {len(texts)} entries.")
    if not capture.has_products:
        raise InputError(
            "the energy measures need queries and keys, but this capture holds only logits or probabilities. Its field "
            "'log_ratio' is the energy of the finished logits."
        )
    chosen = _chosen_lengths(capture, lengths)
    heads: dict[int, list[int]] = {}
    for layer, head in capture.heads:
        heads.setdefault(layer, []).append(head)
    tasks = [(window, layer) for window in range(capture.n_windows) for layer in heads]

    def measure(task: tuple[int, int]) -> ModuleMeasures:
        window, layer = task
        record = capture.record(window, layer)
        record.require_finite()
        return module_measures(record, chosen, heads[layer], signatures=signatures)

    head_rows: list[dict[str, Any]] = []
    key_rows: list[dict[str, Any]] = []
    # Matrices of L x d are too small for threads of BLAS: beside those of the engine they only wait for each other.
    with one_blas_thread():
        for done, found in enumerate((engine or LocalEngine()).map(measure, tasks)):
            window = tasks[done][0]
            text = {} if texts is None else {"text": texts[window]}
            _add_rows(found, text, interaction, head_rows, key_rows)
            progress("energy", done + 1, len(tasks))
    extra = ("interaction_k90", "interaction_rank") if interaction is not None else ()
    measures = (*FIELD_MEASURES, *(SIGNATURE_MEASURES if signatures else ()), *KEY_MEASURES, *extra)
    return EnergyTables(
        heads=_summary(head_rows, ("layer", "head", "kv_head"), measures),
        kv_heads=_summary(key_rows, ("layer", "kv_head"), KEY_MEASURES),
    )


def pooled_tables(tables: Sequence[EnergyTables]) -> EnergyTables:
    """Return the tables of several single windows as one: medians and quartiles over the windows.

    Parameters
    ----------
    tables
        From :func:`energy_tables`, each of a capture with one window, all of the same heads and lengths.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 1, 4, 80, 8)), rng.normal(size=(2, 1, 2, 80, 8)))
    >>> single = [energy_tables(capture.select(windows=[window])) for window in range(2)]
    >>> pooled_tables(single).heads.equals(energy_tables(capture).heads)
    True
    """

    def pooled(frames: "Sequence[pd.DataFrame]", labels: tuple[str, ...]) -> "pd.DataFrame":
        frame = pd.concat(list(frames))
        measures = [str(name).removesuffix("_q25") for name in frame if str(name).endswith("_q25")]
        rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
        return _summary(rows, labels, measures)

    return EnergyTables(
        heads=pooled([table.heads for table in tables], ("layer", "head", "kv_head")),
        kv_heads=pooled([table.kv_heads for table in tables], ("layer", "kv_head")),
    )


def _chosen_lengths(capture: Capture, lengths: Sequence[int] | None) -> tuple[int, ...]:
    """Return the lengths to measure at, or raise if a window is too short for one."""
    records = [capture.record(window, capture.layers[0]) for window in range(capture.n_windows)]
    shortest = min(record.keys.shape[1] for record in records)
    causal = all(is_prefix_closed(record) for record in records)
    if lengths is None:
        powers = []
        n = FIRST_LENGTH
        while causal and n < shortest:
            powers.append(n)
            n *= 2
        return (*powers, shortest)
    chosen = tuple(sorted({int(n) for n in lengths}))
    if not chosen or chosen[0] < 2 or chosen[-1] > shortest:
        raise InputError(
            f"lengths must lie between 2 and the shortest window ({shortest} keys), but are {list(lengths)}. "
            "Capture longer windows or leave the long lengths out."
        )
    if not causal and chosen != (shortest,):
        warnings.warn(
            "the queries of this capture see later keys: a prefix of a window is not what the model would "
            "give on the shorter text.",
            UserWarning,
            stacklevel=4,
        )
    return chosen


def is_prefix_closed(record: AttentionRecord) -> bool:
    """Tell whether no query sees a later key, so that a prefix of the window is a window of its own."""
    n_queries, n_keys = record.visible.shape[-2:]
    if n_queries != n_keys:
        return False
    future = ~np.tri(n_queries, dtype=bool)
    return not bool((record.visible & future).any())


def _add_rows(
    found: ModuleMeasures,
    text: dict[str, str],
    interaction: Mapping[tuple[int, int], Spectrum] | None,
    head_rows: list[dict[str, Any]],
    key_rows: list[dict[str, Any]],
) -> None:
    """Append one row per head and one per key-value head of a module in one window."""
    for (n, kv_head), measures in found.keys.items():
        labels = {"layer": found.layer, "kv_head": kv_head, "length": n, "note": found.notes[n, kv_head]}
        key_rows.append({**text, **labels, **measures})
    for (n, head), measures in found.fields.items():
        kv_head = head // found.n_queries_per_key
        row = {**text, "layer": found.layer, "head": head, "kv_head": kv_head, "length": n}
        row |= {"note": found.notes[n, kv_head], "beyond_products": found.beyond_products}
        row |= {"rank_bound": found.rank_bounds[n], **measures, **found.keys[n, kv_head]}
        if interaction is not None and (found.layer, head) in interaction:
            learned = interaction[found.layer, head]
            row |= {"interaction_k90": learned.k90, "interaction_rank": learned.effective_rank}
        head_rows.append(row)


def _summary(rows: list[dict[str, Any]], labels: tuple[str, ...], measures: Sequence[str]) -> "pd.DataFrame":
    """Return medians and quartiles of the measures over the windows of each (text, length, head)."""
    frame = pd.DataFrame(rows)
    by = [*(["text"] if "text" in frame else []), "length", *labels]
    constant = [name for name in ("rank_bound", "beyond_products") if name in frame]
    groups = frame.groupby(by, sort=True)
    summary = groups[constant].first() if constant else groups.size().to_frame()[[]]
    summary.insert(0, "n_windows", groups.size())
    summary.insert(1, "centering", "full")
    present = [name for name in measures if name in frame]
    if len(summary) == len(frame):  # one window: what was measured is its own median, and its own quartiles
        values: Any = frame.set_index(by).loc[summary.index]
        low = middle = high = values[present].astype(np.float64)
        notes = values["note"]
    else:
        low, middle, high = (groups[present].quantile(q) for q in (0.25, 0.5, 0.75))
        notes = groups["note"].agg(lambda of_windows: "; ".join(sorted(set(of_windows) - {""})))
    for name in present:
        summary[name] = middle[name]
        summary[f"{name}_q25"] = low[name]
        summary[f"{name}_q75"] = high[name]
    summary["note"] = notes
    return summary.reset_index()
