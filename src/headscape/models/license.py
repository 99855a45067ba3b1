"""The license of a model's weights, as its files state it."""

import os
import re
from pathlib import Path
from typing import Any

_PACKAGED = {"default": "SmolLM2-135M-Instruct", "minilm": "all-MiniLM-L6-v2"}
_LICENSES = {"default": "Apache-2.0", "minilm": "MIT, as its package says"}
NOT_STATED = "not stated in the model's files"


def weights_license(model: Any) -> str:
    """Return the license of a model's weights: of the packaged ones, or what the model card in a folder says.

    Examples
    --------
    >>> weights_license("default")
    'Apache-2.0 (SmolLM2-135M-Instruct)'
    """
    if not isinstance(model, (str, os.PathLike)):
        return NOT_STATED
    if str(model) in _PACKAGED:
        return f"{_LICENSES[str(model)]} ({packaged_name(str(model))})"
    card = Path(model) / "README.md"
    if not card.is_file():
        return NOT_STATED
    front = card.read_text(encoding="utf-8", errors="replace").split("---")
    found = re.search(r"^license:\s*(\S.*)$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found.group(1).strip() if found else NOT_STATED


def packaged_name(name: str) -> str:
    """Return what a packaged model is called elsewhere; other names stay.

    Examples
    --------
    >>> packaged_name("default"), packaged_name("gpt2")
    ('SmolLM2-135M-Instruct', 'gpt2')
    """
    return _PACKAGED.get(name, name)
