"""The output folder of ``headscape organize``: whose it is, what it was made with, and the organization in it."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headscape.cli.console import output_folder
from headscape.errors import InputError, StorageError

_RESULT, _NEW, _BLOCKS = "organization", "organization.new", "blocks"


def own_folder(out: Path | None) -> Path:
    """Return the folder for the results, or raise unless it is new, empty, or one of this command."""
    if out is None:
        raise InputError("specify a folder for the results with --out (-o).")
    folder = output_folder(out)
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    # What there may be before the summary is written.
    known = {_RESULT, _NEW, _BLOCKS, "figures", *(f"tree_{axis}.nwk" for axis in ("query", "key", "head"))}
    with suppress(OSError, ValueError, AttributeError):
        said = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        if said.get("format", "").startswith("headscape/organize-summary/"):
            return folder
    if foreign := sorted(found - known):
        raise StorageError(
            f"{folder} holds other files ({', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}): choose a new "
            "or an empty folder with -o."
        )
    return folder


def require_same_options(folder: Path, options: Mapping[str, Any]) -> None:
    """Raise if a folder was made with other options than these; more iterations may go on where fewer ended."""
    before: dict[str, Any] = {}
    for store in (_BLOCKS, _RESULT):
        before |= _header(folder / store).get("parameters", {})
    if not before:
        return
    # Neither the organization of a tensor nor blocks of the whole questionnaire name both.
    before = {"approximate": False, "heads_only": False, **before}
    changed = [name for name, value in options.items() if name in before and before[name] != value]
    if "heads_only" in changed:
        changed = ["heads_only"]
    elif options.get("heads_only"):
        changed = [name for name in changed if name not in ("n_iter", "head_trees")]
    elif "n_iter" in changed and before["n_iter"] < options["n_iter"]:
        changed.remove("n_iter")
    if changed:
        old, new = (", ".join(_flag(name, of[name]) for name in changed) for of in (before, options))
        raise StorageError(
            f"{folder} was made {old}, but this run is {new}. Choose another folder with -o, or delete {folder} and "
            "what was computed there."
        )


def require_same_input(folder: Path, input_hash: str) -> None:
    """Raise if a folder holds the organization of other data."""
    if _header(folder / _RESULT).get("input_hash", input_hash) != input_hash:
        raise StorageError(
            f"{folder} holds the organization of other data: another text, window or field, or the same with --memory "
            "on one side only. Choose another folder with -o."
        )


def save_organization(result: Any, folder: Path) -> None:
    """Write an organization; one of the same input with fewer iterations is replaced when the new one is complete."""
    require_same_input(folder, result.input_hash)
    known = _header(folder / _RESULT)
    shutil.rmtree(folder / _NEW, ignore_errors=True)
    if not known or known["parameters"] == json.loads(json.dumps(result.parameters)):
        result.save(folder / _RESULT)
        return
    result.save(folder / _NEW)
    shutil.rmtree(folder / _RESULT, ignore_errors=True)
    (folder / _NEW).rename(folder / _RESULT)


def _header(folder: Path) -> dict[str, Any]:
    """Return the header of a store, nothing if there is none, or none with a finished part to go on with."""
    from headscape.tensor.store import HEADER, Store, read_header

    if not (folder / HEADER).exists():
        return {}
    header = read_header(folder)
    return header if Store(folder, header).parts() else {}


def _flag(name: str, value: Any) -> str:
    """Return an option as it is given on the command line, after "made" or "this run is"."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {option}"
    return f"with {option} {value}"
