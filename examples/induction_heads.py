"""Train a model that must learn induction, find its heads by name, and switch them off to see that the names are right.

    python examples/induction_heads.py [OUT] [--train] [--steps 1000]

The model has two layers of attention and nothing else: its MLPs are zero. It is trained on random tokens that
repeat with a random period. A token can only be predicted from its earlier occurrence, and that takes two heads:
one in layer 0 that attends to the previous token, and one in layer 1, the induction head, that attends to the token
after an earlier occurrence of the current one. (With one fixed period the model would learn to look back by that many
places, without an induction head.)

Without ``--train`` the weights in ``examples/induction_model`` are used; training them takes one to two minutes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscape as hs
from headscape.models.anatomy import attention_modules
from headscape.recorder.gates import switched_off

VOCABULARY, LENGTH, BATCH, RATE, SEED = 64, 96, 32, 3e-3, 0
PERIODS, PERIOD = (8, 32), 32
MODEL = Path(__file__).parent / "induction_model"
Heads = Sequence[tuple[int, int]]


def make_model() -> LlamaForCausalLM:
    """Return the untrained model: two layers of four rotary heads, MLPs zero and frozen."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=1,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        # Without biases and with the usual base of 10,000 several heads share the attention to the previous token,
        # none of them sharply: a place relative to the query is hard to say by products of token embeddings alone.
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        for weight in layer.mlp.parameters():
            weight.requires_grad_(False).zero_()
    return model


def repeated_tokens(
    periods: Sequence[int], seed: int | np.random.Generator, length: int = LENGTH
) -> torch.Tensor:
    """Return one row of random tokens per period, each repeated to the full length."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([np.resize(rng.integers(VOCABULARY, size=p), length) for p in periods]))


def train(steps: int, seed: int = SEED) -> LlamaForCausalLM:
    """Train and return the model; the loss goes to standard error."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = make_model()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=RATE)
    for step in range(steps):
        rows = repeated_tokens(rng.integers(PERIODS[0], PERIODS[1] + 1, size=BATCH), rng)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 100, 5 * (1 - step / steps))
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            sys.stderr.write(f"step {step:5d}  loss {loss.item():.3f}\n")
    return model.eval()


def in_context_gain(model: LlamaForCausalLM, rows: torch.Tensor, off: Heads = ()) -> float:
    """Return by how much the loss is lower in the repetitions than at first sight, with some heads switched off.

    Parameters
    ----------
    model, rows
        The model, and windows of tokens that repeat after ``PERIOD`` places.
    off
        The (layer, head) pairs that are switched off.
    """
    with switched_off(attention_modules(model), off), torch.no_grad():
        logits = model(input_ids=rows).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    # Token PERIOD is the first of the repetition, but what follows what is known only from the next one on.
    return float(losses[:, : PERIOD - 1].mean() - losses[:, PERIOD:].mean())


def families_of(patterns: pd.DataFrame) -> dict[str, Heads]:
    """Return the previous-token heads, the induction heads, and all others."""
    named = {
        name: list(patterns.index[patterns["pattern"] == name]) for name in ("previous token", "induction")
    }
    return {**named, "all others": list(patterns.index[~patterns["pattern"].isin(named)])}


def main() -> None:
    """Train if asked to, name the heads, and switch families of heads off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=MODEL, help="folder of the model")
    parser.add_argument("--train", action="store_true", help="train it anew")
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    if options.train:
        train(options.steps).save_pretrained(options.out)
    model = hs.load_model(options.out).model
    rows = repeated_tokens([PERIOD] * 8, seed=1)
    found = hs.head_patterns(hs.capture(model, rows))
    print(found[["previous_token", "induction", "name"]].round(2).to_string())
    print(f"in-context gain: {in_context_gain(model, rows):.2f} nats per token")
    for name, pairs in families_of(found).items():
        heads = ", ".join(f"{layer}.{head}" for layer, head in pairs) or "none"
        print(f"without {name} ({heads}): {in_context_gain(model, rows, pairs):.2f}")


if __name__ == "__main__":
    main()
