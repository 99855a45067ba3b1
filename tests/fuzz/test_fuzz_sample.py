"""A sample of the trial by mutations: the same harness as ``make fuzz``, 200 cases with fixed seeds."""

import random
import shutil

import pytest

pytest.importorskip("transformers")

from fuzz.cases import COUNTS, TARGETS, Bench
from fuzz.mutations import files_in

CASES = 200
EACH = -(-CASES // len(COUNTS))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", COUNTS)
def test_damage_ends_in_right_results_or_one_clear_error(name, bench):
    outcomes = [bench.run(name, seed) for seed in range(EACH)]
    assert [outcome for outcome in outcomes if outcome.verdict == "failed"] == []


def test_the_full_trial_is_as_large_as_promised():
    assert sum(COUNTS.values()) >= 10_000


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_names_one_mutation(name, bench, tmp_path):
    target = TARGETS[name]
    bench.run(name, 0)
    changed = []
    for number in range(2):
        root = tmp_path / str(number)
        changed.append(_mutated(target, bench.folder / name, root))
    assert changed[0] == changed[1]


def _mutated(target, source, root):
    shutil.copytree(source, root)
    words = target.mutate(random.Random(f"{target.name} 3"), root)
    return words, {path.relative_to(root): path.read_bytes() for path in files_in(root)}
