"""The monitor's metrics against the energy room and against dense attention."""

import numpy as np
import pytest
import torch

from headscape.energy.delocalization import delocalization
from headscape.energy.field import energy_field
from headscape.energy.incoherence import key_incoherence
from headscape.energy.spectrum import energy_spectrum
from headscape.models.adapters.protocol import AttentionCall
from headscape.monitor import workspace
from headscape.monitor.metrics import head_metrics
from monitor_training import peak_bytes

HEADS, KV, LENGTH, D, SCALE = 4, 2, 20, 6, 0.4


def attention_call(rows=2, *, causal=True, mask=None, seed=0, change=None):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(rows, HEADS, LENGTH, D, generator=generator)
    keys = torch.randn(rows, KV, LENGTH, D, generator=generator)
    if change is not None:
        change(queries, keys)
    group = ("model.layers", "self")
    terms = {"mask": mask, "bias": None, "scale": SCALE, "softcap": None, "sinks": None, "causal": causal}
    return AttentionCall("a", group, 0, torch.nn.Identity(), queries, keys, keys, **terms)


def of_heads(call, measure):
    """The mean over rows of a measure of (queries, keys) of every head."""
    q, k = call.queries.double().numpy(), call.keys.double().numpy()
    return np.array([np.mean([measure(q[r, h], k[r, h // 2]) for r in range(len(q))]) for h in range(HEADS)])


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("mu_K", lambda q, k: key_incoherence(k).raw),
        ("k90", lambda q, k: energy_spectrum(q, k, SCALE).k90),
        ("effective_rank", lambda q, k: energy_spectrum(q, k, SCALE).effective_rank),
        ("participation", lambda q, k: delocalization(q, k).participation),
        ("peak", lambda q, k: delocalization(q, k).peak),
        ("logit_spread", lambda q, k: np.sqrt((energy_field(q, k, SCALE) ** 2).mean())),
    ],
)
def test_field_metrics_are_those_of_the_energy_room(name, measure):
    call = attention_call()
    np.testing.assert_allclose(head_metrics(call)[name].numpy(), of_heads(call, measure), rtol=1e-5)


def dense(call, row, head):
    q, k = call.queries[row, head].double(), call.keys[row, head // 2].double()
    logits = SCALE * q @ k.T
    seen = (
        torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril() if call.causal else torch.ones(LENGTH, LENGTH) > 0
    )
    return logits, seen, logits.masked_fill(~seen, -torch.inf).softmax(-1)


@pytest.mark.parametrize("causal", [True, False])
def test_score_metrics_match_dense_attention(causal):
    call = attention_call(causal=causal)
    found = head_metrics(call)
    for head in range(HEADS):
        entropies, tops, sinks = [], [], []
        for row in range(2):
            logits, seen, p = dense(call, row, head)
            entropies.append(torch.special.entr(p).sum(-1).mean())
            tops.append(logits[seen].max())
            often = seen.sum(0) >= LENGTH / 2
            sinks.append((p.sum(0) / seen.sum(0))[often].max())
        assert found["attention_entropy"][head] == pytest.approx(float(np.mean(entropies)), rel=1e-5)
        assert found["logit_max"][head] == pytest.approx(float(max(tops)), rel=1e-5)
        assert found["sink"][head] == pytest.approx(float(np.mean(sinks)), rel=1e-5)
    assert (found["future"] == (0 if causal else 1)).all()


def test_soft_cap_bias_and_sinks_count():
    call = attention_call(rows=1)
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(1, HEADS, LENGTH, LENGTH, generator=generator)
    terms = {"softcap": 2.0, "bias": bias, "sinks": torch.tensor([-1.0, 0.0, 3.0, 1e4])}
    found = head_metrics(AttentionCall(**{**call.__dict__, **terms}))
    for head in range(HEADS):
        raw = SCALE * call.queries[0, head] @ call.keys[0, head // 2].mT
        seen = torch.ones_like(raw).tril().bool()
        logits = 2.0 * torch.tanh(raw / 2.0) + bias[0, head]
        sink = terms["sinks"][head].expand(LENGTH, 1)
        p = torch.cat([logits.masked_fill(~seen, -torch.inf), sink], dim=1).softmax(-1)[:, :-1]
        torch.testing.assert_close(found["attention_entropy"][head], torch.special.entr(p).sum(-1).mean())
        assert found["logit_max"][head] == pytest.approx(float(raw[seen].max()), rel=1e-5)


MEMORY = {
    "many scores": {"length": 1024, "d": 8},
    "wide heads": {"length": 64, "d": 128},
    "many tokens": {"length": 2048, "d": 64, "queries": 16},
    "shared keys in half precision": {"length": 512, "d": 64, "kv_heads": 2, "dtype": torch.bfloat16},
    "every term": {"length": 512, "d": 16, "terms": True},
}


@pytest.mark.parametrize("case", MEMORY)
@pytest.mark.parametrize("rows", [1, 2])
def test_memory_is_that_of_queries_and_keys_and_one_bounded_workspace(case, rows, monkeypatch):
    """Never more than the queries and keys of the sampled rows in float32 and the workspace, whatever the shape."""
    bound = 1 << 20
    monkeypatch.setattr(workspace, "WORKSPACE", bound)
    call, queries = large_call(**MEMORY[case])
    peak = peak_bytes(lambda: head_metrics(call, rows=rows, queries=queries))
    n_queries = queries or call.queries.shape[2]
    kept = 4 * rows * (call.queries[0, :, :n_queries].numel() + call.keys[0].numel())
    assert peak <= kept + bound
    assert peak > bound / 4  # it is used, so that few blocks are enough


def large_call(length, d, kv_heads=8, dtype=torch.float32, queries=None, terms=False):
    """Eight heads; all their scores would take several times the workspace."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 8, length, d, generator=generator).to(dtype)
    k = torch.randn(3, kv_heads, length, d, generator=generator).to(dtype)
    given = {"queries": q, "keys": k}
    if terms:
        mask = torch.zeros(3, 1, length, length)
        bias = torch.randn(1, 8, length, length, generator=generator)
        given |= {"mask": mask, "bias": bias, "softcap": 5.0, "sinks": torch.zeros(8), "causal": False}
    return AttentionCall(**{**attention_call().__dict__, **given}), queries


def test_small_blocks_give_the_same_figures(monkeypatch):
    whole = head_metrics(attention_call())
    monkeypatch.setattr(workspace, "WORKSPACE", 1000)
    for name, values in head_metrics(attention_call()).items():
        torch.testing.assert_close(values, whole[name], equal_nan=True)


def test_padding_counts_for_nothing():
    short, n = attention_call(rows=1, causal=False), LENGTH - 5
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool)
    mask[..., n:] = False
    terms = {**short.__dict__, "queries": short.queries[:, :, :n], "keys": short.keys[:, :, :n]}
    wanted = head_metrics(AttentionCall(**terms))
    found = head_metrics(AttentionCall(**{**short.__dict__, "mask": mask}))
    for name in ("mu_K", "effective_rank", "participation", "attention_entropy", "sink", "nearest"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_a_head_with_zero_queries_has_no_effect_and_equal_heads_have_no_distance():
    def change(queries, keys):
        queries[:, 0] = 0
        queries[:, 3] = queries[:, 2]

    found = head_metrics(attention_call(change=change))
    assert found["query_effect"][0] == 0
    assert (found["query_effect"][1:] > 0.1).all()
    assert (found["nearest"][2:] < 1e-3).all()
    assert found["nearest"][1] > 0.5
    assert found["nearest_head"][2:].tolist() == [3, 2]


def test_rank_one_queries_collapse_the_field():
    def change(queries, keys):
        queries[:, 1] = queries[:, 1, :, :1] * queries[:, 1, :1]

    rank = head_metrics(attention_call(change=change))["effective_rank"]
    assert rank[1] == pytest.approx(1.0, abs=1e-3)
    assert rank[0] > 3


def test_not_finite_entries_are_counted_and_leave_the_other_heads_alone():
    def change(queries, keys):
        queries[0, 1, 3, 2] = torch.nan
        queries[0, 1, 4, 2] = torch.inf

    found, wanted = head_metrics(attention_call(change=change)), head_metrics(attention_call())
    assert found["nonfinite"].tolist() == [0, 2, 0, 0]
    assert found["mu_K"][1].isnan()
    assert found["attention_entropy"][1].isnan()
    torch.testing.assert_close(found["effective_rank"][[0, 2, 3]], wanted["effective_rank"][[0, 2, 3]])


def test_a_sample_of_queries_ends_with_the_last():
    call = attention_call()
    np.testing.assert_allclose(head_metrics(call, queries=5)["mu_K"], head_metrics(call)["mu_K"], rtol=1e-6)
    assert not torch.equal(head_metrics(call, queries=5)["sink"], head_metrics(call)["sink"])
