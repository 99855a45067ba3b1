"""Pruned models on disk: a folder as transformers writes it, with the manifest in its config.json.

``load_pruned`` loads them all. Plain ``from_pretrained`` loads those whose config says all (every layer keeps the
same number, and the family takes the head dimension from the config), and raises for the others, because their
weights do not have the shapes of the config.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headscape.errors import FileFormatError, InputError, StorageError
from headscape.models.fewer_heads import KEY, load_with_fewer_heads
from headscape.models.lazy_torch import torch
from headscape.models.loading import moved, torch_dtype
from headscape.models.plain_facts import is_plain
from headscape.models.quiet import quiet_transformers
from headscape.pruning.manifest import manifest_of
from headscape.pruning.model_card import model_card
from headscape.pruning.pruned import Pruned, noted
from headscape.tensor.safe_reading import read_json_object
from headscape.tensor.store import acquire_lock, explain_write_errors

CARD = "README.md"


def save_pruned(pruned: Any, path: str | os.PathLike[str], tokenizer: Any = None) -> Path:
    """Write a pruned model to a folder, with a model card as README.md.

    Parameters
    ----------
    pruned
        What :func:`prune` returned, or the model in it (trained further, say).
    path
        A new or empty folder, or one with a pruned model, which is replaced. It appears whole or not at all.
    tokenizer
        Written beside it; by default the one that the pruned model knows.

    Returns
    -------
    Path
        The folder.
    """
    whole = _as_pruned(pruned)
    model = whole.model
    if is_plain(model):
        raise InputError(
            f"save_pruned writes models of transformers, but {type(model).__name__} is a plain PyTorch module: keep "
            "its state_dict with torch.save, and prune the whole model in the same way before load_state_dict."
        )
    noted(model, whole.manifest)
    folder = Path(path)
    require_free(folder)
    partial = folder.with_name(f".partial-{uuid.uuid4().hex[:8]}-{folder.name}")
    with explain_write_errors(folder), system_errors():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with quiet_transformers():
                model.save_pretrained(partial)
                if (known := tokenizer or whole.tokenizer) is not None:
                    known.save_pretrained(partial)
            # safetensors writes files that nobody else can read; a model is as public as its config.
            for weights in partial.glob("*.safetensors"):
                shutil.copymode(partial / "config.json", weights)
            (partial / CARD).write_text(whole.card or model_card(whole), encoding="utf-8")
            _move_into_place(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def load_pruned(
    path: str | os.PathLike[str], *, device: str | None = None, dtype: str | torch.dtype | None = None
) -> Pruned:
    """Load a pruned model: every weight must be there, in the shape the manifest says.

    Parameters
    ----------
    path
        A folder that :func:`save_pruned` wrote.
    device
        Where to put it; by default the CPU.
    dtype
        "float32", "bfloat16" or "float16"; by default as it was saved.

    Raises
    ------
    FileFormatError
        If the folder is not a pruned model, is damaged, or was written by a newer headscape.

    Notes
    -----
    No code from the folder is run: the model's class comes from transformers.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise FileFormatError(f"{folder} is not a pruned model: it is not a folder with a config.json.")
    with quiet_transformers():
        model = load_with_fewer_heads(folder, dtype="auto" if dtype is None else torch_dtype(dtype))
    manifest = manifest_of(model)
    assert manifest is not None  # load_with_fewer_heads raises otherwise
    return Pruned(moved(model, device), manifest)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other runs from writing a pruned model to the same folder for the length of a block.

    The lock lies beside the folder, which is replaced as a whole.
    """
    file = folder.with_name(f".lock-{folder.name}")
    made = [parent for parent in folder.parents if not parent.exists()]
    with explain_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = acquire_lock(folder, file)
    try:
        yield
    finally:
        lock.release()
        file.unlink(missing_ok=True)
        for parent in made:
            with suppress(OSError):  # of folders that were made for nothing, none is left
                parent.rmdir()


def work_folder(folder: Path) -> Path:
    """Return where the finished parts of a run that will write a pruned model are kept: beside its folder."""
    return folder.with_name(f".work-{folder.name}")


@contextmanager
def system_errors() -> Iterator[None]:
    """Raise what safetensors and tokenizers say about the operating system as the OSError that it is."""
    try:
        yield
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _as_pruned(pruned: Any) -> Pruned:
    if isinstance(pruned, Pruned):
        return pruned
    manifest = manifest_of(pruned) if isinstance(pruned, torch.nn.Module) else None
    if manifest is None:
        raise InputError(
            f"save_pruned takes what hs.prune returned, or its model, but got a {type(pruned).__name__} that was not "
            "pruned. Save other models with save_pretrained."
        )
    return Pruned(pruned, manifest)


def require_free(folder: Path) -> None:
    """Raise unless a folder can be written without losing anything but an older pruned model."""
    if folder.is_dir() and any(folder.iterdir()) and not _holds_pruned_model(folder):
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:3])
        raise StorageError(f"{folder} holds something else ({found}, ...): give an empty or a new folder.")
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file: give an empty or a new folder.")


def _holds_pruned_model(folder: Path) -> bool:
    try:
        return KEY in (read_json_object(folder / "config.json", folder) or {})
    except FileFormatError:
        return False


def _move_into_place(partial: Path, folder: Path) -> None:
    """Rename the finished folder; what was there before is deleted only when the new one is in place."""
    if not folder.exists():
        partial.rename(folder)
        return
    old = folder.with_name(f".old-{uuid.uuid4().hex[:8]}-{folder.name}")
    folder.rename(old)
    try:
        partial.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
