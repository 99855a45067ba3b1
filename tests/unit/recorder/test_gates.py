"""Gates: switching a head off equals zeroing its columns of the output projection, in every family."""

import pytest
import torch

from headscape.errors import InputError, ModelError
from headscape.models.anatomy import attention_modules, of_stack, output_projections
from headscape.models.projection import put_back
from headscape.recorder.gates import gated, switched_off
from tiny_models import ALL, inputs_of, tiny_model

SHARED_WEIGHTS = {"Albert"}


def output_of(model, inputs):
    with torch.no_grad():
        outputs = model(**inputs)
    return torch.cat([x.flatten() for x in outputs.to_tuple() if isinstance(x, torch.Tensor)])


@pytest.mark.parametrize("family", sorted(set(ALL) - SHARED_WEIGHTS))
def test_a_gated_head_equals_zeroed_output_weights(family):
    model, inputs = tiny_model(family), inputs_of(family)
    intact = output_of(model, inputs)
    every = attention_modules(model, inputs)
    for stack in dict.fromkeys(module.stack for module in every):
        modules = of_stack(every, stack)
        last = modules[-1]
        off = [(modules[0].layer, 1), (last.layer, 0), (last.layer, last.n_heads - 1)]
        with switched_off(modules, off):
            by_gates = output_of(model, inputs)
        projections = output_projections(modules)
        with put_back(projections.values()), torch.no_grad():
            for layer, head in off:
                projections[layer].matrix[:, projections[layer].columns([head])] = 0.0
            by_weights = output_of(model, inputs)
        torch.testing.assert_close(by_gates, by_weights, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(by_gates, intact, atol=1e-3)
    assert torch.equal(output_of(model, inputs), intact)


def test_layers_that_share_their_weights_are_gated_apart_and_have_no_projection_of_their_own():
    model, inputs = tiny_model("Albert"), inputs_of("Albert")
    modules = attention_modules(model, inputs)
    assert [module.layer for module in modules] == [0, 1]
    outputs = []
    for layer in (0, 1):
        with switched_off(modules, [(layer, 2)]):
            # Twice: the count of layers starts anew with every pass.
            outputs += [output_of(model, inputs), output_of(model, inputs)]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[2], outputs[3])
    assert not torch.allclose(outputs[0], outputs[2])
    with pytest.raises(ModelError, match="share their weights"):
        output_projections(modules)


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Gemma2", "Bert", "ViT"])
def test_gradient_of_the_gates_agrees_with_finite_differences(family):
    model, inputs = tiny_model(family, torch.float64), inputs_of(family)
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    modules = attention_modules(model, inputs)

    def loss(gates):
        with gated(modules, gates):
            return model(**inputs).last_hidden_state.square().mean()

    gates = {m.layer: torch.ones(m.n_heads, dtype=torch.float64, requires_grad=True) for m in modules}
    gradients = torch.autograd.grad(loss(gates), list(gates.values()))
    # RMSNorm works in float32 whatever the model's dtype, so the step is large and the stencil of fourth order.
    step, stencil = 0.02, {1: 8 / 12, -1: -8 / 12, 2: -1 / 12, -2: 1 / 12}
    for layer, gradient in zip(gates, gradients, strict=True):
        for head in range(len(gradient)):
            slope = 0.0
            for places, weight in stencil.items():
                moved = {at: gate.detach().clone() for at, gate in gates.items()}
                moved[layer][head] += places * step
                slope += weight * loss(moved).item() / step
            assert slope == pytest.approx(gradient[head].item(), rel=1e-3, abs=2e-5)


def test_unknown_heads_are_named():
    model, inputs = tiny_model("GPT2"), inputs_of("GPT2")
    modules = attention_modules(model, inputs)
    with (
        pytest.raises(InputError, match=r"it has no \(5, 0\): its layers go from 0 to 1, with 4 heads"),
        switched_off(modules, [(0, 0), (5, 0)]),
    ):
        pass
