"""What a pruning trial promises holds: its "95 %" interval of 16 windows covers the truth, from stored losses."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.pruning_coverage import coverage, drawn

STORED = Path(__file__).parents[3] / "docs" / "results" / "prune_coverage_smollm2.json"


@pytest.mark.parametrize("sample", ["spread", "random"])
def test_intervals_of_sixteen_windows_cover_the_mean_of_all(sample):
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    increases = np.array(stored["repaired"]) - np.array(stored["intact"])
    assert len(increases) >= 400
    assert coverage(increases, sample) >= 0.9


def test_trials_are_drawn_as_windows_are_sampled():
    rng = np.random.default_rng(0)
    assert (drawn("spread", 400, 16, rng) // 25).tolist() == list(range(16))
    assert set(np.diff(drawn("first", 400, 16, rng) % 400)) <= {1, -399}
    assert len(set(drawn("random", 400, 16, rng).tolist())) == 16


def test_too_narrow_intervals_are_noticed():
    # Neighbors that are alike, as windows of one article are: sixteen in a row say little about all.
    rng = np.random.default_rng(0)
    alike = np.repeat(rng.normal(0.05, 0.02, 20), 20) + rng.normal(0, 0.002, 400)
    assert coverage(alike, "first", trials=200) < 0.7
    assert coverage(alike, "spread", trials=200) > 0.85
