"""Where attention modules keep their projections, family by family: what has to change when heads go.

Only what the forward of a module reads is listed. Rotations and normalizations of queries and keys work on
each head alone in all of these families (a norm's weight is shared by the heads), so they stay as they are,
and so does the scale, OPT's factor on the queries included: it follows the head dimension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Count = Literal["heads", "kv_heads", "heads_per_kv_head", "width"]
BESIDE = "../"


@dataclass(frozen=True)
class Family:
    """How the attention modules of a family are built.

    Attributes
    ----------
    inputs
        The projections to queries, keys and values, or the one that makes all three.
    output
        The output projection: inside the module, or beside it if the name begins with "../".
    head_by_head
        Whether one projection makes query, key and value of the first head, then of the second, and so on;
        else all queries come before all keys before all values.
    counts
        Which attributes of the module hold which count.
    reads_config
        Whether the forward takes the number of heads from the config, which all layers share.
    """

    inputs: tuple[str, ...]
    output: str
    head_by_head: bool = False
    counts: Mapping[str, Count] = field(default_factory=dict)
    reads_config: bool = False


_APART = ("q_proj", "k_proj", "v_proj")
_LLAMA = Family(_APART, "o_proj", counts={"num_key_value_groups": "heads_per_kv_head"})
_BERT = Family(
    ("query", "key", "value"),
    f"{BESIDE}output.dense",
    counts={"num_attention_heads": "heads", "all_head_size": "width"},
)
_VIT = Family(_APART, "o_proj", counts={"num_attention_heads": "heads"})

FAMILIES: Mapping[str, Family] = {
    "GPT2Attention": Family(("c_attn",), "c_proj", counts={"num_heads": "heads", "split_size": "width"}),
    "LlamaAttention": _LLAMA,
    "MistralAttention": _LLAMA,
    "Qwen2Attention": _LLAMA,
    "Qwen3Attention": _LLAMA,
    "SmolLM3Attention": _LLAMA,
    "GemmaAttention": _LLAMA,
    "Gemma2Attention": _LLAMA,
    "Gemma3Attention": _LLAMA,
    "PhiAttention": Family(_APART, "dense", counts={"num_key_value_groups": "heads_per_kv_head"}),
    "Phi3Attention": Family(
        ("qkv_proj",),
        "o_proj",
        counts={"num_key_value_groups": "heads_per_kv_head", "num_key_value_heads": "kv_heads"},
        reads_config=True,
    ),
    "GPTNeoXAttention": Family(("query_key_value",), "dense", head_by_head=True),
    "OPTAttention": Family(_APART, "out_proj", counts={"num_heads": "heads"}),
    "BertSelfAttention": _BERT,
    "RobertaSelfAttention": _BERT,
    "DistilBertSelfAttention": Family(("q_lin", "k_lin", "v_lin"), "out_lin", counts={"n_heads": "heads"}),
    "ViTAttention": _VIT,
    "DeiTAttention": _VIT,
}

PRUNABLE_FAMILIES = (
    "GPT-2, Llama (SmolLM, SmolLM2), Mistral, Qwen2, Qwen3, SmolLM3, Phi, Phi-3, Gemma 1 to 3, GPT-NeoX (Pythia), "
    "OPT, BERT, RoBERTa, DistilBERT, ViT, DeiT"
)
