"""Pattern scores against their definitions: slow loops, TransformerLens' formulas, and heads planted by hand."""

import numpy as np
import pytest

from headscape.analysis.detections import Layout
from headscape.analysis.patterns import PatternScorer, fixed_offsets, positional_score
from patterns_planted import planted_tokens, random_heads, visibility


def attention(heads, length, causal, seed=0):
    return random_heads("softmax", heads, length, causal, seed)


def scored(x, visible, tokens=(), **layout):
    return PatternScorer(Layout(visible, tuple(tokens), **layout)).scores(x)


def share(a, wanted, counts=lambda i: True):
    """sum(A * D) / sum(A), entry by entry."""
    hit = total = 0.0
    for i in range(len(a)):
        for j in range(a.shape[1]):
            if counts(i):
                total += a[i, j]
                hit += a[i, j] * bool(wanted(i, j))
    return hit / total


@pytest.mark.parametrize("causal", [True, False])
def test_scores_equal_loops_written_from_the_definitions(causal):
    n = 24
    tokens, visible = planted_tokens(n), visibility(n, causal)
    a = attention(1, n, causal)[0]
    found = {name: score[0] for name, score in scored(a[None], visible, tokens).scores.items()}

    def equal(i, j):
        return tokens[i] == tokens[j] and (j < i if causal else j != i)

    def after(i, j):
        return j > 0 and equal(i, j - 1)

    def nearest(i, j):
        seen = [k for k in range(n) if visible[i, k]]
        return j in sorted(seen, key=lambda k: (abs(i - k), k))[:8]

    definitions = {
        "first_token": lambda i, j: j == 0,
        "self": lambda i, j: j == i,
        "previous_token": lambda i, j: j == i - 1,
        "duplicate_token": equal,
        "induction": after,
        "separator": lambda i, j: j > 0 and tokens[j] in ",.",
        "segment": lambda i, j: i // 16 == j // 16,
        "local": nearest,
    }
    if not causal:
        definitions["next_token"] = lambda i, j: j == i + 1
    kept = {name: rule for name, rule in definitions.items() if name in found}
    assert set(definitions) - set(kept) <= {"local", "segment"}  # too short to say something, causally
    for name, rule in kept.items():
        assert found[name] == pytest.approx(share(a, rule), abs=1e-9), name
    for name in ("duplicate_token", "induction"):
        rule = definitions[name]
        rows = [i for i in range(n) if any(rule(i, j) and visible[i, j] for j in range(n))]
        expected = share(a, rule, lambda i, rows=rows: i in rows)
        assert found[f"{name}_repeats"] == pytest.approx(expected, abs=1e-9)
    entropies = [-sum(p * np.log(p) for p in row if p > 0) for row in a]
    seen = visible.sum(axis=1)
    several = [i for i in range(n) if seen[i] >= 2]
    uniform = np.mean([np.exp(entropies[i]) / seen[i] for i in several])
    sharp = np.mean([1 - entropies[i] / np.log(seen[i]) for i in several])
    assert found["uniform"] == pytest.approx(uniform)
    assert found["sharp"] == pytest.approx(sharp)


@pytest.mark.parametrize("causal", [True, False])
def test_sink_and_offset_equal_loops(causal):
    n = 24
    visible, x = visibility(n, causal), attention(3, n, causal, seed=1)
    found = scored(x, visible)
    offsets, by = fixed_offsets(found.diagonals[None])
    for head, a in enumerate(x):
        sinks = {
            k: np.mean([a[i, k] for i in range(n) if visible[i, k]])
            for k in range(n)
            if visible[:, k].sum() >= n / 2
        }
        assert found.scores["sink"][head] == pytest.approx(max(sinks.values()))
        assert found.sink_key[head] == max(sinks, key=sinks.get)
        means = {}
        for offset in range(-n + 1, n):
            entries = [a[i, i - offset] for i in range(n) if 0 <= i - offset < n and visible[i, i - offset]]
            if len(entries) >= n / 2 and abs(offset) > 1:
                means[offset] = np.mean(entries)
        assert offsets[0, head] == pytest.approx(max(means.values()))
        assert by[head] == max(means, key=means.get)


def test_previous_duplicate_and_induction_agree_with_transformer_lens():
    n = 64
    tokens = np.random.default_rng(0).integers(0, 12, n)
    x = attention(4, n, causal=True)
    found = scored(x, visibility(n, True), [f"t{token}" for token in tokens]).scores
    previous = np.tril(np.eye(n, k=-1))
    equal = (tokens[:, None] == tokens[None]).astype(float)
    np.fill_diagonal(equal, 0)
    duplicate = np.tril(equal)
    shifted = np.roll(duplicate, 1, axis=1)
    shifted[:, 0] = 0
    patterns = {
        "previous_token": previous,
        "duplicate_token": duplicate,
        "induction": np.tril(shifted),
    }
    for name, d in patterns.items():
        mul = (x * d).sum(axis=(1, 2)) / x.sum(axis=(1, 2))
        np.testing.assert_allclose(found[name], mul, rtol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [32, 256])
def test_chance_is_what_random_heads_score_on_average(causal, length):
    tokens, visible = planted_tokens(length), visibility(length, causal)
    scorer = PatternScorer(Layout(visible, tokens))
    even, found = (
        scorer.chance().scores,
        scorer.scores(random_heads("dirichlet", 200, length, causal)).scores,
    )
    assert len(found) >= 12
    for name in set(found) - {"uniform", "sharp", "sink"}:
        assert found[name].mean() == pytest.approx(even[name][0], abs=0.01), name
    assert even["uniform"][0] == pytest.approx(1.0)
    assert even["sharp"][0] == pytest.approx(0.0, abs=1e-6)


def test_all_scores_lie_between_0_and_1():
    tokens = planted_tokens(40)
    for kind in ("softmax", "sharp softmax", "dirichlet", "one key"):
        for causal in (True, False):
            x = random_heads(kind, 10, 40, causal).astype(np.float32)
            for name, score in scored(x, visibility(40, causal), tokens).scores.items():
                assert (score >= -1e-6).all(), name
                assert (score <= 1 + 1e-6).all(), name


def test_patches_of_an_image():
    rows, columns = 4, 6
    tokens = ("[0]", *(f"{r},{c}" for r in range(rows) for c in range(columns)))
    n = len(tokens)
    a = attention(1, n, causal=False)
    found = {name: score[0] for name, score in scored(a, np.ones((n, n), bool), tokens).scores.items()}
    at = [None, *((r, c) for r in range(rows) for c in range(columns))]

    def patches(rule):
        return share(a[0], lambda i, j: i > 0 and j > 0 and rule(*at[i], *at[j]))

    assert found["same_row"] == pytest.approx(patches(lambda r, c, s, d: r == s))
    assert found["same_column"] == pytest.approx(patches(lambda r, c, s, d: c == d))
    assert found["neighbors"] == pytest.approx(patches(lambda r, c, s, d: max(abs(r - s), abs(c - d)) == 1))
    assert found["class_token"] == pytest.approx(found["first_token"])
    assert not {"induction", "separator", "segment"} & set(found)


def test_cross_attention_has_the_patterns_of_two_sequences():
    n_queries, n_keys = 12, 40
    visible = np.ones((n_queries, n_keys), bool)
    aligned = np.zeros((1, n_queries, n_keys))
    aligned[0, np.arange(n_queries), np.round(np.arange(n_queries) * 39 / 11).astype(int)] = 1
    scorer = PatternScorer(Layout(visible, cross=True))
    found = scorer.scores(aligned)
    assert found.scores["diagonal_alignment"].tolist() == [1.0]
    assert scorer.chance().scores["diagonal_alignment"][0] == pytest.approx(2 / 40, abs=0.03)
    assert set(found.scores) == {"first_token", "diagonal_alignment", "sink", "uniform", "sharp"}
    assert "separator" in scorer.left_out


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_short_windows_leave_out_what_they_cannot_show(length):
    scorer = PatternScorer(Layout(visibility(length, True), ("a",) * length))
    found = scorer.scores(attention(2, length, True))
    assert {"local", "offset"} <= set(scorer.left_out)
    assert all(np.isfinite(score).all() for score in found.scores.values())
    assert not set(found.scores) & set(scorer.left_out)


def test_queries_that_see_nothing_do_not_count():
    visible = np.tri(16, dtype=bool)
    x = attention(2, 16, True)
    padded = np.zeros((20, 20), bool)
    padded[4:, 4:] = visible
    wide = np.zeros((2, 20, 20))
    wide[:, 4:, 4:] = x
    alone, beside = scored(x, visible).scores, scored(wide, padded).scores
    for name in ("self", "previous_token", "uniform", "sharp"):
        np.testing.assert_allclose(alone[name], beside[name])


def test_rows_need_not_sum_to_one():
    x, visible = attention(2, 16, False), visibility(16, False)
    whole, half = scored(x, visible).scores, scored(0.5 * x, visible).scores
    for name in ("self", "uniform", "sharp", "first_token"):
        np.testing.assert_allclose(whole[name], half[name])


def test_the_positional_score_is_half_the_change():
    visible = visibility(6, True)
    a, b = attention(2, 6, True, 0), attention(2, 6, True, 1)
    expected = [
        np.mean([1 - np.abs(p[i] - q[i]).sum() / 2 for i in range(1, 6)]) for p, q in zip(a, b, strict=True)
    ]
    np.testing.assert_allclose(positional_score(a, b, visible), expected)
    assert positional_score(a, a, visible).tolist() == [1.0, 1.0]
    assert np.isnan(positional_score(a[:, :1, :1], a[:, :1, :1], visible[:1, :1])).all()


def test_a_fixed_offset_is_the_same_in_all_windows():
    diagonals = np.full((2, 1, 21), 0.1)
    diagonals[0, 0, 3] = diagonals[1, 0, 17] = 0.9
    diagonals[:, 0, 14] = 0.6
    scores, offsets = fixed_offsets(diagonals)
    assert offsets.tolist() == [4]
    assert scores.tolist() == [[0.6], [0.6]]
