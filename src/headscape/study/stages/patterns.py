"""The stage "patterns": what every head attends to - the first token, the previous one, repeats, separators, ..."""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.detections import BoolArray, Layout
from headscape.analysis.pattern_kinds import PATTERNS
from headscape.analysis.pattern_names import HeadPatterns, WindowPatterns, head_patterns_over
from headscape.analysis.patterns import PatternScorer, PatternScores, positional_score
from headscape.errors import HeadscapeError, InputError
from headscape.output import counted
from headscape.recorder.inputs import WindowInput
from headscape.recorder.probes import probed, repeated_tokens, replaced_tokens
from headscape.report.section import Section
from headscape.study.stages.context import Context, Data
from headscape.study.stages.cost import Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, NotApplicableError, Outcome, Stage
from headscape.tensor.attention_record import causal_visibility, full_visibility
from headscape.tensor.capture import Capture
from headscape.tensor.checks import require_probabilities
from headscape.tensor.network_tensor import NetworkTensor

if TYPE_CHECKING:
    from headscape.study.study import Study

REPLACED_WINDOWS = 2
"""Windows whose tokens are replaced: more change little and cost a forward pass each."""
BLOCK = 1 << 21
"""Entries of the attention that are scored at a time."""
RANDOM = ("induction", "duplicate_token")
_CHANCE = (
    "Scores are shares of attention, means over {}; a name needs a score well above that of attention spread "
    "evenly (patterns.csv has all scores with their intervals and chance levels)."
)
NO_MODEL = "the model is not at hand"
_PANEL = ("first_token", "previous_token", "induction_repeats")
_HIDDEN = ("duplicate_token_repeats", "duplicate_token_random", "induction_random", "sharp")


class Patterns(Stage):
    """Scores the attention patterns of every head, and names the heads."""

    name, title, doing, cost = "patterns", "Attention patterns", "scoring attention patterns", 0.25
    concurrent = True
    columns = (
        Column("name", "name", "What the head does, with its score; mixed if no pattern stands out."),
        Column("pattern", "pattern", "The name without its number.", table=False),
        *(
            Column(key, key.replace("_", " "), p.meaning, panel=key in _PANEL, table=key not in _HIDDEN)
            for key, p in PATTERNS.items()
        ),
        Column("sink_key", "sink key", "The key that the score sink belongs to.", table=False),
        Column("offset_by", "offset by", "Query minus key of the score offset.", table=False),
    )

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a window, the probes spread over all."""
        return super().seconds(size, options) + (REPLACED_WINDOWS + 1) * size.forward / size.windows

    def measure(self, context: Context, piece: int) -> Result:
        """Return the scores of all heads in one window, those of probes in the first windows."""
        window = context.window(piece)
        if not isinstance(window, Capture):
            _require_probabilities(window)
        organized = context.parameters["field"] == "probs"  # then it is at hand already
        x = _heads_first(context.tensor(piece, "probs") if organized else window.tensor(0, "probs"))
        groups = _groups(window)
        found, left_out = _scores(context, x, groups)
        probes = _Probes(context, piece, x, groups)
        more, missing = probes.scores()
        return Result(
            {
                "scores": np.stack([*found.scores.values(), *(score for score, _ in more.values())]),
                "chance": np.stack([*found.chance.values(), *(chance for _, chance in more.values())]),
                "sink_key": found.sink_key,
                "diagonals": found.diagonals.astype(np.float32),
                "chance_diagonals": found.chance_diagonals.astype(np.float32),
            },
            {"names": [*found.scores, *more], "left_out": {**left_out, **missing}},
        )

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the mean scores and the name of every head, and the families of heads."""
        windows = [
            WindowPatterns(
                dict(zip(r.attributes["names"], r.arrays["scores"], strict=True)),
                dict(zip(r.attributes["names"], r.arrays["chance"], strict=True)),
                r.arrays["sink_key"],
                r.arrays["diagonals"].astype(np.float64),
                r.arrays["chance_diagonals"].astype(np.float64),
            )
            for r in results
        ]
        detail = head_patterns_over(windows, context.heads, seed=int(context.parameters["seed"]))
        return Outcome(
            detail.table,
            (
                Finding(detail.sentence, Question.kinds, _CHANCE.format(counted(len(results), "window"))),
                *((Finding(detail.clearest, Question.kinds, detail.striking),) if detail.clearest else ()),
                *(Finding(sentence, Question.kinds) for sentence in detail.on_repeats),
                *_left_out(detail, results),
                *_without_special(context, detail),
            ),
            detail=detail,
            tables={"patterns": detail.long()},
        )

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return what the name of every head means, for the panel."""
        found: HeadPatterns = study[self.name]
        return (Section(self.name, data={"words": found.described}),)


# Observing a model changes it for the length of a pass.
_ONE_PASS = threading.Lock()


class _Probes:
    """Scores that need further forward passes: at most three for all windows of a study."""

    def __init__(
        self, context: Context, piece: int, x: NDArray[Any], groups: "Sequence[tuple[slice, Layout]]"
    ) -> None:
        self.context, self.piece, self.x, self.groups = context, piece, x, groups
        self.seed = int(context.parameters["seed"])

    def scores(self) -> tuple[dict[str, tuple[NDArray[Any], NDArray[Any]]], dict[str, str]]:
        """Return score and chance of every head by name, and what is left out with the reason."""
        found: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        left_out: dict[str, str] = {}
        wanted: list[tuple[tuple[str, ...], Callable[[], Any]]] = []
        if self.piece < REPLACED_WINDOWS:
            wanted.append((("positional",), self._positional))
        if self.piece == 0 and not any(layout.cross for _, layout in self.groups):
            wanted.append((tuple(f"{name}_random" for name in RANDOM), self._repeated))
        for names, probe in wanted:
            if self.context.model is None or not self.context.arguments:
                left_out |= dict.fromkeys(names, NO_MODEL)
                continue
            try:
                found |= probe()
            except HeadscapeError as error:
                left_out |= dict.fromkeys(names, str(error).rstrip("."))
        return found, left_out

    def _positional(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Compare the attention with that after the tokens are replaced."""
        model, arguments = self.context.model, self.context.arguments
        assert model is not None  # scores() asks
        after = self._captured(replaced_tokens(model, arguments, self.piece, self.seed))
        y = _heads_first(after.tensor(0, "probs"))
        parts = [positional_score(self.x[part], y[part], layout.visible) for part, layout in self.groups]
        return {"positional": (np.concatenate(parts), np.ones(len(self.x)))}

    def _repeated(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Score induction and duplicate tokens on repeated random tokens."""
        model = self.context.model
        assert model is not None  # scores() asks
        probe = self._captured(repeated_tokens(model, self.x.shape[1], self.seed))
        y = _heads_first(probe.tensor(0, "probs"))
        found, _ = _scores(self.context, y, _groups(probe))
        names = {f"{name}_random": f"{name}_repeats" for name in RANDOM if f"{name}_repeats" in found.scores}
        return {new: (found.scores[old], found.chance[old]) for new, old in names.items()}

    def _captured(self, window: WindowInput) -> Capture:
        assert self.context.model is not None  # scores() asks
        with _ONE_PASS:
            return probed(self.context.model, window, self.context.capture)


def _heads_first(x: NetworkTensor) -> NDArray[Any]:
    data = x.data if x.data.ndim == 3 else x.data[:, :, None]
    return np.ascontiguousarray(data.transpose(2, 0, 1))


def _require_probabilities(windows: Data) -> None:
    """Raise unless tensors hold probabilities."""
    x = windows.tensor(0)
    if x.field != "probs":
        raise NotApplicableError(
            f"it needs attention probabilities, but the tensors hold {x.field!r} (field='probs' says that they do)"
        )
    try:
        require_probabilities(x.data)
    except InputError as error:
        raise NotApplicableError(f"it needs attention probabilities: {error}") from error


def _groups(window: Data) -> list[tuple[slice, Layout]]:
    """Return runs of heads that see the same keys, with what these are; tensors are causal or full."""
    tokens = tuple(window.key_tokens(0))
    if not isinstance(window, Capture):
        x = window.tensor(0)
        n_queries, n_keys = x.shape[:2]
        cross, special = n_queries != n_keys, frozenset(_special(x.provenance))
        # Zeros in all of a few heads can be chance, so that they show no other mask.
        later = x.data[np.triu_indices(n_queries, 1, n_keys)].any()
        visible = (full_visibility if cross or later else causal_visibility)(n_queries, n_keys)
        return [(slice(0, len(window.heads)), Layout(visible, tokens, special, cross))]
    masks: list[tuple[BoolArray, bool]] = []
    for record in window.records(0):
        heads = [head for layer, head in window.heads if layer == record.layer]
        masks += [(record.visible_to(head), record.kind == "cross") for head in heads]
    starts = [0, *(i for i in range(1, len(masks)) if not _same(masks[i - 1], masks[i])), len(masks)]
    special = frozenset(_special(window.provenance))
    return [
        (slice(start, stop), Layout(masks[start][0], tokens, special, masks[start][1]))
        for start, stop in pairwise(starts)
    ]


def _same(a: tuple[BoolArray, bool], b: tuple[BoolArray, bool]) -> bool:
    return a[1] == b[1] and (a[0] is b[0] or np.array_equal(a[0], b[0]))


def _special(provenance: Mapping[str, Any]) -> set[str]:
    """Return the special tokens of a capture's windows, as far as it knows them."""
    around = provenance.get("special_tokens") or {}
    return {
        *(provenance.get("special_tokens_seen") or ()),
        *(name for side in around.values() for name in side),
    }


def _scorers(groups: Sequence[tuple[slice, Layout]]) -> list[PatternScorer]:
    """Return the scorer of every group; equal layouts, as of alternating layers, share one."""
    made: list[PatternScorer] = []
    found = []
    for _, layout in groups:
        like = (layout.visible, layout.cross)
        known = next((one for one in made if _same((one.layout.visible, one.layout.cross), like)), None)
        if known is None:
            known = PatternScorer(layout)
            made.append(known)
        found.append(known)
    return found


def _scores(
    context: Context, x: NDArray[Any], groups: Sequence[tuple[slice, Layout]]
) -> tuple[WindowPatterns, dict[str, str]]:
    """Return the scores of (head, query, key) attention, and what no head can show, with the reason."""
    scorers = _scorers(groups)
    step = max(1, BLOCK // x[0].size)
    blocks = [
        (scorer, slice(start, min(start + step, part.stop)))
        for scorer, (part, _) in zip(scorers, groups, strict=True)
        for start in range(part.start, part.stop, step)
    ]

    def score(number: int) -> PatternScores:
        scorer, part = blocks[number]
        return scorer.scores(x[part])

    found = list(context.engine.map(score, range(len(blocks))))
    even = {scorer: scorer.chance() for scorer in scorers}
    sizes = [part.stop - part.start for _, part in blocks]
    names = dict.fromkeys(name for one in found for name in one.scores)
    missing = {name: why for scorer in scorers for name, why in scorer.left_out.items() if name not in names}
    if any(np.isfinite(one.diagonals).any() for one in found):
        missing.pop("offset", None)
    chance = [even[scorer] for scorer, _ in blocks]
    return (
        WindowPatterns(
            {name: _joined([one.scores.get(name) for one in found], sizes) for name in names},
            {name: _joined([one.scores.get(name) for one in chance], sizes) for name in names},
            np.concatenate([one.sink_key for one in found]),
            np.concatenate([one.diagonals for one in found]),
            np.concatenate([np.repeat(one.diagonals, n, 0) for one, n in zip(chance, sizes, strict=True)]),
        ),
        missing,
    )


def _joined(parts: Sequence[NDArray[Any] | None], sizes: Sequence[int]) -> NDArray[Any]:
    """Put the scores of blocks of heads together; NaN where a block lacks it, one value for all heads is repeated."""
    known = [np.full(n, np.nan) if p is None else p for p, n in zip(parts, sizes, strict=True)]
    return np.concatenate([np.broadcast_to(p, n) for p, n in zip(known, sizes, strict=True)])


def _left_out(detail: HeadPatterns, results: Sequence[Result]) -> list[str]:
    """Say which scores are left out in all windows, and why."""
    told = {name: why for r in reversed(results) for name, why in r.attributes["left_out"].items()}
    reasons: dict[str, list[str]] = {}
    for name, why in told.items():
        if name not in detail.scores:
            reasons.setdefault(why, []).append(name)
    return [
        f"Patterns left out: {', '.join(name.replace('_', ' ') for name in names)} ({why})."
        for why, names in reasons.items()
    ]


def _without_special(context: Context, detail: HeadPatterns) -> list[str]:
    """Say that separators are punctuation alone, where that is known."""
    provenance = context.data.provenance
    if (
        provenance.get("special_tokens_seen") == []
        and "separator" in detail.scores
        and not _special(provenance)
    ):
        return [
            "The windows hold no special tokens, so that separators are punctuation and whitespace alone."
        ]
    return []
