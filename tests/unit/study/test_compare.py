"""Comparing networks: copies of the tiny model whose differences are known."""

import dataclasses
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("ot")
pytest.importorskip("transformers")

import headscape as hs
from comparison_cases import (
    changed,
    code,
    copy_of_tiny,
    distances_beyond_noise,
    false_alarms,
    farthest_layer,
    pairs_are_of_order,
    prose,
    study_of_all_topics,
    tiny,
    tiny_study,
    with_heads_in_order,
    with_noise,
)
from comparison_cases import study_of as analyzed
from headscape.analysis.comparison.shifts import ROUNDING
from headscape.study.compare import compare
from headscape.study.comparison import TABLES, Comparison
from headscape.study.measure_words import words_of
from headscape.tensor.capture import Capture
from studies import small_capture


def test_a_model_against_itself_on_the_same_windows_is_zero(tmp_path):
    found = compare([tiny(), tiny()], windows=4, length=32, n_iter=1, out=tmp_path)
    pair = found.pair()
    assert (pair.windows, pair.matched) == ("same", "number")
    assert found.distances.to_numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert found.times_noise.to_numpy().max() == 0
    assert (found.noise["noise"] > 0).all()
    assert set(found.changes["verdict"]) == {"identical"}
    assert set(found.changes["level"]) == {"network", "layer", "folder", "head"}
    assert set(found.changes["times_noise"]) == {0.0}
    assert set(found.shifts["moved"]) == {0.0}
    pairs = found.correspondence
    assert (pairs["layer_a"] == pairs["layer_b"]).all()
    assert (pairs["head_a"] == pairs["head_b"]).all()
    np.testing.assert_allclose(pairs["cka"], 1)
    assert set(found.effects["delta"].dropna()) == {0.0}
    _require_equal(Comparison.load(tmp_path), found)


def _require_equal(loaded, found):
    assert loaded.names == found.names
    assert loaded.summary() == found.summary()
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(found, name))
    for ours, theirs in zip(loaded.pairs, found.pairs, strict=True):
        for name in ("plan", "emd", "cka_heads", "cka_layers"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for ours, theirs in zip(loaded.sources, found.sources, strict=True):
        np.testing.assert_array_equal(ours.spectrum, theirs.spectrum)
        np.testing.assert_array_equal(ours.geometry.emd, theirs.geometry.emd)
        pd.testing.assert_frame_equal(ours.table, theirs.table)


def test_a_finished_comparison_is_taken_from_its_folder(tmp_path, monkeypatch):
    capture = small_capture()
    first = compare([capture, capture], n_iter=1, out=tmp_path)
    monkeypatch.setattr("headscape.study.pair_comparison.PairComparison.run", _not_again)
    again = compare([capture, capture], n_iter=1, out=tmp_path)
    pd.testing.assert_frame_equal(again.changes, first.changes)


def _not_again(_):
    raise AssertionError("the pair was compared again")


def test_heads_in_another_order_are_found_exactly():
    pair = compare([tiny_study(), analyzed(with_heads_in_order(layer=1))]).pair()
    assert pair.matched == "assignment"
    assert pair.distance == pytest.approx(0, abs=1e-5)
    assert pairs_are_of_order(pair, layer=1)
    assert "changed" not in set(pair.changes["verdict"])
    assert pair.changes["times_noise"].max() < 0.01


def test_heads_of_all_layers_in_another_order_are_found_exactly():
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 5, 2, 6, 20, 4))
    order = rng.permutation(12)
    tokens = [f"token{i}" for i in range(20)]
    mixed = [x.reshape(5, 12, 20, 4)[:, order].reshape(x.shape) for x in (queries, keys)]
    captures = [Capture.from_arrays(*x, tokens=tokens) for x in ((queries, keys), mixed)]
    pair = compare(captures, n_iter=1).pair()
    assert pair.matched == "assignment"
    partners = 6 * pair.correspondence["layer_b"] + pair.correspondence["head_b"]
    assert order[partners.to_numpy()].tolist() == list(range(12))
    assert pair.distance == pytest.approx(0, abs=1e-5)
    assert "changed" not in set(pair.changes["verdict"])


def test_noise_on_a_layer_names_that_layer():
    pair = compare([tiny_study(), analyzed(with_noise(layer=2, relative=2.0))]).pair()
    assert min(changed(pair)) == 2
    assert pair.at("layer").groupby("layer")["times_noise"].max().idxmax() == 2
    assert {(2, head) for head in range(4)} & changed(pair, "head")
    assert min(changed(pair, "head")) >= (2, 0)
    # Nothing happens before the noise, although the distances to the heads of layer 2 change.
    before = pair.at("layer", "geometry").set_index("layer").loc[[0, 1]]
    assert set(before["times_noise"]) == {0.0}


def test_a_little_noise_is_inside_the_noise_but_its_layer_is_named():
    found = compare([tiny_study(), analyzed(with_noise(layer=2, relative=0.001))], names=["a", "b"])
    pair = found.pair()
    assert "changed" not in set(pair.changes["verdict"])
    verdicts = pair.at("layer", "patterns").set_index("layer")["verdict"]
    assert verdicts[[0, 1, 2]].tolist() == ["identical", "identical", "inside the noise"]
    assert (pair.onset.first, farthest_layer(pair)) == (2, 2)
    layers = pair.shifts[pair.shifts["level"] == "layer"].set_index("layer")
    assert layers["moved"][[0, 1]].tolist() == [0, 0]
    assert layers["most"].tolist() == [0, 0, 1, 0]
    assert "layers 2 and 3 differ" in found.headline
    assert "most in layer 2" in found.headline
    assert any("begins in layer 2" in finding for finding in found.findings)


def test_noise_on_all_layers_and_more_on_one_names_that_one():
    pair = compare([tiny_study(), analyzed(with_noise(layer=1, relative=0.2, elsewhere=0.01))]).pair()
    assert (pair.onset.first, pair.onset.step, farthest_layer(pair)) == (0, 1, 1)


def test_other_windows_of_the_same_text_are_inside_the_noise():
    """A small version of ``false_alarms``: 40 pairs of window sets, of which about 1 in 50 may be an alarm."""
    assert false_alarms(study_of_all_topics(windows=24), pairs=40, windows=6) <= 3


@pytest.mark.real
def test_false_alarms_are_at_most_five_percent():
    study = study_of_all_topics(windows=40, length=64)
    for matched in ("number", ""):
        assert false_alarms(study, pairs=200, windows=6, matched=matched) <= 10
    assert distances_beyond_noise(study, pairs=200, windows=6) <= 10


@pytest.mark.real
def test_prose_and_code_are_told_apart():
    sizes = {"windows": 12, "length": 96, "sample": "random"}
    pair = compare([analyzed(tiny(), text, **sizes) for text in (prose(), code())]).pair()
    assert pair.windows == "other"
    assert "separator" in changed(pair, "network")
    assert pair.times_noise > 1


def test_two_ranges_of_layers_of_one_model():
    found = compare([tiny(), tiny()], layers_each=[[0, 1], [2, 3]], windows=4, length=32, n_iter=1)
    assert found.names == ("tiny_model, layers 0-1", "tiny_model, layers 2-3")
    pair = found.pair()
    assert (pair.windows, pair.how, pair.matched) == ("same", "assignment", "")
    assert set(pair.correspondence["layer_a"]) == {0, 1}
    assert set(pair.correspondence["layer_b"]) == {2, 3}
    assert pair.cka_heads.shape == (8, 8)


def labelled(tokens, *, heads=3, input_hash="", seed=0, windows=4):
    """Return a capture of random queries and keys whose points are called ``tokens``."""
    q, k = np.random.default_rng(seed).normal(size=(2, windows, 2, heads, len(tokens), 4))
    return Capture.from_arrays(q, k, tokens=tokens, provenance={"input_hash": input_hash})


PATCHES = ["[0]", *(f"{row},{column}" for row in range(3) for column in range(3))]


def test_images_are_the_same_windows_only_if_their_pixels_are():
    a = labelled(PATCHES, input_hash="one")
    for input_hash, windows in (("one", "same"), ("two", "other")):
        b = labelled(PATCHES, input_hash=input_hash, seed=1)
        assert compare([a, b], names=["a", "b"], n_iter=1).pair().windows == windows


def test_parts_of_one_capture_are_other_windows():
    whole = labelled(PATCHES, input_hash="one", windows=8)
    parts = [whole.select(windows=part) for part in (range(4), range(4, 8))]
    assert compare(parts, names=["a", "b"], n_iter=1).pair().windows == "other"


def test_windows_without_tokens_are_taken_one_by_one_if_asked():
    tensors = [list(np.random.default_rng(seed).random((4, 10, 10, 6))) for seed in (0, 1)]
    assert compare(tensors, names=["a", "b"], n_iter=1).pair().windows == "other"
    assert compare(tensors, names=["a", "b"], n_iter=1, paired=True).pair().windows == "same"


def test_text_and_images_are_compared_as_far_as_it_means_something():
    text = labelled(["the", "cat", ".", "the", "cat", "sat", ".", "on", "it", "."], heads=4)
    found = compare([text, labelled(PATCHES, seed=1)], names=["text", "images"], n_iter=1)
    pair = found.pair()
    assert (pair.windows, pair.matched, pair.how) == ("other", "", "transport")
    assert {"haar_entropy", "first_token"} <= set(pair.effects["measure"])
    missing = {what for what, _ in pair.not_compared}
    assert {words_of("same_row").title, words_of("induction").title} <= missing
    assert not {"same_row", "induction"} & set(pair.effects["measure"])


def test_another_study_is_not_taken_for_the_one_that_was_compared(tmp_path):
    tokens = [f"token{i}" for i in range(10)]
    studies = [hs.analyze(labelled(tokens, input_hash="x", seed=seed), n_iter=1) for seed in range(3)]
    compare(studies[:2], names=["a", "b"], out=tmp_path)
    with pytest.raises(hs.HeadscapeError, match="another"):
        compare([studies[0], studies[2]], names=["a", "b"], out=tmp_path)


def test_what_is_said_of_windows_that_no_model_reads_is_refused():
    capture = small_capture()
    with pytest.raises(hs.HeadscapeError, match="inputs is for models"):
        compare([capture, capture], "some text")
    with pytest.raises(hs.HeadscapeError, match="inputs_each must be None"):
        compare([capture, capture], inputs_each=["some text", None])


def test_a_pruned_model_names_its_heads_and_what_they_changed():
    removed = [(1, 2), (1, 3)]
    pruned = hs.prune(copy_of_tiny().model, removed)
    study = analyzed(dataclasses.replace(tiny(), model=pruned.model))
    found = compare([tiny_study(), study], names=["intact", "pruned"])
    pair = found.pair()
    assert found.sources[1].removed == tuple(removed)
    assert pair.matched == "original number"
    assert {(row.layer_b, row.head_b) for row in pair.correspondence.itertuples()} == set(study.data.heads)
    missing = set(tiny_study().data.heads) - set(found.sources[1].originals)
    assert missing == set(removed)
    # The heads that stay in layers 0 and 1 see what they saw before, those of later layers do not.
    moved = pair.shifts[pair.shifts["level"] == "layer"].set_index("layer")["moved"]
    assert (moved[[0, 1]] < ROUNDING).all()
    assert (moved[[2, 3]] > 0.01).all()
    assert pair.onset.first == 2
    assert "1.2 and 1.3" in found.headline
    assert "layers 2 and 3 changed" in found.headline


def test_another_shape_is_compared_as_far_as_it_goes(tmp_path):
    found = compare([small_capture(windows=5), _other_capture()], n_iter=1, out=tmp_path)
    _require_equal(Comparison.load(tmp_path), found)
    pair = found.pair()
    assert pair.shifts.empty
    assert (pair.windows, pair.matched, pair.how) == ("other", "", "transport")
    assert pair.plan.shape == (12, 10)
    assert pair.plan.sum() == pytest.approx(1)
    assert set(pair.changes["level"]) == {"network"}
    assert {"exact correspondence of heads", "changes by layer, folder and head", "CKA of head outputs"} <= {
        what for what, _ in pair.not_compared
    }


@pytest.mark.parametrize("sources", [[], [small_capture(windows=1)]])
def test_fewer_than_two_sources_are_refused(sources):
    with pytest.raises(hs.HeadscapeError, match="at least two sources"):
        compare(sources)


def test_no_window_in_common_is_said_where_the_same_are_asked_for():
    with pytest.raises(hs.HeadscapeError, match="no window in common"):
        compare([small_capture(), _other_capture()], paired=True, n_iter=1)


def _other_capture():
    """Return a capture of another shape that has seen other tokens than those of ``small_capture``."""
    queries, keys = np.random.default_rng(1).normal(size=(2, 5, 2, 5, 20, 4))
    return Capture.from_arrays(queries, keys, tokens=[f"other{i}" for i in range(20)])


def test_nan_is_refused():
    queries = np.full((3, 1, 2, 8, 4), np.nan)
    with pytest.raises(hs.HeadscapeError, match=r"(?i)nan|finite"):
        bad = Capture.from_arrays(queries, np.ones((3, 1, 2, 8, 4)))
        compare([small_capture(), bad], n_iter=1)


def test_different_fields_are_refused():
    studies = [hs.analyze(small_capture(), n_iter=1, field=field) for field in ("probs", "logits")]
    with pytest.raises(hs.HeadscapeError, match="same field"):
        compare(studies)


def test_a_missing_extra_names_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(hs.HeadscapeError, match=r"pip install 'headscape\[compare\]'"):
        compare([small_capture(), small_capture()])
