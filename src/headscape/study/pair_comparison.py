"""How two networks of a comparison are compared, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.comparison.assignment import assigned_heads
from headscape.analysis.comparison.cka import centered_gram, cka_matrix
from headscape.analysis.comparison.gromov_wasserstein import Transport, distortion, gromov_wasserstein
from headscape.engine import Engine, Progress
from headscape.errors import HeadscapeError, InputError
from headscape.models.loading import Model
from headscape.recorder.inputs import WindowInput
from headscape.study.compared_pair import NOTHING, ComparedPair, no_shifts
from headscape.study.compared_source import ComparedSource, noise_floor, scaled_emds
from headscape.study.head_matching import Matching, common_windows, emds_between, matched_heads
from headscape.study.head_outputs import head_outputs
from headscape.study.measure_words import words_of
from headscape.study.pair_tests import PairTests, how_tested
from headscape.study.study import Study

FloatArray64 = NDArray[np.float64]

FEWEST_WINDOWS = 2


@dataclass(frozen=True, eq=False)
class Opened:
    """A network while it is compared: what the comparison keeps of it, its study, and the model if it is at hand."""

    source: ComparedSource
    study: Study
    model: Model | None = None
    inputs: Sequence[WindowInput] = ()


@dataclass(frozen=True, eq=False)
class PairComparison:
    """Compares two networks.

    Parameters
    ----------
    a, b, numbers
        The networks, and their numbers in the comparison.
    level, paired, seed
        As for :func:`headscape.compare`.
    engine, progress
        How work is spread; progress callback.
    """

    a: Opened
    b: Opened
    numbers: tuple[int, int]
    level: float
    paired: bool | None
    seed: int
    engine: Engine
    progress: Progress

    def run(self) -> ComparedPair:
        """Compare geometries, heads and measures, and put each difference beside the noise."""
        a, b = self.a, self.b
        windows = [] if self.paired is False else common_windows(a.study, b.study, demanded=bool(self.paired))
        if self.paired and not windows:
            raise InputError(
                f"{a.source.name} and {b.source.name} have no window in common, but paired=True asks for the same "
                "windows: show both the same text, with the same length and tokenizer, or leave out paired."
            )
        between = emds_between(a.study, b.study, windows, self.engine, self.progress)
        emd = between.mean(axis=0) if between.size else NOTHING
        matching = matched_heads(a.source, b.source, emd)
        self.progress("comparing geometries", 0, 1)
        transport = self._transport(matching)
        cka_heads, cka_layers, no_cka = self._cka(windows)
        chosen = _chosen(a.study, b.study, windows)
        emds = (scaled_emds(a.study), scaled_emds(b.study))
        moved = emd[matching.rows, matching.columns] if emd.size and matching.how else None
        tests = PairTests(a.source, b.source, emds, chosen, matching, moved)
        self.progress("testing against the noise", 0, 1)
        test, changes = tests.run(paired=bool(windows), level=self.level, seed=self.seed)
        return ComparedPair(
            *self.numbers,
            windows="same" if windows else "other",
            matched=matching.how,
            distance=transport.distance,
            distance_by_number=self._by_number(matching),
            noise=noise_floor([a.source.noise, b.source.noise]),
            plan=transport.plan,
            emd=emd,
            correspondence=self._correspondence(emd, transport.plan, cka_heads),
            how="assignment" if emd.size else "transport",
            changes=changes,
            effects=tests.effects(changes, paired=bool(windows)),
            shifts=tests.shifts(between) if emd.size and matching.how else no_shifts(),
            cka_heads=cka_heads,
            cka_layers=cka_layers,
            test=how_tested(test),
            not_compared=self._not_compared(windows, matching, emd, no_cka),
            settled=transport.settled,
        )

    def _geometries(self) -> tuple[FloatArray64, FloatArray64]:
        """Return the mean EMDs of both networks, in median EMDs."""
        a, b = (scaled_emds(opened.study).mean(axis=0) for opened in (self.a, self.b))
        return a, b

    def _transport(self, matching: Matching) -> Transport:
        """Return the Gromov-Wasserstein distance, with matched heads as one of the starts."""
        start = None
        shape = (len(self.a.source.heads), len(self.b.source.heads))
        if matching.how and len(matching.rows) == max(shape):
            start = np.zeros(shape)
            start[matching.rows, matching.columns] = 1 / shape[0]
        return gromov_wasserstein(*self._geometries(), start=start)

    def _by_number(self, matching: Matching) -> float:
        if not matching.how:
            return float("nan")
        a, b = self._geometries()
        at = np.ix_(matching.rows, matching.rows), np.ix_(matching.columns, matching.columns)
        return distortion(a[at[0]], b[at[1]])

    def _correspondence(self, emd: FloatArray64, plan: FloatArray64, cka: FloatArray64) -> pd.DataFrame:
        """Return the pairs of heads: by assignment on the EMD, or by the largest share of the plan."""
        if emd.size:
            found = assigned_heads(emd)
            rows, columns, costs, margins = found.rows, found.columns, found.cost, found.margin
        else:
            rows, columns = np.arange(len(plan)), plan.argmax(axis=1)
            costs = margins = np.full(len(plan), np.nan)
        heads_a, heads_b = self.a.source.heads, self.b.source.heads
        share = plan[rows, columns] / plan.sum(axis=1)[rows]
        return pd.DataFrame(
            {
                "layer_a": [heads_a[i][0] for i in rows],
                "head_a": [heads_a[i][1] for i in rows],
                "layer_b": [heads_b[j][0] for j in columns],
                "head_b": [heads_b[j][1] for j in columns],
                "emd": costs,
                "margin": margins,
                "mass": share,
                "cka": cka[rows, columns] if cka.size else np.full(len(rows), np.nan),
            }
        )

    def _cka(self, windows: list[tuple[int, int]]) -> tuple[FloatArray64, FloatArray64, str]:
        """Return the CKA of head outputs by head and by layer, or why there is none."""
        if self.a.model is None or self.b.model is None:
            return NOTHING, NOTHING, "captures, studies and tensors hold no head outputs: pass the models"
        if not windows:
            return NOTHING, NOTHING, "it needs the same tokens in both networks"
        heads, layers = [], []
        try:
            for number, (of_a, of_b) in enumerate(windows):
                self.progress("comparing head outputs (CKA)", number, len(windows))
                grams = [_grams(opened, w) for opened, w in ((self.a, of_a), (self.b, of_b))]
                heads.append(cka_matrix(grams[0][0], grams[1][0]))
                layers.append(cka_matrix(grams[0][1], grams[1][1]))
        except HeadscapeError as error:
            return NOTHING, NOTHING, str(error).rstrip(".")
        return np.mean(heads, axis=0), np.mean(layers, axis=0), ""

    def _not_compared(
        self, windows: list[tuple[int, int]], matching: Matching, emd: FloatArray64, no_cka: str
    ) -> tuple[tuple[str, str], ...]:
        """Return what could not be compared, and why."""
        a, b = self.a.source, self.b.source
        found = []
        if not emd.size:
            why = "they have no window in common" if not windows else "their windows differ in size"
            found.append(("exact correspondence of heads", f"{why}; the transport plan is a soft one"))
        if not matching.how:
            why = (
                "the networks have different heads"
                if a.heads != b.heads
                else "the networks are of different kinds"
            )
            found.append(
                ("changes by layer, folder and head", f"{why}; measures are compared as distributions")
            )
        if no_cka:
            found.append(("CKA of head outputs", no_cka))
        found += [
            (words_of(name).title, f"not measured in all windows of {other.name}")
            for one, other in ((a, b), (b, a))
            for name in one.measures
            if name not in other.measures
        ]
        left_out = [s.windows - len(windows) for s in (a, b)] if windows else [0, 0]
        found += [
            (f"{n} of {s.windows} windows of {s.name}", "the other network has not seen them")
            for n, s in zip(left_out, (a, b), strict=True)
            if n
        ]
        if min(a.windows, b.windows) < FEWEST_WINDOWS:
            found.append(("the noise", "a single window has no spread: take several windows"))
        return tuple(found)


def _chosen(a: Study, b: Study, windows: list[tuple[int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the windows that are tested: those in common, or all."""
    if windows:
        return [i for i, _ in windows], [j for _, j in windows]
    return range(a.windows), range(b.windows)


def _grams(opened: Opened, window: int) -> tuple[list[Any], list[Any]]:
    """Return the centered Gram matrices of all heads, and of all layers, of one window."""
    assert opened.model is not None  # _cka asks
    outputs = head_outputs(opened.model, opened.inputs[window], opened.study.parameters["stack"])
    heads = [centered_gram(outputs[layer][:, head]) for layer, head in opened.source.heads]
    layers = [
        centered_gram(outputs[layer].reshape(len(outputs[layer]), -1)) for layer in opened.source.layers
    ]
    return heads, layers
