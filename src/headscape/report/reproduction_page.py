"""The page of reproduced claims: plain HTML with everything inside, without scripts."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscape.report.html_page import fill
from headscape.report.section import page_file
from headscape.tensor.store import write_text_atomically

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 30
"""Rows of a table that the page shows; the CSV files have all."""
_IN_BRACKETS = re.compile(r" \([^)]*\)")


@dataclass(frozen=True, eq=False)
class ReproducedClaim:
    """One experiment as the page shows it: the claim, what was found, tables by name, and pictures by name as PNG."""

    name: str
    paper: str
    place: str
    title: str
    claim: str
    measure: str
    remark: str
    verdict: str
    observations: Sequence[Mapping[str, Any]]
    tables: "Mapping[str, pd.DataFrame]"
    pictures: Mapping[str, bytes]


def write_reproduction_page(
    path: Path, headline: str, claims: Sequence[ReproducedClaim], about: Mapping[str, Any]
) -> Path:
    """Write the page and return its path."""
    parts = {
        "headline": html.escape(headline),
        "rows": "".join(map(_row, claims)),
        "sections": "".join(map(_section, claims)),
        "about": "".join(
            f"<dt>{html.escape(str(name))}</dt><dd><code>{html.escape(str(value))}</code></dd>"
            for name, value in about.items()
        ),
    }
    write_text_atomically(path, fill(page_file("reproduction.html"), parts))
    return path


def _row(claim: ReproducedClaim) -> str:
    name = html.escape(claim.name)
    figures = "".join(
        f"<li>{html.escape(network)}: <b>{html.escape(figure)}</b> {_verdict(verdict)}</li>"
        for network, figure, verdict in claim_figures(claim.observations)
    )
    return (
        f'<tr><td><a href="#{name}">{name}</a></td><td>{_paper(claim)}</td><td>{html.escape(claim.claim)}</td>'
        f"<td>{_verdict(claim.verdict)}</td><td>{html.escape(claim.measure)}<ul>{figures}</ul></td></tr>"
    )


def claim_figures(observations: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return network, figures and verdict, a network of several observations once; controls come last and are marked.

    Examples
    --------
    >>> trained = {"network": "Transformer-XL (60 steps)", "figure": "0.7", "control": False, "verdict": "agrees"}
    >>> other = {**trained, "figure": "0.4", "verdict": "disagrees"}
    >>> control = {"network": "ViT-B/16 (random weights)", "figure": "0.2", "control": True, "verdict": "agrees"}
    >>> claim_figures([control, trained, other])
    [('Transformer-XL', '0.7, 0.4', 'agrees, disagrees'), ('ViT-B/16, control', '0.2', 'agrees')]
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in sorted(observations, key=lambda one: bool(one["control"])):
        name = _IN_BRACKETS.sub("", one["network"]) + (", control" if one["control"] else "")
        found.setdefault(name, []).append(one)
    return [
        (
            name,
            ", ".join(one["figure"] for one in several if one["figure"]),
            ", ".join(dict.fromkeys(str(one["verdict"]) for one in several)),
        )
        for name, several in found.items()
    ]


def _section(claim: ReproducedClaim) -> str:
    name = html.escape(claim.name)
    found = "".join(
        f"<tr><td>{html.escape(one['network'])}</td><td>{html.escape(one['data'])}</td><td>{html.escape(one['found'])}</td>"
        f"<td>{'control: ' if one['control'] else ''}{_verdict(str(one['verdict']))}</td></tr>"
        for one in claim.observations
    )
    heads = "".join(
        f'<th scope="col">{title}</th>' for title in ("Network", "Data", "What is found", "Verdict")
    )
    remark = f'<p class="quiet">{html.escape(claim.remark)}</p>' if claim.remark else ""
    tables = "".join(_table(title, table) for title, table in claim.tables.items())
    pictures = "".join(_picture(title, data) for title, data in claim.pictures.items())
    return (
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{html.escape(claim.title)}</h2>'
        f'<p class="quiet">{_paper(claim)}</p><p><b>The paper:</b> {html.escape(claim.claim)}</p>{remark}'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}-h">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{found}</tbody></table></div>{tables}{pictures}</section>"
    )


def _paper(claim: ReproducedClaim) -> str:
    address = html.escape(claim.paper)
    return f'<a href="https://arxiv.org/abs/{address}">arXiv {address}</a>, {html.escape(claim.place)}'


def _verdict(verdict: str) -> str:
    return f'<span class="verdict {verdict.replace(" ", "-")}">{html.escape(verdict)}</span>'


def _table(title: str, table: "pd.DataFrame") -> str:
    heads = "".join(f'<th scope="col">{html.escape(str(column))}</th>' for column in table)
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in table.head(MOST_ROWS).itertuples(index=False)
    )
    more = f" (first {MOST_ROWS} of {len(table)} rows)" if len(table) > MOST_ROWS else ""
    caption = html.escape(f"{title}{more}")
    return (
        f"<details><summary>Table: {caption}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.4g}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def _picture(title: str, data: bytes) -> str:
    text = html.escape(title.replace("-", " "))
    source = base64.b64encode(data).decode()
    return f'<figure><img alt="{text}" src="data:image/png;base64,{source}"><figcaption>{text}</figcaption></figure>'
