"""The examples that name heads: the right ones are found, and switching them off takes away what they do."""

import sys
from pathlib import Path

import numpy as np
import pytest

import headscape as hs

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import image_heads  # noqa: E402  found there
import induction_heads  # noqa: E402
import train_with_monitor_pytorch as llama  # noqa: E402
import train_with_monitor_trainer as gpt2  # noqa: E402
from byte_text import read_bytes  # noqa: E402
from training_faults import FAULTS, HEALTHY  # noqa: E402
from training_options import Run  # noqa: E402


def require_induction(model):
    """Check names and gains of a model that was trained on repeated tokens."""
    rows = induction_heads.repeated_tokens([induction_heads.PERIOD] * 8, seed=3)
    families = induction_heads.families_of(hs.head_patterns(hs.capture(model, rows)))
    previous, induction, others = families.values()
    assert previous, "no previous-token head"
    assert induction, "no induction head"
    assert {layer for layer, _ in previous} == {0}
    assert {layer for layer, _ in induction} == {1}
    gain = induction_heads.in_context_gain(model, rows)
    assert gain > 3.5  # of log 64 = 4.16, and a little for what is wrong before the first repetition
    assert induction_heads.in_context_gain(model, rows, previous) < 0.2 * gain
    assert induction_heads.in_context_gain(model, rows, induction) < 0.2 * gain
    assert induction_heads.in_context_gain(model, rows, others) > 0.7 * gain


def test_induction_heads_are_found_and_ablation_confirms_them():
    require_induction(hs.load_model(induction_heads.MODEL).model)


def test_the_weights_of_the_examples_are_small():
    for folder in (induction_heads.MODEL, image_heads.MODEL):
        assert (folder / "model.safetensors").stat().st_size < 300_000


def test_an_untrained_model_has_no_induction_heads():
    import torch

    torch.manual_seed(0)
    model = induction_heads.make_model().eval()
    rows = induction_heads.repeated_tokens([induction_heads.PERIOD] * 8, seed=3)
    assert set(hs.head_patterns(hs.capture(model, rows))["pattern"]) <= {"mixed", "uniform"}
    assert abs(induction_heads.in_context_gain(model, rows)) < 0.2


@pytest.mark.real
def test_induction_heads_are_learned():
    require_induction(induction_heads.train(steps=1000))


def test_planted_image_heads_get_their_names():
    found = hs.head_patterns(image_heads.planted_attention())
    assert found["pattern"].tolist() == ["same row", "same column", "neighbors", "uniform"]
    # All but the class token's own row, one of 37, do nothing else.
    scores = found[list(image_heads.COLORS)].to_numpy()
    np.testing.assert_allclose(np.diag(scores), 36 / 37)
    assert scores[3].max() < 0.2


def require_image_heads(model):
    """Check that every color has a head, and that switching it off spoils that color most."""
    images, _ = image_heads.pictures(4, np.random.default_rng(5))
    found = hs.head_patterns(hs.capture(model, images))
    assert sorted(found["pattern"]) == ["neighbors", "same column", "same row"]
    assert max(image_heads.errors(model).values()) < 0.05
    for pair, pattern in found["pattern"].items():
        wrong = image_heads.errors(model, [pair])
        assert max(wrong, key=wrong.get) == pattern.replace(" ", "_")


def test_a_trained_image_model_has_row_column_and_neighbor_heads():
    require_image_heads(image_heads.load())


@pytest.mark.real
def test_image_heads_are_learned():
    require_image_heads(image_heads.train(image_heads.STEPS))


@pytest.mark.parametrize("example", [llama, gpt2])
@pytest.mark.parametrize("fault", [HEALTHY, FAULTS["nan"]])
def test_monitored_training_names_a_planted_fault(tmp_path, example, fault):
    run = Run(tmp_path, steps=13, batch=2, length=24, width=64, every=2, fault=fault, fault_step=6)
    model = example.make_model(run)
    monitor = hs.HeadMonitor(model, every=run.every, path=tmp_path / "run")
    example.train(model, [monitor], read_bytes(None), run)
    assert monitor.run.steps.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert [alert.kind for alert in monitor.alerts] == list(fault.alerts)
    assert all(alert.heads == (("self", *fault.head),) and alert.step <= 8 for alert in monitor.alerts)
