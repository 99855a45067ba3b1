"""A tiny random model of every family that capture supports, with the inputs of one forward pass.

Weights are scaled up, so that the probabilities of the tiny models are far from uniform: a wrong mask, scale
or bias then shows.
"""

import numpy as np
import torch

VOCAB, LENGTH, WIDTH, LAYERS, HEADS = 48, 12, 32, 2, 4

DECODER = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**DECODER, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
VISION = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
    "num_channels": 3,
}
SLIDING = {"sliding_window": 5}

CAUSAL = {
    "GPT2": {"vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64},
    "Llama": GROUPED,
    "GPTNeoX": DECODER,
    "OPT": {**DECODER, "ffn_dim": 48, "word_embed_proj_dim": WIDTH},
    "Qwen2": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 16},
    "Qwen3Moe": {**GROUPED, **EXPERTS},
    "Phi": GROUPED,
    "Phi3": GROUPED,
    "Mistral": {**GROUPED, **SLIDING},
    "Mixtral": {**GROUPED, **EXPERTS},
    "Gemma": {**GROUPED, "head_dim": 16},
    "Gemma2": {**GROUPED, **SLIDING, "head_dim": 16, "attn_logit_softcapping": 2.0},
    "Gemma3Text": {**GROUPED, **SLIDING, "head_dim": 16},
    "GptOss": {**GROUPED, **EXPERTS, **SLIDING, "head_dim": 16},
    "Olmo2": GROUPED,
    "Cohere": GROUPED,
    "SmolLM3": GROUPED,
    "StableLm": GROUPED,
    "Granite": {**GROUPED, "attention_multiplier": 0.3},
    "DeepseekV3": {
        **DECODER,
        "num_key_value_heads": HEADS,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 16,
    },
    "GPTBigCode": {
        "vocab_size": VOCAB,
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": 64,
        "multi_query": True,
    },
}
BIDIRECTIONAL = {
    "Bert": DECODER,
    "Roberta": DECODER,
    "DistilBert": {
        "vocab_size": VOCAB,
        "dim": WIDTH,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "hidden_dim": 48,
        "max_position_embeddings": 64,
    },
    "ModernBert": {**DECODER, "local_attention": 6, "global_attn_every_n_layers": 2},
    "Esm": {**DECODER, "position_embedding_type": "rotary", "mask_token_id": 3},
    "Albert": {**DECODER, "embedding_size": 16},
}
IMAGES = {
    "ViT": VISION,
    "DeiT": VISION,
    "Dinov2": VISION,
    "DINOv3ViT": VISION,
    "SiglipVision": VISION,
    "Beit": {**VISION, "use_relative_position_bias": True},
    "CLIPVision": VISION,
}
SEQ2SEQ = {
    "T5": {
        "vocab_size": VOCAB,
        "d_model": WIDTH,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "decoder_start_token_id": 0,
    },
    "Bart": {
        "vocab_size": VOCAB,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
    },
}
OTHER = {
    "CLIP": {
        "text_config": {**DECODER, "eos_token_id": 2},
        "vision_config": VISION,
        "projection_dim": 16,
    },
    "Whisper": {
        "vocab_size": VOCAB,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "num_mel_bins": 8,
        "max_source_positions": 10,
        "max_target_positions": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
    "Wav2Vec2": {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 48,
        "conv_dim": (16, 16),
        "conv_kernel": (10, 3),
        "conv_stride": (5, 2),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    },
}
ALL = {**CAUSAL, **BIDIRECTIONAL, **IMAGES, **SEQ2SEQ, **OTHER}
_BLOOM = {"vocab_size": VOCAB, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
_GPTJ = {
    "vocab_size": VOCAB,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "rotary_dim": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_FALCON = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
}
_DISENTANGLED = {
    **DECODER,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": 16,
}
INLINE = {
    "GPTJ": _GPTJ,
    "CodeGen": _GPTJ,
    "GPTNeo": {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 5,
        "max_position_embeddings": 64,
        "intermediate_size": 48,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "Bloom": _BLOOM,
    "Falcon": {**_FALCON, "multi_query": True},
    "Falcon (ALiBi)": {**_FALCON, "alibi": True, "multi_query": False, "parallel_attn": False},
    "Falcon (grouped)": {**_FALCON, "num_kv_heads": 2, "new_decoder_architecture": True},
    "Mpt": {"vocab_size": VOCAB, "d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "max_seq_len": 64},
    "XLNet": {"vocab_size": VOCAB, "d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 48},
    "XLM": {
        "vocab_size": VOCAB,
        "emb_dim": WIDTH,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "max_position_embeddings": 64,
    },
    "RemBert": {**DECODER, "input_embedding_size": 16, "output_embedding_size": 16},
    "Deberta": _DISENTANGLED,
    "DebertaV2": {**_DISENTANGLED, "position_buckets": 8},
}
"""Attention in code of their own: read at its softmax."""
NOT_SEEN = {"Longformer": {**DECODER, "attention_window": 4}}


def tiny_model(family: str, dtype: torch.dtype = torch.float32, **changes: object) -> torch.nn.Module:
    """Return the tiny model of a family, with random weights that depend on nothing but the family."""
    return _tiny(family, f"{family.partition(' ')[0]}Model", dtype, changes)


def tiny_causal_model(family: str, **changes: object) -> torch.nn.Module:
    """Return the tiny language model of a family: with the layer that gives logits of tokens."""
    names = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
    return _tiny(family, names.get(family, f"{family}ForCausalLM"), torch.float32, changes)


def tiny_classifier(family: str, **changes: object) -> torch.nn.Module:
    """Return the tiny classifier of images of a family."""
    return _tiny(family, f"{family}ForImageClassification", torch.float32, changes)


def _tiny(family: str, kind: str, dtype: torch.dtype, changes: dict[str, object]) -> torch.nn.Module:
    values = {**ALL, **INLINE, **NOT_SEEN}[family]
    return tiny_from(family.partition(" ")[0], {**values, **changes}, kind, dtype)


def tiny_from(
    family: str, config: dict[str, object], kind: str | None = None, dtype: torch.dtype = torch.float32
) -> torch.nn.Module:
    """Return the tiny model of a config."""
    import transformers

    made = getattr(transformers, f"{family}Config")(**config)
    torch.manual_seed(sum(map(ord, family)))
    model = getattr(transformers, kind or f"{family}Model")(made).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def token_ids(rows: int = 1, seed: int = 0, length: int = LENGTH) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(4, VOCAB, size=(rows, length)))


def inputs_of(family: str, rows: int = 1) -> dict[str, torch.Tensor]:
    """Return the arguments of a forward pass for a family."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(rows, 3, 16, 16, generator=generator)
    ids = token_ids(rows)
    if family in IMAGES:
        return {"pixel_values": pixels}
    if family in SEQ2SEQ:
        return {"input_ids": ids, "decoder_input_ids": token_ids(rows, seed=2, length=7)}
    if family == "CLIP":
        return {"input_ids": ids, "pixel_values": pixels}
    if family == "Whisper":
        features = torch.randn(rows, 8, 20, generator=generator)
        return {"input_features": features, "decoder_input_ids": token_ids(rows, seed=2, length=7)}
    if family == "Wav2Vec2":
        return {"input_values": torch.randn(rows, 200, generator=generator)}
    return {"input_ids": ids}
