"""The stage "sinks" and the analysis without sinks."""

import json

import numpy as np
import pytest
from scipy import stats

import headscape as hs
from cli_runs import headscape_here, one_line, one_object
from headscape.errors import InputError
from headscape.study.analyze import analyze
from headscape.study.display import page_data
from headscape.study.study import Study
from headscape.tensor.capture import Capture
from headscape.tensor.network_tensor import NetworkTensor
from headscape.tensor.sinks import without_sinks
from studies import small_capture

L, LAYERS, HEADS = 24, 3, 4
SINK_HEADS = 5


def sink_capture(windows=2, length=L, sink=True, causal=True, key=0, seed=0):
    """Return a capture in which the first heads give one key most of their attention."""
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(size=(2, windows, LAYERS, HEADS, length, 6))
    keys[..., 0] = 0.0
    keys[..., key, 0] = 6.0 if sink else 0.0
    strength = np.where(np.arange(LAYERS * HEADS) < SINK_HEADS, 3.0, 0.0).reshape(LAYERS, HEADS)
    queries[..., 0] = strength[None, :, :, None]
    tokens = [f"t{i}" for i in range(length)]
    provenance = {"model": {"name": "planted"}, "input_hash": "x"}
    return Capture.from_arrays(queries, keys, causal=causal, tokens=tokens, provenance=provenance)


@pytest.fixture(scope="module")
def study():
    return analyze(sink_capture(), stages=["sinks"], n_iter=1)


def section_of(study):
    return next((s for s in page_data(study).sections if s.key == "sinks"), None)


def test_it_says_which_keys_are_sinks_in_how_many_heads(study):
    effect = study["sinks"]
    assert effect.keys == (0,)
    assert effect.n_heads.tolist() == [SINK_HEADS]
    assert any('key 0 "t0" in 5 of 12 heads' in sentence for sentence in study.findings)
    p = study.capture.tensor(0, "probs").data
    np.testing.assert_allclose(effect.share, p[:, 0].sum(axis=0) / p.sum(axis=(0, 1)), rtol=1e-5)


def test_the_second_map_is_that_of_the_first_window_without_sinks(study):
    alone = hs.organize(without_sinks(study.capture.tensor(0, "probs")), n_iter=1)
    data = section_of(study).data
    np.testing.assert_allclose(data["coordinates"], alone.diffusion_map("head", 3), atol=1e-6)
    assert data["keys"] == ['key 0 "t0"']
    assert "sink" in data["sentence"]
    json.dumps(data)


def test_it_measures_how_much_of_the_geometry_is_the_sink(study):
    effect = study["sinks"]
    first = study.organization.diffusion_map("head", 2)[:, 0]
    expected = stats.spearmanr(first, effect.share).statistic
    assert effect.coordinates["with", 1]["attention to sinks"] == pytest.approx(expected)
    assert abs(expected) > 0.7
    assert abs(effect.coordinates["without", 1]["attention to sinks"]) < 0.7
    pairs = np.triu_indices(12, 1)
    emds = [o.emd["head"][pairs] for o in (study.organization, effect.without)]
    assert effect.emd_correlation == pytest.approx(stats.spearmanr(*emds).statistic)
    text = " ".join(study.findings)
    assert f"{expected:.2f}" in text
    assert "Much of the geometry" in text


def test_coordinates_are_compared_with_the_patterns_if_these_were_scored(study):
    assert set(study["sinks"].measures) == {"layer", "attention to sinks", "self", "previous token"}
    both = analyze(sink_capture(), stages=["sinks", "patterns"], n_iter=1)
    assert {"layer", "attention to sinks", "first token", "previous token", "uniform"} <= set(
        both["sinks"].measures
    )


def test_a_window_without_a_sink_says_so_and_has_no_second_map(tmp_path):
    analyze(small_capture(), stages=["sinks"], n_iter=1, out=tmp_path)
    found = Study.load(tmp_path)
    assert found["sinks"].keys == ()
    assert any("No key is an attention sink" in sentence for sentence in found.findings)
    assert section_of(found) is None
    assert len(found["sinks"].measures["layer"]) == 12


@pytest.mark.parametrize("length", [1, 2, 3, 9])
def test_short_windows_say_that_they_are_too_short(length):
    found = analyze(sink_capture(length=length), stages=["sinks"], n_iter=1)
    assert any("at least 10 queries" in sentence for sentence in found.findings)
    kept = analyze(sink_capture(length=length), stages=["sinks"], sinks="leave out", n_iter=1)
    assert kept.organization.trees["key"].n_points == length


def test_bidirectional_windows_have_sinks_anywhere():
    found = analyze(sink_capture(causal=False, key=20), stages=["sinks"], n_iter=1)
    assert found["sinks"].labels == ('key 20 "t20"',)


def test_if_all_keys_are_sinks_there_is_no_second_map():
    x = np.zeros((12, 12, 12))
    for head in range(12):
        x[:, head, head] = 1.0
    tensor = NetworkTensor(x, field="probs")
    found = analyze(tensor, stages=["sinks"], n_iter=1)
    assert len(found["sinks"].keys) == 12
    assert any("Too few other keys are left" in sentence for sentence in found.findings)
    assert section_of(found) is None
    with pytest.raises(InputError, match="all 12 keys are sinks"):
        analyze(tensor, stages=["sinks"], sinks="leave out", n_iter=1)


def test_one_head_is_no_geometry():
    found = analyze(sink_capture(), stages=["sinks"], heads=[(0, 0)], n_iter=1)
    assert any("in 1 of 1 heads" in sentence for sentence in found.findings)
    assert not any("coordinate" in sentence for sentence in found.findings)


def test_cross_attention_leaves_out_keys_alone():
    rng = np.random.default_rng(0)
    x = rng.random((L, 15, 8))
    x[:, 3, :4] += 20.0
    x /= x.sum(axis=1, keepdims=True)
    tensor = NetworkTensor(x, field="probs")
    found = analyze(tensor, stages=["sinks"], n_iter=1)
    assert found["sinks"].labels == ("key 3",)
    assert set(found["sinks"].measures) == {"layer", "attention to sinks"}
    without = analyze(tensor, sinks="leave out", n_iter=1)
    assert [tree.n_points for tree in without.organization.trees.values()] == [L, 14, 8]


def test_other_fields_are_left_out_with_a_word():
    found = analyze(sink_capture(), field="logits", stages=["sinks"], n_iter=1)
    assert any("organized field is 'logits'" in sentence for sentence in found.findings)
    assert "sinks" not in found


def test_tensors_that_are_no_probabilities_are_analyzed_all_the_same():
    found = analyze(
        3 * np.random.default_rng(0).random((12, 12, 5)), field="probs", stages=["sinks"], n_iter=1
    )
    assert any("their rows sum to at most 1" in sentence for sentence in found.findings)
    assert "sinks" not in found


def test_a_study_without_sinks_has_all_stages_on_the_other_points(tmp_path):
    capture = sink_capture()
    study = analyze(capture, sinks="leave out", out=tmp_path / "study", n_iter=1, k=50)
    assert study.parameters["field"] == "probs_without_sinks"
    assert [tree.n_points for tree in study.organization.trees.values()] == [L - 1, L - 1, 12]
    assert {"haar_entropy", "holder_mixed", "mu_K"} <= set(study.heads)
    assert any("leaves them out" in sentence for sentence in study.findings)
    alone = hs.entropy_study(capture, field="probs_without_sinks", k=50, n_iter=1)
    np.testing.assert_allclose(study["entropy"].entropies, alone.entropies)
    order = next(s for s in page_data(study).sections if s.key == "window").data["windows"][0]["order"]
    assert sorted(order["query"]) == sorted(order["key"]) == list(range(L))
    assert order["key"][0] == 0
    np.testing.assert_array_equal(np.asarray(order["key"][1:]) - 1, study.organization.order["key"])
    again = Study.load(tmp_path / "study")
    assert again.findings == study.findings
    assert again.figures().keys() == study.figures().keys()
    with pytest.raises(InputError, match="started with field='probs_without_sinks', now 'logits'"):
        analyze(again, field="logits", out=tmp_path / "study")


def test_a_study_that_kept_its_sinks_can_be_analyzed_without(study):
    without = analyze(study, stages=["sinks"], sinks="leave out", n_iter=1)
    np.testing.assert_allclose(without.organization.emd["head"], study["sinks"].without.emd["head"])


def test_tensors_of_probabilities_can_be_analyzed_without_sinks(tmp_path):
    tensors = [sink_capture().tensor(w, "probs") for w in range(2)]
    study = analyze(tensors, sinks="leave out", stages=["entropy"], n_iter=1, k=50, out=tmp_path / "study")
    assert study.organization.trees["key"].n_points == L - 1
    back = analyze(Study.load(tmp_path / "study"), field="probs", stages=["geometry"], n_iter=1)
    assert back.organization.trees["key"].n_points == L


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (sink_capture(), {"field": "logits"}, "for probabilities, but the field is 'logits'"),
        (sink_capture(), {"field": "energy"}, "for probabilities, but the field is 'energy'"),
        (sink_capture().tensor(0, "energy"), {}, "for probabilities, but the field is 'energy'"),
        (np.ones((12, 12, 3)), {}, "the field is 'unknown'.*field='probs'"),
        (np.ones((12, 12, 3)), {"field": "probs"}, "a row sums to 12"),
    ],
)
def test_sinks_can_only_be_left_out_of_probabilities(source, options, message):
    with pytest.raises(InputError, match=message):
        analyze(source, sinks="leave out", **options)


def test_other_words_for_sinks_are_refused():
    with pytest.raises(InputError, match="sinks must be keep or leave out"):
        analyze(sink_capture(), sinks="drop")


def test_the_command_line_leaves_sinks_out(tmp_path, monkeypatch, capsys):
    sink_capture().save(tmp_path / "capture")
    words = ["analyze", tmp_path / "capture", "-o", tmp_path / "out", "--stages"]
    done = headscape_here(
        monkeypatch, capsys, *words, "sinks", "--n-iter", 1, "--sinks", "leave-out", "--json", "-q"
    )
    assert one_object(done)["parameters"]["field"] == "probs_without_sinks"
    wrong = headscape_here(monkeypatch, capsys, *words, "energy", "--sinks", "keep")
    one_line(wrong, "--sinks says what is organized")
