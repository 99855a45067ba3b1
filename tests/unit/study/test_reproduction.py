"""Experiments: verdicts, evidence that comes back from disk, and the measures that decide."""

import numpy as np
import pandas as pd
import pytest

from headscape.energy.mutual_coherence import mutual_coherence
from headscape.errors import InputError
from headscape.study.reproduction.drawn_images import drawn_images
from headscape.study.reproduction.experiment import Evidence, Observation, Verdict, judged
from headscape.study.reproduction.experiments import EXPERIMENTS, chosen_experiments
from headscape.study.reproduction.geometry import best_groups
from headscape.study.reproduction.head_experiments import variation
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import ROLES
from headscape.study.stages.result import Result
from headscape.tensor.store import Store


def observed(*verdicts):
    return Evidence.of([Observation("network", "data", "found", verdict) for verdict in verdicts])


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((Verdict.agrees, Verdict.agrees), Verdict.agrees),
        ((Verdict.disagrees,), Verdict.disagrees),
        ((Verdict.agrees, Verdict.disagrees), Verdict.partly),
        ((Verdict.untested, Verdict.disagrees), Verdict.disagrees),
        ((Verdict.untested,), Verdict.untested),
    ],
)
def test_the_verdict_is_that_of_the_networks_on_which_it_was_tested(verdicts, expected):
    assert observed(*verdicts).verdict == expected


def test_a_test_between_its_bounds_agrees_in_part():
    assert judged(True, True) == Verdict.agrees
    assert judged(False) == Verdict.disagrees
    assert judged(False, False) == Verdict.partly


def test_evidence_comes_back_from_a_store(tmp_path):
    table = pd.DataFrame({"head": ["1.0", "2.3"], "count": [6, 5], "value": [0.5, np.nan]})
    found = Evidence((Observation("n", "d", "f", Verdict.partly),), {"t": table}, {"p": b"\x89PNG\x00"}, 1.5)
    with Store.create(tmp_path, "reproduction", parameters={}, input_hash="") as store:
        with store.writing("experiment-x") as part:
            found.to_result().write(part)
        again = Evidence.from_result(Result.read(store.read("experiment-x")))
    assert again.observations == found.observations
    pd.testing.assert_frame_equal(again.tables["t"], table)
    assert again.pictures == found.pictures
    assert again.seconds == 1.5


def test_experiments_have_names_of_their_own_and_known_networks():
    names = [one.name for one in EXPERIMENTS]
    assert len(set(names)) == len(names) == 20
    assert {role for one in EXPERIMENTS for role in one.networks} <= set(ROLES)
    assert all(one.claim.endswith(".") and one.paper and one.place for one in EXPERIMENTS)


def test_experiments_are_chosen_by_name_in_their_own_order():
    assert [one.name for one in chosen_experiments(["table-1", "figure-1", "table-1"])] == [
        "figure-1",
        "table-1",
    ]
    assert chosen_experiments(["all"]) == EXPERIMENTS
    with pytest.raises(InputError, match=r"table-9.*--list"):
        chosen_experiments(["table-9"])
    with pytest.raises(InputError, match="none was given"):
        chosen_experiments([])


def test_groups_are_counted_where_there_are_some():
    rng = np.random.default_rng(0)
    centers = np.repeat([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], 8, axis=0)
    points = centers + rng.normal(0, 0.3, centers.shape)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    groups, silhouette = best_groups(distances)
    assert groups == 3
    assert silhouette > 0.9
    line = np.abs(np.arange(24.0)[:, None] - np.arange(24.0))
    assert best_groups(line)[1] < 0.7


def test_variation_counts_steps_along_both_axes():
    ramp = np.add.outer(np.arange(5.0), 2 * np.arange(5.0))
    assert variation(ramp) == pytest.approx(1.5)


def test_drawn_images_are_the_same_for_the_same_seed():
    first, again, other = drawn_images(2, 16, 1), drawn_images(2, 16, 1), drawn_images(2, 16, 2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_mutual_coherence_is_the_largest_cosine():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(20, 6))
    slow = max(
        abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)
        for i, a in enumerate(keys)
        for j, b in enumerate(keys)
        if i != j
    )
    assert mutual_coherence(keys) == pytest.approx(slow)
    assert mutual_coherence(3 * keys) == pytest.approx(slow)
    assert mutual_coherence(np.eye(4)) == 0
    assert mutual_coherence(np.vstack([keys, -2 * keys[:1]])) == pytest.approx(1)


def test_mutual_coherence_refuses_a_zero_key():
    with pytest.raises(InputError, match="must not be zero"):
        mutual_coherence([[1.0, 0.0], [0.0, 0.0]])


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    found = [median_interval(rng.exponential(size=24)) for _ in range(2000)]
    covered = np.mean([one.low <= np.log(2) <= one.high for one in found])
    assert 0.95 <= covered < 0.99
    assert np.isnan(median_interval([1.0, 2.0, 3.0]).low)
