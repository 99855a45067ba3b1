"""The page of reproduced claims: plain HTML with everything inside, without scripts."""

import base64
import html
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
    figures = html.escape(claim_figures(claim.measure, claim.observations))
    return (
        f'<tr><td><a href="#{name}">{name}</a></td><td>{_paper(claim)}</td><td>{html.escape(claim.claim)}</td>'
        f"<td>{_verdict(claim.verdict)}</td><td>{figures}</td></tr>"
    )


def claim_figures(measure: str, observations: Sequence[Mapping[str, Any]]) -> str:
    """Return what the figures of an experiment count, and the figures, controls last and in brackets.

    Examples
    --------
    >>> claim_figures("Kendall's W", [{"figure": "0.7", "control": False}, {"figure": "0.2", "control": True}])
    "Kendall's W: 0.7 (control: 0.2)"
    """
    trained = ", ".join(one["figure"] for one in observations if one["figure"] and not one["control"])
    controls = ", ".join(one["figure"] for one in observations if one["figure"] and one["control"])
    return f"{measure}: {trained}" + (f" (control: {controls})" if controls else "")


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
        f"<details><summary>{caption}</summary>"
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
