"""Models that cannot be observed as they are: each says what to do, or is made to work."""

import pytest
import torch
import transformers
from transformers.models.gptj import modeling_gptj

import headscape as hs
from headscape.errors import ModelError
from headscape.models.anatomy import attention_modules
from headscape.models.loading import as_model
from headscape.recorder.gates import switched_off
from headscape.recorder.recording import record_batch
from headscape.tensor.fields import probs
from tiny_models import CAUSAL, inputs_of, tiny_model, token_ids


@pytest.mark.parametrize(
    "ask", [hs.capture, hs.analyze, hs.check, lambda model, _: hs.prune(model, [(0, 0)])]
)
def test_a_model_on_meta_is_refused(ask):
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CAUSAL["GPT2"]))
    with pytest.raises(ModelError, match="meta device"):
        ask(model, token_ids())


@pytest.mark.parametrize("family", ["Llama", "GPTJ"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_is_observed_uncompiled(family, in_place):
    model, inputs, graphs = tiny_model(family), inputs_of(family), []
    (wanted,) = record_batch(tiny_model(family), inputs)

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    if in_place:
        model.compile(backend=backend)
        compiled = model
    else:
        compiled = torch.compile(model, backend=backend)
    capture = hs.capture(compiled, inputs["input_ids"])
    for record in wanted:
        for head in range(record.n_heads):
            found = capture.record(0, record.layer)
            assert (probs(found, head) == probs(record, head)).all()
    assert graphs == []


def test_gates_work_in_a_compiled_model():
    model, inputs = tiny_model("Llama"), inputs_of("Llama")
    compiled = torch.compile(model, backend="eager")
    with switched_off(attention_modules(model), [(0, 1)]), torch.no_grad():
        wanted = model(**inputs)[0]
    with switched_off(as_model(compiled).modules(), [(0, 1)]), torch.no_grad():
        torch.testing.assert_close(compiled(**inputs)[0], wanted)


def test_flash_attention_on_a_cpu_says_what_to_load():
    model = tiny_model("GPTJ")
    for layer in model.h:
        layer.attn.__class__ = modeling_gptj.GPTJFlashAttention2
        layer.attn._flash_attn_uses_top_left_mask = False
    with pytest.raises(ModelError, match=r"flash-attention kernel.*attn_implementation='eager'"):
        hs.capture(model, token_ids())


def test_a_kernel_that_hides_attention_is_named():
    with pytest.raises(ModelError, match=r"no attention was seen.*attn_implementation='eager'"):
        hs.capture(tiny_model("Longformer"), token_ids())
