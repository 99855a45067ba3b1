"""Train a small Transformer-XL on a text, with and without its memory, and compare them on the text's end.

    python examples/train_transformer_xl.py TEXT [OUT] [--epochs 4]
    headscape analyze OUT --text TEXT --length 64

TEXT holds words between blanks, such as a file of WikiText: nine tenths of it train, the rest is held out. The two
models are the same but for ``mem_len``; both read segments of 16 tokens, in the order of the text. The one with memory
is written to OUT, with its vocabulary.
"""

import argparse
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from headscape.models.transformer_xl.config import TransfoXLConfig
from headscape.models.transformer_xl.model import TransfoXLLMHeadModel
from headscape.models.transformer_xl.vocabulary import END_OF_LINE, UNKNOWN, word_tokenizer

SEGMENT, MEMORY, STREAMS, RATE, SEED = 16, 80, 16, 5e-4, 0


def make_vocabulary(text: str, fewest: int = 3) -> list[str]:
    """Return the words that occur often enough, the most frequent first, after the two special ones."""
    counts = Counter(text.split())
    words = [word for word, count in counts.most_common() if count >= fewest and word != UNKNOWN]
    return [END_OF_LINE, UNKNOWN, *words]


def make_model(n_words: int, mem_len: int) -> TransfoXLLMHeadModel:
    """Return the untrained model: 4 layers of 4 heads, rare words with narrower embeddings."""
    torch.manual_seed(SEED)
    config = TransfoXLConfig(
        vocab_size=n_words,
        cutoffs=[cut for cut in (1000, 4000) if cut < n_words],
        div_val=2,
        d_model=128,
        d_embed=128,
        n_layer=4,
        n_head=4,
        d_head=32,
        d_inner=256,
        mem_len=mem_len,
        clamp_len=MEMORY + SEGMENT,
        same_length=False,
        dropout=0.2,
    )
    return TransfoXLLMHeadModel(config)


def segments(ids: torch.Tensor, streams: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Cut a text into parallel streams, and these into segments, each with the tokens that follow its own."""
    length = (len(ids) - 1) // streams
    rows = torch.stack([ids[i * length : (i + 1) * length + 1] for i in range(streams)])
    starts = range(0, length - SEGMENT + 1, SEGMENT)
    return [(rows[:, s : s + SEGMENT], rows[:, s : s + SEGMENT + 1]) for s in starts]


def segment_loss(
    model: TransfoXLLMHeadModel, ids: torch.Tensor, following: torch.Tensor, mems: Any
) -> tuple[torch.Tensor, Any]:
    """Return the mean loss of a segment's next tokens, and the memory after it."""
    hidden, mems, _ = model.transformer(ids, mems)
    return model.crit.loss(hidden, following[:, 1:]), mems


def train(model: TransfoXLLMHeadModel, ids: torch.Tensor, epochs: int) -> list[float]:
    """Train the model and return the mean loss of every epoch, which also goes to standard error."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    parts = segments(ids, STREAMS)
    n_steps, start, means = epochs * len(parts), time.perf_counter(), []
    model.train()
    for epoch in range(epochs):
        mems, total = None, 0.0
        for number, (part, following) in enumerate(parts):
            step = epoch * len(parts) + number
            for group in optimizer.param_groups:
                warm = min(1.0, (step + 1) / (0.05 * n_steps))
                group["lr"] = RATE * warm * (1 + math.cos(math.pi * step / n_steps)) / 2
            loss, mems = segment_loss(model, part, following, mems)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            total += loss.item()
        means.append(total / len(parts))
        took = time.perf_counter() - start
        print(f"epoch {epoch + 1} of {epochs}: loss {means[-1]:.3f} ({took:.0f} s)", file=sys.stderr)
    return means


@torch.no_grad()
def evaluate(model: TransfoXLLMHeadModel, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of every segment of a text that is read from start to end."""
    model.eval()
    losses, mems = [], None
    for part, following in segments(ids, 1):
        loss, mems = segment_loss(model, part, following, mems)
        losses.append(loss)
    return torch.stack(losses)


def main() -> None:
    """Train both models, compare them, and save the one with memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("transformer-xl"))
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    text = given.text.read_text(encoding="utf-8")
    cut = text.rindex("\n", 0, len(text) * 9 // 10)
    words = make_vocabulary(text[:cut])
    tokenizer = word_tokenizer(words)
    training, held_out = (torch.tensor(tokenizer(part)["input_ids"]) for part in (text[:cut], text[cut:]))
    print(
        f"{len(words)} words, {len(training)} tokens to train on, {len(held_out)} held out", file=sys.stderr
    )
    found = {}
    for mem_len in (0, MEMORY):
        model = make_model(len(words), mem_len)
        epochs = train(model, training, given.epochs)
        found[mem_len] = evaluate(model, held_out)
        mean = float(found[mem_len].mean())
        print(
            f"memory {mem_len:3}: training loss {epochs[0]:.3f} -> {epochs[-1]:.3f}, held out {mean:.4f} nats per "
            f"token (perplexity {math.exp(mean):.1f})"
        )
    gain = found[0] - found[MEMORY]
    error = float(gain.std()) / math.sqrt(len(gain))
    print(
        f"the memory saves {float(gain.mean()):.4f} nats per token, standard error {error:.4f} over {len(gain)} "
        "segments"
    )
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)


if __name__ == "__main__":
    main()
