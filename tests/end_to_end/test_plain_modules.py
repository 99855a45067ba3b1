"""Plain PyTorch modules through analyze, patterns, rankings and ablation."""

import numpy as np
import pytest
import torch
from torch import nn

import headscape as hs
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.layer_pass import LayerPasses
from headscape.ablation.repair import repair
from headscape.errors import HeadscapeError, InputError
from headscape.models.loading import as_model
from headscape.recorder.inputs import InputReader
from plain_models import (
    HEADS,
    WIDTH,
    Classifier,
    FusedCausalAttention,
    NanoGPT,
    next_token_loss,
    scaled_up,
    states,
    token_ids,
)

TOKENS = 24


def encoder():
    return scaled_up(nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True), 2))


CASES = {
    "nanoGPT": (lambda: scaled_up(NanoGPT()), token_ids(12, TOKENS), next_token_loss),
    "encoder": (encoder, states(12, TOKENS), None),
}


@pytest.fixture(params=CASES)
def case(request):
    make, inputs, loss = CASES[request.param]
    return make(), inputs, loss


def test_analyze_and_its_report(case, tmp_path):
    model, inputs, _ = case
    study = hs.analyze(model, inputs[:2], out=tmp_path / "study")
    assert len(study.heads) == 2 * HEADS
    assert {"haar_entropy", "pattern"} <= set(study.heads.columns)
    assert hs.Study.load(tmp_path / "study").heads.equals(study.heads)
    study.report(tmp_path / "report.html")
    assert type(model).__name__ in (tmp_path / "report.html").read_text()


def test_patterns(case):
    model, inputs, _ = case
    table = hs.head_patterns(model, inputs[:2])
    assert len(table) == 2 * HEADS
    random_tokens = "induction_random" in table.columns and table["induction_random"].notna().any()
    assert random_tokens == isinstance(model, NanoGPT)  # states are no tokens that could be repeated


def test_ablation_and_rankings(case):
    model, inputs, loss = case
    first = inputs[:1]
    with torch.no_grad():
        before = model(first)
    study = hs.ablation_study(model, inputs, counts=[1, 4], draws=2, loss=loss)
    assert set(study.curves) == {"haar", "gradient", "reconstruction+repair", "random"}
    assert all(np.isfinite(curve.losses).all() for curve in study.curves.values())
    ranking = hs.rank_heads(model, inputs, "output-norm", loss=loss)
    assert np.all(ranking.scores > 0)
    with torch.no_grad():
        after = model(first)
    assert torch.equal(*(x[0] if isinstance(x, tuple) else x for x in (before, after)))


def test_projections_are_fitted_to_what_goes_through_them(case):
    """torch's own attention calls no module for its output, so that hooks there would see nothing."""
    model, inputs, loss = case
    loaded = as_model(model)
    evaluator = HeadEvaluator(loaded, InputReader(model, length=TOKENS).read(inputs), loss=loss)
    seen = LayerPasses(evaluator).intact([0, 1])
    assert [sum(map(len, seen[layer])) for layer in (0, 1)] == [12 * TOKENS] * 2
    fitted = repair(evaluator, [(0, 1), (1, 2)], ridge=1e-3, target=1.0)
    for layer, head in ((0, 1), (1, 2)):
        before, after = evaluator.projections[layer].matrix, fitted.matrices[layer]
        others = [column for column in range(WIDTH) if column // 8 != head]
        assert not torch.allclose(before[:, others], after[:, others])


def test_labels_are_what_a_classifier_is_judged_by():
    model, ids = scaled_up(Classifier()), token_ids(12, TOKENS).clamp(min=1)
    inputs = {"tokens": ids, "labels": torch.arange(12) % 3}
    study = hs.ablation_study(model, inputs, ["gradient"], counts=[2])
    assert study.loss == "cross-entropy of the labels"
    assert study.intact_accuracy is not None


def test_without_a_loss_the_change_of_the_output_is_measured():
    study = hs.ablation_study(scaled_up(NanoGPT()), token_ids(8, TOKENS), ["gradient"], counts=[2])
    assert "change of the output" in study.loss
    assert study.intact == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        (None, "tokenizer"),
        ("some text", "tokenizer"),
        ({"idx": token_ids(2), "flag": True}, "flag is True"),
        ({"idx": token_ids(2), "mask": torch.ones(12, 12)}, "all rows share"),
        ({"idx": token_ids(2), "targets": token_ids(3)}, "same number of rows"),
        (torch.full((1, 12), 70), "forward pass of NanoGPT failed"),
    ],
)
def test_bad_inputs_are_one_clear_error(inputs, error):
    with pytest.raises(HeadscapeError, match=error):
        hs.analyze(scaled_up(NanoGPT()), inputs, stages=["geometry"])


def test_a_causal_hint_without_a_mask_is_refused():
    with pytest.raises(InputError, match="is_causal=True is a hint"):
        hs.capture(encoder(), {"src": states(2), "is_causal": True})


def test_check_of_plain_modules(case):
    model, inputs, _ = case
    report = hs.check(model, inputs[:2])
    assert report.ok
    passed = set(report.table().query("passed > 0")["test"])
    assert {"zero-sum", "delocalization bound", "rank bound", "run as configured", "dropout"} <= passed
    # torch's encoder keeps its softmax to itself, so that its heads are judged by their queries and keys alone.
    assert ({"recomputed probabilities", "softmax shift", "output"} <= passed) == isinstance(model, NanoGPT)


def test_check_finds_what_is_wrong_with_a_plain_module():
    class Peeks(FusedCausalAttention):
        """Hides the future from all heads but one."""

        def forward(self, x):
            q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
            visible = torch.ones(HEADS, x.shape[1], x.shape[1], dtype=torch.bool).tril()
            visible[1] = True
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            return self.c_proj(y.transpose(1, 2).flatten(2))

    model = scaled_up(NanoGPT(attention=Peeks))
    report = hs.check(model, token_ids(2, TOKENS), causal=True)
    assert {(failure.test, failure.head) for failure in report.failures} == {("causality", 1)}
    model.train()
    assert "dropout" in {failure.test for failure in hs.check(model, token_ids(2, TOKENS)).failures}


def test_check_compares_a_plain_module_with_a_reference():
    model, other = scaled_up(NanoGPT()), scaled_up(NanoGPT())
    ids = token_ids(2, TOKENS)
    assert hs.check(model, ids, against=other).ok
    with torch.no_grad():
        other.h[1].attn.c_attn.weight[WIDTH : WIDTH + 8] *= 1.1  # the keys of head 0
    found = {(f.test, f.layer, f.head) for f in hs.check(model, ids, against=other).failures}
    assert found == {("keys against reference", 1, 0)}


def test_padded_inputs_of_a_plain_module_are_not_checked():
    ids = token_ids(2, TOKENS).clamp(min=1)
    ids[:, -3:] = 0
    with pytest.raises(InputError, match="padded"):
        hs.check(scaled_up(Classifier()), ids)
