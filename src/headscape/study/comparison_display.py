"""A comparison as display data for its page; everything was measured before, here it is only arranged."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.output import counted, json_ready
from headscape.report.comparison_page import ComparisonPageData, SourceView
from headscape.report.html_page import Answer
from headscape.study.compared_source import ComparedSource
from headscape.study.comparison_findings import headline
from headscape.study.display import FIRST_ANSWERS, assignments
from headscape.study.measure_words import words_of
from headscape.study.pair_display import pair_view
from headscape.study.stages.finding import as_finding

if TYPE_CHECKING:
    from headscape.study.comparison import Comparison


def comparison_page_data(comparison: "Comparison") -> ComparisonPageData:
    """Return what the page shows of a comparison."""
    sources = comparison.sources
    measures = dict.fromkeys(name for source in sources for name in source.measures)
    several = len(sources) > 2
    return ComparisonPageData(
        title=" and ".join(comparison.names) if not several else f"{len(sources)} networks",
        sources=[_source_view(source) for source in sources],
        pairs=[
            pair_view(pair, sources[pair.a], sources[pair.b], headline(sources, [pair]))
            for pair in comparison.pairs
        ],
        measures=[
            {"key": name, "title": words_of(name).title, "meaning": words_of(name).meaning}
            for name in measures
        ],
        answers=_answers(comparison),
        warnings=[{"title": f"{notice.name}:", "message": notice.message} for notice in comparison.warnings],
        facts=_facts(comparison),
        about=_about(comparison),
        places=json_ready(comparison.map[["x", "y"]].to_numpy().tolist()) if several else [],
        # Checkpoints of one run have the same heads; networks of different kinds have no order.
        path=list(range(len(sources))) if several and all(pair.matched for pair in comparison.pairs) else [],
    )


def _source_view(source: ComparedSource) -> SourceView:
    sizes = np.abs(source.spectrum)
    title = source.title if source.title != source.name else ""
    labels = source.geometry.tree.labels
    return SourceView(
        name=f"{source.name} ({title})" if title else source.name,
        label=source.name,
        heads={
            "names": [f"{layer}.{head}" for layer, head in source.heads],
            "layer": [layer for layer, _ in source.heads],
            "head": [head for _, head in source.heads],
        },
        coordinates=source.diffusion_map(2).tolist(),
        patterns=[str(name) for name in source.table["pattern"]] if "pattern" in source.table else [],
        values={name: json_ready(values.mean(axis=0).tolist()) for name, values in source.measures.items()},
        spectrum={"size": _over_windows(-np.sort(-sizes, axis=1)), "support": _over_windows(sizes)},
        entropies=json_ready(source.networks["network_entropy"].tolist()),
        folders=[len(np.unique(level)) for level in labels],
    )


def _over_windows(sizes: NDArray[np.float64]) -> dict[str, list[float]]:
    return {
        "median": np.median(sizes, axis=0).tolist(),
        "low": sizes.min(axis=0).tolist(),
        "high": sizes.max(axis=0).tolist(),
    }


def _answers(comparison: "Comparison") -> list[Answer]:
    """Return the findings under their questions; the first of each question are for the first screen."""
    found = [as_finding(sentence) for sentence in comparison.findings]
    told = Counter[str]()
    answers = []
    for finding in found:
        first = finding.question.first and told[finding.question] < FIRST_ANSWERS
        answers.append(Answer(finding.question, str(finding), finding.statistics, first))
        told[finding.question] += 1
    return answers


def _facts(comparison: "Comparison") -> list[tuple[str, str]]:
    sources = comparison.sources
    counts = {
        "heads": [len(source.heads) for source in sources],
        "layers": [len(source.layers) for source in sources],
        "windows": [source.windows for source in sources],
        "tokens a window": [source.about["length"] for source in sources],
    }
    facts = [(label, _together(values)) for label, values in counts.items()]
    return [("networks", str(len(sources))), *facts] if len(sources) > 2 else facts


def _together(values: list[Any]) -> str:
    """Return the numbers of all networks: one if they are equal, else all, or the range of many."""
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return str(different[0])
    return " and ".join(map(str, values)) if len(values) == 2 else f"{min(values)} to {max(values)}"


def _about(comparison: "Comparison") -> list[tuple[str, str, bool]]:
    tests = [pair.test for pair in comparison.pairs if pair.test]
    splits = ", ".join(
        dict.fromkeys(
            f"{counted(test['splits'], 'split')} of the windows, level {test['level']:g}" for test in tests
        )
    )
    rows = [
        *((source.name, _provenance(source), False) for source in comparison.sources),
        ("Command", str(comparison.about.get("command", "")), True),
        ("Noise", splits, False),
        ("Parameters", assignments({k: v for k, v in comparison.parameters.items() if k != "hashes"}), True),
        ("Versions", ", ".join(f"{k} {v}" for k, v in comparison.about.get("versions", {}).items()), False),
        ("Time", _seconds(comparison.about.get("seconds")), False),
    ]
    return [row for row in rows if row[1]]


def _provenance(source: ComparedSource) -> str:
    about = source.about
    texts = ", ".join(about.get("texts") or ())
    parts = [
        source.title,
        str(about["kind"]),
        f"field {about['field']}",
        f"texts: {texts}" if texts else "",
        f"license: {about['license']}" if about.get("license") else "",
    ]
    return "; ".join(part for part in parts if part)


def _seconds(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in value.items())
    return f"{value:.1f} s" if isinstance(value, (int, float)) else ""
