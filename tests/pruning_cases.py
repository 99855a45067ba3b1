"""The families that can be pruned, and what the tests of pruning share."""

import torch

from headscape.models.anatomy import attention_modules
from headscape.recorder.gates import switched_off
from tiny_models import CAUSAL, tiny_model

FAMILIES = (
    *(
        "GPT2",
        "Llama",
        "Mistral",
        "Qwen2",
        "Qwen3",
        "SmolLM3",
        "Phi",
        "Phi3",
        "Gemma",
        "Gemma2",
        "Gemma3Text",
    ),
    *("GPTNeoX", "OPT", "Bert", "Roberta", "DistilBert", "ViT", "DeiT"),
)
LANGUAGE_MODELS = tuple(family for family in FAMILIES if family in CAUSAL)
# Families that take the head dimension from the config, so that an edited config is enough.
PLAIN = {"Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Phi", "Phi3", "Gemma", "Gemma2", "Gemma3Text"} | {
    "ViT",
    "DeiT",
}
GROUPED = PLAIN - {"ViT", "DeiT"}

EVEN = [(0, 1), (0, 3), (1, 0), (1, 2)]


def uneven(family):
    """Different counts per layer; where keys are shared a whole group, and one of each group."""
    return [(0, 0), (0, 1), (1, 1), (1, 2)] if family in GROUPED else [(0, 0), (0, 1), (0, 3), (1, 2)]


def output_of(model, inputs):
    with torch.no_grad():
        return model(**inputs)[0]


def gated_output(model, heads, inputs):
    with switched_off(attention_modules(model), heads):
        return output_of(model, inputs)


def grouped_llama(n_heads, n_kv_heads):
    return tiny_model(
        "Llama", hidden_size=24, num_attention_heads=n_heads, num_key_value_heads=n_kv_heads, head_dim=4
    )
