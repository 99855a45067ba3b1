"""The registered function: the model is left as it was, masks cannot be missing, gates work."""

import gc

import pytest
import torch

from headscape.errors import InputError, ModelError
from headscape.models.adapters import attention_interface as attention_module
from headscape.models.adapters.attention_interface import NAME, attention, is_plain_causal
from headscape.models.anatomy import observed
from headscape.models.stacks import LayerNumbers
from headscape.recorder.recording import Recording, record_batch
from tiny_models import inputs_of, tiny_model


class Gates:
    """An observer that multiplies the heads of every module by the same factors."""

    def __init__(self, factors):
        self.factors = factors
        self.names = []

    def see(self, call):
        self.names.append(call.name)
        return self.factors


def implementations(model):
    return {id(c): c._attn_implementation_internal for c in attention_module.model_configs(model)}


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Bert", "ViT", "T5", "CLIP", "Gemma2"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_outputs_after_capture_are_unchanged_bit_for_bit(family, implementation):
    model, inputs = tiny_model(family), inputs_of(family)
    if family == "Gemma2" and implementation == "sdpa":
        pytest.skip("sdpa knows no soft cap")
    model.set_attn_implementation(implementation)

    def output():
        with torch.no_grad():
            out = model(**inputs)
        return out.image_embeds if family == "CLIP" else out.last_hidden_state

    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before, settings = output(), implementations(model)
    record_batch(model, inputs)
    assert implementations(model) == settings
    assert torch.equal(output(), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_causal_output_while_recording_is_that_of_sdpa_bit_for_bit():
    model, inputs = tiny_model("Llama"), inputs_of("Llama")
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
        with observed(model, Recording(1)):
            ours = model(**inputs).last_hidden_state
    assert torch.equal(plain, ours)


def test_an_exception_puts_everything_back():
    model = tiny_model("Llama")
    settings = implementations(model)
    model.layers[1].mlp.train()
    modes = [module.training for module in model.modules()]
    with pytest.raises(ModelError, match="failed on the batch"):
        record_batch(model, {"input_ids": torch.tensor([[10**6]])})
    assert implementations(model) == settings
    assert [module.training for module in model.modules()] == modes
    gc.collect()
    assert not any(module in attention_module._watched for module in model.modules())


def test_hooks_of_the_user_stay():
    model, calls = tiny_model("Bert"), []
    model.encoder.layer[0].register_forward_hook(lambda *args: calls.append(1))
    record_batch(model, inputs_of("Bert"))
    record_batch(model, inputs_of("Bert"))
    assert len(calls) == 2
    assert len(model.encoder.layer[0]._forward_hooks) == 1


def test_a_model_that_is_not_from_transformers_is_refused():
    with pytest.raises(
        ModelError, match=r"cannot observe attention of Linear: not a transformers model .*Llama"
    ):
        record_batch(torch.nn.Linear(2, 2), inputs_of("Llama"))
    with pytest.raises(InputError, match="inputs must hold tensors, such as input_ids, but have nothing"):
        record_batch(tiny_model("Llama"), {})


def test_a_causal_module_without_a_mask_is_refused():
    module = torch.nn.Module()
    module.is_causal = True
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ModelError, match="would see the future"):
        attention(module, q, q, q, None)
    assert attention(module, q[:, :, :1], q, q, None)[0].shape == (1, 1, 2, 4)


def test_a_mask_that_is_not_registered_cannot_go_unnoticed(monkeypatch):
    from transformers import AttentionInterface, AttentionMaskInterface

    def forget_the_mask():
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface._global_mapping.pop(NAME, None)

    monkeypatch.setattr(attention_module, "_register", forget_the_mask)
    with pytest.raises(ModelError, match="would see the future"):
        record_batch(tiny_model("Llama"), inputs_of("Llama"))


def test_plain_causal_masks_are_recognized():
    lowest = torch.finfo(torch.float32).min
    causal = torch.full((300, 300), lowest).triu(1)[None, None]
    assert is_plain_causal(causal)
    assert is_plain_causal(causal.expand(2, 1, 300, 300))
    for place, value in (((280, 2), lowest), ((3, 290), 0.0), ((5, 5), 0.5)):
        changed = causal.clone()
        changed[0, 0][place] = value
        assert not is_plain_causal(changed)
    assert not is_plain_causal(causal[..., :200, :])
    assert is_plain_causal(causal > -1)
    assert not is_plain_causal(causal < -1)


def test_gates_switch_heads_off_and_multiply_when_nested():
    model, inputs = tiny_model("Llama"), inputs_of("Llama")

    def heads_output(*factors):
        seen = []
        handle = model.layers[0].self_attn.o_proj.register_forward_pre_hook(
            lambda _, args: seen.append(args[0])
        )
        gates = [Gates(torch.tensor(f)) for f in factors]
        with torch.no_grad():
            if len(gates) == 2:
                with observed(model, gates[0]), observed(model, gates[1]):
                    model(**inputs)
            else:
                with observed(model, gates[0]):
                    model(**inputs)
        handle.remove()
        assert gates[0].names[0] == "layers.0.self_attn"
        return seen[0].unflatten(-1, (4, 8))

    plain = heads_output([1.0, 1.0, 1.0, 1.0])
    gated = heads_output([1.0, 0.0, 0.5, 1.0])
    assert not gated[:, :, 1].any()
    assert torch.equal(gated[:, :, [0, 3]], plain[:, :, [0, 3]])
    assert torch.allclose(gated[:, :, 2], plain[:, :, 2] / 2)
    nested = heads_output([1.0, 1.0, 0.5, 1.0], [1.0, 1.0, 0.5, 0.0])
    assert torch.allclose(nested[:, :, 2], plain[:, :, 2] / 4)
    assert not nested[:, :, 3].any()


@pytest.mark.parametrize("terms", [{}, {"softcap": 2.0}, {"s_aux": True}, {"position_bias": True}])
def test_gradients_flow_through_gates_and_all_terms(terms):
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 5, 3), torch.randn(1, 2, 5, 3), torch.randn(1, 2, 5, 3)
    mask = torch.full((5, 5), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)[None, None]
    extra = dict(terms)
    if "s_aux" in terms:
        extra["s_aux"] = torch.randn(4, dtype=torch.float64)
    if "position_bias" in terms:
        extra["position_bias"] = torch.randn(1, 4, 5, 5, dtype=torch.float64)
    module = torch.nn.Module()
    module.num_key_value_groups = 2

    def output(gate, *tensors):
        attention_module._watched[module] = [("attn", LayerNumbers(), Gates(gate))]
        return attention(module, *tensors, mask, scaling=0.7, **extra)[0]

    arguments = [x.double().requires_grad_() for x in (torch.rand(4), q, k, v)]
    assert torch.autograd.gradcheck(output, arguments)
