"""The attention patterns that heads are scored by: what each is called, what it means, and what it takes for a name."""

from dataclasses import dataclass

SPECIFIC, GENERAL = 0.3, 0.5
"""Least excess over chance that gives a name: of patterns with few keys, and of those with many."""


@dataclass(frozen=True)
class Pattern:
    """A score of a head.

    Parameters
    ----------
    title
        What people call it; for a pattern that names heads, the plain kind.
    meaning
        What the score is, in one sentence.
    doing
        What heads of that name do or are: "attend most to the first token". Empty for a score that gives no name.
    threshold
        Least excess over chance that gives the name.
    on_repeats
        Where heads of that name attend if a token occurs again: the name holds only there.
    """

    title: str
    meaning: str
    doing: str = ""
    threshold: float = SPECIFIC
    on_repeats: str = ""


def _of_repeats(base: str, to: str) -> dict[str, Pattern]:
    """Return the three scores of a pattern that needs tokens that occur before."""
    key, doing = base.replace(" ", "_"), f"are {base.replace(' ', '-')} heads"
    return {
        key: Pattern(base, f"Share of all attention that goes to {to} (TransformerLens' mul)."),
        f"{key}_repeats": Pattern(
            base,
            f"Share of attention that goes to {to}, over the queries whose token occurred before.",
            doing,
            on_repeats=to,
        ),
        f"{key}_random": Pattern(
            base,
            f"Share of attention that goes to {to}, over the second half of random tokens repeated once.",
            doing,
            on_repeats=to,
        ),
    }


PATTERNS: dict[str, Pattern] = {
    "class_token": Pattern(
        "class token", "Share of attention to the class token.", "attend most to the class token"
    ),
    "first_token": Pattern(
        "first token", "Share of attention to the first token.", "attend most to the first token"
    ),
    "self": Pattern("self", "Share of attention to the query's own place.", "attend most to themselves"),
    "previous_token": Pattern(
        "previous token",
        "Share of attention to the token before the query.",
        "attend most to the previous token",
    ),
    "next_token": Pattern(
        "next token",
        "Share of attention to the token after the query (bidirectional).",
        "attend most to the next token",
    ),
    "diagonal_alignment": Pattern(
        "diagonal alignment",
        "Share of cross-attention to the key at the query's relative place, and those beside it.",
        "follow the diagonal",
    ),
    **_of_repeats("induction", "the token after an earlier occurrence of the same token"),
    **_of_repeats("duplicate token", "earlier occurrences of the same token"),
    "separator": Pattern(
        "separator",
        "Share of attention to punctuation, whitespace and special tokens, the first token left out.",
        "attend most to separators",
    ),
    "offset": Pattern(
        "fixed offset",
        "Largest mean attention to the key at one fixed distance, other than self, previous and next token.",
        "attend most at a fixed distance",
    ),
    "sink": Pattern(
        "sink elsewhere",
        "Largest mean attention that one key gets from the queries that see it (Gu et al.); a sink if above 0.3.",
        "attend most to one key other than the first",
    ),
    "local": Pattern("local", "Share of attention to the 8 nearest visible keys.", "attend locally", GENERAL),
    "segment": Pattern(
        "segment", "Share of attention inside the query's sentence.", "stay inside the sentence", GENERAL
    ),
    "same_row": Pattern(
        "same row", "Share of attention to patches of the same row.", "stay in the row", GENERAL
    ),
    "same_column": Pattern(
        "same column", "Share of attention to patches of the same column.", "stay in the column", GENERAL
    ),
    "neighbors": Pattern(
        "neighbors", "Share of attention to the 8 patches around.", "attend to neighboring patches", GENERAL
    ),
    "uniform": Pattern(
        "uniform", "exp(entropy) / number of visible keys, mean over queries.", "spread evenly"
    ),
    "sharp": Pattern("sharp", "1 - entropy / its maximum, mean over queries."),
    "positional": Pattern(
        "positional",
        "1 - half the L1 change of the attention if the tokens are replaced by others of the text, mean over "
        "queries; 1 = the tokens do not matter.",
    ),
}
"""All scores; those that name heads in the order in which ties are decided."""
