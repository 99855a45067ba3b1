"""Expansion coefficients and entropies of the organization paper (arXiv 2506.15541): figures 4 to 6, tables 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.entropy import CoarseCoefficients, coefficients_by_support, network_entropy
from headscape.analysis.intervals import FEWEST_UNITS, Interval, bootstrap, bootstrap_pairs
from headscape.analysis.stability import rank_stability
from headscape.report.haar_figures import basis_figure, coefficient_figure
from headscape.report.style import ACCENT, name_axes, new_figure, set_heading
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    exp_interval,
    judged,
    span,
)
from headscape.study.reproduction.networks import (
    IMAGE_ROLES,
    K_HEAD,
    LANGUAGE,
    TENSOR_ROLES,
    TRANSFORMER_XL,
    UNTRAINED_VISION,
    Networks,
    of_heads,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = 5
K_NETWORK = 100
"""Tri-Haar functions of a network entropy, as in OA B.2."""
ALIKE, DIFFERENT = 0.2, 0.4
"""Kolmogorov-Smirnov distances up to which coefficients are distributed alike, and from which on they are not."""


def coefficient_spectra(networks: Networks) -> Evidence:
    """Compare the distributions of the coefficients of heads (figure 4)."""
    observations, figures = [], {}
    for role in networks.present(TENSOR_ROLES):
        batches = range(min(BATCHES, networks.capture(role).n_windows))
        coefficients = [_head_coefficients(networks, role, window) for window in batches]
        distances = np.stack([_distances(found.values, networks.seed) for found in coefficients])
        middle, most = (
            bootstrap(np.quantile(distances, q, axis=1), seed=networks.seed, within=(0.0, 1.0))
            for q in (0.5, 0.95)
        )
        observations.append(
            networks.observed(
                role,
                len(batches),
                f"The sizes of the {span(len(one.values) for one in coefficients)} coefficients of largest support, as "
                f"shares of their sum, differ between two heads by a Kolmogorov-Smirnov distance of {middle:.2f} in "
                f"the median and {most:.2f} at the 95th percentile of {distances.shape[1]} random pairs (means over "
                "batches).",
                judged(most.estimate < ALIKE, middle.estimate > DIFFERENT),
                f"{middle.estimate:.2f}",
            )
        )
        two = networks.some_heads(role)[:2]
        places = [networks.capture(role).heads.index(head) for head in two]
        shown = replace(coefficients[0], values=coefficients[0].values[:, places])
        figures[f"{role}-coefficients"] = coefficient_figure(
            shown, [f"head {of_heads([head])}" for head in two]
        )
        figures[f"{role}-head-basis"] = basis_figure(networks.organization(role, 0).trees["head"])
    return Evidence.of(observations, figures=figures)


def _head_coefficients(networks: Networks, role: str, window: int) -> CoarseCoefficients:
    """Return the bi-Haar coefficients of all heads of one batch, those of largest support."""
    trees = networks.organization(role, window).trees
    pair = {axis: trees[axis] for axis in ("query", "key")}
    return coefficients_by_support(networks.capture(role).tensor(window).data, pair, K_HEAD)


def entropy_spread(networks: Networks) -> Evidence:
    """Compare the spread of the entropies over the heads between batches (figure 5)."""
    observations, figures = [], {}
    for role in networks.present(TENSOR_ROLES):
        more = networks.entropies(role, networks.sizes.windows)
        entropies, spreads = more[:3], stats.iqr(more[:3], axis=1)
        medians = np.median(entropies, axis=1)
        agreement = rank_stability(entropies).correlation_range
        ratio = float(spreads.max() / spreads.min())
        sizes = np.log(stats.iqr(more, axis=1))
        apart = bootstrap_pairs(np.abs(sizes[:, None] - sizes), seed=networks.seed, within=(0.0, np.inf))
        observations.append(
            networks.observed(
                role,
                len(entropies),
                f"Between batches the interquartile range of the entropies differs by a factor of up to {ratio:.2f} "
                f"and their median by up to {medians.max() / medians.min():.2f}; the ranks of the heads correlate "
                f"by {agreement[0]:.2f} to {agreement[1]:.2f}. Over {len(more)} batches, two differ in their "
                f"interquartile range by a factor of {exp_interval(apart):.2f} (geometric mean over pairs).",
                judged(ratio < 1.5 and agreement[0] > 0.7, ratio > 2 or agreement[1] < 0.3),
                f"{ratio:.2f}",
            )
        )
        figures[f"{role}-entropies"] = _spread_figure(entropies, networks.title(role))
    return Evidence.of(observations, figures=figures)


def frequent_heads(networks: Networks) -> Evidence:
    """Count in how many of 6 batches heads are among the highest and lowest (table 1)."""
    observations, tables = [], {}
    for role in networks.present(TENSOR_ROLES):
        entropies = networks.entropies(role, 6)
        found = rank_stability(entropies, seed=networks.seed)
        table = found.most_frequent(networks.capture(role).heads)
        counts = [*table["top_count"], *table["bottom_count"]]
        words = table.assign(
            top=[of_heads([head]) for head in table["top"]],
            bottom=[of_heads([head]) for head in table["bottom"]],
        )
        tables[role] = words
        overlap = found.jaccard_bottom
        observations.append(
            networks.observed(
                role,
                len(entropies),
                f"Most often highest: {of_heads(list(table['top']))} (in {', '.join(map(str, table['top_count']))} of "
                f"{len(entropies)} batches); lowest: {of_heads(list(table['bottom']))} (in "
                f"{', '.join(map(str, table['bottom_count']))}). The lowest tenths of two batches overlap by "
                f"{overlap:.2f} (Jaccard).",
                judged(min(counts) == len(entropies), min(counts) < len(entropies) / 2),
                f"{min(counts)} of {len(entropies)}",
            )
        )
    return Evidence.of(observations, tables)


def network_entropies(networks: Networks) -> Evidence:
    """Compare the network entropies of language and vision (table 2 and figure 6)."""
    entropies: dict[str, NDArray[np.float64]] = {}
    relative: dict[str, NDArray[np.float64]] = {}
    figures: dict[str, Figure] = {}
    roles = networks.present(TENSOR_ROLES)
    for role in roles:
        captured = networks.capture(role)
        rows, coefficients = [], []
        for window in range(min(BATCHES, captured.n_windows)):
            data, trees = captured.tensor(window).data, networks.organization(role, window).trees
            entropy = network_entropy(data, trees, K_NETWORK)
            rows.append((entropy, entropy / float(np.linalg.norm(data))))
            coefficients.append(coefficients_by_support(data, trees, K_NETWORK).values[:, 0])
        entropies[role], relative[role] = np.array(rows).T
        figures[f"{role}-tri-haar"] = _spectra_figure(coefficients, networks.title(role))
    observations = [
        _compared(networks, role, vision, entropies, relative)
        for vision in roles
        if vision in IMAGE_ROLES
        for role in networks.present((LANGUAGE, TRANSFORMER_XL))
    ]
    tables = {"entropies": _by_batch(entropies), "relative": _by_batch(relative)}
    return Evidence.of(observations, tables, figures)


def _compared(
    networks: Networks,
    role: str,
    vision: str,
    entropies: Mapping[str, NDArray[np.float64]],
    relative: Mapping[str, NDArray[np.float64]],
) -> Observation:
    """Say whether a language network has the larger entropies, as they are and with sizes taken out."""
    ours, theirs, free, of_vision = entropies[role], entropies[vision], relative[role], relative[vision]
    ratio, of_shapes = geometric_ratio(ours, theirs), geometric_ratio(free, of_vision)
    return Observation(
        f"{networks.title(role)} against {networks.title(vision)}",
        f"{networks.data(role, len(ours))}; {networks.data(vision, len(theirs))}",
        f"The network entropies are {span(ours, '.3g')}, those of the vision network {span(theirs, '.3g')}: a ratio of "
        f"{ratio:.2g} of the geometric means. Divided by the norm of the tensor, which takes its size out, they are "
        f"{span(free, '.3g')} and {span(of_vision, '.3g')}, a ratio of {of_shapes:.2g}.",
        judged(
            bool(ours.min() > theirs.max() and free.min() > of_vision.max()), bool(ours.max() < theirs.min())
        ),
        f"{ratio.estimate:.2g} ({of_shapes.estimate:.2g})",
        vision == UNTRAINED_VISION,
    )


def geometric_ratio(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Interval:
    """Return the ratio of the geometric means of two sets of batches, with Welch's interval."""
    logs = np.log(ours), np.log(theirs)
    difference = float(logs[0].mean() - logs[1].mean())
    if min(len(ours), len(theirs)) < FEWEST_UNITS:
        return exp_interval(Interval(difference, np.nan, np.nan))
    bounds = stats.ttest_ind(*logs, equal_var=False).confidence_interval()
    return exp_interval(Interval(difference, float(bounds.low), float(bounds.high)))


def _by_batch(values: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    """Return a row per batch; networks may have fewer batches than others."""
    table = pd.DataFrame({role: pd.Series(found) for role, found in values.items()})
    table.insert(0, "batch", range(1, len(table) + 1))
    return table


def _distances(values: NDArray[np.float64], seed: int, pairs: int = 500) -> NDArray[np.float64]:
    """Return the Kolmogorov-Smirnov distances between the coefficients of random pairs of heads (columns)."""
    # The constant is left out: it is the same for all heads of probabilities.
    sizes = np.sort(np.abs(values[1:]), axis=0)
    sizes = sizes / np.maximum(sizes.sum(axis=0), 1e-300)
    rng = np.random.default_rng(seed)
    count = sizes.shape[1]
    found = []
    for _ in range(pairs):
        first, second = rng.choice(count, size=2, replace=False)
        found.append(stats.ks_2samp(sizes[:, first], sizes[:, second], method="asymp").statistic)
    return np.array(found)


def _spread_figure(entropies: NDArray[np.float64], title: str) -> Figure:
    """Draw the sorted entropies of every batch (OA figure 5)."""
    figure = new_figure(6.0, 3.2)
    axes = figure.add_subplot()
    for number, row in enumerate(entropies):
        axes.plot(np.sort(row), lw=1.2, label=f"batch {number + 1}")
    axes.legend(fontsize=7)
    name_axes(axes, "heads, lowest first", "Haar entropy")
    set_heading(axes, title, f"{K_HEAD} wavelets of largest support")
    return figure


def _spectra_figure(coefficients: list[NDArray[np.float64]], title: str) -> Figure:
    """Draw the tri-Haar coefficients of every batch, by decreasing support (OA figure 6)."""
    figure = new_figure(6.0, 3.2)
    axes = figure.add_subplot()
    for row in coefficients:
        axes.plot(np.abs(row[1:]), lw=0.8, color=ACCENT, alpha=0.6)
    axes.set_yscale("log")
    name_axes(
        axes, "tri-Haar functions, largest support first (the constant left out)", "size of the coefficient"
    )
    set_heading(axes, title, f"{len(coefficients)} batches")
    return figure


EXPERIMENTS = (
    Experiment(
        "figure-4",
        ORGANIZED,
        "figure 4",
        "Expansion coefficients of heads",
        "The bi-Haar coefficients of the 400 wavelets of largest support are distributed alike in all heads.",
        TENSOR_ROLES,
        "median Kolmogorov-Smirnov distance between two heads",
        0.1,
        coefficient_spectra,
        "The published code takes the first 10 x 10 wavelets; the 400 of largest support are taken here, as "
        f"the text says. The paper compares two heads of one batch by eye; here a distance below {ALIKE} for 95 % of "
        f"the pairs agrees, one above {DIFFERENT} for half of them disagrees.",
        organized=BATCHES,
    ),
    Experiment(
        "figure-5",
        ORGANIZED,
        "figure 5",
        "Entropies of the heads over 3 batches",
        "The spread of the l1 entropies over the heads is much the same in every batch.",
        TENSOR_ROLES,
        "largest over smallest interquartile range of the entropies",
        0.1,
        entropy_spread,
        "The paper judges the spread by eye; a factor below 1.5 counts as much the same if the ranks of the heads "
        "correlate by more than 0.7, one above 2 does not. Entropies follow equation 21 with the 400 wavelets of "
        "largest support; the published code takes the first 10 x 10.",
        organized=20,
    ),
    Experiment(
        "table-1",
        ORGANIZED,
        "table 1",
        "Heads of highest and lowest entropy over 6 batches",
        "The three heads most often in the top and in the bottom tenth are there in all 6 batches.",
        TENSOR_ROLES,
        "batches in which the least frequent of the six heads is there",
        0.1,
        frequent_heads,
        "The text is followed, as in figure 5; heads with equal counts are ordered by their mean rank.",
        organized=6,
    ),
    Experiment(
        "table-2",
        ORGANIZED,
        "table 2, figure 6",
        "Network entropies over 5 batches",
        "The tri-Haar entropy of the language network (1200-2476) exceeds that of the vision network "
        "(2.5-9.8) in every batch.",
        TENSOR_ROLES,
        "entropy of the language network over that of the vision network (in brackets: sizes taken out)",
        0.1,
        network_entropies,
        "The published code does not project on tri-Haar functions at all, so its figures cannot be repeated; the "
        "text is followed. Larger tensors have larger coefficients, so entropies of tensors of different sizes are "
        "not on one scale: it agrees in part where the order holds only with the sizes in.",
        organized=BATCHES,
    ),
)
