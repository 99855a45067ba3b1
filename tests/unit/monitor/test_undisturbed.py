"""A model that is watched trains bit for bit as one that is not."""

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch

import headscape as hs
from headscape.monitor import sampling
from headscape.monitor.metrics import head_metrics
from monitor_training import batch_at, train, trainable
from tiny_models import LAYERS, VOCAB


def trained(model, monitored, **how):
    """Train a copy and return everything that must not change: losses, weights, gradients, random state."""
    model = copy.deepcopy(model)
    torch.manual_seed(7)
    monitor = hs.HeadMonitor(model, every=2) if monitored else None
    losses = train(model, monitor, **how)
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    model(input_ids=torch.arange(4, 14)[None]).logits.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
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


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_is_undisturbed_and_each_module_seen_once(reentrant):
    model = trainable("GPT2")
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert_bitwise_equal(model)
    seen = []
    monitor = hs.HeadMonitor(model, every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sampling, "head_metrics", lambda call, **how: seen.append(call.layer) or head_metrics(call, **how)
        )
        with monitor:  # as the callbacks do: the forward pass is computed again inside
            model(input_ids=batch_at(0), labels=batch_at(0)).loss.backward()
    monitor.step()
    assert seen == list(range(LAYERS))
    assert monitor.run.steps.tolist() == [0]


class CheckpointedEncoder(torch.nn.Module):
    """Torch's own attention, which hides its queries and keys, computed again in the backward pass."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
        self.embedding, self.layer = torch.nn.Embedding(VOCAB, 32), layer

    def forward(self, input_ids):
        x = torch.utils.checkpoint.checkpoint(self.layer, self.embedding(input_ids), use_reentrant=False)
        return x.square().mean()


def test_checkpointed_modules_of_torch_are_undisturbed():
    """What the monitor computes must not count among the tensors that checkpointing saves."""
    torch.manual_seed(0)
    model, results = CheckpointedEncoder().train(), []
    for monitored in (False, True):
        fresh = copy.deepcopy(model)
        monitor = hs.HeadMonitor(fresh, every=1) if monitored else nullcontext()
        torch.manual_seed(1)
        with monitor:
            loss = fresh(batch_at(0))
        loss.backward()
        results.append([loss, *(parameter.grad for parameter in fresh.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


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
