"""Windows that threads measure side by side give what they give one after the other."""

import threading

import numpy as np
import pytest

import headscape as hs
from headscape.engine import LocalEngine
from headscape.study import stage_run
from headscape.study.stages import stage_named

RNG = np.random.default_rng(0)
CAPTURE = hs.Capture.from_arrays(RNG.normal(size=(3, 2, 4, 24, 8)), RNG.normal(size=(3, 2, 2, 24, 8)))
STAGES = ["patterns", "entropy", "energy", "regularity"]


@pytest.fixture
def always_abreast(monkeypatch):
    monkeypatch.setattr(stage_run, "SHORT", 0.0)


def test_same_table_whatever_the_threads(always_abreast):
    seen = []
    engines = LocalEngine(threads=2), LocalEngine(threads=1)
    abreast, in_turn = (
        hs.analyze(CAPTURE, stages=STAGES, engine=engine, progress=lambda *now: seen.append(now[0]))
        for engine in engines
    )
    assert "measuring 3 windows, 2 at a time" in seen
    assert "organizing, window 1 of 3" in seen
    hs_columns = abreast.heads.select_dtypes("number").columns
    np.testing.assert_allclose(
        abreast.heads[hs_columns].to_numpy(dtype=float),
        in_turn.heads[hs_columns].to_numpy(dtype=float),
        rtol=1e-10,
        equal_nan=True,
    )


def test_what_is_measured_is_kept_when_a_window_fails(always_abreast, monkeypatch, tmp_path):
    from headscape.study.stages.regularity import Regularity

    measure = Regularity.measure

    def fails(self, context, piece):
        if piece == 1:
            raise OSError("disk gone")
        return measure(self, context, piece)

    monkeypatch.setattr(Regularity, "measure", fails)
    how = {"stages": STAGES, "out": tmp_path / "study", "engine": LocalEngine(threads=2)}
    with pytest.raises(OSError, match="disk gone"):
        hs.analyze(CAPTURE, **how)
    monkeypatch.undo()
    kept = {path.name for path in (tmp_path / "study" / "parts").iterdir() if (path / "part.json").exists()}
    assert {"geometry-window-00001", "energy-window-00001"} <= kept
    assert "regularity-window-00001" not in kept
    assert len(hs.analyze(CAPTURE, **how).heads) == 8


def test_little_memory_means_one_window_at_a_time(always_abreast, monkeypatch):
    monkeypatch.setattr(stage_run, "_memory", lambda: 1 << 16)
    seen = []
    hs.analyze(
        CAPTURE,
        stages=["entropy"],
        engine=LocalEngine(threads=2),
        progress=lambda *now: seen.append(now[0]),
    )
    assert not any("at a time" in text for text in seen)


def test_stages_without_the_model_run_side_by_side_to_the_same_results(monkeypatch):
    stages, at_once, together = ["folders", "sinks"], threading.Barrier(2, timeout=60), []
    measure = {name: stage_named(name).__class__.measure for name in stages}

    def meets(self, context, piece):
        if context.engine.threads > 1:
            at_once.wait()
            together.append(self.name)
        return measure[self.name](self, context, piece)

    for name in stages:
        monkeypatch.setattr(stage_named(name).__class__, "measure", meets)
    # Pictures are drawn first, on one of the two threads.
    beside, in_turn = (hs.analyze(CAPTURE, stages=stages, engine=LocalEngine(threads=n)) for n in (2, 1))
    assert sorted(together) == stages
    for name in stages:
        ours, theirs = beside.results[name][0], in_turn.results[name][0]
        assert ours.arrays.keys() == theirs.arrays.keys()
        for key, array in ours.arrays.items():
            np.testing.assert_array_equal(array, theirs.arrays[key])
