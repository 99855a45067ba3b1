"""Every family that was tried, and what works with it: the rows of ``headscape info --models`` and of the docs.

    PYTHONPATH=src:tests python tests/tried_models.py

writes the table anew; ``tests/oracle/models/test_tried_models.py`` tries every row again. A family joins by an entry in
``FAMILIES`` with a function that makes a small model and its inputs.
"""

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import headscape as hs
from headscape.errors import HeadscapeError, ModelError
from headscape.models.adapters.attention_interface import model_configs
from headscape.models.anatomy import adapter_for, attention_modules
from headscape.recorder.gates import switched_off
from headscape.recorder.recording import record_batch
from headscape.tensor.fields import probs
from tiny_models import (
    BIDIRECTIONAL,
    CAUSAL,
    DECODER,
    EXPERTS,
    GROUPED,
    HEADS,
    IMAGES,
    INLINE,
    LAYERS,
    NOT_SEEN,
    OTHER,
    SEQ2SEQ,
    SLIDING,
    VISION,
    VOCAB,
    WIDTH,
    inputs_of,
    tiny_from,
    tiny_model,
    token_ids,
)

FILE = Path(__file__).parents[1] / "src" / "headscape" / "models" / "tried_models.json"
FORMAT = "headscape/tried-models/1"
COLUMNS = ["family", "input", "seen by", "observe", "gate", "prune", "agreement", "remark"]
AGREEMENT = 1e-5
Arguments = dict[str, torch.Tensor]


class Tried(NamedTuple):
    """One family: what it reads, how a small one is made, and its own probabilities per record."""

    kind: str
    make: Callable[[], tuple[torch.nn.Module, Arguments]]


def _of(kind: str, family: str, config: dict[str, Any] | None = None, inputs: Any = None) -> Tried:
    def make() -> tuple[torch.nn.Module, Arguments]:
        if config is None:
            return tiny_model(family), inputs_of(family, rows=2)
        return tiny_from(family, config), inputs()

    return Tried(kind, make)


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _tokens() -> Arguments:
    return {"input_ids": token_ids(2)}


def _both() -> Arguments:
    return {"input_ids": token_ids(2), "decoder_input_ids": token_ids(2, seed=2, length=7)}


def _sound() -> Arguments:
    return {"input_values": _noise(2, 200)}


def _pixels(side: int = 16) -> Callable[[], Arguments]:
    return lambda: {"pixel_values": _noise(2, 3, side, side)}


_AUDIO = OTHER["Wav2Vec2"]
_BART = {**SEQ2SEQ["Bart"], "pad_token_id": 0, "decoder_start_token_id": 0}
_SWIN = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [1, 1],
    "num_heads": [2, 4],
    "window_size": 4,
}
_MORE: dict[str, Tried] = {
    "BioGpt": _of("text", "BioGpt", DECODER, _tokens),
    "BigBird (full attention)": _of(
        "text", "BigBird", {**DECODER, "attention_type": "original_full"}, _tokens
    ),
    "CTRL": _of(
        "text",
        "CTRL",
        {
            "vocab_size": VOCAB,
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "dff": 48,
            "n_positions": 64,
        },
        _tokens,
    ),
    "Cohere2": _of("text", "Cohere2", {**GROUPED, **SLIDING}, _tokens),
    "Electra": _of("text", "Electra", {**DECODER, "embedding_size": 16}, _tokens),
    "Glm": _of("text", "Glm", {**GROUPED, "head_dim": 8}, _tokens),
    "MPNet": _of("text", "MPNet", DECODER, _tokens),
    "Nemotron": _of("text", "Nemotron", GROUPED, _tokens),
    "Olmo": _of("text", "Olmo", GROUPED, _tokens),
    "Persimmon": _of("text", "Persimmon", DECODER, _tokens),
    "Qwen2Moe": _of(
        "text", "Qwen2Moe", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 16}, _tokens
    ),
    "RoFormer": _of("text", "RoFormer", DECODER, _tokens),
    "Starcoder2": _of("text", "Starcoder2", GROUPED, _tokens),
    "XLMRoberta": _of("text", "XLMRoberta", DECODER, _tokens),
    "MBart": _of("text to text", "MBart", _BART, _both),
    "Marian": _of("text to text", "Marian", _BART, _both),
    "Pegasus": _of("text to text", "Pegasus", _BART, _both),
    "MT5": _of("text to text", "MT5", SEQ2SEQ["T5"], _both),
    "Yolos": _of("image", "Yolos", {**VISION, "image_size": [16, 16], "num_detection_tokens": 4}, _pixels()),
    "ViTMSN": _of("image", "ViTMSN", VISION, _pixels()),
    "Segformer": _of(
        "image",
        "Segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [7, 3],
            "strides": [2, 2],
            "num_attention_heads": [2, 4],
            "mlp_ratios": [2, 2],
        },
        _pixels(),
    ),
    "Pvt": _of(
        "image",
        "Pvt",
        {
            "image_size": 64,
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
        },
        _pixels(64),
    ),
    "VideoMAE": _of(
        "video",
        "VideoMAE",
        {**VISION, "num_frames": 4, "tubelet_size": 2},
        lambda: {"pixel_values": _noise(2, 4, 3, 16, 16)},
    ),
    "AST": _of(
        "audio",
        "AST",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": 48,
            "patch_size": 4,
            "num_mel_bins": 16,
            "max_length": 24,
            "frequency_stride": 4,
            "time_stride": 4,
        },
        lambda: {"input_values": _noise(2, 24, 16)},
    ),
    "Hubert": _of("audio", "Hubert", _AUDIO, _sound),
    "UniSpeech": _of("audio", "UniSpeech", _AUDIO, _sound),
    "SEW": _of("audio", "SEW", {**_AUDIO, "squeeze_factor": 1}, _sound),
    "Data2VecAudio": _of(
        "audio",
        "Data2VecAudio",
        {**_AUDIO, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2},
        _sound,
    ),
    "Wav2Vec2Conformer": _of("audio", "Wav2Vec2Conformer", _AUDIO, _sound),
    "Speech2Text": _of(
        "audio",
        "Speech2Text",
        {**OTHER["Whisper"], "input_feat_per_channel": 8, "conv_channels": 16, "max_source_positions": 40},
        lambda: {"input_features": _noise(2, 40, 8), "decoder_input_ids": token_ids(2, length=7)},
    ),
}
_REFUSED: dict[str, Tried] = {
    **{name: _of("text", name) for name in NOT_SEEN},
    "FNet": _of(
        "text",
        "FNet",
        {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": 48},
        _tokens,
    ),
    "Funnel": _of(
        "text",
        "Funnel",
        {
            "vocab_size": VOCAB,
            "d_model": WIDTH,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "n_head": HEADS,
            "d_head": 8,
            "d_inner": 48,
        },
        _tokens,
    ),
    "Swin": _of("image", "Swin", _SWIN, _pixels()),
    "Swinv2": _of("image", "Swinv2", _SWIN, _pixels()),
    "WavLM": _of("audio", "WavLM", _AUDIO, _sound),
}


def _transformer_xl() -> tuple[torch.nn.Module, Arguments]:
    from headscape.models.transformer_xl.model import TransfoXLConfig, TransfoXLLMHeadModel

    sizes = {
        "d_model": WIDTH,
        "d_embed": WIDTH,
        "d_inner": 48,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "d_head": 8,
    }
    torch.manual_seed(0)
    model = TransfoXLLMHeadModel(
        TransfoXLConfig(vocab_size=VOCAB, cutoffs=[20], div_val=2, mem_len=12, **sizes)
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    model.eval()
    return model, {"input_ids": token_ids(2), "mems": model.remember(token_ids(2, seed=3))}


FAMILIES: dict[str, Tried] = {
    **{name: _of("text", name) for name in (*CAUSAL, *INLINE, *BIDIRECTIONAL)},
    "Transformer-XL (ours)": Tried("text", _transformer_xl),
    **{name: _of("text to text", name) for name in SEQ2SEQ},
    **{name: _of("image", name) for name in IMAGES},
    "CLIP": _of("image and text", "CLIP"),
    **{name: _of("audio", name) for name in ("Wav2Vec2", "Whisper")},
    **_MORE,
    **_REFUSED,
}


def tried_row(family: str) -> dict[str, str]:
    """Try a family, and return its row."""
    tried = FAMILIES[family]
    model, inputs = tried.make()
    row = dict.fromkeys(COLUMNS, "")
    row |= {"family": family, "input": tried.kind, "observe": "no", "gate": "no", "prune": "no"}
    try:
        records = record_batch(model, inputs)
    except ModelError as error:
        return {**row, "remark": _reason(str(error))}
    row |= {"seen by": adapter_for(model).name, "observe": "yes"}
    difference = _difference(records, _own_attentions(model, inputs))
    row["agreement"] = f"{AGREEMENT:.0e}" if difference < AGREEMENT else f"{difference:.1g}"
    if not all(record.has_products for record in records[0]):
        row["remark"] = "logits, without queries and keys"
    modules = [m for m in attention_modules(model, inputs) if m.stack == records[0][0].stack]
    last = modules[-1]
    heads = [(last.layer, head) for head in range(max(1, last.n_heads // last.n_kv_heads))]
    heads = heads if last.n_kv_heads > 1 else heads[:1]
    with switched_off(modules, []):
        intact = _output(model, inputs)
    with switched_off(modules, heads):
        gated = _output(model, inputs)
    row["gate"] = "yes" if last.n_heads == 1 or not torch.allclose(gated, intact) else "no"
    try:
        smaller = hs.prune(model, heads).model
    except HeadscapeError:
        return row
    with switched_off(attention_modules(smaller, inputs), []):
        close = torch.allclose(_output(smaller, inputs), gated, atol=1e-4, rtol=1e-4)
    return {**row, "prune": "yes" if close else "no"}


def _reason(error: str) -> str:
    if "splits a window into pieces" in error:
        return "no: shifted windows"
    return "no: hidden code" if "no attention was seen" in error else error


def _output(model: torch.nn.Module, inputs: Arguments) -> torch.Tensor:
    with torch.no_grad():
        out: Any = model(**inputs)
    if hasattr(out, "image_embeds"):
        return torch.cat([out.image_embeds, out.text_embeds])
    return out.encoder_last_hidden_state if hasattr(out, "encoder_last_hidden_state") else out[0]


def _own_attentions(model: torch.nn.Module, inputs: Arguments) -> list[np.ndarray]:
    """The probabilities that the model's own eager code returns, (batch, head, query, key) each."""
    before = [(config, config._attn_implementation_internal) for config in model_configs(model)]
    try:
        for config, _ in before:
            config._attn_implementation_internal = "eager"
        with torch.no_grad():
            out: Any = model(**inputs, output_attentions=True)
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation
    parts = [getattr(out, f"{part}_model_output", None) for part in ("text", "vision")]
    found = []
    for one in [part for part in parts if part is not None] or [out]:
        for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
            found += [x.numpy() for x in getattr(one, name, None) or ()]
    rows = len(next(iter(inputs.values())))
    # XLNet returns (query, key, batch, head).
    return [x if len(x) == rows else x.transpose(2, 3, 0, 1) for x in found]


def _difference(rows: list[Any], own: list[np.ndarray]) -> float:
    """The largest difference of a record to the model's own probabilities, of all stacks, in their order."""
    largest = 0.0
    for number, records in enumerate(rows):
        stacks = dict.fromkeys(record.stack for record in records)
        ordered = sorted(records, key=lambda r: (_place(r.stack, list(stacks)), r.layer))
        assert len(ordered) == len(own), f"{len(ordered)} records for {len(own)} attentions"
        for record, attention in zip(ordered, own, strict=True):
            ours = np.stack([probs(record, head) for head in range(record.n_heads)])
            largest = max(largest, float(np.abs(ours - attention[number]).max()))
    return largest


def _place(stack: str, stacks: list[str]) -> int:
    order = ["text", "vision", "encoder", "decoder", "cross"]
    return order.index(stack) if stack in order else stacks.index(stack)


def write() -> None:
    """Try everything and write the table."""
    rows = []
    for family in FAMILIES:
        print(family, flush=True)
        rows.append(list(tried_row(family).values()))
    versions = {name: metadata.version(name).partition("+")[0] for name in ("transformers", "torch")}
    table = {"format": FORMAT, "versions": versions, "columns": COLUMNS, "rows": rows}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps({**table, "rows": []}, indent=2).replace('"rows": []', f'"rows": [\n{lines}\n]')
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
