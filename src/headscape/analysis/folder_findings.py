"""What the folders of the head tree say, in sentences made from their numbers; none is built on little support."""

import re

import numpy as np
import pandas as pd

from headscape.analysis.folder_names import MIXED
from headscape.analysis.head_folders import HeadFolders
from headscape.analysis.tree_support import SUPPORTED

MOST_NAMED = 4
_MEDIANS = re.compile(r" \(median score [^()]*\)")
# Differences below these are not worth a verdict.
_NO_AGREEMENT = 0.05
_AS_STEADY = 0.02
# Rank correlations, and shares of groups that come back, from which on something repeats.
_REPEATS, _REPEATS_IN_PART = 0.8, 0.5

_MEANING = {
    "layer": ("depth", "the layer"),
    "pattern": ("function", "the pattern"),
    "key-value head": ("wiring", "the key-value head"),
}


def folder_findings(folders: HeadFolders) -> dict[str, str]:
    """Return the sentences by what they are about, the most important first; empty ones are left out."""
    sentences = {
        "names": _named(folders),
        "tree": _about(folders.agreement),
        "coordinates": _coordinates(folders),
        "split": _split(folders),
        "windows": _windows(folders),
        "steadiness": _steadier(folders.repetitions.steadiness),
    }
    return {about: sentence for about, sentence in sentences.items() if sentence}


def _standing_out(folders: HeadFolders) -> list[int]:
    """Return the largest folders that stand out, none inside another and none of most heads."""
    tree = folders.geometry.tree
    free = np.ones(tree.n_points, dtype=bool)
    found = []
    supported = folders.supported()
    for index in supported[np.argsort(-tree.folders.size[supported], kind="stable")]:
        members, name = tree.folder(int(index)), folders.names[index]
        if name and name != MIXED and free[members].all() and 2 * len(members) <= tree.n_points:
            free[members] = False
            found.append(int(index))
    return found


def _named(folders: HeadFolders) -> str:
    """Say which groups of heads there are and what each has in common."""
    found = _standing_out(folders)
    if not found:
        return ""
    told = [_with_support(folders.names[index], folders.support[index]) for index in found[:MOST_NAMED]]
    more = f"; and {len(found) - MOST_NAMED} smaller ones" if len(found) > MOST_NAMED else ""
    groups = "1 group of heads stands" if len(found) == 1 else f"{len(found)} groups of heads stand"
    return (
        f"{groups} out in the tree: {'; '.join(told)}{more}. Support is the share of repetitions (windows drawn "
        "again, with a little noise) in which a group comes back."
    )


def _with_support(name: str, support: float) -> str:
    """Return the name of a folder as a part of a sentence: "31 heads in layers 12-20 attend ... (support 0.85)"."""
    where, _, shared = _MEDIANS.sub("", name).partition(": ")
    size, _, layers = where.partition(", ")
    layers = layers.replace("layer", "in layer", 1)
    middle = f", {layers}, {' and '.join(shared.split(', '))}" if shared else f" lie {layers}"
    return f"{size}{middle} (support {support:.2f})"


def group_statistics(folders: HeadFolders) -> str:
    """Return the scores that tell the groups from the other heads."""
    names = [folders.names[index].replace(": ", ", ", 1) for index in _standing_out(folders)[:MOST_NAMED]]
    return f"{'; '.join(names)}."


def _split(folders: HeadFolders) -> str:
    tree, repetitions = folders.geometry.tree, folders.repetitions
    children = np.flatnonzero(tree.folders.parent == 0)
    children = children[np.argsort(-tree.folders.size[children], kind="stable")]
    groups = _listed([str(size) for size in tree.folders.size[children]])
    windows = f"mean of {repetitions.n_windows} windows" if repetitions.n_windows > 1 else "one window"
    support = folders.support[children[tree.folders.size[children] > 1]]
    split = f"and splits first into groups of {groups} heads"
    if len(support) and support.min() < SUPPORTED:
        split = f"but no stable first split (groups of {groups} heads; lowest support {support.min():.2f})"
    opening = f"The tree of the {tree.n_points} heads ({windows}) has {tree.depth} levels {split}"
    count = int(folders.counted().sum())
    if not count:
        return f"{opening}."
    drawn = "windows drawn again and " if repetitions.n_windows > 1 else ""
    return (
        f"{opening}; {len(folders.supported())} of its {count} folders of 3 or more heads come back in at least half "
        f"of {repetitions.draws} repetitions with {drawn}{100 * repetitions.noise:.1f} % noise."
    )


def _about(agreement: pd.DataFrame) -> str:
    """Say whether the tree is about depth, function or wiring."""
    excess = agreement.assign(excess=agreement["ami"] - agreement["shuffled"])
    if excess.empty:
        return ""
    best = excess.loc[excess.groupby("attribute")["excess"].idxmax()].sort_values("excess", ascending=False)
    rows = best.to_dict("records")
    told = [
        f"{_MEANING[row['attribute']][1]} {_plain(row['ami'])} at {row['folders']:.0f} folders (shuffled"
        f"{' inside layers' if row['attribute'] == 'key-value head' else ''} {_plain(row['shuffled'])})"
        for row in rows
    ]
    numbers = f"adjusted mutual information with {', '.join(told)}"
    words = [_MEANING[row["attribute"]][0] for row in rows if row["excess"] >= _NO_AGREEMENT]
    if not words:
        return f"The head tree follows none of depth, function and wiring: {numbers}."
    then = f", then {' and '.join(words[1:])}" if len(words) > 1 else ""
    return f"The head tree is mostly about {words[0]}{then}: {numbers}."


def _coordinates(folders: HeadFolders) -> str:
    told = [f"coordinate {i} follows {name}" for i, name in enumerate(folders.followed(), 1) if name]
    return f"On the map of the heads {', '.join(told)} (rank correlation)." if told else ""


def _windows(folders: HeadFolders) -> str:
    """Say how far distances and tree can be relied on."""
    values = folders.repetitions.emd_correlations
    if not len(values):
        return ""
    mean = values.mean()
    how = "well" if mean >= _REPEATS else "in part" if mean >= _REPEATS_IN_PART else "poorly"
    sentence = (
        f"Distances between heads repeat {how} from window to window (mean rank correlation {mean:.2f}, where 1 is "
        "full agreement)."
    )
    count, kept = int(folders.counted().sum()), len(folders.supported())
    if not count:
        return sentence
    come_back = (
        f"{kept} of its {count} groups of 3 or more heads come back in at least half of the repetitions"
    )
    if kept >= _REPEATS * count:
        return f"{sentence} The tree repeats well: {come_back}."
    rely = "rely on pairs and the map rather than on" if mean >= _REPEATS else "do not rely on"
    less = "less" if mean >= _REPEATS else "poorly" if kept < count / 2 else "in part"
    return f"{sentence} The tree repeats {less}: {come_back}, so {rely} single groups."


def window_statistics(folders: HeadFolders) -> str:
    """Return the numbers behind how well the windows agree."""
    repetitions = folders.repetitions
    values, levels = repetitions.emd_correlations, repetitions.window_trees["ami"]
    told = (
        f"Rank correlations between the distances of {repetitions.n_windows} windows: {values.min():.2f} to "
        f"{values.max():.2f}"
    )
    if not levels.empty:
        told += (
            f"; adjusted mutual information of their trees: {levels.min():.2f} to {levels.max():.2f} by level"
        )
    return f"{told}."


def _steadier(steadiness: pd.DataFrame) -> str:
    """Say which kind of tree changes less under noise."""
    if steadiness.empty:
        return ""
    means = steadiness.pivot_table(index="tree", columns="noise", values="ami", aggfunc="mean")
    total = means.mean(axis=1).sort_values(ascending=False)
    noises = " and ".join(f"{100 * noise:.1f} %" for noise in means.columns.astype(float))
    told = ", ".join(f"{kind} {' and '.join(f'{v:.2f}' for v in means.loc[kind])}" for kind in total.index)
    first, second = total.index[:2]
    verdict = f"The {first} tree is steadier than the {second} tree on this model"
    if total.iloc[0] - total.iloc[1] < _AS_STEADY:
        verdict = f"The {first} and the {second} tree are about equally steady on this model"
    return (
        f"{verdict}: adjusted mutual information with the tree without noise, under {noises} noise: {told}."
    )


def _plain(value: float) -> str:
    """Return a number with two digits; nothing is not below zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def _listed(words: list[str], most: int = 4) -> str:
    shown = words[:most] + (["..."] if len(words) > most else [])
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)
