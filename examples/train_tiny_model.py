"""Train the tiny language model of ``examples/tiny_model``: real structure, under 1 MB, in a few minutes.

    python examples/train_tiny_model.py [OUT] [--steps 2500]

A Llama with 4 layers of 4 heads (2 key-value heads), 16 dimensions a head, on the English prose that comes with
every Python (``pydoc_data.topics``), cut into 512 kinds of tokens. Half of the training windows repeat their
first half, so that heads learn to look back at earlier tokens and to copy what followed.
"""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, LENGTH, BATCH, SEED = 512, 128, 16, 0


def make_tokenizer(text: str) -> PreTrainedTokenizerFast:
    """Learn byte pairs on the text; every byte is a token, so that any text can be written."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", model_max_length=1024)


def make_model() -> LlamaForCausalLM:
    """Return the untrained model."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def batch_of(ids: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """Draw windows of text; every second one repeats a stretch of itself."""
    starts = rng.integers(0, len(ids) - LENGTH, size=BATCH)
    windows = np.stack([ids[start : start + LENGTH] for start in starts])
    for row in windows[::2]:
        period = int(rng.integers(16, LENGTH // 2 + 1))
        row[period:] = np.resize(row[:period], LENGTH - period)
    return torch.from_numpy(windows)


Reached = Callable[[int, LlamaForCausalLM, PreTrainedTokenizerFast], None]


def train(
    steps: int, reached: Reached | None = None, seed: int = SEED
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Train and return the model with its tokenizer; the loss goes to standard error.

    ``reached`` is called with the number of steps taken, from 0 on, and the model as it is then.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    text = "\n\n".join(topics[name] for name in sorted(topics))
    tokenizer, model = make_tokenizer(text), make_model()
    ids = np.asarray(tokenizer(text)["input_ids"], dtype=np.int64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    for step in range(steps):
        if reached is not None:
            reached(step, model, tokenizer)
        for group in optimizer.param_groups:
            warm = min(1.0, (step + 1) / 100)
            group["lr"] = 4e-3 * warm * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2)
        windows = batch_of(ids, rng)
        loss = model(input_ids=windows, labels=windows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            sys.stderr.write(f"step {step:5d}  loss {loss.item():.3f}\n")
    if reached is not None:
        reached(steps, model, tokenizer)
    return model.eval(), tokenizer


def main() -> None:
    """Train the model and save it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=Path(__file__).parent / "tiny_model")
    parser.add_argument("--steps", type=int, default=2500)
    options = parser.parse_args()
    model, tokenizer = train(options.steps)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
