"""Attention modules: the same with and without inputs, every head of every stack, found once by every command."""

import copy

import pytest
import torch

import headscape as hs
from headscape.errors import InputError, ModelError
from headscape.models import loading
from headscape.models.adapters.families import FAMILIES, task_of
from headscape.models.anatomy import attention_modules, heads_of, of_stack
from headscape.models.loading import as_model
from tiny_models import ALL, HEADS, LAYERS, inputs_of, tiny_causal_model, tiny_model, token_ids


def facts(modules):
    return [(m.name, m.stack, m.layer, m.n_heads, m.n_kv_heads, m.head_dim) for m in modules]


@pytest.mark.parametrize("family", ALL)
def test_random_inputs_show_the_modules_that_real_ones_show(family):
    model = tiny_model(family)
    found = attention_modules(model)
    assert facts(found) == facts(attention_modules(model, inputs_of(family)))
    assert all(module.module is model.get_submodule(module.name) for module in found)


def test_every_head_is_named_layer_major():
    modules = attention_modules(tiny_model("Llama"))
    assert facts(modules) == [(f"layers.{i}.self_attn", "self", i, HEADS, 2, 8) for i in range(LAYERS)]
    assert heads_of(modules) == tuple((layer, head) for layer in range(LAYERS) for head in range(HEADS))


def test_stacks_are_told_apart():
    modules = attention_modules(tiny_model("T5"))
    assert [module.stack for module in modules] == ["encoder"] * 2 + ["decoder"] * 2 + ["cross"] * 2
    assert {module.stack for module in of_stack(modules)} == {"encoder"}
    assert [module.layer for module in of_stack(modules, "cross")] == [0, 1]
    with pytest.raises(InputError, match="stack must be one of encoder, decoder, cross, but is 'vision'"):
        of_stack(modules, "vision")


@pytest.mark.parametrize("family", ["GPT2", "Llama", "GPTNeoX", "Phi3", "Bert"])
def test_weights_have_a_block_per_head(family):
    for module in attention_modules(tiny_model(family)):
        w_q, w_k, w_v = module.weights()
        assert w_q.shape == (HEADS, module.head_dim, 32)
        assert w_k.shape == w_v.shape == (module.n_kv_heads, module.head_dim, 32)
        assert module.output.matrix.shape == (32, HEADS * module.head_dim)


def test_what_models_predict():
    models = [tiny_causal_model("GPT2"), tiny_causal_model("Llama"), tiny_model("Bert")]
    assert [task_of(model) for model in models] == ["next token", "next token", None]


def test_the_table_names_classes_of_transformers():
    import transformers

    words = {kind.removesuffix("Attention").removesuffix("Self") for kind in FAMILIES}
    assert all(hasattr(transformers, f"{word}PreTrainedModel") for word in words)


def test_models_that_hide_their_attention_are_refused():
    with pytest.raises(ModelError, match="no attention was seen: Linear"):
        attention_modules(torch.nn.Linear(2, 2), {"input": torch.zeros(1, 2)})
    with pytest.raises(ModelError, match="no attention was seen: LongformerModel"):
        attention_modules(tiny_model("Longformer"))
    with pytest.raises(ModelError, match="not known what Linear takes"):
        attention_modules(torch.nn.Linear(2, 2))


@pytest.fixture
def passes(monkeypatch):
    """Count the passes that look for attention modules."""
    counted = []

    def counting(model, arguments=None):
        counted.append(type(model).__name__)
        return attention_modules(model, arguments)

    monkeypatch.setattr(loading, "attention_modules", counting)
    return counted


def test_a_command_finds_the_modules_once(passes):
    model, ids = tiny_causal_model("Llama"), token_ids(4)
    hs.prune(model, [(0, 0), (0, 1)])
    assert len(passes) == 1
    trial = hs.pruning_trial(model, ids, fraction=0.25)
    assert len(passes) == 2
    trial.prune(timing=False)
    assert len(passes) == 2
    hs.ablation_study(model, ids, ["gradient", "reconstruction+repair", "random"], [1, 2], draws=2)
    assert len(passes) == 3


def test_modules_are_remembered_until_heads_are_cut_out(passes):
    loaded = as_model(tiny_causal_model("GPT2"))
    assert loaded.modules() is loaded.modules()
    assert len(passes) == 1
    hs.prune(loaded, [(1, 0)], in_place=True)
    assert [module.n_heads for module in loaded.modules()] == [HEADS, HEADS - 1]
    assert len(passes) == 2


def test_a_copy_of_a_model_has_modules_of_its_own():
    model = tiny_model("Llama")
    assert attention_modules(copy.deepcopy(model))[0].module is not attention_modules(model)[0].module
