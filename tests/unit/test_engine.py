import multiprocessing
import threading

import pytest

from headscape.engine import LocalEngine, default_threads
from headscape.errors import HeadscapeError


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_the_order_of_the_tasks(threads):
    assert list(LocalEngine(threads).map(lambda x: x * x, range(50))) == [x * x for x in range(50)]


def test_tasks_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=10)
    list(LocalEngine(2).map(lambda _: meet.wait(), range(2)))


def test_only_a_few_tasks_are_taken_ahead():
    taken = []

    def tasks():
        for i in range(100):
            taken.append(i)
            yield i

    results = LocalEngine(2).map(lambda x: x, tasks())
    next(results)
    assert len(taken) <= 4


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_reach_the_caller(threads):
    def fail(x):
        raise ValueError(f"task {x}")

    with pytest.raises(ValueError, match="task 0"):
        list(LocalEngine(threads).map(fail, range(5)))


def test_threads_from_the_environment(monkeypatch):
    monkeypatch.setenv("HEADSCAPE_THREADS", "3")
    assert LocalEngine().threads == 3
    monkeypatch.setenv("HEADSCAPE_THREADS", "many")
    with pytest.raises(HeadscapeError, match="whole number from 1 up, but is 'many'"):
        default_threads()
    with pytest.raises(HeadscapeError, match="at least 1"):
        LocalEngine(0)


def test_tasks_may_map_again():
    engine = LocalEngine(2)
    assert list(engine.map(lambda n: sum(engine.map(abs, range(n))), range(5))) == [0, 0, 1, 3, 6]


def squares(n):
    return list(LocalEngine(2).map(lambda x: x * x, range(n)))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_started_after_the_pool_have_their_own(method):
    assert squares(4) == [0, 1, 4, 9]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(squares, (4,)).get(timeout=60) == [0, 1, 4, 9]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_that_was_begun_may_map_and_fail(threads):
    engine = LocalEngine(threads)
    results = [engine.begin(lambda i=i: sum(engine.map(abs, [-i, 1]))) for i in range(3)]
    assert [result() for result in results] == [1, 2, 3]
    failing = engine.begin(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError, match="division"):
        failing()


def test_what_was_begun_runs_beside_the_caller():
    meet = threading.Barrier(2, timeout=10)
    result = LocalEngine(2).begin(meet.wait)
    meet.wait()
    assert result() in (0, 1)
