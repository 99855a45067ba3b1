"""``headscape organize --memory``: a capture that is larger than memory."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.console import Console
from headscape.cli.progress import Display
from headscape.errors import InputError
from headscape.output import counted, in_words

UNITS = {"MiB": 2**20, "GiB": 2**30, "MB": 10**6, "GB": 10**9, "M": 2**20, "G": 2**30}


def bytes_of(text: str, option: str) -> int:
    """Return the bytes that a size such as 4GiB names.

    Examples
    --------
    >>> bytes_of("4GiB", "--memory"), bytes_of("1.5 GB", "--memory")
    (4294967296, 1500000000)
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([A-Za-z]+)", text.strip())
    if found is None or found[2] not in UNITS or float(found[1]) == 0:
        raise InputError(f"{option} must be a size such as 4GiB or 800MiB, but is {text!r}.")
    return int(float(found[1]) * UNITS[found[2]])


def capture_of(source: Any, stack: str | None) -> Any:
    """Return the capture of a source, or raise: only captures can be read in pieces."""
    from headscape.study.study import Study
    from headscape.tensor.capture import Capture

    data = source.data if isinstance(source, Study) else source
    if not isinstance(data, Capture):
        raise InputError(
            "--memory organizes a capture, which is read in pieces: run headscape capture first and pass "
            "its folder."
        )
    return data.select(stack)


def planned(
    capture: Any, window: int, memory: int, parameters: Mapping[str, Any], engine: Any
) -> dict[str, Any]:
    """Return what the work will take: bytes, seconds."""
    from headscape.geometry.streamed_plan import streamed_plan
    from headscape.study.streamed_cost import measured_rates, streamed_cost

    heads_only, approximate = parameters["heads_only"], parameters["approximate"]
    plan = streamed_plan(capture, window, memory, engine, heads_only=heads_only, dithered=approximate)
    cost = streamed_cost(plan, measured_rates(), 0 if heads_only else parameters["n_iter"])
    sizes = plan.sizes
    return {
        "heads": sizes["head"],
        "queries": sizes["query"],
        "keys": sizes["key"],
        "tensor_bytes": 4 * sizes["head"] * sizes["query"] * sizes["key"],
        "workers": plan.workers,
        "blocks": plan.n_blocks("head"),
        "memory_bytes": plan.memory,
        "expected_seconds": float(f"{cost.seconds:.3g}"),
    }


def in_sentences(plan: Mapping[str, Any]) -> str:
    """Say what the work will take."""
    return (
        f"{plan['heads']} heads of {plan['queries']} x {plan['keys']}: the tensor would take "
        f"{_size(plan['tensor_bytes'])}. Expected: {in_words(plan['expected_seconds'])} and at most "
        f"{_size(plan['memory_bytes'])} on {counted(plan['workers'], 'worker')} (timed on this machine)."
    )


def _size(n: int) -> str:
    return f"{n / 2**30:.2f} GiB" if n >= 2**28 else f"{n / 2**20:.3g} MiB"


def organize_streamed(
    capture: Any,
    window: int,
    folder: Path,
    memory: int,
    parameters: Mapping[str, Any],
    given: SimpleNamespace,
    engine: Any,
    progress: Display,
) -> Any:
    """Organize one window within a limit of memory; return its organization, of the heads alone if that is asked."""
    from headscape.geometry.streamed_geometry import streamed_heads, streamed_organization

    if not (given.quiet or given.json):
        progress.announce(in_sentences(planned(capture, window, memory, parameters, engine)))
    how: dict[str, Any] = {name: value for name, value in parameters.items() if name != "heads_only"}
    how |= {"field": given.field or "probs", "seed": given.seed, "memory": memory, "path": folder / "blocks"}
    how |= {"engine": engine, "progress": progress}
    if not parameters["heads_only"]:
        return streamed_organization(capture, window, **how).organization
    del how["n_iter"], how["head_trees"]
    return streamed_heads(capture, window, **how).organization(capture)


def tell_plan(plan: Mapping[str, Any], given: SimpleNamespace) -> None:
    """Print what the work would take, for ``--dry-run``."""
    console = Console(quiet=given.quiet, json=given.json)
    console.result({"format": "headscape/organize-plan/1", **plan})
    console.say(in_sentences(plan))
