"""What the measures of a comparison are called: those of heads as in the head table, those of whole networks here."""

from dataclasses import dataclass

from headscape.study.stages import STAGES


@dataclass(frozen=True)
class MeasureWords:
    """Title and meaning of a measure."""

    title: str
    meaning: str


WHOLE = {
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
