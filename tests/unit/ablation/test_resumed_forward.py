"""Passes that begin at the first touched layer give bit for bit what whole passes give, and really are shorter."""

import numpy as np
import pytest
import torch

import headscape.ablation.resumed_forward as prefix_module
from evaluator_cases import evidence_of
from headscape.ablation.resumed_forward import Prefix
from headscape.models.adapters.attention_interface import NAME
from headscape.recorder.gates import gated, switched_off
from tiny_models import CAUSAL, SEQ2SEQ, inputs_of, tiny_causal_model, tiny_model, token_ids

LAYERS = {"num_hidden_layers": 4}
ENTERED = [
    "Llama",
    "GPTNeoX",
    "OPT",
    "Mistral",
    "Gemma2",
    "Gemma3Text",
    "Bert",
    "Roberta",
    "ViT",
    "SiglipVision",
]


def prefix_of(family, model=None, rows=3, **changes):
    model = model or (tiny_causal_model if family in CAUSAL else tiny_model)(family, **changes)
    evaluator = evidence_of(model, inputs_of(family, rows=rows))
    with gated(evaluator.modules, {}):
        return Prefix(evaluator.modules, evaluator.objective), evaluator


def calls_of(modules):
    """Count how often the code of some modules runs, by the last part of each."""
    counts = [0] * len(modules)

    def counting(i):
        def hook(*_):
            counts[i] += 1

        return hook

    handles = [module.register_forward_hook(counting(i)) for i, module in enumerate(modules)]
    return counts, handles


@pytest.mark.parametrize("family", ENTERED)
def test_losses_are_those_of_whole_passes(family):
    prefix, evaluator = prefix_of(family, **LAYERS)
    assert len(prefix.blocks) == 4
    for off in ([(1, 0)], [(2, 1), (3, 0)], [(3, 3)], [(0, 1), (2, 2)]):
        with switched_off(evaluator.modules, off):
            found = prefix.evaluate(min(layer for layer, _ in off)).losses
            whole = evaluator.objective.evaluate(prefix.model).losses
        assert found.tolist() == whole.tolist()
        assert np.abs(whole - prefix.intact.losses).max() > 1e-5


def test_blocks_before_the_first_touched_one_are_not_computed():
    prefix, evaluator = prefix_of("Llama", **LAYERS)
    counts, handles = calls_of([layer.mlp for layer in prefix.model.model.layers])
    with switched_off(evaluator.modules, [(2, 0)]):
        prefix.evaluate(2)
    assert counts == [0, 0, 1, 1]
    with switched_off(evaluator.modules, [(0, 0)]):
        prefix.evaluate(0)
    assert counts == [1, 1, 2, 2]
    for handle in handles:
        handle.remove()


def test_evidence_uses_it():
    evaluator = evidence_of(tiny_causal_model("Llama", **LAYERS))
    intact = evaluator.losses()
    counts, _ = calls_of([layer.mlp for layer in evaluator.model.model.layers])
    assert (evaluator.losses([(3, 0)]) != intact).all()
    assert evaluator.losses() is intact
    assert counts == [0, 0, 0, 1]


def test_several_batches_keep_apart(monkeypatch):
    monkeypatch.setattr("headscape.ablation.objective._TOKENS_A_BATCH", 24)
    prefix, evaluator = prefix_of("Llama", rows=5, **LAYERS)
    assert len(evaluator.objective.batches) == 3
    with switched_off(evaluator.modules, [(2, 1)]):
        assert (
            prefix.evaluate(2).losses.tolist() == evaluator.objective.evaluate(prefix.model).losses.tolist()
        )


def test_a_single_layer():
    prefix, evaluator = prefix_of("Llama", num_hidden_layers=1)
    with switched_off(evaluator.modules, [(0, 1)]):
        assert (
            prefix.evaluate(0).losses.tolist() == evaluator.objective.evaluate(prefix.model).losses.tolist()
        )


def whole_passes(prefix, evaluator, off):
    with switched_off(evaluator.modules, off):
        found = prefix.evaluate(min(layer for layer, _ in off)).losses
        whole = evaluator.objective.evaluate(evaluator.model).losses
    return not prefix.blocks and found.tolist() == whole.tolist()


def test_layers_that_are_one_module_take_whole_passes():
    assert whole_passes(*prefix_of("Albert"), [(1, 0)])


def test_a_model_that_cannot_be_entered_takes_whole_passes():
    model = tiny_causal_model("Llama", **LAYERS)
    inner, seen = model.model.forward, []

    def remembering(*arguments, **named):
        """Add what the first block computed on the way to what the last one gives."""
        output = inner(*arguments, **named)
        output.last_hidden_state = output.last_hidden_state + 0.1 * seen.pop()
        return output

    model.model.layers[0].mlp.register_forward_hook(lambda _, __, y: seen.__setitem__(slice(None), [y]))
    model.model.forward = remembering
    assert whole_passes(*prefix_of("Llama", model), [(2, 0)])


def test_outputs_that_are_too_large_are_not_kept(monkeypatch):
    monkeypatch.setattr(prefix_module, "MAX_BYTES", 100)
    prefix, evaluator = prefix_of("Llama", **LAYERS)
    assert prefix._outputs == []
    assert whole_passes(prefix, evaluator, [(2, 0)])


@pytest.mark.parametrize("family", sorted(SEQ2SEQ))
@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_stacks_of_encoder_decoder_models(family, stack):
    evaluator = evidence_of(tiny_model(family), inputs_of(family, rows=2), stack=stack)
    evaluator.losses()
    off = [(1, 0)]
    found = evaluator.losses(off)
    with switched_off(evaluator.modules, off):
        assert found.tolist() == evaluator.objective.evaluate(evaluator.model).losses.tolist()


def test_the_model_is_left_as_it_was_after_an_exception():
    prefix, _ = prefix_of("Llama", **LAYERS)
    model = prefix.model

    def broken(*_, **__):
        raise ZeroDivisionError("in the last block")

    ids = token_ids(2)
    with torch.no_grad():
        before = model(ids).logits
    model.model.layers[3].mlp.forward = broken
    with pytest.raises(Exception, match="in the last block"):
        prefix.evaluate(2)
    del model.model.layers[3].mlp.forward
    assert all("forward" not in block.__dict__ for block in prefix.blocks)
    assert all(not block._forward_hooks for block in prefix.blocks)
    assert model.config._attn_implementation != NAME
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)


def test_a_forward_of_the_users_own_comes_back():
    prefix, _ = prefix_of("Llama", **LAYERS)
    block = prefix.model.model.layers[0]
    own = block.forward
    block.forward = own
    prefix.evaluate(2)
    assert block.__dict__["forward"] == own
