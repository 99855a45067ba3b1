"""The monitor inside Hugging Face's Trainer and Lightning: same samples, reports, stop, resume, end."""

import pytest
import torch
import transformers

import headscape as hs
from monitor_training import batch_at, trainable


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = batch_at(index, rows=1)[0]
        return {"input_ids": ids, "labels": ids}


class Dashboard(transformers.TrainerCallback):
    """Keeps what TensorBoard and the like would get."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **_):
        self.logs.append(dict(logs))


def trainer_of(model, folder, callbacks=(), **settings):
    settings = {
        "max_steps": 6,
        "per_device_train_batch_size": 2,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        **settings,
    }
    arguments = transformers.TrainingArguments(output_dir=str(folder), **settings)
    return transformers.Trainer(
        model, arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=list(callbacks)
    )


def test_aggregates_reach_the_log_and_the_dashboards_of_a_trainer(tmp_path):
    model, dashboard = trainable("GPT2"), Dashboard()
    monitor = hs.HeadMonitor(model, every=2, path=tmp_path / "run")
    trainer = trainer_of(model, tmp_path, [dashboard])
    monitor.callback().attach(trainer)
    trainer.train()
    logged = [logs for logs in dashboard.logs if "attn/mu_K/median" in logs]
    assert len(logged) == 3
    assert all("loss" in logs and logs["attn/mu_K/max"] >= logs["attn/mu_K/median"] for logs in logged)
    assert sum("attn/mu_K/max" in logs for logs in trainer.state.log_history) == 3
    run = hs.MonitorRun.load(tmp_path / "run")
    assert run.steps.tolist() == [0, 2, 4]
    assert run.ended


def test_a_trainer_takes_the_callback_at_construction_and_keeps_evaluations_apart(tmp_path):
    model = trainable("GPT2")
    monitor = hs.HeadMonitor(model, every=2, evaluate=True)
    settings = {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 3}
    trainer = trainer_of(model, tmp_path, [monitor.callback()], **settings)
    trainer.train()
    assert monitor.run.steps.tolist() == [0, 2, 4]
    assert [sample.step for sample in monitor.run.evaluations] == [3, 6]
    assert any("attn/mu_K/median" in logs for logs in trainer.state.log_history)


def test_a_trainer_that_is_monitored_has_the_same_weights(tmp_path):
    weights = []
    for monitored in (False, True):
        model = trainable("GPT2")
        callbacks = [hs.HeadMonitor(model, every=2).callback()] if monitored else []
        trainer_of(model, tmp_path, callbacks).train()
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_trainer_resumes_in_the_same_file_and_stops_on_alerts(tmp_path):
    model = trainable("GPT2")
    monitor = hs.HeadMonitor(model, every=2, path=tmp_path / "run")
    settings = {"save_strategy": "steps", "save_steps": 3}
    trainer_of(model, tmp_path, [monitor.callback()], **settings).train()
    resumed = hs.HeadMonitor(model, every=2, path=tmp_path / "run", stop_on=["any"])
    trainer = trainer_of(model, tmp_path, [resumed.callback()], **settings, learning_rate=0.0)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert hs.MonitorRun.load(tmp_path / "run").steps.tolist() == [0, 2, 4]
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[0, 0] = torch.nan
    again = hs.HeadMonitor(model, every=2, path=tmp_path / "other", stop_on=["not-finite"])
    trainer = trainer_of(model, tmp_path, [again.callback()])
    trainer.train()
    assert trainer.state.global_step == 1
    assert [alert.kind for alert in again.alerts] == ["not-finite"]


def lightning_module(lightning):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = trainable("GPT2")

        def training_step(self, batch, index):
            return self.model(**batch).loss

        def validation_step(self, batch, index):
            self.model(**batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    return Module()


def lightning_fit(lightning, module, callbacks, folder, *data, checkpoint=None, **settings):
    settings = {
        "max_steps": 4,
        "logger": False,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        **settings,
    }
    torch.manual_seed(0)
    rows = torch.utils.data.DataLoader(Rows(), batch_size=2)
    trainer = lightning.Trainer(callbacks=list(callbacks), **settings)
    trainer.fit(module, rows, *data, ckpt_path=checkpoint)
    return trainer


def test_lightning_loggers_get_the_aggregates(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Logger(lightning.loggers.logger.DummyLogger):
        def __init__(self):
            super().__init__()
            self.found = {}

        def log_metrics(self, metrics, step=None):
            self.found[step] = metrics

    module, logger = lightning_module(lightning), Logger()
    monitor = hs.HeadMonitor(module.model, every=2, path=tmp_path / "run", evaluate=True)
    settings = {
        "accumulate_grad_batches": 2,
        "val_check_interval": 4,
        "limit_val_batches": 2,
        "logger": logger,
    }
    rows = torch.utils.data.DataLoader(Rows(), batch_size=2)
    lightning_fit(lightning, module, [monitor.lightning_callback()], tmp_path, rows, **settings)
    run = hs.MonitorRun.load(tmp_path / "run")
    assert run.steps.tolist() == [0, 2]
    assert [sample.step for sample in run.evaluations] == [2, 4]
    assert run.ended
    assert any("attn/mu_K/median" in values for values in logger.found.values())
    assert any("eval_attn/mu_K/max" in values for values in logger.found.values())


def test_lightning_resumes_in_the_same_file_and_trains_the_same_weights(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    weights = []
    for monitored in (False, True):
        module, folder = lightning_module(lightning), tmp_path / str(monitored)
        saving = lightning.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=2)
        plans = (
            {"max_steps": 3, "enable_checkpointing": True},
            {"max_steps": 6, "checkpoint": folder / "step=2.ckpt"},
        )
        for first, plan in zip((True, False), plans, strict=True):
            callbacks = [saving] if first else []
            if monitored:
                monitor = hs.HeadMonitor(module.model, every=2, path=tmp_path / "run")
                callbacks.append(monitor.lightning_callback())
            lightning_fit(lightning, module, callbacks, tmp_path, **plan)
        weights.append(module.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    run = hs.MonitorRun.load(tmp_path / "run")
    assert run.steps.tolist() == [0, 2, 4]
    assert run.ended


def test_lightning_stops_on_alerts(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    module = lightning_module(lightning)
    with torch.no_grad():
        module.model.transformer.h[1].attn.c_attn.weight[0, 0] = torch.nan
    monitor = hs.HeadMonitor(module.model, every=1, stop_on=["not-finite"])
    trainer = lightning_fit(lightning, module, [monitor.lightning_callback()], tmp_path)
    assert trainer.global_step == 1
    assert [alert.kind for alert in monitor.alerts] == ["not-finite"]
