"""The monitor as a callback of Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from headscape.monitor.sample import EVAL

if TYPE_CHECKING:
    from headscape.monitor.head_monitor import HeadMonitor


class MonitorLightningCallback(Callback):
    """Tells a monitor when batches begin and end, and sends its aggregates to the trainer's loggers.

    Parameters
    ----------
    monitor
        The monitor of the model that is trained: the LightningModule's attribute, not the LightningModule itself.
    """

    def __init__(self, monitor: HeadMonitor) -> None:
        self.monitor = monitor
        self._updates = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on after the steps of a checkpoint."""
        self._updates = trainer.global_step
        if self._updates != self.monitor.n_steps:
            self.monitor.resume(self._updates)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Watch the model if the step is to be sampled and was not yet."""
        self.monitor.start_looking()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Finish the sample once the weights were updated: gradient accumulation takes several batches."""
        self.monitor.stop_looking()
        if trainer.global_step == self._updates:
            return
        self._updates = trainer.global_step
        before = self.monitor.latest
        self.monitor.step(epoch=trainer.current_epoch)
        if self.monitor.latest is not before:
            self._report(trainer)
        if self.monitor.should_stop:
            trainer.should_stop = True

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Watch the first batch of a validation."""
        if not trainer.sanity_checking:
            self.monitor.start_looking(EVAL)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Finish the sample of a validation with its first batch."""
        before = self.monitor.latest
        self.monitor.stop_looking()
        if self.monitor.latest is not before:
            self._report(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Finish the run's file."""
        self.monitor.close()

    def _report(self, trainer: Any) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(self.monitor.report_values(), step=self._updates)
