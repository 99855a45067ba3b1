"""A study as display data for the report; everything was measured by the stages, nothing is computed here."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.models.packaged import title_of
from headscape.output import json_ready
from headscape.report.html_page import Answer
from headscape.report.page import PageData
from headscape.study.stages.finding import Question

if TYPE_CHECKING:
    from headscape.study.study import Study

FIRST_ANSWERS = 2
"""To each question, on the first screen and in the terminal."""

_FIELDS = {"probs": "attention probabilities"}


def page_data(study: "Study") -> PageData:
    """Return what the report shows of a study; pictures are of its first window."""
    pairs, model = study.data.heads, study.data.provenance.get("model", {})
    shown = [stage for stage in study.stages if not study.results[stage.name][0].missing]
    return PageData(
        title=title_of(name) if (name := model.get("name")) else "attention heads",
        heads={
            "names": [f"{layer}.{head}" for layer, head in pairs],
            "layer": [layer for layer, _ in pairs],
            "head": [head for _, head in pairs],
        },
        measures=_measures(study),
        answers=_answers(study),
        warnings=[
            {
                "title": f"{w.name}{f' ({w.axis})' if w.axis else ''}:",
                "message": w.message,
            }
            for w in study.warnings
        ],
        facts=_facts(study),
        about=_about(study),
        first=_first(study),
        sections=tuple(section for stage in shown for section in stage.sections(study)),
    )


def _answers(study: "Study") -> list[Answer]:
    """Return the findings under their questions; the first of each question are for the first screen."""
    return [
        Answer(question, str(finding), finding.statistics, question.first and place < _shown(question))
        for question, findings in study.answers.items()
        for place, finding in enumerate(findings)
    ]


def _shown(question: Question) -> int:
    """Return how many answers stand on the first screen, which all questions share."""
    return 1 if question in (Question.little, Question.sure) else FIRST_ANSWERS


def _facts(study: "Study") -> list[tuple[str, str]]:
    data = study.data
    kv_heads = getattr(data, "kv_heads", ())
    counts = [
        ("head", len(data.heads)),
        ("layer", len(data.layers)),
        ("key-value head", len(kv_heads)),
        ("window", study.windows),
    ]
    facts = [
        *((word if number == 1 else f"{word}s", number) for word, number in counts),
        ("tokens a window", len(data.tokens(0))),
        ("organized", _FIELDS.get(field := study.parameters["field"], field) if study.organizations else ""),
    ]
    return [(label, str(value)) for label, value in facts if value]


def _about(study: "Study") -> list[tuple[str, str, bool]]:
    provenance = study.data.provenance
    model = provenance.get("model", {})
    parameters = {name: v for name, v in study.parameters.items() if name != "model"}
    options = {f"{stage}.{name}": v for stage in study.results for name, v in study.options[stage].items()}
    rows = [
        ("Model", _pairs(model), False),
        ("License of the weights", str(study.about.get("license", "not stated")), False),
        ("Command", str(study.about.get("command", "")), True),
        ("Texts", ", ".join(dict.fromkeys(s for s in provenance.get("sources") or () if s)), False),
        ("Parameters", assignments(parameters), True),
        ("Options", assignments(options), True),
        ("Seed", str(study.parameters["seed"]), False),
        ("Hash of the input", str(provenance.get("input_hash", "")), True),
        ("Versions", _pairs(provenance.get("versions", {})), False),
        ("Time", ", ".join(f"{name} {value:.1f} s" for name, value in study.seconds.items()), False),
        ("Stages", ", ".join(study.results), False),
    ]
    return [row for row in rows if row[1]]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in values.items() if value is not None)


def assignments(values: Mapping[str, Any]) -> str:
    """Return what was set as a command line has it; what was left open is left out."""
    said = {name: _plain(value) for name, value in values.items() if value is not None}
    return shlex.join(f"{name}={value}" for name, value in said.items() if value)


def _plain(value: Any) -> str:
    """Return a value as people write it: lists with commas, no brackets."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{_plain(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_plain(one) for one in value)
    return "none" if value is None else str(value)


def _measures(study: "Study") -> list[dict[str, Any]]:
    stages = {name: stage for stage, outcome in study.outcomes.items() for name in outcome.columns}
    shown = []
    for name, column in study.columns.items():
        values = json_ready(list(study.heads[name]))
        shown.append(
            {
                "key": name,
                "title": f"{column.title} ({column.unit})" if column.unit else column.title,
                "meaning": column.explained,
                "stage": stages[name],
                "panel": column.panel,
                "table": column.table,
                "numeric": not any(isinstance(v, (str, bool)) for v in values),
                "values": values,
            }
        )
    return shown


def _first(study: "Study") -> int:
    """Open with the head of median Haar entropy, or the first: neither the dullest nor the wildest."""
    if "haar_rank" not in study.heads:
        return 0
    ranks = study.heads["haar_rank"].to_numpy()
    return int(np.argsort(ranks, kind="stable")[len(ranks) // 2])
