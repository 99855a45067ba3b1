"""Saved checkpoints are measured as the live monitor measures them, once each, and refused clearly."""

import pickle
from concurrent.futures import Executor, Future

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscape as hs
from headscape.engine import ExecutorEngine
from headscape.errors import InputError
from headscape.monitor.checkpoints import checkpoints_in

IDS = torch.arange(64).reshape(4, 16) * 7 % 40
SMALL = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}


def small_llama(heads=2):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_attention_heads=heads, max_position_embeddings=32))


def trained(folder, steps=3):
    """Train on one batch, save the weights before every step, and return what the live monitor saw."""
    model = small_llama()
    monitor = hs.HeadMonitor(model, every=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for step in range(steps):
        model.save_pretrained(folder / f"checkpoint-{step * 5}")
        with monitor:
            loss = model(input_ids=IDS, labels=IDS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step()
    return monitor.run


def test_the_figures_are_those_of_the_live_monitor(tmp_path):
    live = trained(tmp_path)
    replay = hs.monitor_checkpoints(tmp_path, {"input_ids": IDS})
    assert replay.steps.tolist() == [0, 5, 10]
    np.testing.assert_allclose(replay.losses, live.losses, rtol=1e-6)
    for name in live.metrics:
        np.testing.assert_allclose(replay.metric(name), live.metric(name), rtol=1e-6, atol=1e-6, err_msg=name)
    assert not np.allclose(replay.metric("mu_K")[0], replay.metric("mu_K")[2], rtol=1e-3)


def test_a_replay_resumes_and_takes_up_new_checkpoints(tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "run" / "checkpoint-10").rename(tmp_path / "later")
    told = []

    def again():
        return hs.monitor_checkpoints(
            tmp_path / "run", IDS, tmp_path / "replay", progress=lambda stage, *_: told.append(stage)
        )

    first = again()
    (tmp_path / "later").rename(tmp_path / "run" / "checkpoint-10")
    told.clear()
    second = again()
    assert [stage for stage in told if stage.startswith("step")] == ["step 10"]
    assert (first.steps.tolist(), second.steps.tolist()) == ([0, 5], [0, 5, 10])
    written = hs.MonitorRun.load(tmp_path / "replay")
    np.testing.assert_array_equal(written.table(), second.table())
    with pytest.raises(InputError, match="another batch"):
        hs.monitor_checkpoints(tmp_path / "run", (IDS + 1) % 40, tmp_path / "replay")


class Elsewhere(Executor):
    """Runs what another process would run: everything goes there and back as bytes."""

    def submit(self, function, *arguments):
        done = Future()
        call, given = pickle.loads(pickle.dumps((function, arguments)))
        done.set_result(pickle.loads(pickle.dumps(call(*given))))
        return done


def test_other_processes_measure_the_same(tmp_path):
    trained(tmp_path)
    here = hs.monitor_checkpoints(tmp_path, {"input_ids": IDS})
    there = hs.monitor_checkpoints(tmp_path, {"input_ids": IDS}, engine=ExecutorEngine(Elsewhere()))
    assert there.steps.tolist() == [0, 5, 10]
    np.testing.assert_array_equal(there.table(), here.table())


def test_checkpoints_are_sorted_by_step(tmp_path):
    for name in ("checkpoint-100", "checkpoint-20", "step_3", "best"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "best" / "trainer_state.json").write_text('{"global_step": 50}')
    assert [point.step for point in checkpoints_in(tmp_path)] == [3, 20, 50, 100]
    (tmp_path / "again-20").mkdir()
    (tmp_path / "again-20" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="two checkpoints are of step 20"):
        checkpoints_in(tmp_path)


def test_no_checkpoints_is_an_error(tmp_path):
    with pytest.raises(InputError, match="has no checkpoints"):
        checkpoints_in(tmp_path)
    with pytest.raises(InputError, match="is not one"):
        checkpoints_in(tmp_path / "nowhere")


def test_checkpoints_of_different_models_are_refused(tmp_path):
    small_llama(2).save_pretrained(tmp_path / "checkpoint-1")
    small_llama(4).save_pretrained(tmp_path / "checkpoint-2")
    with pytest.raises(InputError, match="checkpoint-2 has 8 heads"):
        hs.monitor_checkpoints(tmp_path, IDS)


def test_a_live_run_is_not_continued(tmp_path):
    model = small_llama()
    model.save_pretrained(tmp_path / "checkpoint-1")
    hs.HeadMonitor(model, path=tmp_path / "live").close()
    with pytest.raises(InputError, match="holds a live run"):
        hs.monitor_checkpoints(tmp_path, IDS, tmp_path / "live")
