"""A Dask cluster on this machine computes what threads compute, in every stage."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import headscape as hs
from cli_runs import headscape, headscape_here, one_line, one_object
from headscape.engine import LocalEngine
from headscape.engine.dask import DaskEngine
from headscape.errors import EngineError, HeadscapeError
from headscape.study.engines import open_engine

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"


@pytest.fixture(scope="module")
def cluster():
    with DaskEngine(workers=2) as engine:
        yield engine


def same(one, other):
    """Compare two head tables to 1e-10."""
    pd.testing.assert_frame_equal(one.heads, other.heads, rtol=1e-10, atol=1e-12)


def test_results_come_in_order_and_errors_reach_the_caller(cluster):
    shift = 5
    assert list(cluster.map(lambda x: x + shift, range(20))) == list(range(5, 25))
    with pytest.raises(ZeroDivisionError, match="zero"):
        list(cluster.map(lambda x: 1 // x, [1, 0]))
    with pytest.raises(HeadscapeError, match="at least 1, but is 0"):
        list(cluster.map(LocalEngine, [0]))
    assert list(cluster.map(lambda n: sum(cluster.map(abs, range(n))), range(4))) == [0, 0, 1, 3]


def test_data_go_to_the_workers_once(cluster):
    data = np.arange(1_000_000.0)  # 8 MB; 40 tasks with a copy each were 320 MB
    before = sum(received(cluster))
    assert list(cluster.map(lambda i: float(data[i]), range(40))) == list(range(40))
    assert sum(received(cluster)) - before < 2.5 * data.nbytes


def received(cluster):
    """Bytes that each worker read so far, from the network and from files."""

    def read_bytes():
        return int(Path("/proc/self/io").read_text().split()[1])

    return cluster.client.run(read_bytes).values()


@pytest.mark.parametrize("max_bytes", [1 << 30, 1 << 14])
def test_block_sums(cluster, max_bytes):
    x = np.asarray(hs.planted_tensor(queries=20, keys=24, layers=2, heads_per_layer=6), dtype=np.float64)
    trees = hs.organize(x, n_iter=1).trees
    for axis in ("query", "key", "head"):
        expected = hs.tree_emd(x, trees, axis, engine=LocalEngine(1))
        found = hs.tree_emd(x, trees, axis, max_bytes=max_bytes, engine=cluster)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=0)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture on disk: 3 windows, 2 layers of 4 heads that share 2 keys."""
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(3, 2, 4, 32, 8)), rng.normal(size=(3, 2, 2, 32, 8))
    folder = tmp_path_factory.mktemp("cluster") / "capture"
    hs.Capture.from_arrays(queries, keys).save(folder)
    return folder


def test_an_analysis_of_several_windows(cluster, captured, tmp_path):
    options = {"stages": ["+softmax"], "draws": 1, "softmax_n_iter": 1}
    there = hs.analyze(captured, out=tmp_path / "there", engine=cluster, **options)
    same(there, hs.analyze(captured, engine=LocalEngine(1), **options))
    assert set(there.results) >= {"geometry", "patterns", "energy", "entropy", "softmax"}


def test_one_window_is_cut_into_blocks(cluster, captured):
    options = {"windows": 1, "stages": ["patterns", "energy", "regularity", "entropy"]}
    same(hs.analyze(captured, engine=cluster, **options), hs.analyze(captured, **options))


def test_tensors_and_memory(cluster, tmp_path):
    tensors = [hs.planted_tensor(16, 16, 2, 4, seed=seed) for seed in range(2)]
    same(hs.analyze(tensors, engine=cluster, out=tmp_path / "a"), hs.analyze(tensors))


@pytest.mark.real
def test_models(cluster, tmp_path):
    """Each worker has a copy of the model; probes of the patterns run there too."""
    pytest.importorskip("transformers")
    text = " ".join(str(i) for i in range(2000))
    there = hs.capture(MODEL, text, length=32, windows=4, path=tmp_path / "c", engine=cluster)
    here = hs.capture(MODEL, text, length=32, windows=4)
    for window in range(4):
        np.testing.assert_allclose(there.tensor(window).data, here.tensor(window).data, rtol=1e-5, atol=1e-7)
    assert there.provenance["input_hash"] == here.provenance["input_hash"]
    options = {"windows": 3, "length": 32, "layers": [0, 1]}
    one, other = (hs.analyze(MODEL, engine=engine, **options) for engine in (cluster, None))
    pd.testing.assert_frame_equal(one.heads, other.heads, rtol=1e-4, atol=1e-6)


def test_the_command_line(captured, tmp_path):
    arguments = ("entropy", captured, "--json")
    there = one_object(headscape(*arguments, "-o", tmp_path / "a", "--engine", "dask", "--workers", 2))
    one_object(headscape(*arguments, "-o", tmp_path / "b"))
    one, other = (pd.read_csv(tmp_path / name / "heads.csv") for name in "ab")
    pd.testing.assert_frame_equal(one, other, rtol=1e-10)
    assert there["out"] == str(tmp_path / "a")


def test_a_running_scheduler(cluster):
    with open_engine("dask", scheduler=cluster.client.scheduler.address) as engine:
        assert engine.workers == 2
        assert list(engine.map(abs, [-1])) == [1]
    assert list(cluster.map(abs, [-2])) == [2]  # it goes on without the other one


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "spark"), "'local' or 'dask'"),
        (("--workers", "2"), "--engine dask"),
        (("--engine", "dask", "--workers", "0"), "--workers"),
        (("--engine", "dask", "--threads", "2"), "specify workers"),
        (("--engine", "dask", "--scheduler", "nowhere"), "tcp://host:8786"),
        (("--engine", "dask", "--scheduler", "tcp://h:1", "--workers", "2"), "not both"),
        (("--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"), "no Dask scheduler answers"),
    ],
)
def test_bad_options(monkeypatch, capsys, captured, tmp_path, options, words):
    one_line(headscape_here(monkeypatch, capsys, "entropy", captured, "-o", tmp_path / "x", *options), words)


def test_bad_engines():
    with pytest.raises(HeadscapeError, match="an engine or an executor"), open_engine(3):
        pass
    with pytest.raises(EngineError, match="no Dask scheduler"):
        DaskEngine("tcp://127.0.0.1:9")
