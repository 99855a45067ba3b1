"""Renders committed results and the command line's own help into pages; nothing is computed again here."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIRECTIVE = re.compile(r"^<!-- (benchmark|table|claims|commands)(?:: (\S+))? -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace directives such as ``<!-- benchmark: benchmarks/results/geometry.json -->``."""
    return DIRECTIVE.sub(_render, markdown)


def _render(match: re.Match[str]) -> str:
    kind, argument = match.groups()
    if kind == "commands":
        return _commands()
    data = json.loads((ROOT / argument).read_text(encoding="utf-8"))
    if kind == "claims":
        return _claims(data["experiments"])
    return _benchmark(data) if kind == "benchmark" else _table(data["columns"], data["rows"])


def _claims(experiments: list[dict[str, Any]]) -> str:
    """Return one table of claims and verdicts, then what was found on every network."""
    overview, parts = [], []
    for one in experiments:
        place = f"arXiv {one['paper']}, {one['place']}"
        overview.append([f"[{one['title']}](#{one['name']})", place, one["claim"], f"**{one['verdict']}**"])
        rows = [
            [seen[name] for name in ("network", "data", "found", "verdict")] for seen in one["observations"]
        ]
        remark = f" {one['remark']}" if one["remark"] else ""
        parts.append(
            f"## {one['title']} {{ #{one['name']} }}\n\n{place}; `headscape reproduce {one['name']}`. "
            f"The paper: {one['claim']}{remark}\n\n{_table(['network', 'data', 'what is found', 'verdict'], rows)}"
        )
    return "\n\n".join([_table(["experiment", "paper", "claim", "verdict"], overview), *parts])


def _benchmark(data: dict[str, Any]) -> str:
    ratios = [
        [
            row["name"],
            row["baseline"],
            f"{row['ours']:.3g} {row['unit']}",
            f"{row['theirs']:.3g} {row['unit']}",
            _ratio(row),
            row["wanted"],
        ]
        for row in data["rows"]
        if "ratio" in row
    ]
    measures = [
        [row["name"], f"{row['value']:.3g} {row['unit']}", row["note"]]
        for row in data["rows"]
        if "value" in row
    ]
    machine = data["machine"]
    text = f"Measured on {machine['processor']}, {machine['cores']} cores, Python {machine['python']}.\n\n"
    if ratios:
        text += _table(["what", "baseline", "headscape", "baseline", "ratio (range)", "wanted"], ratios)
    if measures:
        text += "\n\n" + _table(["what", "measured", "note"], measures)
    return text


def _ratio(row: dict[str, Any]) -> str:
    """Return the ratio with its range, which alone is a result if it is wider than a factor of two."""
    spread = f"{row['low']:.1f}-{row['high']:.1f}"
    if row["high"] > 2 * row["low"]:
        return f"too noisy to tell ({spread})"
    return f"**{row['ratio']:.1f}x** ({spread})"


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
