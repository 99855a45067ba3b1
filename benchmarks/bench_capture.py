"""Capture: time beside a plain forward pass as windows grow, memory beside eager attention that returns its weights."""

import statistics
from functools import partial
from typing import Any

from benchmarks.harness import Measure, Row, compare, peak_memory

LENGTH, LENGTHS = 4096, (256, 1024, 4096)
LAYERS, HEADS, WIDTH = 4, 8, 512

MODEL = f"""
import numpy as np, torch
from transformers import LlamaConfig, LlamaModel
torch.manual_seed(0)
model = LlamaModel(LlamaConfig(
    vocab_size=256, hidden_size={WIDTH}, intermediate_size={2 * WIDTH}, num_hidden_layers={LAYERS},
    num_attention_heads={HEADS}, num_key_value_heads={HEADS}, max_position_embeddings={LENGTH})).eval()
ids = torch.from_numpy(np.random.default_rng(0).integers(0, 256, size=(1, {LENGTH})))
import headscape as hs
hs.capture(model, ids[:, :8])
"""
PLAIN = "with torch.no_grad(): model(input_ids=ids, use_cache=False)"
EAGER = """
model.set_attn_implementation("eager")
with torch.no_grad(): kept = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
"""
CAPTURE = "kept = hs.capture(model, ids)"


def rows() -> list[Row | Measure]:
    return [*speed(), *memory()]


def speed() -> list[Row]:
    import torch

    import headscape as hs

    space: dict[str, Any] = {}
    exec(MODEL, space)
    model, ids = space["model"], space["ids"]

    def plain(part: torch.Tensor) -> None:
        with torch.no_grad():
            model(input_ids=part, use_cache=False)

    return [
        compare(
            f"capture, {length} tokens, {LAYERS} layers x {HEADS} heads",
            partial(hs.capture, model, ids[:, :length]),
            partial(plain, ids[:, :length]),
            "plain sdpa forward, causal",
            wanted=">= 0.8x" if length == LENGTH else "",
        )
        for length in LENGTHS
    ]


def memory(repeats: int = 3) -> list[Row | Measure]:
    kept = 2 * LAYERS * LENGTH * WIDTH * 4 / 2**20
    mine, theirs = [], []
    for _ in range(repeats):
        base = peak_memory(MODEL + PLAIN)
        mine.append(peak_memory(MODEL + CAPTURE) - base)
        theirs.append(peak_memory(MODEL + EAGER) - base)
        if mine[-1] < kept:
            raise RuntimeError(
                f"capture keeps {kept:.0f} MiB, but only {mine[-1]:.0f} MiB more were measured"
            )
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    name = f"peak memory beyond a plain forward, {LENGTH} tokens, {LAYERS} layers x {HEADS} heads"
    row = Row(
        name,
        "eager with output_attentions",
        statistics.median(mine),
        statistics.median(theirs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        unit="MiB",
        wanted=">= 20x",
    )
    return [row, Measure("  of which queries and keys that are kept", kept, "MiB")]
