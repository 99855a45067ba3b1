"""Ablation: the price of every head alone, against one whole forward pass per head, and the other rankings."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Measure, Row, compare, timed

HEADS, WIDTH, LENGTH, WINDOWS, VOCABULARY = 8, 128, 64, 4, 256
PLAIN = "a forward pass of the model for every head, which a hook on the output projection switches off"
METHODS = ("gradient", "output-norm", "reconstruction", "haar")


def rows() -> list[Row | Measure]:
    found: list[Row | Measure] = [_leave_one_out(layers) for layers in (2, 4, 8)]
    return [*found, *_rankings(4)]


def _leave_one_out(layers: int) -> Row:
    from headscape.ablation.head_evaluator import HeadEvaluator
    from headscape.ablation.scores.leave_one_out import leave_one_out
    from headscape.models.loading import as_model
    from headscape.recorder.inputs import InputReader

    model, ids = _model(layers), _ids()
    windows = InputReader(model, length=LENGTH).read(ids)

    def ours() -> np.ndarray:
        return leave_one_out(HeadEvaluator(as_model(model), windows))

    np.testing.assert_allclose(ours(), plain_prices(model, ids), atol=1e-5)
    name = f"price of each of {layers * HEADS} heads, {layers} layers, {WINDOWS} x {LENGTH} tokens"
    return compare(name, ours, lambda: plain_prices(model, ids), PLAIN, wanted="> 1x")


def plain_prices(model: Any, ids: Any) -> np.ndarray:
    """Do it as a user would: switch every head off by a hook, and run the model on all windows."""
    import torch

    def without(head: int, module: Any, given: tuple[Any]) -> tuple[Any]:
        states = given[0].clone()
        d = states.shape[-1] // HEADS
        states[..., head * d : (head + 1) * d] = 0
        return (states,)

    def loss() -> float:
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))

    intact, prices = loss(), []
    for layer in model.model.layers:
        for head in range(HEADS):
            with layer.self_attn.o_proj.register_forward_pre_hook(partial(without, head)):
                prices.append(loss() - intact)
    return np.array(prices)


def _rankings(layers: int) -> list[Measure]:
    import headscape as hs

    model, ids = _model(layers), _ids()
    what = f"{layers * HEADS} heads, {layers} layers, {WINDOWS} x {LENGTH} tokens"
    return [
        timed(f"ranking {method!r}, {what}", partial(hs.rank_heads, model, ids, method, length=LENGTH))
        for method in METHODS
    ]


def _model(layers: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
    )
    return LlamaForCausalLM(config).eval()


def _ids() -> Any:
    import torch

    return torch.randint(0, VOCABULARY, (WINDOWS, LENGTH), generator=torch.Generator().manual_seed(0))
