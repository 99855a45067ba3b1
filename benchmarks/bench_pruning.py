"""Pruning: forward pass, decoding and key-value cache of the default model without heads, beside the intact model."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import Measure, Row, compare, timed

LENGTH, NEW_TOKENS = 256, 16
SHARES = {"a third": (0,), "two thirds": (0, 1)}


def rows() -> list[Row | Measure]:
    import torch

    import headscape as hs
    from headscape.errors import HeadscapeError

    try:
        intact = hs.load_model("default").model
    except HeadscapeError as error:
        print(f"pruning: left out, {error}", file=sys.stderr)
        return []
    table: list[Row | Measure] = []
    ids = torch.randint(4, intact.config.vocab_size, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    size = intact.config.num_attention_heads // intact.config.num_key_value_heads
    for share, groups in SHARES.items():
        heads = [
            (layer, group * size + head)
            for layer in range(intact.config.num_hidden_layers)
            for group in groups
            for head in range(size)
        ]
        pruned = hs.prune(intact, heads)
        table.append(
            timed(f"SmolLM2-135M, removing {share} of its heads", partial(hs.prune, intact, heads), "a copy")
        )
        for what, work in (
            (f"prefill of {LENGTH} tokens", prefill),
            (f"decoding of {NEW_TOKENS} tokens after {LENGTH}", decode),
        ):
            name = f"SmolLM2-135M without {share} of its heads, {what}"
            table.append(
                compare(name, work(pruned.model, ids), work(intact, ids), "intact model", wanted="> 1x")
            )
        saved = pruned.savings
        table += [
            Measure(f"  parameters saved without {share}", 100 * saved.parameters.share, "%"),
            Measure(f"  key-value cache saved without {share}", 100 * saved.cache_bytes_per_token.share, "%"),
        ]
    return table


def prefill(model: Any, ids: Any) -> Callable[[], object]:
    return partial(_prefill, model, ids)


def decode(model: Any, ids: Any) -> Callable[[], object]:
    cache = _prefill(model, ids).past_key_values

    def run() -> None:
        import torch

        token = ids[:, -1:]
        with torch.no_grad():
            for _ in range(NEW_TOKENS):
                output = model(token, past_key_values=cache, use_cache=True)
                token = output.logits[:, -1:].argmax(-1)
        # The cache grew by what was decoded: the next run starts where this one did.
        cache.crop(-NEW_TOKENS)

    return run


def _prefill(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(input_ids=ids, use_cache=True, logits_to_keep=1)
