"""How every command that analyzes runs: check, open, analyze with some stages, report, tell."""

import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.console import Console, output_folder
from headscape.cli.given import (
    check_given,
    engine_of,
    formats_of,
    inputs_of,
    opened,
    parse_head,
    parse_heads,
    parse_numbers,
)
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError
from headscape.output import counted


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
    check_given(sources, given)
    options = _checked_options(sources[0], given, stages, options)
    inputs = inputs_of(given)
    formats = formats_of(given.figures)
    head = parse_head(given.head, "--head")
    if head is not None and not formats:
        raise InputError("--head chooses what the figures show: specify --figures too.")
    layers, heads = parse_numbers(given.layers, "--layers"), parse_heads(given.heads, "--heads")
    folder = output_folder(out)
    from headscape.report.style import save_figures
    from headscape.study.analyze import analyze
    from headscape.study.expected_time import analysis_seconds

    start = time.perf_counter()
    with shown_progress(quiet=given.quiet) as progress, ExitStack() as stack:
        progress("opening the source", 0, 1)
        source = opened(sources, given)
        if head is not None:
            _require_head(source, head, given.stack, layers, heads)
        asked = {
            "out": folder,
            "windows": given.windows,
            "length": given.length,
            "stages": stages,
            "quick": quick,
            "stack": given.stack,
            "layers": layers,
            "heads": heads,
            **options,
        }
        announce_time(progress, given, lambda: analysis_seconds(source, inputs, **asked))
        study = analyze(
            source,
            inputs,
            **asked,
            sample=given.sample.value,
            field=getattr(given, "field", None),
            sinks=str(getattr(given, "sinks", "keep")).replace("-", " "),
            seed=given.seed,
            command=shlex.join(["headscape", *sys.argv[1:]]),
            engine=stack.enter_context(engine_of(given)),
            progress=progress,
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
    if given.csv:
        sys.stdout.write(study.heads.to_csv(lineterminator="\n"))
    console = Console(quiet=given.quiet, json=given.json or given.csv)
    if given.json:
        console.result(summary)
    _tell(console, study, summary, every=stages is not None, verbose=given.verbose)
    return study


def _checked_options(
    source: str, given: SimpleNamespace, stages: list[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of the stages, or raise unless all of them are good and apply to the source."""
    from headscape.study.source import TENSOR, source_kind
    from headscape.study.stages import chosen_stages, stage_options

    chosen, kind = chosen_stages(stages), source_kind(source)
    merged = dict(options)
    if getattr(given, "n_iter", None) is not None:
        if "n_iter" in merged:
            raise InputError("specify n_iter once, as --n-iter or with --set.")
        merged["n_iter"] = given.n_iter
    stage_options(merged, chosen)
    if kind == TENSOR and merged.get("fields"):
        raise InputError(f"fields are those of a model or a capture, but {source} is a tensor of one field.")
    if kind != TENSOR and merged.get("causal"):
        raise InputError(f"causal is for tensors: a {kind} knows which keys are visible.")
    organizes = "geometry" in {stage.name for stage in chosen}
    if kind != TENSOR and not organizes and getattr(given, "field", None) is not None:
        raise InputError("--field says what is organized, but no stage that was asked for organizes.")
    if not organizes and "sinks" in given.explicit:
        raise InputError("--sinks says what is organized, but no stage that was asked for organizes.")
    return merged


def _require_head(
    source: Any,
    head: tuple[int, int],
    stack: str | None,
    layers: list[int] | None,
    heads: list[tuple[int, int]] | None,
) -> None:
    """Raise, before anything is computed, unless the figures can show a head."""
    from headscape.models.anatomy import heads_of, of_stack
    from headscape.models.loading import Model
    from headscape.study.study import Study

    if isinstance(source, Model):
        known = heads_of(of_stack(source.modules(), stack))
    else:
        known = (source.data if isinstance(source, Study) else source).select(stack).heads
    if head not in known or head[0] not in (layers or [head[0]]) or head not in (heads or [head]):
        raise InputError(f"--head must be one of the heads that are analyzed, but is {head[0]}.{head[1]}.")


def _tell(console: Console, study: Any, summary: dict[str, Any], *, every: bool, verbose: bool) -> None:
    """Print the answers by question, the warnings, what every measure is like over the heads, and where the rest is."""
    from headscape.study.display import FIRST_ANSWERS

    console.say(f"{study.title}: {counted(len(study.heads), 'head')}, {counted(study.windows, 'window')}")
    console.say("A head is written layer.head, both counted from 0.")
    for question, answers in study.answers.items():
        if not (every or verbose or question.first):
            continue
        console.say(f"\n{question}")
        for answer in answers if every or verbose else answers[:FIRST_ANSWERS]:
            console.say(str(answer), indent=2)
            if verbose and answer.statistics:
                console.say(answer.statistics, indent=6)
    console.say("")
    for warning in study.warnings:
        console.say(f"Warning: {warning}")
    _table(console, study)
    more = "" if verbose else " All findings with their statistics: --verbose."
    console.say(
        f"{summary['total_seconds'] / 60:.1f} minutes. Report: {summary['report']}. Table: {summary['out']}/heads.csv "
        f"(and .json).{more}"
    )


def _table(console: Console, study: Any) -> None:
    """Print one row a measure: what is usual among the heads, which is lowest and highest, and what it means."""
    table, rows, meanings = study.heads, [], []
    for name, column in study.columns.items():
        if column.panel and table[name].dtype.kind in "fi":
            low, middle, high = (float(v) for v in table[name].quantile([0.25, 0.5, 0.75]))
            title = f"{column.title}, {column.unit}" if column.unit else column.title
            rows.append((title, low, middle, high, *_extremes(table[name])))
            meanings.append(f"{column.title}: {column.explained}")
    if rows:
        columns = ("measure", "25 %", "median", "75 %", "lowest", "highest")
        title = "Measures over all heads: quartiles, and the heads with the lowest and the highest value (- if several)"
        console.table(title, columns, rows)
        for meaning in meanings:
            console.say(meaning, indent=2)
        console.say("")


def _extremes(column: Any) -> tuple[str, str]:
    if column.isna().all():
        return "-", "-"
    low, high = (_only(column[column == value]) for value in (column.min(), column.max()))
    return low, high


def _only(heads: Any) -> str:
    """Return the one head of a selection; a dash if several are equal."""
    return f"{heads.index[0][0]}.{heads.index[0][1]}" if len(heads) == 1 else "-"
