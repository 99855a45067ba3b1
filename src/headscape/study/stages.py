"""The stages of the analysis, in their order; a new one joins by one entry."""

from collections.abc import Iterable

from headscape.errors import InputError
from headscape.study.ablation_stage import ABLATION
from headscape.study.energy_stage import ENERGY
from headscape.study.entropy_stage import ENTROPY
from headscape.study.interaction_stage import INTERACTION
from headscape.study.regularity_stage import REGULARITY
from headscape.study.softmax_stage import SOFTMAX
from headscape.study.stage import Stage

STAGES = (ENTROPY, ENERGY, REGULARITY, INTERACTION, SOFTMAX, ABLATION)


def chosen_stages(names: Iterable[str] | None) -> tuple[Stage, ...]:
    """Return the stages with these names in the order of the table, or the default ones.

    A name with a plus in front is added to the default ones.

    Examples
    --------
    >>> [stage.name for stage in chosen_stages(["energy", "entropy"])]
    ['entropy', 'energy']
    >>> [stage.name for stage in chosen_stages(["+softmax"])][-1]
    'softmax'
    >>> chosen_stages([])
    ()
    """
    given = list(names or ())
    wanted = [name.removeprefix("+") for name in given]
    # An empty list is a wish too: only capture and organize.
    if names is None or (given and all(name.startswith("+") for name in given)):
        wanted += [stage.name for stage in STAGES if stage.by_default]
    known = [stage.name for stage in STAGES]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(
            f"stages are {', '.join(known)}, but {', '.join(map(repr, unknown))} was asked for. Capturing and "
            "organizing always run."
        )
    return tuple(stage for stage in STAGES if stage.name in wanted)
