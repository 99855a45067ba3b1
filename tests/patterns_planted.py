"""Attention of heads that follow exactly one pattern, and of heads that follow none."""

import numpy as np

from headscape.analysis.detections import Layout
from headscape.analysis.pattern_names import WindowPatterns, head_patterns_over
from headscape.analysis.patterns import PatternScorer


def planted_tokens(length, seed=0):
    """Sentences of 16 tokens with a comma and a full stop, of few enough words that most occur before."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(max(8, length // 8))]
    return tuple({7: ",", 15: "."}.get(i % 16) or words[rng.integers(len(words))] for i in range(length))


def visibility(length, causal):
    return np.tri(length, dtype=bool) if causal else np.ones((length, length), dtype=bool)


def even_over(chosen, visible):
    """Rows spread evenly over the chosen keys; over all visible ones where none is chosen."""
    chosen = chosen & visible
    rows = np.where(chosen.any(axis=1, keepdims=True), chosen, visible)
    return rows / rows.sum(axis=1, keepdims=True)


def planted_heads(length, causal, tokens=None):
    """Return (kinds, (head, query, key) attention): one head per pattern, named by its kind."""
    visible = visibility(length, causal)
    apart = np.arange(length)[:, None] - np.arange(length)
    key = np.broadcast_to(np.arange(length), (length, length))
    chosen = {
        "first token": key == 0,
        "self": apart == 0,
        "previous token": apart == 1,
        "fixed offset": apart == 5,
        "sink elsewhere": key == 3,
        "local": (apart >= -3) & (apart <= 4) if not causal else (apart >= 0) & (apart < 8),
        "uniform": visible,
    }
    if not causal:
        chosen["next token"] = apart == -1
    if tokens is not None:
        words = np.array(tokens)
        equal = (words[:, None] == words) & (apart != 0)
        equal &= ~np.isin(words, [",", "."])[:, None]  # separators have a pattern of their own
        chosen["duplicate token"] = equal & (apart > 0)
        chosen["induction"] = np.pad(equal & (apart > 0), ((0, 0), (1, 0)))[:, :-1]
        chosen["separator"] = np.broadcast_to(np.isin(words, [",", "."]), visible.shape)
        sentence = np.arange(length) // 16
        chosen["segment"] = sentence[:, None] == sentence
    return list(chosen), np.stack([even_over(matrix, visible) for matrix in chosen.values()])


def random_heads(kind, count, length, causal, seed=0):
    """Return (head, query, key) attention without a pattern: softmax of noise, Dirichlet rows, or one random key."""
    rng = np.random.default_rng(seed)
    visible = visibility(length, causal)
    if kind == "softmax":
        weights = np.exp(rng.normal(size=(count, length, length)))
    elif kind == "sharp softmax":
        weights = np.exp(4 * rng.normal(size=(count, length, length)))
    elif kind == "dirichlet":
        weights = rng.exponential(size=(count, length, length))
    else:
        weights = rng.random((count, length, length)) * visible
        weights = (weights == weights.max(axis=2, keepdims=True)).astype(float)
    weights = weights * visible
    return weights / weights.sum(axis=2, keepdims=True)


def named(x, visible, tokens=(), windows=1, **layout):
    """Return the HeadPatterns of (head, query, key) attention, the same in every window."""
    scorer = PatternScorer(Layout(visible, tuple(tokens), **layout))
    found, even, n = scorer.scores(x), scorer.chance(), len(x)
    window = WindowPatterns(
        found.scores,
        {name: np.repeat(score, n) for name, score in even.scores.items()},
        found.sink_key,
        found.diagonals,
        np.repeat(even.diagonals, n, axis=0),
    )
    return head_patterns_over([window] * windows, [(0, i) for i in range(n)])
