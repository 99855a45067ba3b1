"""What a command is expected to take: it grows with the sizes, leaves out what is finished, and is told to people."""

import io
from types import SimpleNamespace

import pytest
import torch

import headscape as hs
from headscape.cli.progress import ProgressLines, announce_time
from headscape.models.loading import as_model
from headscape.monitor.checkpoints import checkpoints_in
from headscape.study.expected_time import (
    ablating_seconds,
    analysis_seconds,
    capture_seconds,
    checking_seconds,
    comparing_seconds,
    organizing_seconds,
    pruning_seconds,
    replaying_seconds,
    seconds_of,
    size_of,
)
from headscape.study.stages.cost import Size
from studies import small_capture, small_study
from tiny_models import tiny_causal_model, tiny_classifier

REFERENCE = Size(heads=270, layers=30, tokens=256, windows=6, parameters=134_515_008)
EVALUATED = Size(heads=270, layers=30, tokens=256, windows=16, parameters=134_515_008)
METHODS = ("haar", "gradient", "reconstruction+repair", "random")


def minutes(seconds):
    return seconds / 60


def test_the_default_commands_are_expected_to_take_what_they_were_measured_to():
    """Within a factor of two of runs on 2 cores: capture 10 s, organize 9 s, check 9 s, prune 2.5 min."""
    assert 4 <= capture_seconds(REFERENCE) <= 20
    assert 5 <= organizing_seconds(Size(270, 30, 256, 1), n_iter=3) <= 20
    assert 5 <= checking_seconds(Size(270, 30, 144, 2, parameters=134_515_008), references=0) <= 20
    assert 1.2 <= minutes(pruning_seconds(EVALUATED, calibration_windows=None, written=True)) <= 5
    ablation = ablating_seconds(EVALUATED, METHODS, None, 10, calibration_windows=None)
    assert 8 <= minutes(ablation) <= 30


def test_time_grows_with_every_size():
    capture = small_capture()
    one = analysis_seconds(capture, windows=1)
    assert analysis_seconds(capture) > one
    assert analysis_seconds(capture, stages=["entropy"]) < analysis_seconds(capture)
    assert analysis_seconds(capture, heads=[(0, 0)]) < analysis_seconds(capture)
    assert analysis_seconds(capture, n_iter=6) > analysis_seconds(capture, n_iter=3)
    assert REFERENCE.times() == 1
    assert Size(270, 30, 512, 6, 134_515_008).forward == 2 * REFERENCE.forward


def test_what_is_finished_is_not_counted(tmp_path):
    study = small_study(out=tmp_path, stages=["energy"])
    again = analysis_seconds(study, out=tmp_path, stages=["energy"])
    assert again == pytest.approx(analysis_seconds(study, out=tmp_path, stages=[]), abs=0.1)
    assert again < analysis_seconds(study, out=tmp_path / "new", stages=["energy"])


def test_a_comparison_takes_its_analyses_and_its_pairs(tmp_path):
    capture, study = small_capture(), small_study(stages=["energy"])
    two = comparing_seconds([capture, capture], None, tmp_path)
    assert two > 2 * analysis_seconds(capture, stages=["patterns", "entropy", "energy"])
    assert comparing_seconds([capture, study], None, tmp_path) < two
    assert comparing_seconds([capture, capture], None, tmp_path, [[0], None]) < two
    assert comparing_seconds([study, study, study], None, tmp_path) > comparing_seconds(
        [study, study], None, tmp_path
    )


def test_checkpoints_take_their_weights_and_those_measured_take_nothing(tmp_path):
    for step in (5, 10, 15):
        tiny_causal_model("Llama").save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    found, out = checkpoints_in(tmp_path / "run"), tmp_path / "measured"
    (tmp_path / "run" / "checkpoint-5" / "optimizer.pt").write_bytes(bytes(10**6))
    each = [replaying_seconds([point], out, 16) - replaying_seconds([], out, 16) for point in found]
    assert each[0] > 0
    assert each == pytest.approx([each[0]] * 3)
    assert replaying_seconds(found, out, 32) > replaying_seconds(found, out, 16)
    run = hs.monitor_checkpoints(tmp_path / "run", torch.arange(32).reshape(2, 16), out)
    assert len(run.samples) == 3
    assert replaying_seconds(found, out, 16) == replaying_seconds([], out, 16)
    (out / "monitor.jsonl").write_text("a text\n")
    assert replaying_seconds(found, out, 16) is None


def test_sizes_come_from_the_source():
    model = as_model(tiny_causal_model("Llama"))
    size = size_of(model, windows=3, length=40, layers=[0])
    modules = model.modules()
    assert (size.heads, size.layers, size.tokens, size.windows) == (modules[0].n_heads, 1, 40, 3)
    assert size.parameters == sum(weight.numel() for weight in model.model.parameters())
    capture = small_capture()
    found = size_of(capture)
    assert (found.heads, found.windows) == (len(capture.heads), capture.n_windows)
    assert found.tokens == len(capture.tokens(0))
    assert found.parameters == 0
    assert size_of(model, stack="no such stack") is None
    assert seconds_of(capture_seconds, model, None, stack="no such stack") is None


def test_images_have_patches_for_tokens():
    model = tiny_classifier("ViT")
    patches = (model.config.image_size // model.config.patch_size) ** 2
    size = size_of(as_model(model), ["a.png", "b.png"])
    assert (size.tokens, size.windows) == (patches + 1, 2)


@pytest.mark.parametrize(
    ("given", "seconds", "told"),
    [
        ({}, 95, "Expected time: about 1.5 minutes (estimate for 2 cores without a GPU).\n"),
        ({}, 5, ""),
        ({}, None, ""),
        ({"quiet": True}, 95, ""),
        ({"json": True}, 95, ""),
        ({"csv": True}, 95, ""),
    ],
)
def test_people_are_told_and_programs_are_not(given, seconds, told):
    stream = io.StringIO()
    with ProgressLines(stream) as display:
        announce_time(display, SimpleNamespace(**{"quiet": False, "json": False} | given), lambda: seconds)
    assert stream.getvalue() == told
