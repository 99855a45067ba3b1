"""What the measures of a comparison are called: those of heads as in the head table, those of whole networks here."""

from dataclasses import dataclass

import numpy as np

from headscape.study.stages import STAGES

MOST_TIMES = 999.0
"""Stands for a difference without any noise, which JSON cannot hold."""


@dataclass(frozen=True)
class MeasureWords:
    """Title and meaning of a measure."""

    title: str
    meaning: str


WHOLE = {
    "everything": MeasureWords(
        "all measures together", "The mean difference over all measures, in units of each."
    ),
    "geometry": MeasureWords("geometry", "Distances between the heads (tree EMD), in units of their median."),
    "patterns": MeasureWords("patterns", "All pattern scores together."),
    "network_entropy": MeasureWords(
        "network entropy", "Sum of the 100 coarsest tri-Haar coefficients of all heads together."
    ),
    "depth": MeasureWords("depth of the head tree", "Levels below the root."),
    "folders": MeasureWords("folders of the head tree", "Folders of several heads, without the root."),
    "first_folders": MeasureWords("first folders", "Folders of the first level of the head tree."),
    "largest_share": MeasureWords("largest first folder", "Share of the heads in the largest first folder."),
    "balance": MeasureWords("balance of the head tree", "1 if all folders of a level have the same size."),
}


def words_of(name: str) -> MeasureWords:
    """Return what a measure is called.

    Examples
    --------
    >>> words_of("mu_K").title, words_of("depth").title, words_of("first_token").title
    ('μ_K', 'depth of the head tree', 'first token')
    """
    if name in WHOLE:
        return WHOLE[name]
    columns = {column.name: column for stage in STAGES for column in stage.columns}
    column = columns.get(name)
    return MeasureWords(column.title, column.meaning) if column else MeasureWords(name.replace("_", " "), "")


def noise_words(times: float) -> str:
    """Return a difference in units of the noise in words.

    Examples
    --------
    >>> noise_words(0.4), noise_words(3.14), noise_words(0.0), noise_words(float("nan"))
    ('inside the noise', '3.1 times the noise', 'identical', 'noise unknown')
    >>> noise_words(123.4), noise_words(float("inf"))
    ('123 times the noise', 'more than 999 times the noise')
    """
    if np.isnan(times):
        return "noise unknown"
    if times == 0:
        return "identical"
    if times <= 1:
        return "inside the noise"
    if times > MOST_TIMES:
        return f"more than {MOST_TIMES:.0f} times the noise"
    return f"{times:.1f} times the noise" if times < 10 else f"{times:.0f} times the noise"
