"""The file of a run: killed, torn, restarted, refused, on a full disk."""

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from headscape.errors import FileFormatError, InputError, StorageError
from headscape.monitor import run_file
from headscape.monitor.alert import Alert
from headscape.monitor.metrics import recorded_metrics
from headscape.monitor.monitor_run import MonitorRun, RunHeader
from headscape.monitor.run_file import RunWriter
from headscape.monitor.sample import EVAL, LayerShape, Sample
from headscape.monitor.sinks import Sinks
from headscape.monitor.thresholds import Thresholds

LAYERS = (LayerShape("self", 0, 3), LayerShape("self", 1, 2))


def writer(path, metrics=("mu_K",)):
    return RunWriter(path, LAYERS, metrics, {"every": 10})


def sample(step, value=1.0, metrics=("mu_K",), **others):
    values = {name: np.full(5, value, np.float32) for name in metrics}
    return Sample(step, values, states=np.zeros(5, np.int8), **others)


def alert(step):
    return Alert(
        "collapse", (("self", 0, 1),), step, step, "effective_rank", 1.0, 1.2, None, "certain", "2 of 3"
    )


def test_what_is_read_is_bit_for_bit_what_was_written(tmp_path):
    values = np.array([np.pi, np.nan, np.inf, -0.0, 1e-40], np.float32)
    file = writer(tmp_path)
    states, odd = np.array([0, 1, 2, 0, 0], np.int8), {"mu_K": (1,)}
    file.write(Sample(20, {"mu_K": values}, states=states, odd=odd, loss=0.1, epoch=0.5))
    file.write(sample(20, phase=EVAL))
    file.write_alert(alert(20))
    file.close()
    run = MonitorRun.load(tmp_path)
    assert run.samples[0].values["mu_K"].tobytes() == values.tobytes()
    assert (run.samples[0].loss, run.samples[0].epoch) == (0.1, 0.5)
    assert run.metric("state")[0, 0].tolist() == [0, 1, 2]
    assert run.samples[0].odd == odd
    assert run.alerts == (alert(20),)
    assert (len(run.samples), len(run.evaluations)) == (1, 1)
    assert run.table().shape == (5, 2)


def test_a_line_that_is_cut_off_is_ignored_and_taken_away_by_the_next_writer(tmp_path):
    file = writer(tmp_path)
    file.write(sample(0))
    file.close()
    with file.path.open("ab") as torn:
        torn.write(b'{"record": "sample", "st')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MonitorRun.load(tmp_path).steps.tolist() == [0]
        again = writer(tmp_path)
        again.write(sample(10))
        again.close()
        assert MonitorRun.load(tmp_path).steps.tolist() == [0, 10]


def test_a_damaged_line_in_the_middle_is_left_out_with_a_warning(tmp_path):
    file = writer(tmp_path)
    file.write(sample(0))
    file.close()
    with file.path.open("ab") as broken:
        broken.write(b"{]\n")
    with pytest.warns(UserWarning, match="1 damaged lines.*line 3"):
        assert MonitorRun.load(tmp_path).steps.tolist() == [0]


KILLED = """
import sys
sys.path[:0] = [{tests!r}]
from test_run_file import writer, sample
file = writer({path!r})
step = 0
while True:
    file.write(sample(step, step))
    if step == 50:
        print("go", flush=True)
    step += 1
"""


def test_kill_9_leaves_every_finished_row(tmp_path):
    code = KILLED.format(tests=os.path.dirname(__file__), path=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"go\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = MonitorRun.load(tmp_path)
    assert len(run.samples) > 50
    assert run.steps.tolist() == list(range(len(run.samples)))
    assert [s.values["mu_K"][0] for s in run.samples] == list(range(len(run.samples)))
    assert not run.ended
    again = writer(tmp_path)  # the lock of the dead process does not count
    again.restart(10)
    again.write(sample(10, -1.0))
    again.close()
    assert MonitorRun.load(tmp_path).steps.tolist() == list(range(11))


def test_a_restart_supersedes_rows_and_alerts_from_its_step_on(tmp_path):
    file = writer(tmp_path)
    for step in (0, 10, 20):
        file.write(sample(step))
        file.write_alert(alert(step))
    file.restart(10)
    file.write(sample(10, 5.0))
    file.close()
    run = MonitorRun.load(tmp_path)
    assert run.steps.tolist() == [0, 10]
    assert run.metric("mu_K")[1, 0, 0] == 5
    assert [found.step for found in run.alerts] == [0]


def test_a_run_has_ended_only_if_it_says_so_last(tmp_path):
    file = writer(tmp_path)
    file.write(sample(0))
    assert not MonitorRun.load(tmp_path).ended
    file.end(10)
    assert MonitorRun.load(tmp_path).ended
    file.write(sample(10))
    file.close()
    assert not MonitorRun.load(tmp_path).ended


def test_a_second_writer_and_another_run_are_refused(tmp_path):
    file = writer(tmp_path)
    with pytest.raises(StorageError, match="another monitor"):
        writer(tmp_path)
    file.close()
    with pytest.raises(InputError, match="5 heads"):
        RunWriter(tmp_path, LAYERS[:1], ("mu_K",), {})
    writer(tmp_path).close()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="there is no monitored run"):
        MonitorRun.load(tmp_path)
    (tmp_path / "monitor.jsonl").write_text("[]\n")
    with pytest.raises(FileFormatError, match="no header"):
        MonitorRun.load(tmp_path)


def sinks(path, **others):
    metrics = recorded_metrics(("mu_K",))
    return Sinks(RunHeader(LAYERS, metrics, {"every": 10}), Thresholds(), path, **others), metrics


def take_all(found, *samples):
    for each in samples:
        found.take(each)


def test_a_full_disk_warns_once_and_what_fits_later_is_kept(tmp_path, monkeypatch):
    found, metrics = sinks(tmp_path)
    usual = os.write
    found.take(sample(0, 0.5, metrics))
    monkeypatch.setattr(run_file.os, "write", lambda file, line: usual(file, line[: len(line) // 2]))
    with pytest.warns(UserWarning, match="disk is full.*Training goes on") as told:
        take_all(found, sample(10, 0.5, metrics), sample(20, 0.5, metrics))
    assert len(told) == 1
    monkeypatch.setattr(run_file.os, "write", usual)
    found.take(sample(30, 0.5, metrics))
    assert found.run.steps.tolist() == [0, 10, 20, 30]  # what did not fit is kept in memory
    found.close(40)
    assert MonitorRun.load(tmp_path).steps.tolist() == [0, 30]


def test_a_restart_in_memory_has_no_doubled_rows():
    found, metrics = sinks(None)
    take_all(found, sample(0, 0.5, metrics), sample(10, 0.5, metrics))
    found.resume()
    take_all(found, sample(10, 0.7, metrics), sample(20, 0.7, metrics))
    assert found.run.steps.tolist() == [0, 10, 20]
    assert found.run.metric("mu_K")[1, 0, 0] == np.float32(0.7)


@pytest.mark.parametrize("sink", ["report", "on_alert"])
def test_a_failing_sink_warns_once(tmp_path, sink):
    def fail(*_):
        raise ConnectionError("dashboard")

    found, metrics = sinks(tmp_path, **{sink: fail})
    values = (150.0, 150.0, *[0.5] * 6, 150.0, 150.0)  # two alerts
    with pytest.warns(UserWarning, match=f"{sink} failed.*dashboard") as told:
        take_all(found, *(sample(10 * place, value, metrics) for place, value in enumerate(values)))
    assert len(told) == 1
    assert len(found.run.samples) == len(values)
    assert len(found.alerts) >= 2


def test_a_run_that_was_deleted_before_it_goes_on_does_not_end_training(tmp_path):
    found, metrics = sinks(tmp_path)
    found.take(sample(0, 0.5, metrics))
    found.close(10)
    again, _ = sinks(tmp_path)
    (tmp_path / "monitor.jsonl").write_bytes(b"lost")
    with pytest.warns(UserWarning, match="file failed.*Training goes on"):
        again.take(sample(10, 0.5, metrics))
    assert again.latest.step == 10


def test_a_closed_file_is_opened_again_by_a_further_sample(tmp_path):
    found, metrics = sinks(tmp_path)
    found.take(sample(0, 0.5, metrics))
    found.close(10)
    found.take(sample(10, 0.5, metrics))
    found.close(20)
    run = MonitorRun.load(tmp_path)
    assert run.steps.tolist() == [0, 10]
    assert run.ended
