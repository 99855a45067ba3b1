"""The stage "energy": incoherence, spectra and spread of every head's energy field, and the invariants (IS)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.energy.causality import causal_stacks
from headscape.energy.factors import module_factors
from headscape.energy.invariants import judge_record
from headscape.energy.judgement import Judgement, Status
from headscape.energy.statements import Statement, energy_statements
from headscape.energy.table import EnergyTables, energy_tables, pooled_tables
from headscape.output import json_ready
from headscape.report.energy_figures import energy_figures
from headscape.report.pictures import float_text
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import (
    Column,
    NotApplicableError,
    NotExposedError,
    Option,
    Outcome,
    Stage,
    require_one_of,
)
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.checks import MAX_LENGTH, require_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

_COLUMNS = (
    Column(
        "mu_K",
        "μ_K",
        "Key incoherence: largest squared key norm against the mean; 1 = equal norms.",
        direction="one key dominates",
        panel=True,
    ),
    Column("mu_K_centered", "μ_K centered", "Key incoherence of the keys minus their mean."),
    Column("mu_K_without_first", "μ_K w/o first", "Key incoherence without the first token."),
    Column("leverage", "leverage", "Leverage-score coherence of the key matrix."),
    Column("k50", "k50", "Components that hold 50 % of the variance of the energy field."),
    Column(
        "k90",
        "k90",
        "Components that hold 90 % of the variance of the energy field.",
        direction="many directions matter",
        panel=True,
    ),
    Column("k99", "k99", "Components that hold 99 % of the variance of the energy field."),
    Column("effective_rank", "eff. rank", "exp(entropy) of the variance shares of the energy field."),
    Column("stable_rank", "stable rank", "Variance of the energy field over its largest component."),
    Column(
        "participation",
        "participation",
        "Share of the keys over which the variance of the energy field is spread.",
        direction="spread over many keys",
        panel=True,
    ),
    Column("peak", "peak", "Largest share of the variance on one key, times the number of keys."),
)


class Energy(Stage):
    """Measures the energy field of every head, and tests what softmax attention must obey."""

    name, title, doing, cost = "energy", "Energy", "measuring energy", 1.1
    concurrent = True
    columns = (
        Column("kv_head", "key-value head", "Number of the head's keys in its layer.", table=False),
        *(column for base in _COLUMNS for column in base.with_bounds("q25", "q75")),
    )
    options = (
        Option(
            "lengths",
            None,
            "Prefixes to measure at, such as 64,128,256; by default powers of two.",
            many=True,
        ),
        Option("signatures", False, "Also zero-sum and spectral signatures of every head (slower)."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the lengths are numbers of tokens."""
        require_one_of(options["signatures"], "signatures", (True, False))
        for length in options["lengths"] or ():
            require_integer(length, "lengths", 2, MAX_LENGTH)

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a window: no matrix of tokens x tokens is made."""
        return self.cost * size.times(tokens=1) * (3 if options["signatures"] else 1)

    def measure(self, context: Context, piece: int) -> Result:
        """Return the energy tables and the outcome of every invariant for one window."""
        window = context.window(piece)
        if not isinstance(window, Capture):
            raise NotApplicableError("it needs queries and keys, which tensors do not hold")
        if not window.has_products:
            raise NotExposedError(
                "it needs queries and keys, but only logits or probabilities are known (the field 'log_ratio' is the "
                "energy of finished logits)"
            )
        options = context.options[self.name]
        tables = energy_tables(
            window,
            options["lengths"],
            signatures=options["signatures"],
            engine=context.engine,
            progress=context.progress,
        )
        records = list(window.records(0))
        causal = causal_stacks(records)

        def judge(record: AttentionRecord) -> list[Judgement]:
            return list(judge_record(record, causal=record.stack in causal))

        known = set(context.heads)
        found = [judgement for of_record in context.engine.map(judge, records) for judgement in of_record]
        kept = [j for j in found if j.head is None or (j.layer, j.head) in known]
        arrays = {"spectrum": _spectra(window, records)} if piece == 0 else {}
        return Result(
            arrays,
            {"judgements": [_row(j) for j in kept]},
            {"heads": tables.heads, "kv_heads": tables.kv_heads},
        )

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the energy measures at the longest length as medians over windows, and what they say."""
        tables = pooled_tables([EnergyTables(r.tables["heads"], r.tables["kv_heads"]) for r in results])
        longest = tables.heads[tables.heads["length"] == tables.lengths[-1]].set_index(["layer", "head"])
        shown = longest[[column.name for column in self.columns]]
        judgements: dict[str, list[list[Any]]] = {}
        for result in results:
            for test, *rest in result.attributes["judgements"]:
                judgements.setdefault(test, []).append(rest)
        detail = EnergyMeasures(
            tables, tuple(InvariantCount.of(test, rows) for test, rows in judgements.items())
        )
        return Outcome(
            shown.loc[list(context.heads)],
            tuple(_finding(statement) for statement in energy_statements(tables)),
            detail=detail,
            tables={"energy_heads": tables.heads, "energy_kv_heads": tables.kv_heads},
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return the pictures of arXiv 2605.02907 for this model, single heads by a typical one."""
        learned = study["interaction"] if "interaction" in study else None  # noqa: SIM401  a study has no get
        found = energy_figures(study.capture, study[self.name].tables, head=head, interaction=learned)
        return {f"energy_{name}": figure for name, figure in found.items()}

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the spectra of the first window, and how the invariants fared."""
        spectrum = study.results[self.name][0].arrays["spectrum"]
        invariants = [count.to_dict() for count in study[self.name].invariants]
        data = {
            "spectrum": float_text(np.nan_to_num(spectrum)),
            "components": spectrum.shape[1],
            "invariants": invariants,
        }
        return (Section(self.name, "Energy", data, page_file("energy.html"), script=page_file("energy.js")),)


@dataclass(frozen=True)
class InvariantCount:
    """How one invariant fared over all heads and windows.

    ``counts`` says how often it passed, failed, and was not judged; ``worst`` is the value that came closest to what is
    allowed, and what is allowed there; ``detail`` says what was wrong, or why nothing was judged.
    """

    test: str
    counts: Mapping[str, int]
    worst: tuple[float, float]
    failed_heads: tuple[tuple[int, int], ...]
    detail: str

    @classmethod
    def of(cls, test: str, rows: Sequence[Sequence[Any]]) -> "InvariantCount":
        """Count the outcomes of one test; each row is layer, head, status, value, tolerance, detail."""
        counts = {str(status): sum(row[2] == status for row in rows) for status in Status}
        judged = [row for row in rows if row[3] is not None and row[4] is not None]
        # Bounds differ from head to head, so the worst is the one that comes closest to its own.
        worst = max(judged, key=lambda row: row[3] - row[4], default=None)
        failures = [row for row in rows if row[2] == Status.failed]
        details = [row[5] for row in (failures or rows) if row[5] and (failures or row[2] != Status.passed)]
        return cls(
            test,
            counts,
            (float("nan"), float("nan")) if worst is None else (worst[3], worst[4]),
            tuple(sorted({(row[0], row[1]) for row in failures if row[1] is not None})),
            details[0] if details else "",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the report."""
        return {
            "test": self.test,
            "passed": self.counts["passed"],
            "failed": self.counts["failed"],
            "not_judged": self.counts["not judged"],
            "worst": json_ready(self.worst[0]),
            "allowed": json_ready(self.worst[1]),
            "heads": [f"{layer}.{head}" for layer, head in self.failed_heads],
            "detail": self.detail,
        }


@dataclass(frozen=True, eq=False)
class EnergyMeasures:
    """The pooled energy tables, and how the invariants fared: ``study["energy"]``."""

    tables: EnergyTables
    invariants: tuple[InvariantCount, ...]


def _spectra(window: Capture, records: Sequence[AttentionRecord]) -> Any:
    """Return the cumulative variance shares (head, component) of the energy field of every head."""
    curves = []
    for record in records:
        factors = module_factors(record)
        heads = (head for layer, head in window.heads if layer == record.layer)
        curves += [np.cumsum(factors.spectrum(head).variance_shares) for head in heads]
    most = max(len(curve) for curve in curves)
    return np.stack([np.pad(curve, (0, most - len(curve)), mode="edge") for curve in curves]).astype(
        np.float32
    )


def _finding(statement: Statement) -> Finding:
    """Return a statement as a finding; heads that stand out are unusual, what holds for all heads is a detail."""
    unusual = statement.exceptions and statement.name in ("key incoherence", "counter-examples")
    text = statement.text[0].upper() + statement.text[1:]
    return Finding(text, Question.unusual if unusual else Question.more, statement.published)


def _row(j: Judgement) -> list[Any]:
    return [j.test, j.layer, j.head, str(j.status), *map(json_ready, (j.value, j.tolerance)), j.detail]
