"""Where samples go: they are judged, written, reported and told of; a sink that fails never stops training."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from headscape.monitor.alert import TITLES, Alert
from headscape.monitor.detection import Detector
from headscape.monitor.monitor_run import MonitorRun, RunHeader
from headscape.monitor.ranks import rank
from headscape.monitor.reporting import report_keys
from headscape.monitor.run_file import RunWriter
from headscape.monitor.sample import EVAL, TRAIN, Sample, head_names
from headscape.monitor.thresholds import Thresholds

logger = logging.getLogger(__name__)

OnAlert = Callable[[Alert], object]
Report = Callable[[dict[str, float], int], object]


class Sinks:
    """Takes finished samples, in order.

    Only rank 0 writes and reports. The parameters are those of :class:`~headscape.monitor.head_monitor.HeadMonitor`.
    """

    def __init__(
        self,
        header: RunHeader,
        thresholds: Thresholds,
        path: str | os.PathLike[str] | None,
        *,
        on_alert: OnAlert | None = None,
        stop_on: Sequence[str] = (),
        report: Report | None = None,
        per_head: bool = False,
    ) -> None:
        self.alerts: list[Alert] = []
        self.should_stop = False
        self.latest: Sample | None = None
        self._header = header
        self._names = head_names(header.layers)
        self._detector = Detector(header.layers, thresholds)
        self._on_alert, self._report, self._per_head = on_alert, report, per_head
        self._stop_on = tuple(TITLES) if "any" in stop_on else tuple(stop_on)
        self._writer: RunWriter | None = None
        if path is not None and rank() == 0:
            self._writer = RunWriter(path, header.layers, header.metrics, header.about)
        self._path = path
        self._kept: list[Sample] = []
        self._begun, self._resumed = False, False
        self._failed: set[str] = set()

    def take(self, sample: Sample) -> None:
        """Judge a sample, write it down, report it, and tell of its alerts."""
        start = perf_counter()
        if self._writer is not None and self._writer.closed:
            self._guarded("file", self._reopen)
        if not self._begun:
            self._guarded("file", self._begin, sample.step)
        alerts: list[Alert] = []
        sample = replace(sample, states=np.zeros(len(self._names), np.int8))
        if sample.phase == TRAIN:
            states, alerts = self._detector.judge(sample)
            sample = replace(sample, states=states, odd=self._detector.odd)
        sample = replace(sample, seconds=sample.seconds + perf_counter() - start)
        self.latest = sample
        self._write(sample, alerts)
        if self._report is not None and rank() == 0:
            self._guarded("report", self._report, self.report_values(sample), sample.step)
        for alert in alerts:
            self._tell(alert)

    def report_values(self, sample: Sample) -> dict[str, float]:
        """Return a sample as a trainer reports it."""
        asked = self._header.about.get("asked", self._header.metrics)
        return report_keys(sample, asked, self._names, per_head=self._per_head)

    def resume(self) -> None:
        """Expect the next sample to supersede those of the file from its step on."""
        self._resumed, self._begun = True, False

    @property
    def run(self) -> MonitorRun:
        """What was recorded so far: the file, and memory for what could not be written."""
        kept = self._kept
        if self._writer is not None:
            written = MonitorRun.load(self._writer.path)
            if not kept:
                return written
            kept = sorted([*written.samples, *written.evaluations, *kept], key=lambda sample: sample.step)
        train, evaluations = (tuple(s for s in kept if s.phase == phase) for phase in (TRAIN, EVAL))
        return MonitorRun(self._header, train, evaluations, tuple(self.alerts))

    def close(self, step: int) -> None:
        """Write that the run is over after so many updates, and close the file; a further sample opens it again."""
        if self._writer is not None and not self._writer.closed:
            if self.latest is not None:
                self._guarded("file", self._writer.end, step)
            self._writer.close()

    def _reopen(self) -> None:
        assert self._path is not None
        self._writer = RunWriter(self._path, self._header.layers, self._header.metrics, self._header.about)
        self._begun = False

    def _tell(self, alert: Alert) -> None:
        self.alerts.append(alert)
        self.should_stop = self.should_stop or alert.kind in self._stop_on
        if rank() == 0:
            logger.warning("%s", alert)
            if self._on_alert is not None:
                self._guarded("on_alert", self._on_alert, alert)

    def _write(self, sample: Sample, alerts: Sequence[Alert]) -> None:
        if self._writer is None:
            self._kept.append(sample)
            return
        if not self._guarded("file", self._writer.write, sample):
            self._kept.append(sample)
        for alert in alerts:
            self._guarded("file", self._writer.write_alert, alert)

    def _begin(self, step: int) -> None:
        """Before the first sample: take up what was recorded before ``step``."""
        self._begun = True
        writer = self._writer
        if not (self._resumed or (writer is not None and writer.continued)):
            return
        earlier = self.run
        kept = [sample for sample in earlier.samples if sample.step < step]
        self._kept = [sample for sample in self._kept if sample.step < step]
        self._detector = Detector(self._header.layers, self._detector.thresholds)
        for sample in kept:
            self._detector.judge(sample)
        self.alerts[:] = [alert for alert in earlier.alerts if alert.step < step]
        dropped = len(earlier.samples) - len(kept)
        if writer is None:
            return
        if dropped or any(sample.step >= step for sample in earlier.evaluations):
            self._guarded("file", writer.restart, step)
        if dropped and not self._resumed:
            warnings.warn(
                f"{writer.path} holds {dropped} samples from step {step} on, which this run supersedes. Call "
                "resume(step) before training from a checkpoint, and give new runs a path of their own.",
                UserWarning,
                stacklevel=2,
            )

    def _guarded(self, sink: str, action: Callable[..., object], *arguments: object) -> bool:
        """Call a sink and return whether that worked; if not, training goes on, and a warning says so once."""
        try:
            action(*arguments)
            return True
        except Exception as error:  # whatever a disk, a dashboard or a user's function raises
            if sink not in self._failed:
                self._failed.add(sink)
                warnings.warn(
                    f"the monitor's {sink} failed ({type(error).__name__}: {error}). Training goes on; further "
                    "failures are not told.",
                    UserWarning,
                    stacklevel=2,
                )
            return False
