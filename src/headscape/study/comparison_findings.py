"""What a comparison says in words: one sentence that anyone understands, then the answers to what people ask."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headscape.output import counted
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.measure_words import noise_words, words_of
from headscape.study.pair_words import GROW, PairWords, listed, named, pair_headline, ranged
from headscape.study.stages.finding import Asked, Finding

MOST_EFFECTS = 3
UNNAMED = "mixed"
_DISTANCE = "Gromov-Wasserstein distance of the head geometries, in median tree EMDs"

_MOVED = (
    "tree EMD between a head's attention in both networks, in median EMDs between heads; the text cancels"
)


class Question(Asked):
    """What people ask about networks side by side, in the order in which the report answers."""

    same = "Are they the same?"
    where = "Where do they differ?"
    noise = "Is it more than noise?"
    patterns = "Which patterns does only one of them have?"
    not_compared = "What could not be compared?"
    sure = "How sure is this?"
    after = "What next?"


def headline(sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair]) -> Finding:
    """Return the result in one sentence."""
    if len(pairs) == 1:
        return Finding(pair_headline(_words(sources, pairs[0])), Question.same)
    near, far = (choose(pairs, key=lambda pair: pair.distance) for choose in (min, max))
    told = [f"{_words(sources, pair).names} ({noise_words(pair.times_noise)})" for pair in (near, far)]
    sentence = f"{len(sources)} networks: nearest are {told[0]}, farthest apart {told[1]}."
    return Finding(sentence, Question.same)


def comparison_findings(
    sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair], path: Sequence[str]
) -> tuple[Finding, ...]:
    """Return the answers about every pair and about all networks, in the order of their questions.

    Of more than two networks every pair has its sentence, and those that follow each other what changed.
    """
    several = len(sources) > 2
    found: list[Finding] = []
    for pair in pairs:
        words = _words(sources, pair)
        if several:
            found.append(Finding(f"{words.names}: {_lowered(pair_headline(words))}", Question.same))
        if pair.b == pair.a + 1:
            found += (
                [_prefixed(one, words.names) for one in _where(words)] if several else pair_findings(words)
            )
    if several:
        found.append(_order(sources, pairs, path))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.question.place))


def pair_findings(words: PairWords) -> Iterator[Finding]:
    """Return what is found about two networks, without its headline."""
    yield from _where(words)
    yield from _noise(words)
    yield from _patterns(words)
    for what, why in words.pair.not_compared:
        yield Finding(f"{_raised(what)}: {why}.", Question.not_compared)
    yield from _sure(words)
    yield from _after(words)


def _where(words: PairWords) -> Iterator[Finding]:
    """Return removed and moved heads, changed layers, folders, heads and measures."""
    if words.removed:
        yield _of_removed(words)
    if words.moved:
        shown = [f"{here[0]}.{here[1]} is now {there[0]}.{there[1]}" for here, there in words.moved]
        moved = f"{len(words.moved)} of {words.n_heads} heads are at another place"
        yield Finding(
            f"{moved}: {listed(shown, 4)}. Everything else compares each head with itself at its new place.",
            Question.where,
        )
    if words.shifted:
        yield from _of_shifts(words)
    if words.layers:
        layer, (times, measure) = next(iter(words.layers.items()))
        most = f"most in layer {layer} ({noise_words(times)}, in {words_of(measure).title})"
        total = len(set(words.pair.at("layer")["layer"]))
        changed = f"{ranged(sorted(words.layers), 'layer')} changed, {most}"
        rest = total - len(words.layers)
        left = f"; {counted(rest, 'other layer')} stayed within the noise" if rest else ""
        yield Finding(f"{_raised(changed)}{left}.", Question.where)
    if words.heads:
        head, (times, measure) = next(iter(words.heads.items()))
        most = f"most of all {head[0]}.{head[1]} ({noise_words(times)}, in {words_of(measure).title})"
        others = f", then {named(list(words.heads)[1:], 5)}" if len(words.heads) > 1 else ""
        yield Finding(f"{len(words.heads)} of {words.n_heads} heads changed, {most}{others}.", Question.where)
    if words.folders:
        total = len(set(words.pair.at("folder")["folder"]))
        folder, (times, _) = next(iter(words.folders.items()))
        yield Finding(
            f"{len(words.folders)} of {counted(total, 'group')} of similar heads (first folders of the tree of "
            f"{words.a.name}) changed, group {folder + 1} most ({noise_words(times)}).",
            Question.where,
        )
    yield from _of_measures(words)


def _of_removed(words: PairWords) -> Finding:
    total = max(len(words.a.heads), len(words.b.heads))
    said = (
        f"{words.pruned.name} lacks {len(words.removed)} of {counted(total, 'head')}: {named(words.removed)}"
    )
    return Finding(f"{said}.", Question.where)


def _of_shifts(words: PairWords) -> Iterator[Finding]:
    """Return where the difference on the same windows begins, and which layer moved farthest."""
    layer, row = next(iter(words.shifted.items()))
    others = [float(other["moved"]) for number, other in words.shifted.items() if number != layer]
    times = row["moved"] / np.median(others) if others else 0.0
    beyond = f", {times:.2g} times the median of the others that moved" if others else ""
    often = "every window" if row["most"] == 1 else f"{row['most']:.0%} of the windows"
    same = ""
    if words.begins is not None:
        before = [number for number in words.unmoved if number < words.begins]
        verb = "is" if len(before) == 1 else "are"
        same = f"{ranged(before, 'layer')} {verb} the same in both, the difference begins in layer {words.begins}; "
    by = f"by {_percent(row['moved'])} of the median distance between heads{beyond}"
    yield Finding(
        f"{_raised(f'{same}layer {layer}')} moved farthest on the same windows, {by}; it is the farthest in {often}.",
        Question.where,
        _MOVED,
    )
    heads = list(words.shifted_heads.items())[:MOST_EFFECTS]
    told = [f"{layer}.{head} ({_percent(moved)})" for (layer, head), moved in heads]
    yield Finding(f"Of the heads, {listed(told)} moved farthest.", Question.where, _MOVED)
    found = words.pair.onset
    if found.step is not None:
        yield Finding(
            f"Layer {found.step} stands out: it moved {found.ratio:.2g} times as far as any layer before it.",
            Question.where,
            _MOVED,
        )


def _of_measures(words: PairWords) -> Iterator[Finding]:
    """Return the measures whose distributions differ, with the medians of both networks."""
    effects = words.pair.effects
    changed = effects[effects["verdict"] == "changed"].sort_values(
        "times_noise", ascending=False, kind="stable"
    )
    sized = (
        changed[changed["measure"].isin(GROW)] if len(words.a.heads) != len(words.b.heads) else changed[:0]
    )
    changed = changed.drop(sized.index)
    for row in changed.head(MOST_EFFECTS).to_dict("records"):
        values = _both(row)
        title = words_of(row["measure"]).title
        title = f"the score {title}" if row["measure"] in words.a.patterns else title
        finite = np.isfinite(row["delta"])
        statistics = (
            f"Cliff's delta {row['delta']:.2f} [{row['low']:.2f}, {row['high']:.2f}] over windows"
            if finite
            else ""
        )
        what = "median over the heads" if finite else "mean over the windows"
        yield Finding(
            f"{_raised(title)} is {values} ({what}; {words.a.name} first): "
            f"{noise_words(row['times_noise'])}.",
            Question.where,
            statistics,
        )
    rest = [words_of(name).title for name in changed["measure"][MOST_EFFECTS:]]
    if rest:
        verb = "differs" if len(rest) == 1 else "differ"
        yield Finding(f"{_raised(listed(rest))} {verb} by more than the noise too.", Question.where)
    if len(sized):
        grown = [f"{words_of(row['measure']).title} ({_both(row)})" for row in sized.to_dict("records")]
        verbs = ("grows", "says") if len(grown) == 1 else ("grow", "say")
        yield Finding(
            f"{_raised(listed(grown))} {verbs[0]} with the number of heads, and {verbs[1]} little here.",
            Question.where,
        )


def _noise(words: PairWords) -> Iterator[Finding]:
    """Return the distance beside the noise floor, and what the test says."""
    pair = words.pair
    if np.isnan(pair.noise):
        yield Finding(
            f"Their organizations are {pair.distance:.3g} apart; its noise needs 4 windows of a network.",
            Question.noise,
            _DISTANCE,
        )
    else:
        yield Finding(
            f"Their organizations are {pair.distance:.3g} apart, one network on two sets of windows up to "
            f"{pair.noise:.3g}: {noise_words(pair.times_noise)}.",
            Question.noise,
            _DISTANCE,
        )
    if not pair.test:
        return
    rows = pair.changes
    changed = int((rows["verdict"] == "changed").sum())
    units = "measures, layers, groups and heads" if pair.matched else "measures"
    exceed = "exceeds" if changed == 1 else "exceed"
    yield Finding(
        f"{changed or 'None'} of {len(rows)} tested differences ({units}) {exceed} the noise. One network on two "
        f"sets of windows shows any at all in at most {pair.test['level']:.0%} of cases.",
        Question.noise,
        f"{'all ' if pair.test['exact'] else ''}{counted(pair.test['splits'], 'split')} of the windows, level "
        f"{pair.test['level']:g} for everything together (max-T)",
    )


def _patterns(words: PairWords) -> Iterator[Finding]:
    here, there = words.a.pattern_counts, words.b.pattern_counts
    if not here or not there:
        return
    alone = False
    for one, own, other, its in ((words.a, here, words.b, there), (words.b, there, words.a, here)):
        only = {name: count for name, count in own.items() if name != UNNAMED and not its.get(name)}
        if only:
            alone = True
            told = listed([f"{name} ({counted(count, 'head')})" for name, count in only.items()])
            yield Finding(
                f"Only {one.name} has {told}; no head of {other.name} does that.", Question.patterns
            )
    both = [name for name in here if name != UNNAMED and there.get(name)]
    if both:
        shares = [f"{name} ({here[name]} and {there[name]} heads)" for name in both]
        start = "Both have" if alone else "No pattern is missing in either; both have"
        yield Finding(f"{start} {listed(shares, 4)}.", Question.patterns)
    elif not alone:
        yield Finding("No head of either has a pattern's name.", Question.patterns)


def _sure(words: PairWords) -> Iterator[Finding]:
    """Return which windows the result rests on, and what the usual yardstick says."""
    pair, a, b = words.pair, words.a, words.b
    if pair.windows == "same":
        shown = f"Both networks saw the same windows ({min(a.windows, b.windows)})"
        yield Finding(
            f"{shown}, so no difference is due to the text; the noise says how much other windows would change.",
            Question.sure,
        )
    else:
        yield Finding(
            f"The networks saw different windows ({a.windows} and {b.windows}), so a difference counts only beyond "
            "what windows of one network differ by.",
            Question.sure,
        )
    cka = pair.correspondence["cka"]
    if cka.notna().any():
        row = pair.correspondence.iloc[int(np.nanargmin(cka.to_numpy()))]
        yield Finding(
            f"By the usual yardstick, linear CKA, the outputs of paired heads are {cka.median():.2f} alike (median; 1 "
            f"is equal), those of {int(row.layer_a)}.{int(row.head_a)} least ({row.cka:.2f}).",
            Question.sure,
        )
    if pair.how == "assignment":
        columns = pair.correspondence[["layer_a", "head_a", "layer_b", "head_b"]]
        own = int(((columns.layer_a == columns.layer_b) & (columns.head_a == columns.head_b)).sum())
        yield Finding(
            f"{own} of {len(columns)} heads are nearest to the head of the same number (assignment on the tree EMD).",
            Question.sure,
        )
    elif len(pair.plan):
        share = pair.correspondence["mass"]
        yield Finding(
            f"Pairs of heads come from their places in the two organizations alone: the best partner of a head has "
            f"{share.median():.0%} of its weight (median).",
            Question.sure,
        )


def _after(words: PairWords) -> Iterator[Finding]:
    pair = words.pair
    windows = min(words.a.windows, words.b.windows)
    if words.heads:
        first = f"{next(iter(words.heads))[0]}.{next(iter(words.heads))[1]}"
        yield Finding(f"Look at head {first} in both maps of the report; it changed most.", Question.after)
    elif not words.identical and pair.matched:
        yield Finding(
            f"More windows see smaller differences: --windows {2 * max(windows, 5)}.", Question.after
        )
    elif words.identical:
        yield Finding("Another text may still tell them apart: --text.", Question.after)
    if not pair.matched:
        yield Finding(
            "Select a head in one map: the other shows where heads at a similar place in their organization are.",
            Question.after,
        )
    if pair.windows == "other" and pair.matched and words.a.about["kind"] == words.b.about["kind"] == "model":
        yield Finding("If the text is not what you compare, show both models the same one.", Question.after)


def _order(sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair], path: Sequence[str]) -> Finding:
    names = [source.name for source in sources]
    steps = {pair.b: pair.distance for pair in pairs if pair.a == 0}
    told = "the order in which they were given" if list(path) == names else f"the order {', '.join(path)}"
    far = ", ".join(f"{names[i]} {steps[i]:.3g}" for i in range(1, len(names)))
    return Finding(
        f"From {names[0]} always on to the nearest network, they follow {told}.",
        Question.where,
        f"distances from {names[0]}: {far}",
    )


def _words(sources: Sequence[ComparedSource], pair: ComparedPair) -> PairWords:
    return PairWords(pair, sources[pair.a], sources[pair.b])


def _prefixed(finding: Finding, names: str) -> Finding:
    return Finding(f"{names}: {_lowered(finding)}", finding.question, finding.statistics)


def _lowered(sentence: str) -> str:
    """Return a sentence as it goes on after a colon; names and symbols keep their letters."""
    first = sentence.split(" ", 1)[0]
    return sentence[0].lower() + sentence[1:] if first[1:].islower() or first == "A" else sentence


def _raised(words: str) -> str:
    """Return words as they begin a sentence; symbols such as μ_K stay."""
    return words if words[1:2] == "_" else words[:1].upper() + words[1:]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def _both(row: Mapping[Any, Any]) -> str:
    return " against ".join(_number(row[key]) for key in ("median_a", "median_b"))


def _number(value: float) -> str:
    return "unknown" if pd.isna(value) else f"{value:.3g}"
