"""The sentences of every stage, each with its numbers computed once more; see :mod:`finding_checks`."""

import re
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from finding_checks import (
    NUMBER,
    adjusted_information,
    interval,
    label,
    near,
    number,
    pair_of,
    quartiles,
    rank_correlation,
    same,
    says,
    upper,
)
from headscape.analysis.folder_names import shared_words
from headscape.analysis.pattern_kinds import PATTERNS

SCORED = re.compile(r"(\d+\.\d+) \((\d\.\d\d)(?: on repeated random tokens)?\)")


def patterns_of(study):
    """Return score, lower bound and chance of every head, (head, score) frames, from the written table."""
    table = study.outcomes["patterns"].tables["patterns"]
    return {
        value: table.pivot_table(index=["layer", "head"], columns="pattern", values=value, dropna=False)
        for value in ("score", "low", "chance")
    }


def kinds(study):
    """Return kind and score of every head."""
    return {pair: (kind, score) for pair, (kind, score, _) in named_by(study).items()}


def named_by(study):
    """Name every head once more, with score and its column: the largest excess over chance, few keys before many."""
    found = patterns_of(study)
    named = {}
    for pair, scores in found["score"].iterrows():
        best = {}
        for name, score in scores.items():
            pattern, chance, low = (
                PATTERNS[name],
                found["chance"].loc[pair, name],
                found["low"].loc[pair, name],
            )
            if not pattern.doing or name == "uniform" or np.isnan(score) or low <= chance or chance > 0.5:
                continue
            if name == "sink" and study.heads.loc[pair, "sink_key"] == 0:
                continue
            excess = (score - chance) / (1 - chance)
            if excess >= pattern.threshold:
                best.setdefault(pattern.threshold, []).append((excess, score, pattern.title, name))
        if best:
            _, score, title, name = max(best[min(best)])
            named[pair] = (title, score, name)
        elif scores.get("uniform", 0.0) >= 0.8:
            named[pair] = ("uniform", scores["uniform"], "uniform")
        else:
            named[pair] = ("mixed", np.nan, "")
    return named


@says("patterns", "Of {n} heads, {families~}.")
def families(study, said):
    counts = pd.Series([kind for kind, _ in kinds(study).values()]).value_counts()
    told, _, rest = said["families"].partition("; ")
    found = {}
    for part in told.split(", "):
        count, doing = part.split(" ", 1)
        kind = _kind_doing(doing.partition(" (")[0], int(count))
        found[kind] = int(count)
        assert _source_is_said(study, kind, doing), part
    if rest:
        found["mixed"] = int(re.fullmatch(r"(\d+) follows? no single pattern \(mixed\)", rest)[1])
    return {"n": len(study.data.heads), "families": found == counts.to_dict()}


def _source_is_said(study, kind, words):
    """Tell whether words name what gave the heads of a kind their name: random tokens, or repeats in the text."""
    columns = {column for title, _, column in named_by(study).values() if title == kind}
    random = {column.endswith("_random") for column in columns}
    if not any(column.endswith(("_random", "_repeats")) for column in columns):
        return "repeat" not in words
    said = {
        "on repeated random tokens": {True},
        "on repeated tokens": {True, False},
        "where a token repeats": {False},
    }
    return next(which for start, which in said.items() if f"({start} " in words) == random


def _kind_doing(doing, count):
    one = {
        "are induction heads": "is an induction head",
        "are duplicate-token heads": "is a duplicate-token head",
    }
    for pattern in PATTERNS.values():
        words = pattern.doing
        if count == 1 and words:
            verb, rest = words.split(" ", 1)
            words = one.get(words, f"{verb}s {rest.replace('themselves', 'itself')}")
        if words == doing:
            return pattern.title
    raise AssertionError(f"no kind of head is described as {doing!r}")


@says("patterns", "None of the {n} heads follows one of the simple attention patterns: all are mixed.")
def no_family(study, said):
    assert {kind for kind, _ in kinds(study).values()} == {"mixed"}
    return {"n": len(study.data.heads)}


@says(
    "patterns",
    "The clearest head of each kind, with its score: {told~}.",
    "The clearest head of each kind, with its score (* on repeated random tokens): {told~}.",
)
def clearest(study, said):
    named, told = named_by(study), {}
    for part in said["told"].split(", "):
        kind, head, score, random = re.fullmatch(rf"([a-z ]+) (\d+\.\d+) \(({NUMBER})(\*?)\)", part).groups()
        pair = pair_of(head)
        of_kind = [value for name, value, _ in named.values() if name == kind]
        assert named[pair][0] == kind
        assert same(score, max(of_kind))
        assert same(score, named[pair][1])
        assert bool(random) == named[pair][2].endswith("_random")
        told[kind] = pair
    return {"told": {*told} == {kind for kind, _, _ in named.values()} - {"mixed"}}


@says("patterns", "The clearest heads of each kind, with their scores: {told~}.")
def clearest_few(study, said):
    named, column = kinds(study), {pair: name for pair, (_, _, name) in named_by(study).items()}
    parts = [part.split(": ") for part in said["told"].split("; ")]
    on_random = {kind.partition(",")[0] for kind, _ in parts if kind.endswith(", on repeated random tokens")}
    parts = [(kind.partition(",")[0], members) for kind, members in parts]
    assert {kind for kind, _ in parts} == {kind for kind, _ in named.values()} - {"mixed"}
    for kind, members in parts:
        of_kind = {pair: score for pair, (name, score) in named.items() if name == kind}
        listed = {pair_of(head): score for head, score in SCORED.findall(members)}
        assert len(listed) == min(3, len(of_kind))
        assert all(same(text, of_kind[pair]) for pair, text in listed.items())
        random = {pair: column[pair].endswith("_random") for pair in of_kind}
        assert (kind in on_random) == all(random.values())
        marked = {
            pair_of(head) for head in re.findall(r"(\d+\.\d+) \(\S+ on repeated random tokens\)", members)
        }
        assert marked == (set() if kind in on_random else {pair for pair in listed if random[pair]})
        others = [score for pair, score in of_kind.items() if pair not in listed]
        assert max(others, default=0) <= min(of_kind[pair] for pair in listed)
        layers = re.search(r"layers (\d+)-(\d+)$", members)
        if len(of_kind) > 3:
            assert [int(x) for x in layers.groups()] == [f(p[0] for p in of_kind) for f in (min, max)]
    return {"told": True}


@says(
    "patterns",
    "On repeated random tokens, {count} of {n} heads {verb~} to the token after the earlier occurrence, with a score "
    "of at least {least} (even attention: {even}): {listed~}.",
    "On repeated random tokens, {count} of {n} heads {verb~} to the token after the earlier occurrence, with a score "
    "of at least {least} (even attention: {even}).",
)
def on_repeats(study, said):
    found = patterns_of(study)
    scores = found["score"]["induction_random"]
    strong = scores[scores >= 0.3]
    values = {
        "count": len(strong),
        "n": len(scores),
        "verb": "attends" if len(strong) == 1 else "attend",
        "least": 0.3,
        "even": found["chance"]["induction_random"].median(),
    }
    if "listed" in said:
        listed = SCORED.findall(said["listed"])
        assert len(listed) == min(6, len(strong))
        values["listed"] = all(same(text, strong[pair_of(head)]) for head, text in listed)
    return values


@says("patterns", "Patterns left out: {names~} ({why~}).")
def patterns_left_out(study, said):
    names = [name.replace(" ", "_") for name in said["names"].split(", ")]
    reasons = {}
    for result in study.results["patterns"]:
        reasons |= result.attributes["left_out"]
    assert not set(names) & set(study.heads)
    return {"names": True, "why": all(reasons[name] == said["why"] for name in names)}


@says(
    "patterns", "The windows hold no special tokens, so that separators are punctuation and whitespace alone."
)
def no_special_tokens(study, said):
    assert study.data.provenance["special_tokens_seen"] == []
    return {}


@says(
    "patterns",
    "Scores are shares of attention, means over {windows} window{s~}; a name needs a score well above that of "
    "attention spread evenly (patterns.csv has all scores with their intervals and chance levels).",
    "Scores are shares of attention, means over {windows} window; a name needs a score well above that of "
    "attention spread evenly (patterns.csv has all scores with their intervals and chance levels).",
)
def means_over(study, said):
    return {"windows": study.windows} | ({"s": "s"} if "s" in said else {})


def mean_emd(study):
    """Return the mean EMDs of the heads over windows, each window scaled to the same median."""
    emds = [organization.emd["head"] for organization in study.organizations]
    medians = [np.median(emd) for emd in emds]
    return sum(emd * np.mean(medians) / own for emd, own in zip(emds, medians, strict=True)) / len(emds)


def distinct_folders(study):
    """Return the distinct folders of the head tree as sets of heads, from its labels."""
    labels = study.head_geometry.tree.labels
    return {frozenset(np.flatnonzero(row == value).tolist()) for row in labels for value in np.unique(row)}


def support_of(study):
    """Return the support of every folder by its heads, from the written table."""
    table = study.outcomes["folders"].tables["folders"]
    heads = {label(pair): i for i, pair in enumerate(study.data.heads)}
    return {
        frozenset(heads[name] for name in row["heads"].split()): row["support"] for _, row in table.iterrows()
    }


@says(
    "folders",
    "{count} groups of heads stand out in the tree: {told~}. Support is the share of repetitions (windows drawn "
    "again, with a little noise) in which a group comes back.",
    "{count} group of heads stands out in the tree: {told~}. Support is the share of repetitions (windows drawn "
    "again, with a little noise) in which a group comes back.",
)
def named_folders(study, said):
    support, layers = support_of(study), np.array([layer for layer, _ in study.data.heads])
    smaller = re.search(r"; and (\d+) smaller ones$", said["told"])
    told = said["told"][: smaller.start() if smaller else None].split("; ")
    (finding,) = [found for found in study.findings if " out in the tree: " in found]
    numbers = _group_numbers(finding.statistics)
    for part, scores in zip(told, numbers, strict=True):
        form = rf"(\d+) heads,? (?:lie )?(?:mostly )?in layers? (\d+)(?:-\d+)?.* \(support ({NUMBER})\)"
        size, where, stated = re.fullmatch(form, part).groups()
        fitting = [
            heads
            for heads, value in support.items()
            if len(heads) == int(size)
            and value >= 0.5
            and same(stated, value)
            and _fits(study, scores, heads)
        ]
        assert fitting, part
        assert any(int(where) in layers[sorted(heads)] for heads in fitting)
        shared = [words for words, _, _ in _SCORES.findall(scores)]
        assert all(words in part for words in shared), (part, scores)
    return {"count": len(told) + (int(smaller[1]) if smaller else 0), "told": True}


_SCORES = re.compile(rf", ([a-z ]+?) \(median score ({NUMBER}); other heads ({NUMBER})\)")


def _group_numbers(text):
    """Return the statistics of the groups that stand out, one text a group."""
    return re.split(r"; (?=\d+ heads, )", text.removesuffix("."))


@says("folders", "{size} heads, {rest~}.")
def group_statistics(study, said):
    """Every group fits a folder of its size; the sentence before it names its support."""
    for text in _group_numbers(f"{said['size']} heads, {said['rest']}"):
        size = int(text.partition(" ")[0])
        assert any(_fits(study, text, heads) for heads in support_of(study) if len(heads) == size), text
    return {"size": True, "rest": True}


def _fits(study, words, heads):
    inside = np.isin(np.arange(len(study.data.heads)), sorted(heads))
    stated = _SCORES.findall(words)
    assert len(stated) == words.count("median score")
    shared = re.search(rf"(\d+) pairs share a key-value head \({NUMBER} expected\)", words)
    if shared:
        groups = pd.Series(study.data.kv_head_of_heads)[inside].value_counts()
        if int(shared[1]) != int((groups * (groups - 1) // 2).sum()):
            return False
    for said, here, elsewhere in stated:
        meant = [
            name
            for name in study.outcomes["patterns"].tables["patterns"]["pattern"].unique()
            for high in (True, False)
            if shared_words(name, high=high) == said
        ]
        medians = [
            [np.median(study.heads[name].to_numpy()[which]) for which in (inside, ~inside)] for name in meant
        ]
        if not any(same(here, a) and same(elsewhere, b) for a, b in medians):
            return False
    return True


@says(
    "folders",
    "The heads that attend most alike are {a~} and {b~}, then {c~} and {d~}, and {e~} and {f~}: the distance "
    "between the first pair is {share} of the median distance between two heads.",
)
def closest(study, said):
    emd, names = mean_emd(study), [label(pair) for pair in study.data.heads]
    pairs = sorted(combinations(range(len(names)), 2), key=lambda pair: emd[pair])
    first = [names[i] for pair in pairs[:3] for i in pair]
    return dict(zip("abcdef", first, strict=True)) | {"share": emd[pairs[0]] / np.median(upper(emd))}


@says("folders", "tree EMD {least}, median over all pairs {middle}.")
def closest_statistics(study, said):
    distances = upper(mean_emd(study))
    return {"least": distances.min(), "middle": np.median(distances)}


@says(
    "folders",
    "The head tree is mostly about {what~}: adjusted mutual information with {told~}.",
    "The head tree follows none of depth, function and wiring: adjusted mutual information with {told~}.",
)
def about_tree(study, said):
    labels = {
        "the layer": [layer for layer, _ in study.data.heads],
        "the pattern": [kind for kind, _ in kinds(study).values()] if "patterns" in study else None,
        "the key-value head": [
            f"{pair}" for pair in getattr(study.data, "kv_head_of_heads", study.data.heads)
        ],
    }
    levels = {len(np.unique(row)): row for row in study.head_geometry.tree.labels}
    excess = {}
    form = rf"(the [a-z-]+(?: head)?) ({NUMBER}) at (\d+) folders \(shuffled(?: inside layers)? ({NUMBER})\)"
    for name, value, folders, shuffled in re.findall(form, said["told"]):
        assert near(value, adjusted_information(levels[int(folders)], labels[name]), 0.03), (name, value)
        excess[name] = number(value) - number(shuffled)
    assert len(excess) == said["told"].count(" folders (")
    assert list(excess.values()) == sorted(excess.values(), reverse=True)
    words = {"the layer": "depth", "the pattern": "function", "the key-value head": "wiring"}
    listed = [words[name] for name, value in excess.items() if value >= 0.05]
    if "what" not in said:
        assert not listed
        return {"told": True}
    first, _, then = said["what"].partition(", then ")
    return {"what": [first, *(then.split(" and ") if then else [])] == listed, "told": True}


@says("folders", "On the map of the heads {told~} (rank correlation).")
def coordinates(study, said):
    for place, name, r in re.findall(rf"coordinate (\d) follows ([a-z ]+), r = ({NUMBER})", said["told"]):
        coordinate = coordinate_of(study.head_geometry.affinity, int(place))
        layers = [layer for layer, _ in study.data.heads]
        score = layers if name == "layer" else study.heads[name.replace(" ", "_")]
        found = rank_correlation(coordinate, score)
        assert same(r.lstrip("-"), abs(found)), (name, r, found)  # signs of eigenvectors are a convention
        assert abs(found) >= 0.5
    return {"told": True}


_SPLIT = "The tree of the {n} heads ({windows~}) has {levels} levels "
_BACK = (
    "; {kept} of its {count} folders of 3 or more heads come back in at least half of {draws} repetitions with "
    "{drawn~} and {noise} noise."
)
_BACK_OF_ONE = _BACK.replace("{drawn~} and ", "")


@says(
    "folders",
    *(
        f"{_SPLIT}{split}{ending}"
        for split in (
            "and splits first into groups of {groups~} heads",
            "but no stable first split (groups of {groups~} heads; lowest support {lowest})",
        )
        for ending in (_BACK, _BACK_OF_ONE, ".")
    ),
)
def first_split(study, said):
    tree, support = study.head_geometry.tree, support_of(study)
    n, options = len(study.data.heads), study.options["folders"]
    labels = tree.labels[1]
    sizes = sorted(np.bincount(labels).tolist(), reverse=True)
    groups = re.findall(r"\d+", said["groups"])
    values = {
        "n": n,
        "windows": f"mean of {study.windows} windows" if study.windows > 1 else "one window",
        "levels": len(tree.labels),
        "groups": [int(size) for size in groups] == sizes[:4],
    }
    first = [
        support[frozenset(np.flatnonzero(labels == i).tolist())]
        for i in np.unique(labels)
        if (labels == i).sum() > 1
    ]
    if "lowest" in said:
        values["lowest"] = min(first)
        assert min(first) < 0.5
    else:
        assert not first or min(first) >= 0.5
    if "kept" in said:
        counted = [folder for folder in distinct_folders(study) if 3 <= len(folder) < n]
        values |= {
            "kept": sum(support[folder] >= 0.5 for folder in counted),
            "count": len(counted),
            "draws": options["repetitions"],
            "noise": options["noise"],
        }
        assert ("drawn" in said) == (study.windows > 1)
        values |= {"drawn": "windows drawn again"} if "drawn" in said else {}
    return values


_DISTANCES = (
    "Distances between heads repeat {how~} from window to window (mean rank correlation {mean}, where 1 is full "
    "agreement)."
)
_GROUPS = (
    " The tree repeats {tree~}: {kept} of its {count} groups of 3 or more heads come back in at least half of the "
    "repetitions"
)


def distances_agree(study):
    """Return the rank correlations between the head distances of all pairs of windows."""
    emds = [upper(organization.emd["head"]) for organization in study.organizations]
    return [rank_correlation(a, b) for a, b in combinations(emds, 2)]


@says(
    "folders",
    f"{_DISTANCES}{_GROUPS}, so {{rely~}} single groups.",
    f"{_DISTANCES}{_GROUPS}.",
    _DISTANCES,
)
def what_repeats(study, said):
    mean = np.mean(distances_agree(study))
    values = {"mean": mean, "how": "well" if mean >= 0.8 else "in part" if mean >= 0.5 else "poorly"}
    support, n = support_of(study), len(study.data.heads)
    groups = [folder for folder in distinct_folders(study) if 3 <= len(folder) < n]
    assert ("kept" in said) == bool(groups)
    if not groups:
        return values
    kept = sum(support[folder] >= 0.5 for folder in groups)
    share = kept / len(groups)
    values |= {"kept": kept, "count": len(groups)}
    assert ("rely" in said) == (share < 0.8)
    if share >= 0.8:
        return values | {"tree": "well"}
    if mean >= 0.8:
        return values | {"tree": "less", "rely": "rely on pairs and the map rather than on"}
    return values | {"tree": "poorly" if share < 0.5 else "in part", "rely": "do not rely on"}


@says(
    "folders",
    "Rank correlations between the distances of {n} windows: {low} to {high}; adjusted mutual information of their "
    "trees: {least} to {most} by level.",
    "Rank correlations between the distances of {n} windows: {low} to {high}.",
)
def windows_agree(study, said):
    found = distances_agree(study)
    values = {"n": study.windows, "low": min(found), "high": max(found)}
    if "least" in said:
        by_level = study.results["folders"][0].tables["window_trees"]["ami"]
        values |= {"least": by_level.min(), "most": by_level.max()}
    return values


@says(
    "folders",
    "The {first~} tree is steadier than the {second~} tree on this model: adjusted mutual information with the tree "
    "without noise, under {little} and {more} noise: {told~}.",
    "The {first~} and the {second~} tree are about equally steady on this model: adjusted mutual information with the "
    "tree without noise, under {little} and {more} noise: {told~}.",
)
def steadier(study, said):
    rows = study.results["folders"][0].tables["steadiness"]
    noise = study.options["folders"]["noise"]
    means = {}
    for kind, *numbers in re.findall(rf"(flexible|linkage|binary) ({NUMBER}) and ({NUMBER})", said["told"]):
        for text, factor in zip(numbers, (1, 10), strict=True):
            of = rows[(rows["tree"] == kind) & np.isclose(rows["noise"], factor * noise)]["ami"].mean()
            assert same(text, of)
            means.setdefault(kind, []).append(of)
    totals = {kind: np.mean(values) for kind, values in means.items()}
    assert list(totals) == sorted(totals, key=totals.get, reverse=True)
    difference = totals[said["first"]] - totals[said["second"]]
    first, second = list(totals)[:2]
    assert difference >= 0
    return {
        "first": first,
        "second": second,
        "little": noise,
        "more": 10 * noise,
        "told": True,
    }


def sinks_of(study):
    """Return the mean attention that every key of the first window gets from the queries that see it, by loops."""
    x = study.data.tensor(0, "probs").data
    n_queries, n_keys, n_heads = x.shape
    causal = n_queries == n_keys and not any(x[i, i + 1 :].any() for i in range(n_queries))
    scores = np.zeros((n_keys, n_heads))
    for key in range(n_keys):
        seeing = range(key, n_queries) if causal else range(n_queries)
        if len(seeing) >= 10:
            scores[key] = x[list(seeing), key].astype(float).mean(axis=0)
    often = (scores > 0.3).sum(axis=1)
    keys = [key for key in range(n_keys) if often[key] >= max(1, 0.05 * n_heads)]
    share = x[:, keys].astype(float).sum(axis=(0, 1)) / x.astype(float).sum(axis=(0, 1))
    return {key: int(often[key]) for key in keys}, share


@says(
    "sinks",
    "No key is an attention sink in the first window; there is no second map.",
    "No key is an attention sink in the first window: a window needs at least {least} queries; there is no second map.",
)
def no_sink(study, said):
    assert not sinks_of(study)[0]
    if said:
        assert study.data.tensor(0, "probs").shape[0] < 10
    return {"least": 10} if said else {}


@says(
    "sinks",
    *(
        "{count} "
        + subject
        + (" (in the first window, it" if takes == "It takes" else " (in the first window, each")
        + " receives more than {score} of the attention of the queries that see it): "
        "{told~} of {n} heads. " + takes + " {share} of all attention" + ending
        for subject, takes in (
            ("key is an attention sink", "It takes"),
            ("keys are attention sinks", "Together they take"),
        )
        for ending in (".", "; the organized field leaves them out.")
        if not (takes == "It takes" and ending != ".")
    ),
)
def sinks(study, said):
    heads, share = sinks_of(study)
    told = {int(key): int(count) for key, count in re.findall(r'key (\d+)(?: ".*?")? in (\d+)', said["told"])}
    return {
        "count": len(heads),
        "score": 0.3,
        "told": told == heads,
        "n": len(study.data.heads),
        "share": share.mean(),
    }


def coordinate_of(affinity, place):
    """Return a diffusion coordinate of the heads, from the eigenvectors of their affinity."""
    degree = affinity.sum(axis=1)
    values, vectors = np.linalg.eigh(affinity / np.sqrt(np.outer(degree, degree)))
    return vectors[:, np.argsort(-values)[place]] / np.sqrt(degree)


@says(
    "sinks",
    "{much~} of the geometry of the heads is attention to sinks: the share of attention to sinks has a rank "
    "correlation of {sink} with the first coordinate of the map; the distances between heads with and without sinks "
    "have one of {emd}.",
)
def geometry_of_sinks(study, said):
    _, share = sinks_of(study)
    found = rank_correlation(coordinate_of(study.organizations[0].affinities["head"], 1), share)
    without = study["sinks"].without
    emds = rank_correlation(upper(study.organizations[0].emd["head"]), upper(without.emd["head"]))
    size = abs(found)
    return {
        "much": "Much" if size >= 0.7 else "Part" if size >= 0.3 else "Little",
        "sink": same(said["sink"].lstrip("-"), size),
        "emd": emds,
    }


@says(
    "sinks",
    "Without sinks, the first coordinate of the map follows {first~}, the second {second~} (rank correlations).",
    "Without sinks, the first coordinate of the map follows {first~}, the second {second~} (rank "
    "correlations). Warnings that no longer apply: {gone~}.",
)
def map_without_sinks(study, said):
    _, share = sinks_of(study)
    affinity = study["sinks"].without.affinities["head"]
    layers = np.array([layer for layer, _ in study.data.heads], dtype=float)
    for place, words in enumerate((said["first"], said["second"]), start=1):
        stated = re.fullmatch(rf"([a-z ]+) \(({NUMBER})\)", words)
        if stated is None:
            assert words == "none of the scores"
            continue
        name, r = stated.groups()
        known = {"layer": layers, "attention to sinks": share}
        score = known[name] if name in known else study.heads[name.replace(" ", "_")]
        found = abs(rank_correlation(coordinate_of(affinity, place), score))
        assert same(r.lstrip("-"), found), (words, found)
    values = {"first": True, "second": True}
    if "gone" in said:
        gone = {(w.name, w.axis) for w in study.organizations[0].warnings}
        gone -= {(w.name, w.axis) for w in study["sinks"].without.warnings}
        values["gone"] = ", ".join(f"{name} ({axis})" for name, axis in sorted(gone))
    return values


def entropies_of(study):
    """Return the (window, head) Haar entropies, and their ranks in every window."""
    entropies = np.stack([result.arrays["entropies"] for result in study.results["entropy"]])
    return entropies, stats.rankdata(entropies, axis=1)


def lowest_sets(study, highest=False):
    """Return the heads of the lowest (or highest) tenth of every window."""
    entropies, _ = entropies_of(study)
    count = max(1, round(0.1 * entropies.shape[1]))
    order = np.argsort(-entropies if highest else entropies, axis=1, kind="stable")
    return [set(row[:count].tolist()) for row in order]


def kendall(ranks):
    """Return Kendall's W of (window, head) ranks."""
    m, n = ranks.shape
    sums = ranks.sum(axis=0)
    return 12 * ((sums - sums.mean()) ** 2).sum() / (m**2 * (n**3 - n))


@says(
    "entropy",
    "At least {least} windows are needed to judge whether the Haar entropy ranking of the heads is stable, but there "
    "{verb~} {n}.",
)
def too_few_windows(study, said):
    assert study.windows < 4
    return {"least": 4, "verb": "is" if study.windows == 1 else "are", "n": study.windows}


@says(
    "entropy",
    "The Haar entropy ranking of the heads is {state~}: Kendall's W {w} over {n} windows, where 1 is full agreement.",
)
def ranking_is_stable(study, said):
    warned = any(notice.name.startswith("unstable") for notice in study.outcomes["entropy"].notices)
    return {
        "state": "not stable" if warned else "stable",
        "w": kendall(entropies_of(study)[1]),
        "n": study.windows,
    }


@says(
    "entropy",
    "Kendall's W {w~}, mean rank correlation between windows {r~}, Jaccard index of the lowest {share} {jaccard~}; "
    "95 % intervals over windows.",
)
def ranking_statistics(study, said):
    _, ranks = entropies_of(study)
    correlations = [rank_correlation(a, b) for a, b in combinations(ranks, 2)]
    jaccard = [len(a & b) / len(a | b) for a, b in combinations(lowest_sets(study), 2)]
    expected = {"w": kendall(ranks), "r": np.mean(correlations), "jaccard": np.mean(jaccard)}
    for name, value in expected.items():
        assert same(said[name].split(" ")[0], value), (name, said[name], value)
        interval(said[name])
    return {"w": True, "r": True, "jaccard": True, "share": 0.1}


@says(
    "entropy",
    "No head has a Haar entropy among the lowest {share} in all {n} windows.{layers~}",
    "No head has a Haar entropy among the lowest {share} in all {n} windows.",
)
def no_head_is_low(study, said):
    assert not set.intersection(*lowest_sets(study))
    layers = {}
    if "layers" in said:
        assert_layers(study, said["layers"])
        layers = {"layers": True}
    return layers | {"share": 0.1, "n": study.windows}


@says(
    "entropy",
    "{count} of {n} heads ({named~}) {verb~} little coarse structure throughout: a Haar entropy among the lowest "
    "{share} in all {windows} windows. That such heads do little is a hypothesis of arXiv 2506.15541, to be tested on "
    "every model.{layers~}",
    "{count} of {n} heads ({named~}) {verb~} little coarse structure throughout: a Haar entropy among the lowest "
    "{share} in all {windows} windows. That such heads do little is a hypothesis of arXiv 2506.15541, to be tested on "
    "every model.",
)
def low_heads(study, said):
    always = set.intersection(*lowest_sets(study))
    names = {label(study.data.heads[i]) for i in always}
    told = re.findall(r"\d+\.\d+", said["named"])
    assert len(told) == min(8, len(always))
    layers = {}
    if "layers" in said:
        assert_layers(study, said["layers"])
        layers = {"layers": True}
    return layers | {
        "count": len(always),
        "n": len(study.data.heads),
        "named": set(told) <= names,
        "verb": "has" if len(always) == 1 else "have",
        "share": 0.1,
        "windows": study.windows,
    }


@says(
    "entropy",
    "l1 Haar entropy, k = {k}; among the highest in all windows: {count} ({named~}).",
    "l1 Haar entropy, k = {k}; among the highest in all windows: {count}.",
)
def high_heads(study, said):
    always = set.intersection(*lowest_sets(study, highest=True))
    names = {label(study.data.heads[i]) for i in always}
    values = {"k": study.options["entropy"]["k"], "count": len(always)}
    return values | ({"named": set(said["named"].split(", ")) <= names} if "named" in said else {})


def assert_layers(study, sentence):
    """Check how many of the lowest tenth of the heads each named layer holds."""
    form = r" Most of the (\d+) heads with the lowest Haar entropy sit in few layers: (.+)\."
    stated, told = re.fullmatch(form, sentence).groups()
    _, ranks = entropies_of(study)
    count = max(1, round(0.1 * ranks.shape[1]))
    lowest = np.argsort(ranks.mean(axis=0), kind="stable")[:count]
    layers = pd.Series([study.data.heads[i][0] for i in lowest]).value_counts()
    found = {int(layer): int(n) for n, layer in re.findall(r"(\d+) in layer (\d+)", told)}
    assert int(stated) == count
    assert sum(found.values()) >= 0.6 * count
    assert all(layers[layer] == n for layer, n in found.items())


@says(
    "entropy",
    "The Haar ranking depends {much~} on {what~}: with {tried~} in place of k = {k} the rank correlation is at least "
    "{low}.",
)
def depends_on(study, said):
    base = np.stack([result.arrays["entropies"] for result in study.results["entropy"]])
    found = []
    for place in range(study.results["entropy"][0].arrays["by_k"].shape[0]):
        other = np.stack([result.arrays["by_k"][place] for result in study.results["entropy"]])
        if not np.allclose(other, base):
            found.append(np.mean([rank_correlation(a, b) for a, b in zip(base, other, strict=True)]))
    fields = study.options["entropy"]["fields"]
    for place in range(len(fields)):
        other = [
            result.arrays["by_field"].reshape(-1, base.shape[1])[place] for result in study.results["entropy"]
        ]
        found.append(np.mean([rank_correlation(a, b) for a, b in zip(base, other, strict=True)]))
    k = study.options["entropy"]["k"]
    tried = [value for value in study.results["entropy"][0].arrays["k_values"].tolist() if value != k]
    assert said["tried"].split(", ") == [*(f"{value:g}" for value in tried), *fields]
    assert len(found) == len(tried) + len(fields)
    return {
        "much": "little" if min(found) > 0.9 else "noticeably",
        "what": "k and the field" if fields else "k",
        "tried": True,
        "k": k,
        "low": min(found),
    }


_OFF = (
    "Switching off the {count} heads with the least coarse structure (lowest Haar entropy) changes the loss from "
    "{intact} to {lowest} {loss~}, {again} random heads to {random} (a first test: {windows} windows, mean of {draws} "
    "random draws)"
)
_OFF_ALWAYS = _OFF.replace("entropy)", "entropy; {always} of them low in every window)")


@says(
    "first_test",
    *(f"{{opening~}}. {off}; {{so_what~}}." for off in (_OFF_ALWAYS, _OFF)),
)
def first_test(study, said):
    raw = study.results["first_test"][0].arrays["losses"]
    losses = raw.mean(axis=1)
    count = max(1, round(0.1 * len(study.data.heads)))
    lowest, random = losses[1], losses[2:]
    opening, verdict = (
        (
            "The heads with the lowest Haar entropy do less than random heads",
            "this agrees with the hypothesis that such heads do little",
        )
        if lowest < random.min()
        else (
            "No head has been shown to do little",
            "so they do more than random heads: do not remove heads by this measure",
        )
        if lowest > random.max()
        else (
            "No head has been shown to do little",
            "so they do neither clearly less nor clearly more than random heads",
        )
    )
    values = {
        "opening": opening,
        "count": count,
        "again": count,
        "lowest": lowest,
        "random": random.mean(),
        "intact": losses[0],
        "loss": "nats per token",
        "windows": raw.shape[1],
        "draws": len(random),
        "so_what": verdict,
    }
    if "always" in said:
        _, ranks = entropies_of(study)
        chosen = set(np.argsort(ranks.mean(axis=0), kind="stable")[:count].tolist())
        values["always"] = len(chosen & set.intersection(*lowest_sets(study)))
    return values


@says(
    "first_test",
    "Changes by the {draws} random draws, over {windows} windows: {told~}. headscape ablate tests more "
    "rankings on more windows, with intervals.",
)
def first_test_statistics(study, said):
    losses = study.results["first_test"][0].arrays["losses"]
    increases = (losses[2:] - losses[0]).mean(axis=1)
    told = said["told"].split(", ")
    assert len(told) == len(increases)
    return {
        "windows": losses.shape[1],
        "draws": len(increases),
        "told": all(same(text, value) for text, value in zip(told, increases, strict=True)),
    }


@says(
    "first_test",
    "To find heads that can be removed, test rankings of the heads on held-out text with headscape ablate (about 20 "
    "minutes for the default model on 2 cores); headscape prune removes heads, repairs the remaining weights and "
    "measures the cost.",
)
def what_next(study, said):
    return {}


@says("any", "{title~} was left out: {why~}.")
def stage_left_out(study, said):
    stage = next(stage for stage in study.stages if stage.title == said["title"])
    return {
        "title": True,
        "why": said["why"] == study.results[stage.name][0].attributes["missing"].rstrip("."),
    }


def pooled(study, table, at=None):
    """Return the medians over windows of an energy table at one length, the longest by default."""
    rows = pd.concat([result.tables[table] for result in study.results["energy"]])
    length = rows["length"].max() if at is None else at
    names = ["layer", "head" if table == "heads" else "kv_head"]
    chosen = rows[rows["length"] == length]
    return chosen.groupby(names)[
        ["mu_K", *(["participation", "k90"] if table == "heads" else [])]
    ].median(), length


def norms_say(study, mu):
    """Check the key incoherence of the first head against the capture itself, median over windows."""
    found = []
    for window in range(study.windows):
        record = study.capture.record(window, study.capture.layers[0])
        squares = (record.keys[0].astype(float) ** 2).sum(axis=1)
        found.append(squares.max() / squares.mean())
    assert np.isclose(np.median(found), mu, rtol=1e-4)


def far_out(values):
    low, high = np.nanquantile(values, [0.25, 0.75])
    reach = max(3 * (high - low), 0.01 * max(abs(low), abs(high)))
    return (values < low - reach) | (values > high + reach)


_MU = (
    "Key incoherence mu_K at L = {length} lies between {low} and {high} for 95 % of {n} key-value heads, median "
    "{median} (interquartile {q25}-{q75}); "
)


@says(
    "energy",
    _MU + "no head lies beyond 3 interquartile ranges.",
    _MU + "beyond 3 interquartile ranges: {out~}.",
)
def incoherence(study, said):
    table, length = pooled(study, "kv_heads")
    mu = table["mu_K"].to_numpy()
    if study.capture.record(0, study.capture.layers[0]).keys.shape[1] == length:
        norms_say(study, mu[0])
    low, high = np.quantile(mu, [0.025, 0.975])
    values = quartiles(mu) | {"length": length, "low": low, "high": high, "n": len(mu)}
    out = table.index[far_out(mu)]
    if "out" not in said:
        assert not len(out)
        return values
    listed = re.findall(rf"(\d+\.\d+) \(({NUMBER})\)", said["out"])
    assert {pair_of(head) for head, _ in listed} == set(out)
    return values | {"out": all(same(value, table["mu_K"][pair_of(head)]) for head, value in listed)}


@says(
    "energy",
    "{verdict~}: at L = {length} the variance of the median head is spread over {median} of the keys (participation "
    "ratio; interquartile {q25}-{q75}); {few} of {n} heads are concentrated (below {least}).",
)
def spread(study, said):
    table, length = pooled(study, "heads")
    share = table["participation"].to_numpy()
    few = (share < 0.1).mean()
    verdict = "Delocalized" if few <= 0.05 else "Concentrated" if few > 0.5 else "Mixed"
    values = {"verdict": verdict, "length": length, "few": (share < 0.1).sum(), "n": len(share), "least": 0.1}
    return quartiles(share) | values


@says(
    "energy",
    "90 % of the variance of the energy field (full centering, L = {length}) lies in {median} components in the median "
    "head (interquartile {q25}-{q75}, from {low} to {high}).",
)
def components(study, said):
    table, length = pooled(study, "heads")
    return quartiles(table["k90"]) | {"length": length, "low": table["k90"].min(), "high": table["k90"].max()}


def counter(study):
    table, _ = pooled(study, "heads")
    return table.index[~far_out(table["mu_K"].to_numpy()) & (table["participation"] < 0.1).to_numpy()]


@says("energy", "No counter-example: none of {n} heads has an ordinary mu_K and a concentrated variance.")
def no_counter_example(study, said):
    assert not len(counter(study))
    return {"n": len(study.data.heads)}


@says(
    "energy",
    "{count} of {n} heads have an ordinary mu_K and still a concentrated variance, against the claim that key "
    "incoherence spreads it: {named~}.",
)
def counter_examples(study, said):
    found = counter(study)
    named = {pair_of(head) for head in re.findall(r"\d+\.\d+", said["named"])}
    return {"count": len(found), "n": len(study.data.heads), "named": named == set(found)}


@says("energy", "The rank of s q.k, fully centered, is within min(d, L - 1) in {within} of {n} heads.")
def rank_bound(study, said):
    within = 0
    for record in study.capture.records(0):
        for head in (head for layer, head in study.data.heads if layer == record.layer):
            q, k = record.queries[head].astype(float), record.keys[record.kv_head(head)].astype(float)
            field = (q - q.mean(axis=0)) @ (k - k.mean(axis=0)).T
            bound = min(q.shape[1], len(q) - 1)
            within += np.linalg.matrix_rank(field, tol=1e-6 * np.linalg.norm(field, 2)) <= bound
    return {"within": within, "n": len(study.data.heads)}


@says("energy", "Median mu_K over context lengths: {told~}.")
def over_lengths(study, said):
    for value, length in re.findall(rf"({NUMBER}) at (\d+)", said["told"]):
        assert same(value, pooled(study, "kv_heads", at=int(length))[0]["mu_K"].median())
    return {"told": True}


@says(
    "regularity",
    "The mixed Hölder exponent of the logits has median {median} (interquartile {q25} to {q75}); {count~} in the range "
    "0 < alpha < 1/2 that the softmax theorem assumes.",
)
def regularity(study, said):
    results = study.results["regularity"]
    mixed = np.median([result.arrays["mixed"][:, 0] for result in results], axis=0)
    smallest = np.array(
        [np.min([r.arrays[name][:, 0] for name in ("mixed", "query", "key")], axis=0) for r in results]
    )
    count = int(((smallest > 0).sum(axis=0) * 2 > len(results)).sum())
    words = f"{count} of {len(mixed)} heads {'is' if count == 1 else 'are'}" if count else "no head is"
    return quartiles(mixed) | {"count": words}


@says(
    "interaction",
    "The learned interaction W_Q^T W_K needs {median} components for 90 % of its variance in the median head "
    "(interquartile {q25}-{q75}).",
)
def interaction(study, said):
    values = study.results["interaction"][0].arrays["singular_values"] ** 2
    values = np.nan_to_num(values)
    shares = np.cumsum(values, axis=1) / values.sum(axis=1, keepdims=True)
    return quartiles((shares < 0.9 - 1e-12).sum(axis=1) + 1)


@says(
    "softmax",
    "The invariant form explains {share} % of softmax in the median of {n} heads (at most {most} %): the corollary's "
    "assumptions {state~} for this network. It assumes a mean near 0 and large mixed differences: median |mean| of the "
    "logits {mean}, median size of the mixed differences {size}; {regular} of {again} heads are as regular as theorem "
    "1 asks. Rank correlation of the two over the heads: {r~}; {words~}. The complete paraproduct leaves a relative "
    "residual of {median} (interquartile {q25} to {q75}) in organized order and {shuffled} in shuffled order; of the "
    "mixed part alone it leaves {mixed}.",
)
def softmax(study, said):
    rows = study.results["softmax"]
    names = ("share_explained", "mean", "mixed_size", "residual", "residual_shuffled", "residual_mixed")
    of = {
        name: np.nanmedian(np.concatenate([r.arrays[name] for r in rows], axis=1), axis=0) for name in names
    }
    share = 100 * np.nanmedian(of["share_explained"])
    estimate, low, high = interval(said["r"])
    assert abs(rank_correlation(of["mixed_size"], of["share_explained"]) - estimate) < 1e-3
    words = (
        "heads with larger mixed differences are described better, as the paper claims"
        if low > 0
        else "heads with larger mixed differences are described worse, against the paper's claim"
        if high < 0
        else "that larger mixed differences go with a better fit is not seen"
    )
    return quartiles(of["residual"]) | {
        "share": share,
        "n": len(study.data.heads),
        "again": len(study.data.heads),
        "most": 100 * np.nanmax(of["share_explained"]),
        "state": "hold" if share >= 80 else "hold in part" if share >= 50 else "do not hold",
        "mean": np.nanmedian(np.abs(of["mean"])),
        "size": np.nanmedian(of["mixed_size"]),
        "regular": study["softmax"].n_regular,
        "r": True,
        "words": words,
        "shuffled": np.nanmedian(of["residual_shuffled"]),
        "mixed": np.nanmedian(of["residual_mixed"]),
    }


def increases_of(study):
    """Return the mean loss increase of every method, (draw, count), from the stored losses."""
    result = study.results["ablation"][0]
    arrays, about = result.arrays, result.attributes["study"]
    return {
        method: (arrays[f"losses-{i}"] - arrays["intact"]).mean(axis=2)
        for i, method in enumerate(about["methods"])
    }, about["counts"]


def areas_of(study):
    """Return the area under every curve, per draw, by the trapezoid rule from no head on."""
    increases, counts = increases_of(study)
    n = len(study.data.heads)
    x = np.array([0, *counts]) / n
    return {
        method: np.trapezoid(np.concatenate([np.zeros((len(rows), 1)), rows], axis=1), x, axis=1)
        for method, rows in increases.items()
    }


@says(
    "ablation",
    "With {count} of {n} heads off ({share}) the loss of {intact} (nats per token) increases by {best~} with "
    "{method~}, the best over all counts (smallest area); {others~}.",
)
def best_ranking(study, said):
    increases, counts = increases_of(study)
    areas = {method: values.mean() for method, values in areas_of(study).items()}
    place = counts.index(int(said["count"]))
    assert same(said["best"].split(" ")[0], increases[said["method"]][:, place].mean())
    interval(said["best"])
    others = re.findall(rf"([a-z+-]+) ({NUMBER}) \[", said["others"])
    assert {method for method, _ in others} == set(increases) - {said["method"]}
    return {
        "count": True,
        "n": len(study.data.heads),
        "share": int(said["count"]) / len(study.data.heads),
        "intact": study.results["ablation"][0].arrays["intact"].mean(),
        "best": True,
        "method": min(areas, key=areas.get),
        "others": all(same(value, increases[method][:, place].mean()) for method, value in others),
    }


@says(
    "ablation",
    "{method~}: {word~} than random (area under the curve {area~} compared with it; it beats {beaten} of {draws} "
    "random orders).",
)
def verdict_on_ranking(study, said):
    areas = areas_of(study)
    own, random = areas[said["method"]].mean(), areas["random"]
    estimate, _, high = interval(said["area"])
    ratio = estimate / (own - random.mean())
    beaten = int((own < random).sum())
    assert (high < 0) == (said["word"] == "better"), said
    assert ratio > 0  # the area is scaled by the counts; its sign and order are what the verdict rests on
    return {"method": True, "word": True, "area": True, "beaten": beaten, "draws": len(random)}


_OURS = "reconstruction+repair is {choice~} here: "


@says(
    "ablation",
    _OURS + "it costs less than every other method at all counts.",
    _OURS + "it costs more with {told~} off.",
    _OURS + "none costs clearly less at any count; it costs less with {told~} off.",
    _OURS + "none costs clearly less at any count.",
)
def our_choice(study, said):
    increases, counts = increases_of(study)
    means = {method: rows.mean(axis=0) for method, rows in increases.items() if method != "random"}
    own = means.pop("reconstruction+repair")
    best = np.min(list(means.values()), axis=0)
    if said["choice"] == "the best choice":
        assert (own < best).all()
        return {"choice": True}
    worse = said["choice"] == "not the best choice"
    assert worse or said["choice"] == "as good a choice as any other method"
    form = rf"(\d+) heads? \(({NUMBER}) \[.*?\], ([a-z+-]+) ({NUMBER}) \["
    for count, cost, method, other in re.findall(form, said.get("told", "")):
        place = counts.index(int(count))
        assert same(cost, own[place])
        assert same(other, means[method][place])
        assert means[method][place] == best[place]
        assert (own[place] > best[place]) == worse
    return {"choice": True} | ({"told": True} if "told" in said else {})


@says("ablation", "Of {n} heads, so many can be removed for less than {tolerance} % higher loss: {told~}.")
def spare_heads(study, said):
    increases, counts = increases_of(study)
    limit = 0.05 * study.results["ablation"][0].arrays["intact"].mean()
    n = len(study.data.heads)
    for number_, share, method in re.findall(r"(\d+) \((\d+ %)\) with ([a-z+-]+)", said["told"]):
        fine = np.cumprod(increases[method].mean(axis=0) <= limit)
        expected = max((count for count, ok in zip(counts, fine, strict=True) if ok), default=0)
        assert int(number_) == expected, (method, number_, expected)
        assert same(share, expected / n)
    assert said["told"].count(" with ") == len(increases)
    return {"n": n, "tolerance": 5, "told": True}
