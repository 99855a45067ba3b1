import numpy as np
import pytest

import headscape as hs
from headscape.analysis.head_logits import LogitSource
from headscape.analysis.log_softmax import log_softmax
from headscape.analysis.paraproduct import INVARIANT
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import probs
from samples import smooth_tensor

FAST = {"n_iter": 2}


@pytest.fixture(scope="module")
def head():
    return 3 * smooth_tensor((29, 23), seed=4)


@pytest.fixture(scope="module")
def found(head):
    return hs.softmax_experiment(head, **FAST)


def test_softmax_is_the_target(head, found):
    np.testing.assert_allclose(found.softmax, np.exp(log_softmax(head)), atol=1e-14)
    np.testing.assert_allclose(found.softmax.sum(axis=1), 1)


def test_trees_are_the_intrinsic_organization(head, found):
    trees = hs.organize(head, alpha=1.0, beta=0.0, **FAST).trees
    assert found.trees == trees
    again = hs.softmax_experiment(head, trees)
    assert again.measures() == found.measures()


def test_organized_is_the_order_of_the_trees(head, found):
    rows, columns = found.trees["query"].order, found.trees["key"].order
    np.testing.assert_array_equal(found.organized(found.logits), head[rows][:, columns])


def test_share_is_that_of_the_best_scaling(head, found):
    whole = (found.softmax - np.exp(log_softmax(head).mean())).ravel()
    form = hs.paraproduct(head, found.trees, INVARIANT, terms="paper").approximation.ravel()
    scale = np.linalg.lstsq(form[:, None], whole, rcond=None)[0][0]
    left = np.sum((whole - scale * form) ** 2) / np.sum(whole**2)
    assert found.share_explained == pytest.approx(1 - left, abs=1e-10)
    mixed = (found.softmax - found.complete.one_axis).ravel()
    assert found.share_of_mixed == pytest.approx(np.corrcoef(mixed, form)[0, 1] ** 2, abs=0.05)


def test_assumed_quantities(head, found):
    assert found.mean == pytest.approx(head.mean())
    mixed = head - head.mean(axis=0) - head.mean(axis=1, keepdims=True) + head.mean()
    assert found.mixed_size == pytest.approx(np.sqrt((mixed**2).mean()))
    exponents = hs.holder_exponent(head, found.trees, n_samples=10)
    assert found.holder_mixed == pytest.approx(exponents.mixed[0, 0])
    assert found.holder_key == pytest.approx(exponents.key[0, 0])


def test_paper_form_is_normalized_row_by_row(head, found):
    form = hs.paraproduct(head, found.trees, "exp")
    error = np.linalg.norm(form.normalized - found.softmax)
    whole = np.linalg.norm(found.softmax - found.complete.constant)
    assert found.residual_exp == pytest.approx(error / whole)
    high = hs.softmax_experiment(head + 5000.0, found.trees)
    assert high.residual_exp == pytest.approx(found.residual_exp)


def test_a_form_that_is_linear_is_explained_wholly():
    """Small logits: softmax is nearly linear in them, so the invariant form is nearly all of its mixed part."""
    rng = np.random.default_rng(0)
    f = 1e-4 * rng.normal(size=(16, 16))
    f -= f.mean(axis=0) + f.mean(axis=1, keepdims=True) - f.mean()
    found = hs.softmax_experiment(f, hs.dyadic_trees((16, 16)))
    assert found.share_explained > 0.999
    assert found.share_of_mixed > 0.999


@pytest.mark.parametrize("masked", ["fill", "block"])
def test_causal_heads(head, masked):
    f = 3 * smooth_tensor((24, 24), seed=1)
    found = hs.softmax_experiment(
        np.where(np.tri(24, dtype=bool), f, -np.inf), visible="causal", masked=masked, **FAST
    )
    p = np.exp(log_softmax(f, np.tri(24, dtype=bool))) * np.tri(24)
    if masked == "block":
        assert found.logits.shape == (12, 12)
        np.testing.assert_allclose(found.logits, f[12:, :12])
        np.testing.assert_allclose(found.softmax, p[12:, :12])
        assert found.complete.visible is None
    else:
        np.testing.assert_allclose(found.softmax, p, atol=1e-14)
        assert found.mean == pytest.approx(f[np.tri(24, dtype=bool)].mean())
    assert all(np.isfinite(list(found.measures().values())))


def test_a_sliding_window_has_no_visible_block():
    visible = np.tri(12, dtype=bool) & ~np.tri(12, k=-3, dtype=bool)
    with pytest.raises(hs.HeadscapeError, match="sliding"):
        hs.softmax_experiment(np.ones((12, 12)), visible=visible, masked="block")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"masked": "drop"}, "masked must be 'fill' or 'block'"),
        ({"draws": 0}, "draws must be a whole number from 1"),
        ({"trees": hs.dyadic_trees((4, 5))}, "points"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(hs.HeadscapeError, match=message):
        hs.softmax_experiment(np.ones((4, 4)), **arguments)
    with pytest.raises(hs.HeadscapeError, match="one head"):
        hs.softmax_experiment(np.ones((4, 4, 2)))


def test_constant_heads_have_no_share():
    found = hs.softmax_experiment(np.zeros((6, 6)), hs.dyadic_trees((6, 6)))
    assert np.isnan(found.share_explained)
    assert np.isnan(found.complete.relative_residual)


def test_captures_give_logits_with_their_mask_and_sink():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(4, 7, 3)).astype(np.float32), rng.normal(size=(2, 7, 3)).astype(np.float32)
    record = AttentionRecord(0, q, k, 0.7, np.tri(7, dtype=bool), sinks=np.ones(4, np.float32))
    source = LogitSource(hs.Capture.from_records([[record]]), heads=[(0, 3), (0, 1)])
    assert source.heads == ((0, 1), (0, 3))
    for head in source.window(0):
        g = log_softmax(head.logits, head.visible, head.sink)
        np.testing.assert_allclose(np.exp(g) * np.tri(7), probs(record, head.head[1]), atol=1e-6)
    with pytest.raises(hs.HeadscapeError, match="leave out visible"):
        LogitSource(hs.Capture.from_records([[record]]), visible="causal")


def test_probabilities_give_log_probabilities_with_zeros_masked():
    p = np.tril(np.random.default_rng(0).random((5, 5))) + np.tri(5) * 0.1
    p /= p.sum(axis=1, keepdims=True)
    (head,) = LogitSource(hs.NetworkTensor(p, field="probs")).window(0)
    np.testing.assert_array_equal(head.visible, np.tri(5, dtype=bool))
    np.testing.assert_allclose(np.exp(head.logits) * np.tri(5), p)
    assert not head.rows_known
    with pytest.raises(hs.HeadscapeError, match="must not be negative"):
        list(LogitSource(hs.NetworkTensor(p - 0.5, field="probs")).window(0))


def test_unknown_heads_are_refused():
    with pytest.raises(hs.HeadscapeError, match=r"no head 3\.1"):
        LogitSource(np.zeros((4, 4, 2)), heads=[(3, 1)])
    with pytest.raises(hs.HeadscapeError, match="at least one"):
        LogitSource(np.zeros((4, 4, 2)), heads=[])
