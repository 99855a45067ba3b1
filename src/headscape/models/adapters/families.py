"""The one table of model families: where attention modules keep their projections, and what models are trained for.

Only what the forward of a module reads is listed. Rotations and normalizations of queries and keys work on each
head alone in the families whose heads can be cut out (a norm's weight is shared by the heads), so they stay as
they are, and so does the scale, OPT's factor on the queries included: it follows the head dimension.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Count = Literal["heads", "kv_heads", "heads_per_kv_head", "width"]
Task = Literal["next token", "decoded token", "masked token", "label"]
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
        Whether one projection makes query, key and value of the first head, then of the second, and so on
        (unless keys are shared); else all queries come before all keys before all values.
    counts
        Which attributes of the module hold which count; None if heads cannot be cut out.
    reads_config
        Whether the forward takes the number of heads from the config, which all layers share.
    """

    inputs: tuple[str, ...]
    output: str
    head_by_head: bool = False
    counts: Mapping[str, Count] | None = None
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
    "GPTBigCodeAttention": Family(("c_attn",), "c_proj", head_by_head=True),
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
    "GPTNeoXAttention": Family(("query_key_value",), "dense", head_by_head=True, counts={}),
    "OPTAttention": Family(_APART, "out_proj", counts={"num_heads": "heads"}),
    "BertSelfAttention": _BERT,
    "RobertaSelfAttention": _BERT,
    "DistilBertSelfAttention": Family(("q_lin", "k_lin", "v_lin"), "out_lin", counts={"n_heads": "heads"}),
    "ViTAttention": _VIT,
    "DeiTAttention": _VIT,
}
"""By the class of the attention module."""

INPUTS = (
    _APART,
    *(("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("query_proj", "key_proj", "value_proj")),
    *(("q", "k", "v"), ("qkv_proj",), ("Wqkv",), ("qkv",), ("in_proj",), ("query_key_value",), ("c_attn",)),
)
HEAD_BY_HEAD = (("query_key_value",),)
OUTPUTS = ("o_proj", "out_proj", "c_proj", "out_lin", "dense", "Wo", "o", "projection", "proj")
"""What modules of other classes call their projections, which is enough to read their weights."""

WORKING_FAMILIES = (
    "GPT-2, Llama, GPT-NeoX (Pythia), OPT, BERT, RoBERTa, DistilBERT, ModernBERT, ViT, DeiT, DINOv2/3, SigLIP, "
    "BEiT, CLIP, Qwen2/3, Phi, Phi-3, Mistral, Mixtral, Gemma 2/3, GPT-OSS, OLMo 2, Cohere, SmolLM3, StableLM, "
    "Granite, DeepSeek-V3, T5, BART, Whisper, Wav2Vec2, ESM, GPTBigCode; read at the softmax: GPT-J, GPT-Neo, CodeGen, "
    "BLOOM, Falcon, MPT, XLNet, XLM, RemBERT, DeBERTa, DeBERTa-v2"
)
PRUNABLE_FAMILIES = (
    "GPT-2, Llama (SmolLM, SmolLM2), Mistral, Qwen2, Qwen3, SmolLM3, Phi, Phi-3, Gemma 1 to 3, GPT-NeoX (Pythia), "
    "OPT, BERT, RoBERTa, DistilBERT, ViT, DeiT"
)

TASKS: Mapping[str, Task] = {
    "CausalLM": "next token",
    "LMHead": "next token",
    "ConditionalGeneration": "decoded token",
    "MaskedLM": "masked token",
    "Classification": "label",
}
"""What a model predicts, by a part of its class's name."""


def known_family(kind: type) -> Family | None:
    """Return the row of an attention module's class, or None."""
    # A class of the same name that comes with a model may compute something else.
    return FAMILIES.get(kind.__name__) if kind.__module__.startswith("transformers.models.") else None


def task_of(model: object) -> Task | None:
    """Return what a model predicts, or None for models without an output layer.

    Examples
    --------
    >>> class LlamaForCausalLM: ...
    >>> task_of(LlamaForCausalLM()), task_of(None)
    ('next token', None)
    """
    name = type(model).__name__
    return next((task for part, task in TASKS.items() if part in name), None)
