import numpy as np
import pytest

import headscape as hs
from headscape.analysis.windows import Windows, WindowSource
from headscape.tensor.synthetic import planted_tensor


def window(seed, noise=0.05):
    """Windows of one 'model': the same heads and patterns, other tokens (order of points) and noise."""
    base = planted_tensor(20, 24, layers=3, heads_per_layer=4, groups=3, seed=0)
    rng = np.random.default_rng(seed)
    strength = np.linspace(0.5, 2, 12)
    data = base.data[rng.permutation(20)][:, rng.permutation(24)] * strength
    return hs.NetworkTensor(
        data + noise * rng.standard_normal(data.shape), heads=base.heads, field="synthetic"
    )


class FakeCapture:
    """What a study asks of a capture, with fields that rank the heads alike or the other way round."""

    n_windows = 2

    def tensor(self, window_number, field="probs"):
        x = window(window_number)
        data = x.data if field != "logits" else x.data[:, :, ::-1]
        return hs.NetworkTensor(data, heads=x.heads, field=field)


@pytest.fixture(scope="module")
def study():
    return hs.entropy_study([window(seed) for seed in range(4)], k=100, n_iter=1)


def test_entropies_are_those_of_every_windows_own_trees(study):
    for number in range(4):
        x = window(number)
        trees = hs.organize(x, n_iter=1).trees
        np.testing.assert_allclose(study.entropies[number], hs.head_entropy(x, trees, 100))
        assert study.network[number] == pytest.approx(hs.network_entropy(x, trees, 100))
        assert study.trees[number] == trees
        pair = {axis: trees[axis] for axis in ("query", "key")}
        assert study.used[number] == hs.top_supports(pair, 100).used


def test_strong_heads_stay_on_top(study):
    assert study.stability.kendall_w.estimate > 0.9
    assert study.most_frequent()["top_count"].iloc[0] == 4
    assert study.warnings == study.geometry_warnings


def test_frame_has_a_row_a_head_with_intervals_around_the_means(study):
    frame = study.to_frame()
    assert list(zip(frame["layer"], frame["head"], strict=True)) == list(study.heads)
    np.testing.assert_allclose(frame["haar_entropy"], study.entropies.mean(axis=0))
    assert (frame["haar_entropy_low"] <= frame["haar_entropy"]).all()
    assert (frame["haar_entropy"] <= frame["haar_entropy_high"]).all()
    assert (frame["haar_rank_min"] <= frame["haar_rank"]).all()
    assert frame["haar_bottom_count"].sum() == 4
    # "entropy" alone would be read as that of the attention.
    assert not [name for name in frame if "entropy" in name and not name.startswith("haar_")]


def test_ranks_are_compared_with_half_and_twice_k(study):
    table = study.sensitivity()
    assert table["value"].tolist() == ["50", "200"]
    assert (table["rank_correlation"] > 0.8).all()
    np.testing.assert_allclose(study.by_k[0, 1], hs.head_entropy(window(1), study.trees[1], 50))


def test_stability_over_growing_numbers_of_windows(study):
    table = study.stability_by_count((2, 3, 20))
    assert table["windows"].tolist() == [2, 3, 4]
    assert table["kendall_w"].iloc[-1] == study.stability.kendall_w.estimate
    first = hs.rank_stability(study.entropies[:2])
    assert table["jaccard_top"].iloc[0] == first.jaccard_top.estimate


def test_saved_and_loaded_studies_are_equal(study, tmp_path):
    study.save(tmp_path / "study")
    study.save(tmp_path / "study")
    back = hs.EntropyStudy.load(tmp_path / "study")
    for name in ("entropies", "network", "used", "k_values", "by_k", "by_field"):
        np.testing.assert_array_equal(getattr(back, name), getattr(study, name))
    for name in ("heads", "trees", "fields", "field", "parameters", "geometry_warnings"):
        assert getattr(back, name) == getattr(study, name)
    assert back.to_frame().equals(study.to_frame())


def test_shared_trees_come_from_the_mean():
    windows = [window(0), window(0, noise=0.2)]
    shared = hs.entropy_study(windows, k=100, trees="shared", n_iter=1)
    mean = np.mean([w.data for w in windows], axis=0)
    trees = hs.organize(mean, n_iter=1).trees
    assert shared.trees == (trees, trees)
    np.testing.assert_allclose(WindowSource(windows).mean("synthetic").data, mean)
    np.testing.assert_allclose(shared.entropies[1], hs.head_entropy(windows[1], trees, 100))


def test_a_capture_gives_its_fields():
    assert isinstance(FakeCapture(), Windows)
    found = hs.entropy_study(FakeCapture(), k=100, fields=["energy", "logits"], n_iter=1)
    assert found.field == "probs"
    np.testing.assert_allclose(found.by_field[0], found.entropies)
    np.testing.assert_allclose(found.by_field[1], found.entropies[:, ::-1])
    table = found.sensitivity().query("parameter == 'field'")
    assert table["value"].tolist() == ["energy", "logits"]
    assert table["rank_correlation"].iloc[0] == pytest.approx(1)
    assert table["rank_correlation"].iloc[1] < 0


def test_plain_arrays_are_windows_too():
    x = window(0)
    found = hs.entropy_study([np.asarray(x)], k=0.2, n_iter=1)
    assert found.heads == tuple((0, h) for h in range(12))
    assert found.sensitivity()["value"].tolist() == ["0.1", "0.4"]
    for single in (x, x.data):
        np.testing.assert_array_equal(hs.entropy_study(single, k=0.2, n_iter=1).entropies, found.entropies)


def test_only_the_first_windows_if_asked_for(study):
    found = hs.entropy_study([window(seed) for seed in range(4)], k=100, n_iter=1, n_windows=2)
    np.testing.assert_array_equal(found.entropies, study.entropies[:2])


def test_progress_is_told():
    told = []
    hs.entropy_study([window(0), window(1)], k=50, n_iter=1, progress=lambda *a: told.append(a))
    assert [words for words in told if words[0] == "entropies"] == [("entropies", 1, 2), ("entropies", 2, 2)]
    assert told[0][0].startswith("window 1/2: ")


def test_entropies_follow_permutations_when_trees_are_built_anew():
    x = window(0, noise=0.1)
    rng = np.random.default_rng(5)
    q, k, h = (rng.permutation(n) for n in x.shape)
    moved = x.data[np.ix_(q, k, h)]
    before = hs.entropy_study([x.data], k=100, n_iter=2)
    after = hs.entropy_study([moved], k=100, n_iter=2)
    np.testing.assert_allclose(after.entropies[0], before.entropies[0][h], rtol=1e-9)
    np.testing.assert_allclose(after.network, before.network, rtol=1e-9)


def test_bad_input_is_refused():
    x = window(0)
    with pytest.raises(hs.HeadscapeError, match="at least one window"):
        hs.entropy_study([])
    with pytest.raises(hs.HeadscapeError, match="n_windows must be from 1 to 1, but is 2"):
        hs.entropy_study([x], n_windows=2)
    with pytest.raises(hs.HeadscapeError, match="trees must be 'per_window' or 'shared'"):
        hs.entropy_study([x], trees="same")
    with pytest.raises(hs.HeadscapeError, match="needs a capture"):
        hs.entropy_study([x], fields=["logits"])
    with pytest.raises(hs.HeadscapeError, match="for one head use head_entropy"):
        hs.entropy_study([x.data[:, :, 0]])
    with pytest.raises(hs.HeadscapeError, match="window 1 has 3 heads and the first has 12"):
        hs.entropy_study([x.data, x.data[:, :, :3]], k=50, n_iter=1)
    with pytest.raises(hs.HeadscapeError, match=r"window 1 has \(20, 20, 12\)"):
        hs.entropy_study([x.data, x.data[:, :20]], k=50, n_iter=1, trees="shared")
    with pytest.raises(hs.HeadscapeError, match=r"from 1 up.* but is 0"):
        hs.entropy_study([x], k=0, n_iter=1)
    with pytest.raises(hs.HeadscapeError, match=r"one array of shape \(2, 20, 24, 12\).*from_layers"):
        hs.entropy_study(np.stack([x.data, x.data]))


def test_three_tokens_have_fewer_wavelets_than_the_default_k():
    x = np.random.default_rng(0).random((3, 3, 4))
    found = hs.entropy_study([x, x], n_iter=1)
    assert found.used.tolist() == [9, 9]
    assert found.k_values.tolist() == [200, 800]
    np.testing.assert_array_equal(found.entropies[0], hs.head_entropy(x, found.trees[0], 1.0))
    np.testing.assert_array_equal(found.by_k[1], found.entropies)
