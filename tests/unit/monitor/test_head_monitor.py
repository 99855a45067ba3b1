"""The monitor on models that train: what it samples, keeps, tells, and refuses."""

import copy
import logging
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError, ModelError
from headscape.models.transformer_xl.model import TransfoXLConfig, TransfoXLLMHeadModel
from monitor_training import batch_at, forward, train, trainable
from tiny_models import HEADS, LAYERS, VOCAB


def zero_queries(layer, head, begin):
    """Zero the query weights of one head of a tiny Llama from a step on."""

    def strike(model, step):
        if step >= begin:
            projection = model.model.layers[layer].self_attn.q_proj.weight.data
            projection[head * 8 : (head + 1) * 8] = 0

    return strike


@pytest.fixture(scope="module")
def healthy_model():
    model = trainable("Llama")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(0.4)
    return model


def test_a_healthy_run_raises_no_alert(healthy_model, tmp_path):
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, every=2, path=tmp_path)
    losses = train(model, monitor, 60, rate=2e-3)
    assert losses[-10:].mean() < losses[:10].mean()
    assert monitor.alerts == []
    assert len(monitor.run.samples) == 30


def test_a_faulty_run_is_found_within_two_samples_and_named(healthy_model, tmp_path, caplog):
    model = copy.deepcopy(healthy_model)
    told = []
    monitor = hs.HeadMonitor(model, every=2, path=tmp_path, on_alert=told.append, stop_on=["dead-head"])
    with caplog.at_level(logging.WARNING):
        train(model, monitor, 60, rate=2e-3, before=zero_queries(1, 2, begin=40))
    assert [(alert.kind, alert.heads) for alert in monitor.alerts] == [("dead-head", (("self", 1, 2),))]
    assert monitor.alerts[0].since == 40
    assert monitor.alerts[0].step <= 40 + 2 * 2
    assert told == monitor.alerts
    assert monitor.should_stop
    assert "layer 1 head 2" in caplog.text
    assert hs.MonitorRun.load(tmp_path).alerts == tuple(monitor.alerts)


def test_a_resumed_run_goes_on_in_its_file_without_doubled_rows(healthy_model, tmp_path):
    model = copy.deepcopy(healthy_model)
    train(model, hs.HeadMonitor(model, every=2, path=tmp_path), 8)  # killed: never closed
    again = hs.HeadMonitor(model, every=2, path=tmp_path / "other")
    again.close()
    for file in tmp_path.glob("*.lock"):
        file.unlink()
    resumed = hs.HeadMonitor(model, every=2, path=tmp_path)
    resumed.resume(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, resumed, 6)
    resumed.close()
    run = hs.MonitorRun.load(tmp_path)
    assert run.steps.tolist() == [0, 2, 4, 6, 8, 10]
    assert run.ended


def test_evaluations_are_kept_apart(healthy_model):
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, every=2, evaluate=True)
    for _ in range(3):
        train(model, monitor, 2)
        model.eval()
        for part in range(2):
            forward(model, batch_at(100 + part), monitor)
        model.train()
    run = monitor.run
    assert run.steps.tolist() == [0, 2, 4]
    assert [sample.step for sample in run.evaluations] == [2, 4, 6]
    assert any(key.startswith("eval_attn/") for key in monitor.report_values())


def test_some_layers_and_heads_are_enough(healthy_model):
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, metrics=["sink"], heads=[(1, 2)])
    train(model, monitor, 1)
    table = monitor.table()
    assert table.index.get_level_values("layer").unique().tolist() == [1]
    assert np.flatnonzero(table["sink"].notna()).tolist() == [2]
    assert hs.HeadMonitor(model, layers=[0]).run.layers[0].n_heads == HEADS
    with pytest.raises(InputError, match="layers must be some of"):
        hs.HeadMonitor(model, layers=[LAYERS])


def test_the_report_gets_aggregates_or_every_head(healthy_model):
    found = {}
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, report=lambda values, step: found.update(values))
    train(model, monitor, 1)
    assert {"attn/mu_K/median", "attn/mu_K/max", "attn/sink/min"} <= set(found)
    assert not any("head_" in key for key in found)
    monitor = hs.HeadMonitor(model, report=lambda values, step: found.update(values), per_head=True)
    train(model, monitor, 1)
    assert found["attn/layer_01/head_03/mu_K"] == monitor.table()["mu_K"].iloc[-1]


def test_a_model_that_cannot_be_observed_is_refused_at_construction():
    with pytest.raises(ModelError):
        hs.HeadMonitor(torch.nn.Linear(4, 4))
    with pytest.raises(ModelError):
        hs.HeadMonitor(torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.LSTM(4, 4)))


def test_transformer_xl_is_watched_too():
    torch.manual_seed(0)
    shape = {
        "d_model": 16,
        "d_embed": 16,
        "d_inner": 24,
        "n_layer": 2,
        "n_head": 4,
        "d_head": 6,
        "mem_len": 12,
    }
    model = TransfoXLLMHeadModel(TransfoXLConfig(vocab_size=60, cutoffs=[20, 40], div_val=2, **shape)).train()
    monitor = hs.HeadMonitor(model, every=1, metrics=["mu_K", "attention_entropy"])
    memory = None
    for step in range(2):
        ids = torch.randint(60, (2, 12), generator=torch.Generator().manual_seed(step))
        with monitor:
            memory = model(ids, mems=memory).mems
        monitor.step()
    assert monitor.run.metric("mu_K").shape == (2, 2, 4)
    assert np.isfinite(monitor.run.metric("attention_entropy")).all()
    assert (monitor.run.metric("future")[0] == 0).all()  # memory comes with the second step
    assert monitor.alerts == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"every": 0}, "every must be a whole number"),
        ({"rows": 1.5}, "rows must be a whole number"),
        ({"metrics": ["entropy"]}, "metrics must be some of"),
        ({"metrics": "mu_K"}, "Give a list"),
        ({"reduce": "sum"}, "reduce must be"),
        ({"stop_on": ["fire"]}, "stop_on must be some of"),
    ],
)
def test_bad_settings_are_refused(healthy_model, given, match):
    with pytest.raises(InputError, match=match):
        hs.HeadMonitor(healthy_model, **given)


def test_a_measure_that_fails_warns_once_and_training_goes_on(healthy_model, monkeypatch):
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, every=1)

    def fail(*_, **__):
        raise RuntimeError("no memory")

    monkeypatch.setattr("headscape.monitor.sampling.head_metrics", fail)
    with pytest.warns(UserWarning, match="no memory.*Training goes on") as told:
        assert train(model, monitor, 3).isfinite().all()
    assert len(told) == 1


class Changing(torch.nn.Module):
    """Attends in a way that cannot be read after its first steps."""

    def __init__(self):
        super().__init__()
        self.embedding, self.steps = torch.nn.Embedding(VOCAB, 8 * HEADS), 0
        self.attention = torch.nn.MultiheadAttention(8 * HEADS, HEADS, batch_first=True)

    def forward(self, input_ids, labels=None):
        x = self.embedding(input_ids)
        if self.training:
            self.steps += 1
        if self.steps > 2:
            self.attention.bias_k = self.attention.bias_v = torch.nn.Parameter(torch.zeros(1, 1, 8 * HEADS))
        return SimpleNamespace(loss=self.attention(x, x, x)[0].square().mean())


def test_attention_that_cannot_be_read_any_more_warns_once_and_training_goes_on():
    model = Changing().train()
    monitor = hs.HeadMonitor(model, every=1)
    with pytest.warns(UserWarning, match=r"no sample of step 2.*add_bias_kv.*Training goes on") as told:
        assert train(model, monitor, 4).isfinite().all()
    assert len(told) == 1
    assert monitor.run.steps.tolist() == [0, 1]
    with pytest.raises(ModelError, match="add_bias_kv"):
        hs.HeadMonitor(model)


def test_a_forward_pass_outside_the_block_is_told(healthy_model):
    monitor = hs.HeadMonitor(healthy_model, every=1)
    with monitor:
        pass
    with pytest.warns(UserWarning, match="inside `with monitor:`"):
        monitor.step()


def test_the_loss_and_the_share_of_time_are_kept(healthy_model):
    model = copy.deepcopy(healthy_model)
    monitor = hs.HeadMonitor(model, every=1)
    losses = train(model, monitor, 3)
    np.testing.assert_array_equal(monitor.run.losses.astype(np.float32), losses.numpy())
    assert 0 < monitor.overhead < 1
    assert monitor.seconds > 0
    with pytest.raises(InputError, match="step must be at least 0"):
        monitor.resume(-1)
