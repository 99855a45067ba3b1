"""Renders committed results and the command line's own help into pages; nothing is computed again here."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIRECTIVE = re.compile(
    r"^<!-- (benchmarks|measures|table|claims|details|times|commands)(?:: (\S+))? -->$", re.MULTILINE
)
PICTURES = ROOT / "docs" / "images" / "findings"
BENCHMARKS = {
    "capture": "Capture",
    "adapters": "Capture, for every way in which attention is seen",
    "geometry": "Geometry",
    "questionnaire": "Organizing a window",
    "stages": "Stages of an analysis",
    "haar": "Haar entropies",
    "energy": "Energy field",
    "paraproduct": "Paraproducts and softmax",
    "ablation": "Ablation",
    "pruning": "Pruned models",
    "compare": "Comparisons",
    "monitor": "Training monitor",
    "monitor-memory": "Memory of the training monitor",
    "report": "Report",
}
"""The parts of the table of benchmarks, in its order; a part without saved results is left out."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace directives such as ``<!-- table: docs/results/scale.json -->``."""
    return DIRECTIVE.sub(_render, markdown)


def _render(match: re.Match[str]) -> str:
    kind, argument = match.groups()
    if kind == "commands":
        return _commands()
    if kind == "benchmarks":
        paths = {title: ROOT / argument / f"{part}.json" for part, title in BENCHMARKS.items()}
        found = {title: json.loads(path.read_text()) for title, path in paths.items() if path.exists()}
        return _benchmarks(found)
    if kind == "measures":
        return _measures(
            [json.loads((ROOT / path).read_text(encoding="utf-8")) for path in argument.split(",")]
        )
    data = json.loads((ROOT / argument).read_text(encoding="utf-8"))
    reproduced = {"claims": _claims, "details": _details, "times": _times}
    if kind in reproduced:
        return reproduced[kind](data)
    return _table(data["columns"], data["rows"])


def _claims(data: dict[str, Any]) -> str:
    """Return one table: claim, verdict, and the figures that decide."""
    rows = [
        [
            f"[{one['title']}](#{one['name']})<br>{_place(one)}",
            one["claim"],
            f"**{one['verdict']}**",
            "<br>".join([one["measure"], *_figures(one)]),
        ]
        for one in data["experiments"]
    ]
    return _table(["experiment", "claim", "verdict", "figure that decides, by network"], rows)


def _figures(one: dict[str, Any]) -> Iterable[str]:
    """Return the figures that decide, a line per network."""
    from headscape.report.reproduction_page import claim_figures

    for network, figure, verdict in claim_figures(one["observations"]):
        yield f"{network}: **{figure}** ({verdict})" if figure else f"{network}: {verdict}"


def _details(data: dict[str, Any]) -> str:
    """Return a section per experiment: what was found on every network, and its pictures."""
    parts = []
    for one in data["experiments"]:
        rows = [
            [
                seen["network"],
                seen["data"],
                seen["found"],
                ("control: " if seen["control"] else "") + seen["verdict"],
            ]
            for seen in one["observations"]
        ]
        remark = f"\n\n{one['remark']}" if one["remark"] else ""
        pictures = [
            f"![{_caption(path)}](images/findings/{path.name})"
            for path in sorted(PICTURES.glob(f"{one['name']}--*.png"))
        ]
        parts.append(
            f"## {one['title']} {{ #{one['name']} }}\n\n{_place(one)}; `headscape reproduce {one['name']}`.\n\n"
            f"**The paper:** {one['claim']}{remark}\n\n"
            + _table(["network", "data", "what is found", "verdict"], rows)
            + "".join(f"\n\n{picture}" for picture in pictures)
        )
    return "\n\n".join(parts)


def _place(one: dict[str, Any]) -> str:
    return f"[arXiv {one['paper']}](https://arxiv.org/abs/{one['paper']}), {one['place']}"


def _caption(path: Path) -> str:
    """Return the part of a picture's name that says what it shows."""
    return path.stem.partition("--")[2].replace("-", " ")


def _times(data: dict[str, Any]) -> str:
    """Return what the parts of a run took, the longest first, and all of it."""
    took = sorted(data["times"].items(), key=lambda part: -part[1]["seconds"])
    total = {name: sum(part[name] for _, part in took) for name in ("seconds", "cpu_seconds")}
    rows = [
        [name, *(f"{part[kind] / 60:.1f}" for kind in total)] for name, part in took if part["seconds"] >= 6
    ]
    rest = [sum(part[kind] for _, part in took if part["seconds"] < 6) for kind in total]
    rows.append(["everything under 6 seconds", *(f"{seconds / 60:.1f}" for seconds in rest)])
    rows.append(["**all**", *(f"**{seconds / 60:.1f}**" for seconds in total.values())])
    return _table(["part", "minutes", "CPU minutes"], rows)


def _benchmarks(parts: dict[str, dict[str, Any]]) -> str:
    """Return one table of all parts, a line with the title before each, and where they were measured."""
    machines: dict[str, list[str]] = {}
    days: dict[str, list[str]] = {}
    rows = []
    for title, data in parts.items():
        machine = _machine(data["machine"])
        machines.setdefault(machine, []).append(title)
        days.setdefault(machine, []).extend([data["machine"]["date"]] if "date" in data["machine"] else [])
        rows.append([f"**{title}**", *[""] * 6])
        rows += [_benchmark(row) for row in data["rows"]]
    if len(machines) == 1:
        (machine,) = machines
        where = f"Measured on {machine}{_between(days[machine])}."
    else:
        where = "\n".join(
            f"- {', '.join(titles)}: {machine}{_between(days[machine])}"
            for machine, titles in machines.items()
        )
        where = f"Measured on:\n\n{where}"
    columns = ["what", "headscape", "baseline", "ratio (range)", "memory: headscape / baseline", "wanted"]
    return f"{where}\n\n{_table([*columns, 'baseline is'], rows)}"


def _measures(parts: list[dict[str, Any]]) -> str:
    """Return a table of sizes and times without a baseline, and where they were measured."""
    lines = [_benchmark(row) for data in parts for row in data["rows"]]
    machines = dict.fromkeys(_machine(data["machine"]) for data in parts)
    table = _table(["what", "measured", "remark"], [[line[0], line[1], line[-1]] for line in lines])
    return f"{table}\n\nMeasured on {'; '.join(machines)}."


def _machine(machine: dict[str, Any]) -> str:
    unknown = "" if "date" in machine else ", day not recorded"
    return f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}{unknown}"


def _between(days: list[str]) -> str:
    """Return the first and the last day."""
    return ", " + " to ".join(sorted({min(days), max(days)})) if days else ""


def _benchmark(row: dict[str, Any]) -> list[str]:
    """Return the cells of one line: a ratio to a baseline, or a size or time without one."""
    memory = [f"{row[name]:.0f} MiB" for name in ("memory", "their_memory") if row.get(name) is not None]
    if "value" in row:
        value = f"{_number(row['value'])} {row['unit']}"
        return [row["name"], value, "", "", " / ".join(memory), "", row["note"]]
    sides = [f"{_number(row[side])} {row['unit']}" for side in ("ours", "theirs")]
    return [row["name"], *sides, _ratio(row), " / ".join(memory), row["wanted"], row["baseline"]]


def _ratio(row: dict[str, Any]) -> str:
    """Return the ratio with its range, which alone is a result if it is wider than a factor of two."""
    digits = 2 if row["ratio"] < 2 else 1
    spread = f"{row['low']:.{digits}f}-{row['high']:.{digits}f}"
    if row["high"] > 2 * row["low"]:
        return f"too noisy to tell ({spread})"
    return f"**{row['ratio']:.{digits}f}x** ({spread})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _commands() -> str:
    import typer.main

    from headscape.cli.main import app

    group: Any = typer.main.get_command(app)
    parts = []
    for name, command in group.commands.items():
        parts.append(f"## headscape {name}\n\n{_dedent(command.help)}\n")
        rows = []
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            names = (
                ", ".join(f"`{o}`" for o in parameter.opts) if is_option else f"`{parameter.name.upper()}`"
            )
            default = parameter.default
            if default is None or default is False or callable(default):
                default = ""
            elif isinstance(default, list | tuple):
                default = " ".join(map(str, default))
            help_text = (getattr(parameter, "help", "") or "").replace("[", "\\[")
            rows.append([names, help_text, default])
        parts.append(_table(["", "what", "default"], rows) + "\n")
    return "\n".join(parts)


def _dedent(text: str | None) -> str:
    """Show the example line of a help text as code."""
    lines = []
    for line in (text or "").splitlines():
        example = re.match(r"\s*Example:\s+(.*)", line)
        lines.append(f"```sh\n{example.group(1)}\n```" if example else line.strip())
    return "\n".join(lines)
