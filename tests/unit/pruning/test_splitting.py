"""Which windows calibrate and which evaluate."""

import pytest
import torch

from headscape.pruning.splitting import split_windows
from headscape.recorder.models import LoadedModel
from tests.tiny_models import inputs_of, tiny_model


@pytest.fixture(scope="module")
def split():
    loaded = LoadedModel(tiny_model("ViT"), None, "tiny")
    batch = inputs_of("ViT", rows=20)

    def call(**counts):
        found = split_windows(loaded, batch, **counts)
        rows = [
            [
                int((batch["pixel_values"] == w.arguments["pixel_values"]).all(dim=(1, 2, 3)).nonzero())
                for w in part
            ]
            for part in (found.calibration, found.evaluation)
        ]
        assert torch.equal(
            found.evaluation[0].arguments["pixel_values"][0], batch["pixel_values"][rows[1][0]]
        )
        return rows

    return call


def test_without_counts_the_first_half_calibrates_and_the_second_evaluates(split):
    assert split() == [list(range(10)), list(range(10, 20))]


def test_one_count_shortens_its_own_half_and_leaves_the_other(split):
    assert split(calibration_count=3) == [[0, 1, 2], list(range(10, 20))]
    assert split(windows=4) == [list(range(10)), [10, 11, 12, 13]]


def test_both_counts_are_kept_or_shared_out_where_there_are_too_few(split):
    assert split(calibration_count=3, windows=4) == [[0, 1, 2], [3, 4, 5, 6]]
    assert split(calibration_count=10, windows=30) == [list(range(5)), list(range(5, 20))]
