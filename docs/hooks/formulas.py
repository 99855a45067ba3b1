r"""Renders LaTeX as MathML at build time, so that pages need no script and no network for their formulas.

``$x$`` and ``$$x$$`` in a page come here as ``\(x\)`` and ``\[x\]`` from pymdownx.arithmatex.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula of a page."""
    return FORMULA.sub(_rendered, content)


def _rendered(match: re.Match[str]) -> str:
    tag, bracket, latex = match.groups()
    inline = bracket == "("
    math = convert(html.unescape(latex).strip(), display="inline" if inline else "block")
    return math if inline else f'<{tag} class="formula">{math}</{tag}>'
