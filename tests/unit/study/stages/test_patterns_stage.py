"""The stage "patterns" on models, captures, tensors and studies: what it scores, and what it says it leaves out."""

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError
from headscape.study.analyze import analyze
from headscape.tensor.network_tensor import NetworkTensor
from patterns_planted import planted_heads, planted_tokens, random_heads
from studies import small_capture
from tiny_models import SLIDING, inputs_of, tiny_model, token_ids

TEXT_SCORES = {"first_token", "sink", "self", "previous_token", "uniform", "sharp"}


def scores_of(study):
    return set(study["patterns"].scores)


def said(study):
    return " ".join(study.findings)


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Gemma2", "GptOss"])
def test_causal_models(family):
    study = analyze(tiny_model(family, vocab_size=64), token_ids(2, length=32), stages=["patterns"])
    found = study["patterns"]
    wanted = {"local", "positional", "induction_random", "duplicate_token_random"}
    assert scores_of(study) >= TEXT_SCORES | wanted
    assert "next_token" not in found.table
    full = found.table[list(found.scores)].loc[
        1
    ]  # layer 0 of some sees few keys, so that it lacks some scores
    assert ((full >= -1e-6) & (full <= 1 + 1e-6)).all(axis=None)
    assert study.findings[0] == found.sentence
    assert "separator, segment (the tokens are numbers" in said(study)


def test_bidirectional_models():
    study = analyze(tiny_model("Bert", vocab_size=64), token_ids(2, length=32), stages=["patterns"])
    assert scores_of(study) >= TEXT_SCORES | {"next_token", "positional", "induction_random"}


def test_image_models():
    study = analyze(tiny_model("ViT"), inputs_of("ViT", 2), stages=["patterns"])
    assert scores_of(study) >= {"class_token", "same_row", "same_column", "neighbors", "uniform"}
    assert "positional" in said(study)
    assert "does not read tokens" in said(study)


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_encoder_decoder_models(stack):
    study = analyze(
        tiny_model("T5", vocab_size=64), {"input_ids": token_ids(2)}, stack=stack, stages=["patterns"]
    )
    assert ("diagonal_alignment" in scores_of(study)) == (stack == "cross")
    assert ("self" in scores_of(study)) == (stack != "cross")
    assert "positional" in scores_of(study)


def test_layers_that_see_other_keys_have_their_own_chance():
    model = tiny_model("Gemma3Text", **{**SLIDING, "layer_types": ["sliding_attention", "full_attention"]})
    study = analyze(model, token_ids(1, length=40), stages=["patterns"])
    names = study.results["patterns"][0].attributes["names"]
    chance = study.results["patterns"][0].arrays["chance"][names.index("self")]
    assert chance[0] > 0.2 > chance[-1] > 0
    assert len(set(chance)) == 2


def test_small_vocabularies_and_short_windows_are_told():
    study = analyze(tiny_model("GPT2"), token_ids(1, length=6), stages=["patterns"])
    assert "vocabulary of 48 tokens is too small" in said(study)
    assert "too short" in said(study)
    one = analyze(tiny_model("GPT2"), token_ids(1, length=1), stages=["patterns"])
    assert one.heads["name"].eq("mixed").all()


def test_without_the_model_what_needs_it_is_left_out():
    study = analyze(small_capture(windows=2), stages=["patterns"])
    assert not {"positional", "induction_random"} & scores_of(study)
    assert "the model is not at hand" in said(study)
    assert {"separator", "induction"} <= scores_of(study) | set(
        study.results["patterns"][0].attributes["left_out"]
    )


def test_queries_and_keys_made_for_a_pattern_get_its_name():
    n = 48
    place, words = np.eye(n), np.array(planted_tokens(n))
    meaning = (words[:, None] == np.unique(words)).astype(float)
    nothing = np.zeros((n, 1))
    pad = n + meaning.shape[1]

    def wide(x):
        return np.pad(x, ((0, 0), (0, pad - x.shape[1])))

    first = np.zeros((n, n))
    first[:, 0] = 1
    pairs = {
        "self": (wide(place), wide(place)),
        "previous token": (wide(np.roll(place, -1, axis=1)), wide(place)),
        "first token": (wide(first), wide(place)),
        "uniform": (wide(nothing), wide(nothing)),
        # The key holds the token before it, the query its own: induction by composition.
        "induction": (wide(meaning), wide(np.vstack([0 * meaning[:1], meaning[:-1]]))),
    }
    queries = np.stack([q for q, _ in pairs.values()])
    keys = np.stack([k for _, k in pairs.values()])
    capture = hs.Capture.from_arrays(queries, keys, 30.0, tokens=words)
    assert hs.head_patterns(capture)["pattern"].tolist() == list(pairs)


@pytest.mark.parametrize("causal", [True, False])
def test_random_queries_and_keys_get_no_name(causal):
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 25, 8, 32, 16))
    capture = hs.Capture.from_arrays(queries, keys, 0.5, causal=causal, tokens=planted_tokens(32))
    assert (hs.head_patterns(capture)["pattern"] == "mixed").mean() >= 0.99


def test_tensors_of_probabilities_give_what_needs_no_tokens():
    kinds, x = planted_heads(64, causal=True)
    table = hs.head_patterns(x.transpose(1, 2, 0))
    assert table["pattern"].tolist() == kinds
    assert "induction" not in table
    tokens = planted_tokens(64)
    kinds, x = planted_heads(64, causal=False, tokens=tokens)
    labelled = NetworkTensor(x.transpose(1, 2, 0), tokens=tokens, field="probs")
    assert hs.head_patterns([labelled, labelled])["pattern"].tolist() == kinds
    assert hs.head_patterns(x[None], axes="layer,head,query,key")["pattern"].iloc[0] == kinds[0]
    alone = hs.head_patterns(x[0])  # one head: (query, key)
    assert alone["pattern"].tolist() == [kinds[0]]


def test_other_tensors_are_refused_or_left_out():
    x = NetworkTensor(np.random.default_rng(0).normal(size=(16, 16, 3)), field="logits")
    with pytest.raises(InputError, match="hold 'logits'"):
        hs.head_patterns(x)
    with pytest.raises(InputError, match="negative"):
        hs.head_patterns(np.asarray(x))
    study = analyze(x, n_iter=1, k=10)
    assert "Attention patterns was left out" in said(study)
    assert "patterns" not in study


def test_a_study_of_another_field_scores_the_probabilities_of_its_capture():
    capture = small_capture(windows=2)
    study = analyze(capture, field="logits", stages=["geometry", "patterns"], n_iter=1)
    expected = hs.head_patterns(capture)
    np.testing.assert_allclose(study["patterns"].table["self"], expected["self"])


def test_a_study_saves_and_gives_its_patterns(tmp_path):
    study = analyze(small_capture(windows=4), out=tmp_path, stages=["patterns"])
    again = hs.Study.load(tmp_path)
    assert again["patterns"].table.equals(study["patterns"].table)
    assert hs.head_patterns(again).equals(study["patterns"].table)
    assert (tmp_path / "patterns.csv").read_text().startswith("layer,head,pattern,score,low,high,chance\n")
    assert {"name", "pattern", "first_token", "sink_key", "offset_by"} <= set(study.heads)
    assert study["patterns"].low["self"].notna().all()
    other = hs.head_patterns(again, heads=[(0, 1)])
    assert other.index.tolist() == [(0, 1)]


def test_positional_is_one_for_a_model_that_reads_no_tokens():
    model = tiny_model("GPT2", vocab_size=64)
    with torch.no_grad():
        model.wte.weight[:] = model.wte.weight[5]
    assert hs.head_patterns(model, token_ids(2, length=32))["positional"].min() > 0.999
    assert hs.head_patterns(tiny_model("GPT2"), token_ids(2, length=32))["positional"].max() < 0.9


def test_special_tokens_are_separators(tmp_path):
    tokens = ("<s>", *(f"w{i}" for i in range(14)), "</s>")
    x = random_heads("softmax", 4, 16, False).transpose(1, 2, 0)
    marked = NetworkTensor(
        x, tokens=tokens, field="probs", provenance={"special_tokens_seen": ["</s>", "<s>"]}
    )
    assert "separator" in analyze(marked, stages=["patterns"])["patterns"].scores
    plain = NetworkTensor(x, tokens=tokens, field="probs")
    assert "separator" not in analyze(plain, stages=["patterns"])["patterns"].scores
