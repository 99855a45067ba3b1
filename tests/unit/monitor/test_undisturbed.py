"""A model that is watched trains bit for bit as one that is not."""

import copy
from functools import partial

import pytest
import torch

import headscape as hs
from monitor_training import train, trainable


def trained(model, monitored, **how):
    """Train a copy and return everything that must not change: losses, weights, gradients, random state."""
    model = copy.deepcopy(model)
    torch.manual_seed(7)
    monitor = hs.HeadMonitor(model, every=2) if monitored else None
    losses = train(model, monitor, **how)
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    gradients = torch.autograd.grad(
        model(input_ids=torch.arange(4, 14)[None]).logits.square().sum(), list(model.parameters())
    )
    return losses, weights, gradients, torch.get_rng_state(), monitor


def assert_bitwise_equal(model, **how):
    plain = trained(model, False, **how)
    watched = trained(model, True, **how)
    assert torch.equal(plain[0], watched[0])
    assert all(torch.equal(value, watched[1][name]) for name, value in plain[1].items())
    assert all(torch.equal(a, b) for a, b in zip(plain[2], watched[2], strict=True))
    assert torch.equal(plain[3], watched[3])
    assert watched[4].run.steps.tolist() == [0, 2]


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_losses_weights_gradients_and_random_state_are_bitwise_equal(family, implementation):
    assert_bitwise_equal(trainable(family, attn_implementation=implementation))


def test_gradient_checkpointing_is_undisturbed_and_each_module_seen_once():
    model = trainable("GPT2")
    model.gradient_checkpointing_enable()
    assert_bitwise_equal(model)


def test_gradient_accumulation_is_undisturbed_and_samples_its_first_batch():
    model = trainable("Llama")
    assert_bitwise_equal(model, accumulate=2)
    monitors = [hs.HeadMonitor(model, every=1) for _ in range(2)]
    train(copy.deepcopy(model), None, 1)
    for monitor, accumulate in zip(monitors, (1, 2), strict=True):
        fresh = copy.deepcopy(model)
        monitor.model = fresh
        train(fresh, monitor, 1, accumulate=accumulate)
    first, second = (monitor.run.samples[0].values for monitor in monitors)
    assert all((first[name] == second[name])[~(first[name] != first[name])].all() for name in first)


def test_mixed_precision_is_undisturbed_and_measured_in_float32():
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    assert_bitwise_equal(trainable("Llama"), context=autocast)
    model = trainable("Llama")
    exact, mixed = hs.HeadMonitor(model), hs.HeadMonitor(model)
    train(model, exact, 1, rate=0.0)
    train(model, mixed, 1, rate=0.0, context=autocast)
    a, b = exact.table()["mu_K"], mixed.table()["mu_K"]
    assert (abs(a - b) < 0.05 * a).all()
    assert (a != b).any()


def test_nothing_is_installed_on_steps_that_are_not_sampled():
    model = trainable("Llama")
    monitor = hs.HeadMonitor(model, every=2)
    hooks = []
    train(model, monitor, 3, before=lambda *_: hooks.append(len(model._forward_hooks)))
    from transformers import AttentionInterface

    assert hooks == [0, 0, 0]
    assert not hasattr(AttentionInterface.get_interface, "own")
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
