"""Windows that calibrate and windows that judge are kept apart, or it is said that they are not."""

import numpy as np
import pytest
import torch

from headscape.ablation.calibration_split import calibration_windows, split_windows
from headscape.errors import InputError
from headscape.models.loading import as_model
from letters import Letters
from tiny_models import tiny_causal_model, token_ids

# No two windows of it are alike.
TEXT = "".join(chr(65 + (i * i + i // 7) % 40) for i in range(400))


@pytest.fixture(scope="module")
def loaded():
    return as_model(tiny_causal_model("Llama"), Letters())


def split(loaded, inputs, calibration=None, **options):
    return split_windows(loaded, inputs, calibration, **{"length": 5, **options})


def ids_of(windows):
    return [window.arguments["input_ids"][0].tolist() for window in windows]


def letters(text):
    return [4 + ord(letter) % 40 for letter in text]


def test_the_halves_of_a_text(loaded, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    for inputs in (TEXT, path, str(path)):
        found = split(loaded, inputs, windows=4, calibration_count=3, sample="first")
        assert ids_of(found.calibration) == [letters(TEXT[i : i + 5]) for i in (0, 5, 10)]
        assert ids_of(found.evaluation) == [letters(TEXT[i : i + 5]) for i in (200, 205, 210, 215)]


def test_windows_are_spread_over_halves_that_are_apart(loaded):
    found = split(loaded, TEXT, windows=4, calibration_count=3)
    assert ids_of(found.calibration) == [letters(TEXT[i : i + 5]) for i in (0, 87, 175)]
    assert ids_of(found.evaluation) == [letters(TEXT[i : i + 5]) for i in (220, 278, 336, 395)]
    drawn = split(loaded, TEXT, windows=4, calibration_count=3, sample="random", seed=1)
    assert ids_of(drawn.calibration) != ids_of(found.calibration)
    assert all(
        ids in [letters(TEXT[i : i + 5]) for i in range(0, 180, 5)] for ids in ids_of(drawn.calibration)
    )
    assert all(
        ids in [letters(TEXT[i : i + 5]) for i in range(220, 400, 5)] for ids in ids_of(drawn.evaluation)
    )


@pytest.mark.parametrize("sample", ["spread", "first"])
def test_several_texts_are_halved_each(loaded, tmp_path, sample):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, text in zip(paths, (TEXT[:200], TEXT[200:]), strict=True):
        path.write_text(text)
    found = split(loaded, paths, windows=6, calibration_count=2, sample=sample)
    assert [window.source for window in found.calibration] == ["a.txt", "b.txt"]
    assert [window.source for window in found.evaluation] == ["a.txt"] * 3 + ["b.txt"] * 3
    assert ids_of(found.calibration) == [letters(TEXT[:5]), letters(TEXT[200:205])]
    assert ids_of(found.evaluation)[0] == letters(TEXT[100:105] if sample == "first" else TEXT[110:115])
    assert [len(part) for part in (split(loaded, paths).calibration, split(loaded, paths).evaluation)] == [
        16,
        16,
    ]


def test_sixteen_windows_of_a_text_by_default(loaded):
    found = split(loaded, TEXT)
    assert (len(found.calibration), len(found.evaluation)) == (16, 16)
    assert len(calibration_windows(loaded, TEXT, None, 5)) == 16


def test_a_text_is_cut_at_the_end_of_a_line(loaded):
    text = TEXT[:60] + "\n" + TEXT[61:200]
    found = split(loaded, text, length=10, sample="first")
    assert ids_of(found.evaluation)[0] == letters(text[61:71])


@pytest.mark.parametrize("kind", [list, np.asarray])
def test_rows_are_halved(loaded, kind):
    rows = token_ids(9, length=5).tolist()
    found = split(loaded, kind(rows))
    assert ids_of(found.calibration) == rows[:4]
    assert ids_of(found.evaluation) == rows[4:]


def test_a_batch_is_halved_with_its_mask_and_labels(loaded):
    ids = token_ids(6)
    mask = torch.ones_like(ids)
    mask[:, 8:] = 0
    found = split(loaded, {"input_ids": ids, "attention_mask": mask, "labels": ids})
    assert (len(found.calibration), len(found.evaluation)) == (3, 3)
    assert all(set(w.arguments) == {"input_ids", "attention_mask", "labels"} for w in found.evaluation)


@pytest.mark.parametrize(
    ("options", "calibrating", "evaluating"),
    [
        ({"windows": 2}, range(5), [5, 6]),
        ({"calibration_count": 2}, range(2), range(5, 10)),
        ({"windows": 6, "calibration_count": 2}, [0, 1], range(2, 8)),
        ({"windows": 30, "calibration_count": 10}, [0, 1], range(2, 10)),
    ],
)
def test_numbers_of_windows_hold_for_rows_too(loaded, options, calibrating, evaluating):
    rows = token_ids(10, length=5).tolist()
    found = split(loaded, rows, **options)
    assert ids_of(found.calibration) == [rows[i] for i in calibrating]
    assert ids_of(found.evaluation) == [rows[i] for i in evaluating]


@pytest.mark.parametrize("kind", [list, np.asarray, torch.as_tensor])
def test_one_run_of_token_ids_is_cut_like_a_text(loaded, kind):
    run = token_ids(1, length=400)[0].tolist()
    found = split(loaded, kind(run), windows=3, sample="first")
    assert (len(found.calibration), len(found.evaluation)) == (16, 3)
    assert ids_of(found.evaluation)[0] == run[80:85]
    found = split(loaded, kind(run), windows=3, calibration_count=2)
    assert ids_of(found.calibration) == [run[:5], run[175:180]]
    assert ids_of(found.evaluation) == [run[220:225], run[307:312], run[395:400]]


def test_calibration_of_its_own_is_left_alone(loaded):
    found = split(loaded, TEXT[200:], TEXT[:200], windows=7, calibration_count=2)
    assert ids_of(found.calibration) == [letters(TEXT[:5]), letters(TEXT[195:200])]
    assert len(found.evaluation) == 7
    assert found.warnings == ()


def test_windows_on_both_sides_are_told(loaded):
    found = split(loaded, TEXT, TEXT[:15], windows=10, sample="first")
    [warning] = found.warnings
    assert warning.startswith("3 of 10 evaluation windows are calibration windows too")
    assert split(loaded, TEXT, windows=10).warnings == ()


def test_few_windows_are_told(loaded):
    [warning] = split(loaded, TEXT, windows=3).warnings
    assert warning.startswith("fewer than 4 evaluation windows (3)")


@pytest.mark.parametrize(
    ("inputs", "calibration", "message"),
    [
        ("abcdefgh" + " " * 8, None, "the second half of the text cannot be used: the text is empty"),
        ("abcdefgh", None, "the first half of the text cannot be used: "),
        ("", None, "the first half of the text cannot be used: the text is empty"),
        ([5, 6, 7, 8, 9], None, "the first half of the token ids cannot be used: got 2 token ids"),
        ("abc", TEXT, "the evaluation inputs cannot be used: "),
        (TEXT, "abc", "the calibration inputs cannot be used: "),
        (None, None, "the inputs are missing"),
        ([[5, 6, 7, 8, 9]], None, "one to calibrate on and one to evaluate on.*only 1"),
        ([], None, "the inputs cannot be used: the list of inputs is empty"),
    ],
)
def test_too_little_is_told_with_where_it_is_missing(loaded, inputs, calibration, message):
    with pytest.raises(InputError, match=message):
        split(loaded, inputs, calibration)


@pytest.mark.parametrize("name", ["windows", "calibration_count"])
@pytest.mark.parametrize("inputs", [TEXT, token_ids(8)])
def test_no_windows_is_no_number_of_windows(loaded, name, inputs):
    with pytest.raises(InputError, match="windows must be a positive integer, but is 0"):
        split(loaded, inputs, **{name: 0})
