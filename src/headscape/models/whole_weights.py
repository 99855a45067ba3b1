"""Weights loaded whole: what transformers would fill with random numbers is an error, before it takes memory."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscape.errors import ModelError
from headscape.models.lazy_torch import torch

WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
MOST_REPEATS = 100_000
"""Layers or labels of a model: more are a damaged config."""
# Weights stored in one bit each are the smallest there are; a small model may have large masks beside them.
_VALUES_PER_BYTE = 16
_VALUES_FREE = 50_000_000
# The output layers of other tasks, and the masks that old files hold: a model works without them.
_NOT_NEEDED = re.compile(
    r"^(\w+\.)?(cls|classifier|pre_classifier|classification_head|lm_head|mlm_head|score|qa_outputs|pooler|"
    r"predictions|vocab_transform|vocab_layer_norm|vocab_projector|embed_out|head|final_logits_bias)(\.|$)|"
    r"\.(attn|attention|self_attention)\.(masked_)?bias$"
)
# The pooler of an encoder follows its last layer and changes neither attention nor hidden states.
_MAY_LACK = re.compile(r"^pooler\.dense\.")


def load_whole(kind: Any, source: str | Path, **options: Any) -> tuple[Any, str]:
    """Return a model by ``from_pretrained`` of its class, and what does not fit it in its files (empty if all does)."""
    with _bounded(_most_values(Path(source), options)):
        model, info = kind.from_pretrained(
            source, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    lacking = [name for name in info["missing_keys"] if _MAY_LACK.match(name)]
    with torch.no_grad():
        for name in lacking:  # random numbers would give the same model another hash each time
            model.get_parameter(name).zero_()
    shapes = [
        f"{name} {tuple(file)} instead of {tuple(ours)}" for name, file, ours in info["mismatched_keys"]
    ]
    wrong = {
        "missing": [name for name in info["missing_keys"] if name not in lacking],
        "unexpected": [name for name in info["unexpected_keys"] if not _NOT_NEEDED.search(name)],
        "of another shape": shapes,
    }
    return model, "; ".join(f"{len(x)} {what} ({_first(x)})" for what, x in wrong.items() if x)


def require_sane_sizes(values: Any, where: Path) -> None:
    """Raise if a config, as its JSON reads, repeats anything so often that even its config object would not fit."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            counts = re.search("layer|label|block_count|expert", str(name)) and isinstance(value, int)
            if counts and value > MOST_REPEATS:
                raise ModelError(
                    f"{where} is damaged: {name} is {value}, but at most {MOST_REPEATS} makes sense. Copy it again."
                )
            require_sane_sizes(value, where)


def require_sane_config(path: Path) -> None:
    """Raise if the counts in a config.json make no sense; what else is wrong with it is left to transformers."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    require_sane_sizes(values, path)


def _first(names: Sequence[str], n: int = 3) -> str:
    return ", ".join(sorted(names)[:n]) + (", ..." if len(names) > n else "")


def _most_values(source: Path, options: Mapping[str, Any]) -> dict[int, str]:
    """Return how many values a model may have, with the reason: what its files and this machine's memory hold."""
    limits = {}
    file = source / options["gguf_file"] if "gguf_file" in options else None
    files = [file] if file else list(source.iterdir()) if source.is_dir() else []
    size = sum(path.stat().st_size for path in files if path.suffix in WEIGHT_ENDINGS and path.is_file())
    if size:
        most = _VALUES_PER_BYTE * size + _VALUES_FREE
        limits[most] = f"its weight files have {size:,} bytes: config and weights do not belong together"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        dtype = options.get("dtype")
        width = dtype.itemsize if isinstance(dtype, torch.dtype) else 2
        limits[memory // width] = f"this machine has {memory / 1e9:.0f} GB of memory"
    return limits


@contextmanager
def _bounded(limits: Mapping[int, str]) -> Iterator[None]:
    """Stop a model that grows too large while it is built on the meta device, where it takes no memory yet."""
    from torch.nn.modules import module

    total, thread = 0, threading.get_ident()

    def count(_module: Any, _name: str, value: Any) -> None:
        nonlocal total
        if value is None or not value.is_meta or threading.get_ident() != thread:
            return
        total += value.numel()
        for most, reason in limits.items():
            if total > most:
                raise ModelError(
                    f"the config describes a model of more than {most:.1e} weights, but {reason}. Copy it again, "
                    "or take a smaller model."
                )

    of_weights = module.register_module_parameter_registration_hook(count)
    with of_weights, module.register_module_buffer_registration_hook(count):
        yield
