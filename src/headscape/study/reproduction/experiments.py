"""All experiments, in the order of the papers."""

from collections.abc import Iterable

from headscape.errors import InputError
from headscape.study.reproduction import (
    corollary,
    energy,
    failures,
    geometry,
    low_entropy,
    reliability,
    softmax,
    sparsity,
    spread,
)
from headscape.study.reproduction.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *softmax.EXPERIMENTS,
    *corollary.EXPERIMENTS,
    *geometry.EXPERIMENTS,
    *sparsity.EXPERIMENTS,
    *reliability.EXPERIMENTS,
    *low_entropy.EXPERIMENTS,
    *failures.EXPERIMENTS,
    *spread.EXPERIMENTS,
    *energy.EXPERIMENTS,
)
ALL = "all"


def chosen_experiments(names: Iterable[str]) -> tuple[Experiment, ...]:
    """Return the experiments of these names, each once and in their own order; "all" for every one."""
    wanted = list(names)
    known = {one.name: one for one in EXPERIMENTS}
    unknown = [name for name in wanted if name not in known and name != ALL]
    if unknown or not wanted:
        given = ", ".join(map(repr, unknown)) or "none was given"
        raise InputError(
            f"experiments are all, {', '.join(known)}, but {given}. headscape reproduce --list describes "
            "them."
        )
    return EXPERIMENTS if ALL in wanted else tuple(one for one in EXPERIMENTS if one.name in wanted)
