"""What the tests of rankings, repair and ablation share: evaluator from tiny models and token ids."""

import torch

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import objective_for
from headscape.models.loading import as_model
from headscape.recorder.inputs import InputReader
from tiny_models import tiny_causal_model, token_ids


def windows_of(model, inputs, tokenizer=None, length=12):
    return InputReader(model, tokenizer, length).read(inputs)


def objective_of(model, inputs, tokenizer=None, **options):
    loaded = as_model(model, tokenizer)
    return objective_for(loaded, windows_of(model, inputs, tokenizer), **options)


def evidence_of(model, inputs=None, tokenizer=None, **options):
    """Return evaluator on any inputs; by default four rows of token ids."""
    given = token_ids(4) if inputs is None else inputs
    return HeadEvaluator(as_model(model, tokenizer), windows_of(model, given, tokenizer), **options)


def continued(model, rows, seed=0, length=12):
    """Return token ids (row, token) that a model continues as it likes, so that it is sure of them."""
    begin = torch.cat([token_ids(1, seed=seed + row, length=2) for row in range(rows)])
    with torch.no_grad():
        return model.generate(begin, max_new_tokens=length - 2, do_sample=False, eos_token_id=None)


def state_of(model):
    return {name: x.clone() for name, x in model.state_dict().items()}


def unchanged(model, before):
    now = model.state_dict()
    return now.keys() == before.keys() and all(torch.equal(now[name], x) for name, x in before.items())


def wide_llama(**changes):
    """A language model with one key-value head per head, whose heads can be changed one by one."""
    return tiny_causal_model("Llama", **{"num_key_value_heads": 4, **changes})


def head_rows(head, size=8):
    return slice(head * size, (head + 1) * size)


def silence(model, pairs):
    """Set the value weights of heads of a Llama without shared keys to 0."""
    with torch.no_grad():
        for layer, head in pairs:
            model.model.layers[layer].self_attn.v_proj.weight[head_rows(head)] = 0.0


def copy_head(model, layer, source, target):
    """Let a head of a Llama without shared keys compute what another does; the output weights stay its own."""
    attention = model.model.layers[layer].self_attn
    with torch.no_grad():
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            part.weight[head_rows(target)] = part.weight[head_rows(source)]
