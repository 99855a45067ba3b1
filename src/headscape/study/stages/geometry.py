"""The stage "geometry": trees on queries, keys and heads of every window (OA Algorithm 1, arXiv 2506.15541)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headscape.geometry.organization import Organization, organize
from headscape.geometry.questionnaire import Questionnaire
from headscape.notices import Notice
from headscape.report.geometry_figures import token_figures
from headscape.study.stages.context import Context
from headscape.study.stages.cost import ORGANIZING, Size
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Option, Outcome, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study


class Geometry(Stage):
    """Organizes every window; the other stages use its trees."""

    name, title, doing, cost = "geometry", "Geometry of the heads", "organizing", ORGANIZING
    concurrent = True
    options = (
        Option("n_iter", 3, "Iterations of the questionnaire."),
        Option("alpha", 0.0, "Folder weights fall with the level by 2^-alpha."),
        Option("beta", 1.0, "Folder weights grow with the size to the beta."),
        Option("init", "cosine", "Initial affinity: cosine or gaussian."),
        Option("tree", "flexible", "Kind of trees: flexible, binary or linkage."),
        Option("head_trees", "latest", "Query and key trees that the head axis sees: latest or initial."),
        Option("eps_scale", 1.0, "Scale of the affinity, in median EMDs."),
        Option("tree_constant", 1.0, "Larger values make smaller folders."),
        Option("n_eigs", 12, "Eigenpairs, the trivial one included."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the questionnaire takes the options."""
        Questionnaire(**options).check()

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a window, which grow with the iterations."""
        return float(super().seconds(size, options) * options["n_iter"] / 3)

    def measure(self, context: Context, piece: int) -> Result:
        """Organize one window."""
        x = context.tensor(piece, context.parameters["field"])
        options = context.options[self.name]
        found = organize(x, **options, engine=context.engine, progress=context.progress)
        return Result(found.arrays(), {"organization": found.attributes()})

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the organizations of all windows, and what they warn of; the stage "folders" says what they show."""
        organizations = tuple(organization_of(result) for result in results)
        merged = merged_notices([organization.warnings for organization in organizations])
        return Outcome(
            context.frame({}),
            notices=tuple(notice for notice in merged if notice.affects_heads),
            remarks=tuple(notice for notice in merged if not notice.affects_heads),
            detail=organizations,
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return affinities and trees of queries and keys in the first window, and one head before and after."""
        x = study.data.tensor(0, study.parameters["field"])
        index = None if head is None else study.data.heads.index(head)
        return token_figures(x, study.organization, index)


def organization_of(result: Result) -> Organization:
    """Return the organization that a piece of the stage holds."""
    return Organization.from_arrays(result.arrays, result.attributes["organization"])


def merged_notices(of_windows: Sequence[Sequence[Notice]]) -> list[Notice]:
    """Return the notices of all windows, equal ones as one with the number of windows it was seen in."""
    seen: dict[tuple[str, str, bool], list[Notice]] = {}
    for notice in (notice for notices in of_windows for notice in notices):
        seen.setdefault((notice.name, notice.axis, notice.affects_heads), []).append(notice)
    n = len(of_windows)
    return [
        replace(same[0], message=f"in {len(same)} of {n} windows, {same[0].message}") if n > 1 else same[0]
        for same in seen.values()
    ]
