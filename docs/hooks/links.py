"""Turns what docstrings and pages mention into links: Sphinx roles, papers, models."""

import re
from collections.abc import Callable
from typing import Any

from mkdocs.utils import get_relative_url

ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc|obj):<code>~?([^<]+)</code>")
ANCHOR = re.compile(r'id="(headscape\.[\w.]+)"')
OPAQUE = re.compile(r"(<(pre|code|a|h[1-6]|title|math)\b.*?</\2>|<[^>]+>)", re.DOTALL)
ARXIV = re.compile(r"arXiv[: ](\d{4}\.\d{5})")
HUGGING_FACE = "https://huggingface.co/"
NAMES = {
    "SmolLM2-135M-Instruct": HUGGING_FACE + "HuggingFaceTB/SmolLM2-135M-Instruct",
    "SmolLM2-135M": HUGGING_FACE + "HuggingFaceTB/SmolLM2-135M-Instruct",
    "all-MiniLM-L6-v2": HUGGING_FACE + "sentence-transformers/all-MiniLM-L6-v2",
    "Michel et al. 2019": "https://arxiv.org/abs/1905.10650",
    "Voita et al. 2019": "https://arxiv.org/abs/1905.09418",
    "Gu et al.": "https://arxiv.org/abs/2410.10781",
}


def on_page_content(content: str, **_: Any) -> str:
    """Link every arXiv number of a page, and models and cited papers where they first appear."""
    content = _in_text(
        content, lambda text: ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', text)
    )
    for name, address in NAMES.items():
        content = _first_in_text(content, name, f'<a href="{address}">{name}</a>')
    return content


def on_env(env: Any, files: Any, **_: Any) -> Any:
    """Link the roles of docstrings to the entry of the reference; plain code where there is none."""
    pages = [file.page for file in files.documentation_pages() if file.page and file.page.content]
    places = {name: page.url for page in pages for name in ANCHOR.findall(page.content)}

    def linked(page: Any) -> Callable[[re.Match[str]], str]:
        def link(match: re.Match[str]) -> str:
            target = _target(match.group(1), places)
            code = f"<code>{match.group(1).rsplit('.', 1)[-1]}</code>"
            return (
                f'<a href="{get_relative_url(places[target], page.url)}#{target}">{code}</a>'
                if target
                else code
            )

        return link

    for page in pages:
        page.content = ROLE.sub(linked(page), page.content)
    return env


def _target(name: str, places: dict[str, str]) -> str:
    """Return the entry that a role means: that of the full name, else the only one whose last part fits."""
    if name in places:
        return name
    ending = "." + name.removeprefix("headscape.")
    found = [place for place in places if place.endswith(ending)]
    of_modules = [place for place in found if place.removesuffix(ending).rsplit(".", 1)[-1].islower()]
    found = of_modules or found
    return found[0] if len(found) == 1 else ""


def _in_text(content: str, change: Callable[[str], str]) -> str:
    """Change what readers see as text: not tags, code, headings, formulas and links."""
    parts, last = [], 0
    for match in OPAQUE.finditer(content):
        parts += [change(content[last : match.start()]), match.group()]
        last = match.end()
    return "".join([*parts, change(content[last:])])


def _first_in_text(content: str, name: str, link: str) -> str:
    """Link a name where it first stands as text."""
    done = False

    def change(text: str) -> str:
        nonlocal done
        if done or name not in text:
            return text
        done = True
        return text.replace(name, link, 1)

    return _in_text(content, change)
