"""Titles and meanings of the columns of the head table, for the page; other columns go by their own names."""

from typing import NamedTuple


class Measure(NamedTuple):
    """How a column is shown: its title, what it means in one sentence, whether the head's panel has it."""

    title: str
    meaning: str
    panel: bool = False


MEASURES = {
    "entropy": Measure(
        "entropy", "Sum of the absolute coarse Haar coefficients of the head, mean over windows.", True
    ),
    "rank": Measure("mean rank", "Mean rank of the entropy over windows, 1 for the lowest.", True),
    "bottom_count": Measure(
        "low in", "Number of windows in which the entropy is among the lowest tenth.", True
    ),
    "top_count": Measure("high in", "Number of windows in which the entropy is among the highest tenth."),
    "mu_K": Measure(
        "μ_K", "Key incoherence: largest squared key norm against the mean; 1 = equal norms.", True
    ),
    "mu_K_centered": Measure("μ_K centered", "Key incoherence of the keys minus their mean."),
    "mu_K_without_first": Measure("μ_K w/o first", "Key incoherence without the first token."),
    "leverage": Measure("leverage", "Leverage-score coherence of the key matrix."),
    "k90": Measure("k90", "Components that hold 90 % of the variance of the energy field.", True),
    "k50": Measure("k50", "Components that hold 50 % of the variance of the energy field."),
    "k99": Measure("k99", "Components that hold 99 % of the variance of the energy field."),
    "effective_rank": Measure("eff. rank", "exp(entropy) of the variance shares of the energy field."),
    "stable_rank": Measure("stable rank", "Variance of the energy field over its largest component."),
    "participation": Measure(
        "participation", "Share of the keys over which the variance of the energy field is spread.", True
    ),
    "peak": Measure("peak", "Largest share of the variance on one key, times the number of keys."),
    "interaction_k90": Measure("W k90", "Components for 90 % of the learned interaction W_Q^T W_K.", True),
    "interaction_rank": Measure("W eff. rank", "Effective rank of the learned interaction W_Q^T W_K."),
    "holder_mixed": Measure("α mixed", "Mixed Hoelder exponent of the logits on the trees.", True),
    "holder_query": Measure("α query", "Hoelder exponent of the logits along the queries."),
    "holder_key": Measure("α key", "Hoelder exponent of the logits along the keys."),
    "theorem_windows": Measure("0<α<½ in", "Number of windows in which the theorem's range is met."),
    "softmax_residual": Measure(
        "paraproduct residual", "Relative residual of the complete paraproduct of softmax, organized.", True
    ),
    "softmax_share_explained": Measure(
        "softmax explained", "Share of softmax that the invariant form explains (OA corollary 1).", True
    ),
    "softmax_mixed_size": Measure("mixed size", "Size of the mixed differences of the logits."),
    "place_haar": Measure("haar place", "Place in the order of removal by Haar entropy, 0 goes first."),
    "place_gradient": Measure(
        "gradient place", "Place in the order of removal by the gradient of the gates, 0 goes first.", True
    ),
    "place_reconstruction": Measure(
        "reconstruction place", "Place in the greedy order by what other heads cannot make up for.", True
    ),
    "folder": Measure("folder", "Number of the head's folder at the first level of the tree."),
    "nearest": Measure("nearest", "The head that attends most alike."),
    "nearest_emd": Measure("EMD", "Tree EMD to the nearest head.", True),
}
_ENDINGS = {
    "_low": "lower bound",
    "_high": "upper bound",
    "_q25": "lower quartile",
    "_q75": "upper quartile",
    "_min": "smallest",
    "_max": "largest",
}
_BOOKKEEPING = ("place", "kv_head")


def measure_of(column: str) -> Measure:
    """Return how a column is shown, by its own name if nothing is known of it.

    Examples
    --------
    >>> measure_of("k90").title, measure_of("k90_q25").title, measure_of("pattern").title
    ('k90', 'k90, lower quartile', 'pattern')
    """
    if column in MEASURES:
        return MEASURES[column]
    for ending, words in _ENDINGS.items():
        base = column.removesuffix(ending)
        if base != column and base in MEASURES:
            known = MEASURES[base]
            return Measure(f"{known.title}, {words}", f"{words.capitalize()}. {known.meaning}")
    return Measure(column.replace("_", " "), f"The column {column} of the head table.")


def in_table(column: str) -> bool:
    """Tell whether a column stands in the page's table: bounds and bookkeeping are left to the files."""
    return column not in _BOOKKEEPING and not column.endswith(tuple(_ENDINGS))
