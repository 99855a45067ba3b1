"""Heads that do one thing get its name, heads that do nothing in particular get none."""

import numpy as np
import pytest

from headscape.analysis.pattern_kinds import PATTERNS
from headscape.analysis.pattern_names import WindowPatterns, head_patterns_over
from patterns_planted import (
    even_over,
    named,
    planted_heads,
    planted_tokens,
    random_heads,
    visibility,
)


@pytest.mark.parametrize("length", [32, 48, 64, 100, 128, 256, 512])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("with_tokens", [True, False])
def test_planted_heads_get_their_name_and_no_other(length, causal, with_tokens):
    tokens = planted_tokens(length) if with_tokens else None
    kinds, x = planted_heads(length, causal, tokens)
    found = named(x, visibility(length, causal), tokens or ()).table
    assert found["pattern"].tolist() == kinds
    assert (found["name"].str.startswith(tuple(kinds))).all()
    assert found["offset_by"].iloc[kinds.index("fixed offset")] == 5
    assert found["sink_key"].iloc[kinds.index("sink elsewhere")] == 3


@pytest.mark.parametrize("kind", ["softmax", "sharp softmax", "dirichlet", "one key"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("length", "count"), [(32, 2000), (64, 500), (256, 100)])
def test_random_heads_get_no_name(kind, causal, length, count):
    x = random_heads(kind, count, length, causal).astype(np.float32)
    found = named(x, visibility(length, causal), planted_tokens(length)).table["pattern"]
    assert (found == "mixed").mean() >= 0.99


def image(rows=6, columns=6):
    tokens = ("[0]", *(f"{r},{c}" for r in range(rows) for c in range(columns)))
    at = np.array([(r, c) for r in range(rows) for c in range(columns)])
    apart = np.zeros((2, len(tokens), len(tokens)), dtype=int) - 1
    apart[:, 1:, 1:] = np.abs(at[:, None] - at).transpose(2, 0, 1)
    return tokens, apart


def test_planted_heads_of_an_image():
    tokens, (down, across) = image()
    visible = np.ones((37, 37), bool)
    first = np.zeros((37, 37), bool)
    first[:, 0] = True
    chosen = {
        "class token": first,
        "same row": down == 0,
        "same column": across == 0,
        "neighbors": np.maximum(down, across) == 1,
        "self": np.eye(37, dtype=bool),
        "uniform": visible,
    }
    x = np.stack([even_over(matrix, visible) for matrix in chosen.values()])
    assert named(x, visible, tokens).table["pattern"].tolist() == list(chosen)
    noise = named(random_heads("one key", 500, 37, False), visible, tokens).table
    assert (noise["pattern"] == "mixed").mean() >= 0.99


def test_planted_heads_of_cross_attention():
    visible = np.ones((20, 32), bool)
    at = np.round(np.arange(20) * 31 / 19).astype(int)
    key = np.broadcast_to(np.arange(32), (20, 32))
    x = np.stack([even_over(key == at[:, None], visible), even_over(key == 0, visible)])
    assert named(x, visible, cross=True).table["pattern"].tolist() == ["diagonal alignment", "first token"]


def test_induction_on_a_text_of_one_period_is_not_a_fixed_offset():
    n, period = 64, 16
    tokens = [f"w{i % period}" for i in range(n)]
    apart = np.arange(n)[:, None] - np.arange(n)
    x = even_over((apart > 0) & (apart % period == period - 1), visibility(n, True))[None]
    found = named(x, visibility(n, True), tokens).table
    assert found["name"].tolist() == ["induction (0.98)"]  # nothing comes before the first key


def test_names_carry_their_number_and_place():
    kinds, x = planted_heads(64, True)
    names = dict(zip(kinds, named(0.8 * x + 0.2 * x[-1], visibility(64, True)).table["name"], strict=True))
    assert names["fixed offset"].startswith("fixed offset 5 (0.8")
    assert names["sink elsewhere"].startswith("sink elsewhere at key 3 (0.8")
    assert names["self"].startswith("self (0.8")
    assert names["uniform"] == "uniform (1.00)"


def window(**scores):
    arrays = {name: np.asarray(score, dtype=float) for name, score in scores.items()}
    n = len(next(iter(arrays.values())))
    chance = {name: np.full(n, 0.1) for name in arrays}
    nothing = np.full((n, 3), np.nan)
    return WindowPatterns(arrays, chance, np.zeros(n, dtype=np.int64), nothing, nothing)


def test_scores_are_means_with_intervals_and_chance():
    windows = [window(self=[0.5 + 0.02 * i], first_token=[0.2]) for i in range(5)]
    found = head_patterns_over(windows, [(3, 1)])
    assert found.scores == ("first_token", "self")
    assert found.table.loc[(3, 1), "self"] == pytest.approx(0.54)
    assert 0.48 < found.low.loc[(3, 1), "self"] < 0.53 < 0.55 < found.high.loc[(3, 1), "self"] < 0.6
    assert found.chance == {"first_token": pytest.approx(0.1), "self": pytest.approx(0.1)}
    assert head_patterns_over(windows[:3], [(3, 1)]).low.isna().all().all()
    long = found.long()
    assert list(long) == ["layer", "head", "pattern", "score", "low", "high", "chance"]
    assert len(long) == 2


def test_a_score_whose_interval_holds_chance_gives_no_name():
    unsure = [window(self=[score]) for score in (0.0, 1.0, 0.0, 1.0, 0.0, 0.6)]
    assert head_patterns_over(unsure, [(0, 0)]).table["name"].tolist() == ["mixed"]
    sure = [window(self=[score]) for score in (0.4, 0.5, 0.4, 0.45, 0.5, 0.4)]
    assert head_patterns_over(sure, [(0, 0)]).table["pattern"].tolist() == ["self"]


def test_a_score_that_some_windows_lack_is_the_mean_of_the_others():
    found = head_patterns_over([window(self=[0.6], positional=[0.8]), *[window(self=[0.6])] * 4], [(0, 0)])
    assert found.table["positional"].tolist() == [0.8]
    assert np.isnan(found.low["positional"]).all()


def test_the_larger_excess_names_the_head_and_the_random_probe_counts():
    found = head_patterns_over(
        [window(first_token=[0.6, 0.6], induction_random=[0.9, 0.5])], [(0, 0), (0, 1)]
    )
    assert found.table["name"].tolist() == [
        "induction (0.90 on repeated random tokens)",
        "first token (0.60)",
    ]


def test_a_name_from_repeated_tokens_says_where_it_holds():
    heads = [(0, 0), (0, 1), (1, 0)]
    found = head_patterns_over(
        [window(induction_random=[0.9, 0.5, 0.0], first_token=[0.1, 0.1, 0.77])], heads
    )
    assert "2 are induction heads (on repeated random tokens they attend to the token after" in found.sentence
    assert "induction, on repeated random tokens: 0.0 (0.90), 0.1 (0.50)" in found.striking
    assert (
        "score (* on repeated random tokens): induction 0.0 (0.90*), first token 1.0 (0.77)" in found.clearest
    )
    assert found.described[0].startswith(
        "90 % of its attention goes to the token after an earlier occurrence"
    )
    assert found.described[2].startswith("77 % of its attention goes to the first token; chance ")
    both = head_patterns_over(
        [window(induction_random=[0.9, 0.0], induction_repeats=[0.0, 0.8])], [(0, 0), (0, 1)]
    )
    assert "2 are induction heads (on repeated tokens they attend" in both.sentence
    assert "induction: 0.0 (0.90 on repeated random tokens), 0.1 (0.80)" in both.striking
    assert "of its attention, where a token repeats, goes to" in both.described[1]
    one = head_patterns_over([window(induction_repeats=[0.8])], [(0, 0)])
    assert "1 is an induction head (where a token repeats it attends to the token after" in one.sentence


def test_the_sentence_counts_families_and_names_their_strongest_heads():
    scores = [0.9, 0.8, 0.7, 0.4, 0.0, 0.0, 0.1]
    other = [0.0, 0.0, 0.0, 0.0, 0.75, 0.0, 0.1]
    heads = [(i, 2) for i in range(7)]
    found = head_patterns_over([window(first_token=scores, previous_token=other)], heads)
    for words in ("Of 7 heads", "4 attend most to the first token", "1 attends most to the previous token"):
        assert words in found.sentence
    assert "2 follow no single pattern" in found.sentence
    assert "first token: 0.2 (0.90), 1.2 (0.80), 2.2 (0.70), layers 0-3" in found.striking
    assert "previous token: 4.2 (0.75)" in found.striking
    assert found.clearest.endswith("with its score: first token 0.2 (0.90), previous token 4.2 (0.75).")
    mixed = head_patterns_over([window(self=[0.1])], [(0, 0)])
    assert "all are mixed" in mixed.sentence
    assert mixed.clearest == mixed.striking == ""


def test_every_pattern_is_described():
    assert all(pattern.title and pattern.meaning for pattern in PATTERNS.values())
