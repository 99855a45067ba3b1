"""The stage "folders": one geometry of the heads for all windows, support and names of its folders."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.folder_findings import folder_findings, group_statistics, window_statistics
from headscape.analysis.folder_names import FolderAttributes
from headscape.analysis.head_folders import HeadFolders, Repetitions, head_folders
from headscape.analysis.tree_agreement import agreement_of_trees, rank_correlation_of_emds, steadiness
from headscape.analysis.tree_support import Grow, TreeSupport, consensus_tree, tree_support
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.grown import grown_tree
from headscape.geometry.data_order import data_order
from headscape.geometry.head_geometry import HeadGeometry, head_geometry
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.partition_tree import PartitionTree
from headscape.report.geometry_figures import head_figures
from headscape.report.pictures import gray_png
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Option, Outcome, Stage
from headscape.tensor.capture import Capture
from headscape.tensor.checks import require_integer, require_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

NEAREST = 10
# How much noise the trees are compared under: that of the support, and ten times as much.
NOISE_FACTORS = (1, 10)
STEADINESS_DRAWS = 10


_ANSWERS = {
    "names": Question.alike,
    "tree": Question.alike,
    "coordinates": Question.alike,
    "split": Question.more,
    "windows": Question.sure,
    "steadiness": Question.more,
}


class Folders(Stage):
    """Takes the windows' head geometries together, and says what its folders are worth and have in common."""

    name, title, doing, cost = "folders", "Folders of the heads", "repeating the head tree", 1.2
    unit, needs, follows, concurrent = "model", ("geometry",), ("geometry",), True
    columns = (
        Column("place", "place", "Place in the leaf order of the head tree.", table=False),
        Column("folder", "folder", "Number of the head's folder at the first level of the tree."),
        Column(
            "folder_name",
            "folder has in common",
            "What the smallest folder with a name that holds the head has in common.",
            table=False,
        ),
        Column("nearest", "nearest", "The head that attends most alike."),
        Column(
            "nearest_emd",
            "distance to nearest head",
            "Earth mover's distance (tree EMD) to the nearest head, mean over windows.",
            direction="unlike any other",
            panel=True,
        ),
    )
    options = (
        Option("noise", 0.001, "Relative noise on the head EMDs under which folders must come back."),
        Option("repetitions", 20, "Repetitions with noise, and with windows drawn again."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the noise is small and the number of repetitions possible."""
        require_number(options["noise"], "noise", 0, 0.5)
        require_integer(options["repetitions"], "repetitions", 1, 10_000)

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds: distances between heads, whatever the tokens."""
        return float(self.cost * size.times(heads=2, tokens=0) * options["repetitions"] / 20)

    def measure(self, context: Context, piece: int) -> Result:
        """Return the mean geometry, and what of it comes back over windows and under noise."""
        options, seed = context.options[self.name], context.parameters["seed"]
        geometry = _mean_geometry(context)
        kind = _head_kind(context)
        emds = [organization.emd["head"] for organization in context.organizations]
        trees = [organization.trees["head"] for organization in context.organizations]
        context.progress("support", 0, 2)
        support = tree_support(
            geometry.tree,
            emds,
            trees,
            _grow(context, kind),
            noise=options["noise"],
            draws=options["repetitions"],
            seed=seed,
        )
        consensus = ordered_leaves(consensus_tree(trees), geometry.emd, geometry.eigenpairs.vectors[:, 1:])
        context.progress("steadiness", 1, 2)
        noises = [factor * options["noise"] for factor in NOISE_FACTORS]
        rows = [
            {"tree": name, **row}
            for name in dict.fromkeys(("flexible", "linkage", kind))
            for row in steadiness(
                geometry.emd, _grow(context, name), noises, draws=STEADINESS_DRAWS, seed=seed
            )
        ]
        agree = agreement_of_trees(geometry.tree, trees) if len(trees) > 1 else []
        return Result(
            {
                **geometry.arrays(),
                "support": np.stack([support.windows, support.noise, support.both]),
                "consensus": consensus.labels,
                "emd_correlations": rank_correlation_of_emds(emds),
            },
            tables={
                "window_trees": pd.DataFrame(agree, columns=["folders", "ami"]),
                "steadiness": pd.DataFrame(rows, columns=["tree", "noise", "folders", "ami", "lowest"]),
            },
        )

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return places, folders and nearest heads, names of the folders, and what the tree is about."""
        found = _folders(context, results[0])
        tree, emd = found.geometry.tree, found.geometry.emd.copy()
        labels = [f"{layer}.{head}" for layer, head in context.heads]
        columns: dict[str, Any] = {
            "place": tree.labels[-1],
            "folder": tree.labels[min(1, tree.depth - 1)],
            "folder_name": found.name_of_heads(),
        }
        if tree.n_points > 1:
            np.fill_diagonal(emd, np.inf)
            columns["nearest"] = [labels[i] for i in emd.argmin(axis=1)]
            columns["nearest_emd"] = emd.min(axis=1)
        return Outcome(
            context.frame(columns),
            _findings(found, labels),
            detail=found,
            tables={"folders": found.to_frame(labels), "tree_agreement": found.agreement},
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return affinity, tree and diffusion maps of the heads over all windows."""
        found: HeadFolders = study[self.name]
        first, heads = study.organization, found.geometry
        shown = replace(
            first,
            trees={**first.trees, "head": heads.tree},
            affinities={**first.affinities, "head": heads.affinity},
        )
        return head_figures(shown, found.support)

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return map, tree, affinity and the nearest heads."""
        found: HeadFolders = study[self.name]
        tree, emd = found.geometry.tree, found.geometry.emd
        folders, order = tree.folders, tree.order
        affinity = found.geometry.affinity[np.ix_(order, order)]
        others = emd + np.diag(np.full(len(emd), -1.0))  # a head is not among its own neighbors
        nearest = np.argsort(others, axis=1, kind="stable")[:, 1 : NEAREST + 1]
        data = {
            "coordinates": found.geometry.diffusion_map(n_components=3).round(7).tolist(),
            "coordinates_follow": found.followed(),
            "order": order.tolist(),
            "folders": {
                "parent": folders.parent.tolist(),
                "start": folders.start.tolist(),
                "stop": folders.stop.tolist(),
                "level": folders.first_level.tolist(),
            },
            "support": found.support.round(3).tolist(),
            "folder_names": list(found.names),
            "steadiness": found.repetitions.steadiness.round(4).to_dict("records"),
            "affinity": {"png": gray_png(np.round(255 * affinity.clip(0, 1)).astype(np.uint8))},
            "nearest": {
                "index": nearest.tolist(),
                "emd": np.take_along_axis(emd, nearest, axis=1).tolist(),
            },
            "remarks": [str(notice) for notice in study.outcomes["geometry"].remarks],
        }
        body, panel = page_file("geometry.html").split("<!-- panel -->")
        anchors = (("map", "Map"), ("tree", "Tree"), ("affinity", "Affinity"))
        return (Section("geometry", "", data, body, panel, page_file("geometry.js"), anchors=anchors),)


def _findings(found: HeadFolders, labels: Sequence[str]) -> tuple[Finding, ...]:
    """Return what the folders have in common, then the heads that are most alike, then the rest."""
    numbers = {"names": group_statistics, "windows": window_statistics}
    told = [
        Finding(sentence, _ANSWERS[about], numbers[about](found) if about in numbers else "")
        for about, sentence in folder_findings(found).items()
    ]
    return (*told[:1], *_closest(found, labels), *told[1:])


def _closest(found: HeadFolders, labels: Sequence[str]) -> tuple[Finding, ...]:
    """Say which two heads attend most alike, and how close that is among all pairs."""
    emd = found.geometry.emd
    pairs = np.triu_indices(len(emd), k=1)
    if len(pairs[0]) < 3:
        return ()
    distances = emd[pairs]
    order = np.argsort(distances, kind="stable")[:3]
    named = [f"{labels[pairs[0][i]]} and {labels[pairs[1][i]]}" for i in order]
    middle = float(np.median(distances))
    sentence = f"The heads that attend most alike are {named[0]}, then {named[1]}, and {named[2]}"
    if middle == 0:
        return (Finding(f"{sentence}; most heads attend exactly alike.", Question.alike),)
    share = distances[order[0]] / middle
    return (
        Finding(
            f"{sentence}: the distance between the first pair is {share:.2f} of the median distance between two heads.",
            Question.alike,
            f"tree EMD {distances[order[0]]:.4g}, median over all pairs {middle:.4g}.",
        ),
    )


def _head_kind(context: Context) -> Any:
    """Return the kind of tree on the head axis."""
    kind = context.options["geometry"]["tree"]
    return kind if isinstance(kind, str) else kind.get("head", "flexible")


def _mean_geometry(context: Context) -> HeadGeometry:
    """Return the head geometry over all windows; that of a single window as it is."""
    if len(context.organizations) == 1:
        return HeadGeometry.of_window(context.organizations[0])
    options = {name: context.options["geometry"][name] for name in ("eps_scale", "tree_constant", "n_eigs")}
    emds = [organization.emd["head"] for organization in context.organizations]
    return head_geometry(emds, tree=_head_kind(context), **options)


def _grow(context: Context, kind: Any) -> Grow:
    """Return what makes a tree of head EMDs, with the options of the geometry; leaf orders are left out."""
    options = context.options["geometry"]

    def grow(emd: NDArray[np.float64]) -> PartitionTree:
        affinity = emd_affinity(emd, options["eps_scale"])
        more = {name: options[name] for name in ("tree_constant", "n_eigs")}
        return grown_tree(affinity, emd, data_order(emd.sum(axis=1)), kind=kind, **more)[0]

    return grow


def _folders(context: Context, result: Result) -> HeadFolders:
    """Name the folders by what the stages before have found out about the heads."""
    options = context.options["folders"]
    repetitions = Repetitions(
        TreeSupport(*result.arrays["support"]),
        PartitionTree(result.arrays["consensus"]),
        result.arrays["emd_correlations"],
        result.tables["window_trees"],
        result.tables["steadiness"],
        n_windows=len(context.organizations),
        noise=options["noise"],
        draws=options["repetitions"],
    )
    geometry = HeadGeometry.from_arrays(result.arrays)
    earlier = context.earlier.get("patterns")
    patterns = None if earlier is None else earlier.detail
    scores = {}
    if patterns is not None:  # a score that some heads do not have cannot tell folders apart
        table = patterns.table[list(patterns.scores)].dropna(axis="columns")
        scores = {str(name): table[name].to_numpy(dtype=np.float64) for name in table}
    attributes = FolderAttributes(np.array([layer for layer, _ in context.heads]), scores, _groups(context))
    kinds = None if patterns is None else list(patterns.table["pattern"])
    return head_folders(geometry, repetitions, attributes, kinds, seed=context.parameters["seed"])


def _groups(context: Context) -> NDArray[np.int64] | None:
    """Return the number of the key-value head of every head; None if it is not known or nothing is shared."""
    if not isinstance(context.data, Capture) or len(context.data.kv_heads) == len(context.heads):
        return None
    numbers = {pair: i for i, pair in enumerate(context.data.kv_heads)}
    return np.array([numbers[pair] for pair in context.data.kv_head_of_heads])
