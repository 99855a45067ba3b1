"""The stage "geometry": trees on queries, keys and heads of every window, and the map of the heads (OA Algorithm 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.geometry.organization import Organization, organize
from headscape.geometry.questionnaire import Questionnaire
from headscape.notices import Notice
from headscape.report.geometry_figures import organization_figures
from headscape.report.pictures import gray_png
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Option, Outcome, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

NEAREST = 10


class Geometry(Stage):
    """Organizes every window; the other stages use its trees."""

    name, title, doing, cost = "geometry", "Geometry of the heads", "organizing", 12.0
    columns = (
        Column("place", "place", "Place in the leaf order of the head tree.", table=False),
        Column("folder", "folder", "Number of the head's folder at the first level of the tree."),
        Column("nearest", "nearest", "The head that attends most alike."),
        Column(
            "nearest_emd", "EMD", "Tree EMD to the nearest head.", direction="unlike any other", panel=True
        ),
    )
    options = (
        Option("n_iter", 3, "Iterations of the questionnaire."),
        Option("alpha", 0.0, "Folder weights fall with the level by 2^-alpha."),
        Option("beta", 1.0, "Folder weights grow with the size to the beta."),
        Option("init", "cosine", "Initial affinity: cosine or gaussian."),
        Option("tree", "flexible", "Kind of trees: flexible or binary."),
        Option("head_trees", "latest", "Query and key trees that the head axis sees: latest or initial."),
        Option("eps_scale", 1.0, "Scale of the affinity, in median EMDs."),
        Option("tree_constant", 1.0, "Larger values make smaller folders."),
        Option("n_eigs", 12, "Eigenpairs, the trivial one included."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the questionnaire takes the options."""
        Questionnaire(**options).check()

    def measure(self, context: Context, piece: int) -> Result:
        """Organize one window."""
        x = context.tensor(piece, context.parameters["field"])
        options = context.options[self.name]
        found = organize(x, **options, engine=context.engine, progress=context.progress)
        return Result(found.arrays(), {"organization": found.attributes()})

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return places, folders and nearest heads in the first window, and how the tree splits."""
        organizations = [organization_of(result) for result in results]
        first = organizations[0]
        tree, emd = first.trees["head"], first.emd["head"].copy()
        place = np.empty(tree.n_points, dtype=np.int64)
        place[tree.order] = np.arange(tree.n_points)
        columns: dict[str, Any] = {"place": place, "folder": tree.labels[min(1, tree.depth - 1)]}
        if tree.n_points > 1:
            np.fill_diagonal(emd, np.inf)
            columns["nearest"] = [first.labels("head")[i] for i in emd.argmin(axis=1)]
            columns["nearest_emd"] = emd.min(axis=1)
        merged = merged_notices([organization.warnings for organization in organizations])
        return Outcome(
            context.frame(columns),
            (_split(first),),
            notices=tuple(notice for notice in merged if notice.affects_heads),
            remarks=tuple(notice for notice in merged if not notice.affects_heads),
            detail=tuple(organizations),
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return affinities, trees, diffusion maps, and one head before and after."""
        x = study.data.tensor(0, study.parameters["field"])
        index = None if head is None else study.data.heads.index(head)
        return organization_figures(x, study.organization, index)

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return map, tree, affinity and the nearest heads."""
        organization = study.organization
        tree, emd = organization.trees["head"], organization.emd["head"]
        folders, order = tree.folders, tree.order
        affinity = organization.affinities["head"][np.ix_(order, order)]
        others = emd + np.diag(np.full(len(emd), -1.0))  # a head is not among its own neighbors
        nearest = np.argsort(others, axis=1, kind="stable")[:, 1 : NEAREST + 1]
        data = {
            "coordinates": organization.diffusion_map("head", n_components=3).round(7).tolist(),
            "order": order.tolist(),
            "folders": {
                "parent": folders.parent.tolist(),
                "start": folders.start.tolist(),
                "stop": folders.stop.tolist(),
                "level": folders.first_level.tolist(),
            },
            "affinity": {"png": gray_png(np.round(255 * affinity.clip(0, 1)).astype(np.uint8))},
            "nearest": {
                "index": nearest.tolist(),
                "emd": np.take_along_axis(emd, nearest, axis=1).tolist(),
            },
            "remarks": [str(notice) for notice in study.outcomes[self.name].remarks],
        }
        body, panel = page_file("geometry.html").split("<!-- panel -->")
        anchors = (("map", "Map"), ("tree", "Tree"), ("affinity", "Affinity"))
        return (Section(self.name, "", data, body, panel, page_file("geometry.js"), anchors=anchors),)


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
        replace(same[0], message=f"in {len(same)} of {n} windows: {same[0].message}") if n > 1 else same[0]
        for same in seen.values()
    ]


def _split(organization: Organization) -> str:
    tree = organization.trees["head"]
    sizes = sorted(np.bincount(tree.labels[min(1, tree.depth - 1)]), reverse=True)
    listed = [str(size) for size in sizes[:4]] + (["..."] if len(sizes) > 4 else [])
    groups = f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else listed[0]
    return (
        f"The tree of the {tree.n_points} heads (first window) has {tree.depth} levels and splits first into groups "
        f"of {groups} heads."
    )
