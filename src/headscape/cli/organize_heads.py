"""``headscape organize --memory``: the heads of a capture that is larger than memory."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.console import Console
from headscape.cli.progress import Display
from headscape.errors import InputError
from headscape.output import in_words

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
            "--memory organizes the heads of a capture, which is read in pieces: run headscape capture first and pass "
            "its folder."
        )
    return data.select(stack)


def planned(capture: Any, window: int, memory: int, share: float, engine: Any) -> dict[str, Any]:
    """Return what the work will take: blocks, bytes, seconds."""
    from headscape.geometry.streamed_geometry import expected_plan, require_memory
    from headscape.study.streamed_cost import measured_rates, streamed_cost

    require_memory(capture, window, memory, engine)
    plan = expected_plan(capture, window, memory, engine)
    d = capture.record(window, capture.layers[0]).head_dim
    cost = streamed_cost(plan, measured_rates(), share, d)
    return {
        "heads": plan.heads,
        "queries": plan.queries,
        "keys": plan.keys,
        "tensor_bytes": 4 * plan.heads * plan.queries * plan.keys,
        "workers": plan.workers,
        "blocks": plan.n_blocks,
        "memory_bytes": plan.memory,
        "expected_seconds": float(f"{cost.seconds:.3g}"),
    }


def in_sentences(plan: Mapping[str, Any]) -> str:
    """Say what the work will take."""
    return (
        f"{plan['heads']} heads of {plan['queries']} x {plan['keys']}: the tensor would take "
        f"{plan['tensor_bytes'] / 2**30:.2f} GiB. Expected: {in_words(plan['expected_seconds'])} and at most "
        f"{plan['memory_bytes'] / 2**30:.2f} GiB, in {plan['blocks']} blocks on {plan['workers']} workers (timed on "
        "this machine)."
    )


def organize_heads(
    capture: Any,
    window: int,
    folder: Path,
    memory: int,
    parameters: Mapping[str, Any],
    given: SimpleNamespace,
    engine: Any,
    progress: Display,
) -> Any:
    """Organize the heads of one window within a limit of memory; return an organization of the axis head."""
    from headscape.geometry.organization import Organization
    from headscape.geometry.questionnaire import Iteration
    from headscape.geometry.streamed_geometry import streamed_heads

    field = given.field or "probs"
    how = {
        name: parameters[name] for name in ("alpha", "beta", "tree", "eps_scale", "tree_constant", "n_eigs")
    }
    if not (given.quiet or given.json):
        progress.announce(in_sentences(planned(capture, window, memory, parameters["share"], engine)))
    more: Any = {"path": folder / "blocks", "engine": engine, "progress": progress}
    share = {"share": parameters["share"], "seed": given.seed}
    streamed = streamed_heads(capture, window, field=field, memory=memory, **how, **share, **more)
    found, sample = streamed.geometry, streamed.sample
    if sample is not None:
        share |= sample.summary()
    nan = float("nan")
    return Organization(
        trees={"head": found.tree},
        emd={"head": found.emd},
        affinities={"head": found.affinity},
        eigenpairs={"head": found.eigenpairs},
        history={"head": (Iteration(found.tree, nan, nan),)},
        warnings=(),
        parameters={**how, **share, "n_iter": 1, "window": window, "axes": ["head"]},
        input_hash=str(capture.provenance.get("input_hash", "")),
        heads=capture.heads,
        field=field,
    )


def tell_plan(plan: Mapping[str, Any], given: SimpleNamespace) -> None:
    """Print what the work would take, for ``--dry-run``."""
    console = Console(quiet=given.quiet, json=given.json)
    console.result({"format": "headscape/organize-plan/1", **plan})
    console.say(in_sentences(plan))
