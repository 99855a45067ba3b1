"""What pruning saves, counted by hand; measured speed."""

import importlib.util
from pathlib import Path

import pytest
import torch

import headscape as hs
from benchmarks.harness import Row, print_table
from headscape.errors import InputError
from headscape.pruning.savings import Change, Savings
from headscape.pruning.speed import Speed, Timing, measured_speed
from pruning_cases import EVEN
from tiny_models import tiny_causal_model, tiny_model


def test_savings_of_a_whole_group_counted_by_hand():
    model = tiny_causal_model("Llama")  # width 32, heads of 8, 2 key-value heads
    savings = hs.prune(model, [(0, 0), (0, 1)]).savings
    weights = 2 * 16 * 32 + 2 * 8 * 32  # rows of W_Q and columns of W_O; rows of W_K and W_V
    assert savings.parameters.before == sum(weight.numel() for weight in model.parameters())
    assert savings.parameters.before - savings.parameters.after == weights
    lost = savings.flops_per_token.before - savings.flops_per_token.after
    assert lost == 2 * weights + 2 * 2 * 256 * 16
    assert savings.cache_bytes_per_token == Change(2 * 2 * 2 * 8 * 4, 2 * 3 * 8 * 4)
    assert savings.cache_bytes_per_token.share == pytest.approx(0.25)
    assert Savings.from_dict(savings.to_dict()) == savings
    assert "key-value cache in bytes per token 256 -> 192 (25.0 % less)" in str(savings)


def test_flops_of_a_whole_model_counted_by_hand():
    savings = hs.prune(tiny_causal_model("GPT2"), [(0, 0)]).savings
    linear = 2 * (32 * 96 + 32 * 32 + 2 * 32 * 128) + 32 * 48  # tied, but multiplied all the same
    assert savings.flops_per_token.before == 2 * linear + 2 * 4 * 32 * 256


def test_fewer_heads_with_the_same_keys_save_no_cache_and_encoders_have_none():
    savings = hs.prune(tiny_model("Llama"), EVEN).savings
    assert savings.cache_bytes_per_token.share == 0
    savings = hs.prune(tiny_model("ViT"), EVEN).savings
    assert savings.cache_bytes_per_token == Change(0, 0)
    assert "cache" not in str(savings)


def test_the_cache_has_the_size_that_was_counted():
    pruned = hs.prune(tiny_causal_model("GPT2"), [(0, 0), (1, 1), (1, 2)])
    cache = pruned.model(torch.ones(1, 10, dtype=torch.long)).past_key_values
    held = sum(x.numel() * x.element_size() for layer in cache.layers for x in (layer.keys, layer.values))
    assert held == 10 * pruned.savings.cache_bytes_per_token.after


def test_speed_is_measured_in_turns():
    model = tiny_causal_model("Llama")
    steps = []
    speed = measured_speed(
        model,
        hs.prune(model, EVEN).model,
        length=500,
        new_tokens=3,
        repeats=2,
        progress=lambda *step: steps.append(step),
    )
    assert len(speed.prefill.ratios) == len(speed.decoding.ratios) == 2
    assert speed.prefill.range[0] <= speed.prefill.ratio <= speed.prefill.range[1]
    assert speed.length == 57  # what the model takes, less what is decoded
    assert steps[-1] == ("timing", 3, 3)
    assert "forward pass over 57 tokens: " in str(speed)
    assert "decoding of 3 tokens: " in str(speed)


def test_a_ratio_with_a_wide_range_is_no_result():
    clear, noisy = Timing((2.0, 2.2, 1.8), (1.0, 1.0, 1.2)), Timing((2.0, 2.2, 1.8), (1.0, 1.0, 2.0))
    assert clear.summary() == pytest.approx([2.0, 1.5, 2.2])
    assert "2.00 times as fast (1.50 to 2.20)" in str(clear)
    assert noisy.summary() == [None, *noisy.range]
    speed = Speed(clear, noisy, length=256, new_tokens=16, threads=2)
    prefill, decoding = str(speed).splitlines()
    assert "times as fast" in prefill
    assert decoding.endswith("too noisy to tell how much faster (0.90 to 2.20 times over 3 repeats)")
    assert speed.summary()["decoding"][0] is None
    assert Timing((2.0, 4.0), (1.0, 1.0)).noisy is False  # a factor of two is not wider than one


def test_the_tables_of_benchmarks_show_a_wide_range_without_its_ratio(capsys):
    row = {"name": "transform", "baseline": "BLAS", "ours": 0.26, "theirs": 0.44, "unit": "s", "wanted": ""}
    wide, narrow = {"ratio": 2.0, "low": 0.72, "high": 4.23}, {"ratio": 2.0, "low": 1.5, "high": 2.5}
    print_table({"haar": [Row(**row, **wide), Row(**row, **narrow)]})
    _, _, first, second = capsys.readouterr().out.splitlines()
    assert "noisy  0.7-4.2" in first
    assert "2.0x" not in first
    assert "2.0x  1.5-2.5" in second
    machine = {"processor": "any", "cores": 2, "python": "3.11"}
    shown = results_hook()._benchmarks({"Haar": {"machine": machine, "rows": [row | wide, row | narrow]}})
    assert "too noisy to tell (0.7-4.2)" in shown
    assert "**2.0x** (1.5-2.5)" in shown


def results_hook():
    """Load the hook of the documentation, which is no package."""
    path = Path(__file__).parents[3] / "docs" / "hooks" / "results.py"
    spec = importlib.util.spec_from_file_location("results_hook", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("family", "what"), [("Bert", "60 tokens"), ("ViT", "one image")])
def test_encoders_are_timed_in_one_pass(family, what):
    model = tiny_model(family)
    speed = measured_speed(model, hs.prune(model, EVEN).model, repeats=1)
    assert speed.decoding is None
    assert str(speed).startswith(f"forward pass over {what}: ")


def test_nothing_to_measure():
    model = tiny_model("Bert")
    with pytest.raises(InputError, match="repeats must be at least 1, but is 0"):
        measured_speed(model, model, repeats=0)
