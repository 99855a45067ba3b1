"""How every command that analyzes runs: check, open, analyze with some stages, report, tell."""

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.console import Console, output_folder
from headscape.cli.given import (
    check_counts,
    formats_of,
    inputs_of,
    opened,
    parse_head,
    parse_heads,
    parse_numbers,
)
from headscape.cli.progress import shown_progress
from headscape.errors import InputError

FIRST_FINDINGS = 3


def run_analysis(
    sources: list[str],
    out: Path,
    given: SimpleNamespace,
    *,
    stages: list[str] | None,
    quick: bool = False,
    options: Mapping[str, Any],
) -> Any:
    """Run an analysis as the shared options say, write its report and figures, tell what was found.

    Parameters
    ----------
    sources, out, given
        As the command got them.
    stages
        As for :func:`headscape.analyze`.
    quick, options
        As for :func:`headscape.analyze`; options are those of the stages.
    """
    if given.json and given.csv:
        raise InputError("--json and --csv both print to standard output: specify one of them.")
    check_counts(given)
    inputs = inputs_of(given)
    formats = formats_of(given.figures)
    head = parse_head(given.head, "--head")
    layers, heads = parse_numbers(given.layers, "--layers"), parse_heads(given.heads, "--heads")
    from headscape.study.stages import chosen_stages, stage_options

    options = {"n_iter": given.n_iter, **options}
    chosen_stages(stages)
    stage_options(options)
    folder = output_folder(out)
    from headscape.engine import LocalEngine
    from headscape.report.style import save_figures
    from headscape.study.analyze import analyze

    start = time.perf_counter()
    with shown_progress(quiet=given.quiet) as progress:
        progress("opening the source", 0, 1)
        study = analyze(
            opened(sources, given),
            inputs,
            out=folder,
            windows=given.windows,
            length=given.length,
            sample=given.sample.value,
            stages=stages,
            quick=quick,
            field=given.field,
            stack=given.stack,
            layers=layers,
            heads=heads,
            seed=given.seed,
            command=shlex.join(["headscape", *sys.argv[1:]]),
            engine=LocalEngine() if given.threads is None else LocalEngine(given.threads),
            progress=progress,
            **options,
        )
        progress("writing the report", 1, 1)
        report = study.report(folder / "report.html")
        pictures = save_figures(study.figures(head), folder / "figures", formats) if formats else []
    summary = study.summary() | {
        "total_seconds": round(time.perf_counter() - start, 2),
        "out": str(folder),
        "report": str(report),
        "figures": [str(path) for path in pictures],
    }
    _tell(Console(quiet=given.quiet, json=given.json or given.csv), study, summary, given.csv, stages is None)
    return study


def _tell(console: Console, study: Any, summary: dict[str, Any], csv: bool, default: bool) -> None:
    if csv:
        sys.stdout.write(study.heads.to_csv(lineterminator="\n"))
    else:
        console.result(summary)
    table = study.heads
    wanted = [n for n, c in study.columns.items() if c.panel and table[n].dtype.kind in "fi"]
    rows = []
    for name in wanted:
        low, middle, high = (float(v) for v in table[name].quantile([0.25, 0.5, 0.75]))
        rows.append((study.columns[name].title, low, middle, high, *_extremes(table[name])))
    columns = ("over the heads", "lower quartile", "median", "upper quartile", "lowest head", "highest head")
    if rows:
        console.table(f"{len(table)} heads, {study.windows} windows", columns, rows)
    for warning in study.warnings:
        console.say(f"Warning: {warning}")
    for sentence in study.findings[: FIRST_FINDINGS if default else None]:
        console.say(f"- {sentence}")
    console.say(
        f"{summary['total_seconds'] / 60:.1f} minutes. Table: {summary['out']}/heads.csv (and .json). Report: "
        f"{summary['report']}"
    )


def _extremes(column: Any) -> tuple[str, str]:
    if column.isna().all():
        return "-", "-"
    low, high = column.idxmin(), column.idxmax()
    return f"{low[0]}.{low[1]}", f"{high[0]}.{high[1]}"
