"""The monitor as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_callback import DefaultFlowCallback

from headscape.monitor.sample import EVAL

if TYPE_CHECKING:
    from headscape.monitor.head_monitor import HeadMonitor


class MonitorTrainerCallback(TrainerCallback):
    """Tells a monitor when steps begin and end, and adds its newest aggregates to what the trainer logs.

    Parameters
    ----------
    monitor
        The monitor of the model that the trainer trains.
    """

    def __init__(self, monitor: HeadMonitor) -> None:
        self.monitor = monitor
        self._logged = -1

    def attach(self, trainer: Any) -> None:
        """Join a trainer ahead of its reporting callbacks, so that dashboards get the aggregates beside the loss."""
        callbacks = trainer.callback_handler.callbacks
        callbacks.insert(int(bool(callbacks) and isinstance(callbacks[0], DefaultFlowCallback)), self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on after the steps of a checkpoint."""
        if state.global_step != self.monitor.n_steps:
            self.monitor.resume(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Watch the model if the step is to be sampled; the first batch of gradient accumulation counts."""
        self.monitor.start_looking()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Finish the sample, and watch the evaluation if one follows."""
        self.monitor.stop_looking()
        self.monitor.step(epoch=state.epoch)
        if self.monitor.should_stop:
            control.should_training_stop = True
        if control.should_evaluate:
            self.monitor.start_looking(EVAL)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Finish the sample of an evaluation with its first batch."""
        self.monitor.stop_looking()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Add the newest aggregates to the loss that is logged, each sample once."""
        latest = self.monitor.latest
        if logs is None or latest is None or latest.step == self._logged or "loss" not in logs:
            return
        self._logged = latest.step
        values = self.monitor.report_values()
        logs.update(values)
        if state.log_history:  # written before callbacks hear of the logs
            state.log_history[-1].update(values)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Finish the run's file."""
        self.monitor.close()
