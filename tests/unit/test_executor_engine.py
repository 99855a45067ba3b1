"""Executors as engines: the same results from threads, process pools and loky as from local threads."""

import functools
import os
import pickle
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from headscape.engine import ExecutorEngine, LocalEngine
from headscape.engine.executor import _function
from headscape.errors import EngineError, HeadscapeError

loky = pytest.importorskip("loky")


@pytest.fixture(scope="module")
def pools():
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes,
        ThreadPoolExecutor(2) as threads,
    ):
        yield {"processes": processes, "threads": threads, "loky": loky.get_reusable_executor(2)}


@pytest.fixture(params=["processes", "threads", "loky"])
def engine(request, pools):
    return ExecutorEngine(pools[request.param], workers=2)


def test_results_come_in_the_order_of_the_tasks(engine):
    shift = 3  # a closure: what it holds goes along
    assert list(engine.map(lambda x: x * x + shift, range(30))) == [x * x + 3 for x in range(30)]


def test_the_geometry_is_the_same(engine):
    x = hs.planted_tensor(queries=24, keys=20, layers=2, heads_per_layer=5)
    x = np.asarray(x, dtype=np.float64)
    one, other = hs.organize(x, n_iter=1, engine=engine), hs.organize(x, n_iter=1, engine=LocalEngine(1))
    for axis in one.axes:
        np.testing.assert_allclose(one.emd[axis], other.emd[axis], rtol=1e-10, atol=0)
        assert (one.trees[axis].labels == other.trees[axis].labels).all()


def test_errors_reach_the_caller(engine):
    with pytest.raises(ZeroDivisionError, match="negative power"):
        list(engine.map(functools.partial(pow, 0), [1, -1]))


def test_tasks_may_map_again(engine):
    assert list(engine.map(lambda n: sum(engine.map(abs, range(n))), range(5))) == [0, 0, 1, 3, 6]


def test_in_a_worker_an_engine_is_that_worker_alone(pools):
    assert pickle.loads(pickle.dumps(ExecutorEngine(pools["processes"]))) == LocalEngine(1)


class Counted:
    """A thread pool that counts as remote: everything goes through bytes."""

    _max_workers = 2

    def __init__(self):
        self.sent = []

    def submit(self, function, *arguments):
        self.sent.append(sum(len(pickle.dumps(argument)) for argument in arguments))
        done = Future()
        done.set_result(function(*arguments))
        return done


def test_data_go_to_a_worker_once():
    data, counted = np.arange(100_000.0), Counted()
    _function.cache_clear()
    found = list(ExecutorEngine(counted).map(lambda i: float(data[i]), range(20)))
    assert found == list(range(20))
    assert max(counted.sent) < 1000
    assert _function.cache_info().misses == 1


def test_nothing_is_left_behind(tmp_path):
    engine = ExecutorEngine(Counted(), folder=tmp_path)
    seen = []
    for _ in engine.map(abs, range(3)):
        seen = seen or [(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()]
    assert seen == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_is_one_clear_error():
    lost = pytest.raises(EngineError, match="killed, or ran out of memory")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, lost:
        list(ExecutorEngine(pool).map(os._exit, [1]))


def test_only_a_few_tasks_are_taken_ahead(pools):
    taken = []
    results = ExecutorEngine(pools["threads"], workers=2).map(abs, (taken.append(i) or i for i in range(100)))
    next(results)
    results.close()
    assert len(taken) <= 6


def test_what_cannot_be_sent_says_so():
    with pytest.raises(EngineError, match="cannot be sent"):
        list(ExecutorEngine(Counted()).map(threading.Lock().__class__.__call__, [threading.Lock()]))
    with pytest.raises(HeadscapeError, match="at least 1, but is -1"):
        ExecutorEngine(Counted(), workers=-1)


MPI = """
from mpi4py.futures import MPIPoolExecutor
from headscape.engine import ExecutorEngine
if __name__ == "__main__":
    with MPIPoolExecutor(1) as pool:
        print(sum(ExecutorEngine(pool, workers=1).map(abs, range(-5, 5))), flush=True)
"""


def test_mpi(tmp_path):
    """With mpi4py and an MPI library; both are rarely there."""
    pytest.importorskip("mpi4py")
    launcher = Path(sys.executable).with_name("mpiexec")
    found = launcher if launcher.exists() else shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec")
    (tmp_path / "sums.py").write_text(MPI)
    command = [str(found), "-n", "2", sys.executable, "-m", "mpi4py.futures", str(tmp_path / "sums.py")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "25", done.stderr
