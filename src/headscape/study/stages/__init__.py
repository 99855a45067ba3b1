"""The stages of the analysis, one file a measure.

A new one joins by one entry in ``STAGES``; another package adds its own by an entry point in the group
``headscape.stages`` that names the class.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from headscape.errors import InputError
from headscape.study.stages.ablation import Ablation
from headscape.study.stages.energy import Energy
from headscape.study.stages.entropy import Entropy
from headscape.study.stages.first_test import FirstTest
from headscape.study.stages.folders import Folders
from headscape.study.stages.geometry import Geometry
from headscape.study.stages.interaction import Interaction
from headscape.study.stages.patterns import Patterns
from headscape.study.stages.pictures import Pictures
from headscape.study.stages.regularity import Regularity
from headscape.study.stages.sinks import Sinks
from headscape.study.stages.softmax import Softmax
from headscape.study.stages.stage import Stage

STAGES: list[Stage] = [
    Pictures(),
    Geometry(),
    Patterns(),
    Folders(),
    Sinks(),
    Entropy(),
    FirstTest(),
    Energy(),
    Regularity(),
    Interaction(),
    Softmax(),
    Ablation(),
    *(entry.load()() for entry in entry_points(group="headscape.stages")),
]
"""In the order in which they run and in which the report shows them."""


def stage_named(name: str) -> Stage:
    """Return a stage by its name, or raise naming those there are."""
    found = next((stage for stage in STAGES if stage.name == name), None)
    if found is None:
        known = ", ".join(stage.name for stage in STAGES if not stage.always)
        raise InputError(f"stages are {known}, but {name!r} was asked for.")
    return found


def chosen_stages(names: Iterable[str] | None) -> tuple[Stage, ...]:
    """Return the stages with these names and what they need, in the order of the table, or the default ones.

    A name with a plus in front is added to the default ones.

    Examples
    --------
    >>> [stage.name for stage in chosen_stages(["energy", "entropy"])]
    ['pictures', 'geometry', 'folders', 'entropy', 'energy']
    >>> [stage.name for stage in chosen_stages(["+softmax"])][-1]
    'softmax'
    """
    given = [name.strip() for name in names or ()]
    wanted = [stage_named(name.removeprefix("+")).name for name in given]
    if names is None or (given and all(name.startswith("+") for name in given)):
        wanted += [stage.name for stage in STAGES if stage.by_default]
    if names is not None and not given:  # nothing but what everything else builds on
        wanted = ["geometry"]
    wanted += [stage.name for stage in STAGES if stage.always]
    for name in wanted:  # which grows by what each of them needs
        wanted += [needed for needed in stage_named(name).needs if needed not in wanted]
    wanted += [stage.name for stage in STAGES if set(stage.follows) & set(wanted)]
    return tuple(stage for stage in STAGES if stage.name in wanted)


def stage_options(given: Mapping[str, Any], chosen: Sequence[Stage] = STAGES) -> dict[str, dict[str, Any]]:
    """Return the options of every stage, the given ones in place of the defaults.

    Unknown names, values out of bounds, and options of stages that are not chosen are refused.

    Examples
    --------
    >>> stage_options({"k": 50})["entropy"]["k"]
    50
    """
    options = {stage.name: stage.defaults() for stage in STAGES}
    known = {option.name: (stage, option) for stage in STAGES for option in stage.options}
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"options of the analysis are {', '.join(sorted(known))}, but {name!r} was given."
            )
        stage, option = known[name]
        if stage not in chosen:
            raise InputError(f"{name} is an option of the stage {stage.name!r}, which was not asked for.")
        options[stage.name][name] = option.value(value)
    for stage in STAGES:
        stage.check(options[stage.name])
    return options
