"""Train a small Llama in plain PyTorch with a monitor on its attention heads.

    python examples/train_with_monitor_pytorch.py --text tinyshakespeare.txt -o out/llama
    headscape monitor out/llama/monitor.jsonl --follow        # in another terminal

A Llama with 4 layers of 4 heads learns the bytes of a text file (by default the sample text bundled with Python) in
about 3 minutes on 2 cores. ``--fault growing-keys`` breaks it on purpose, to see what the monitor says.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import torch
from byte_text import VOCABULARY, Windows, byte_tokenizer, read_bytes
from training_options import Run, read_options
from transformers import LlamaConfig, LlamaForCausalLM

import headscape as hs


def make_model(run: Run) -> LlamaForCausalLM:
    """Return the untrained model."""
    torch.manual_seed(run.seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=run.width,
        intermediate_size=run.width * 11 // 4,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=run.length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    run.fault.prepare(model)
    return model


def rate_at(step: int, run: Run) -> float:
    """Return the learning rate: a linear warm-up, then half a cosine down to a tenth."""
    warm = min(1.0, step / run.warm_up) if run.warm_up else 1.0
    return run.rate * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / run.steps)))


def batches(text: torch.Tensor, run: Run) -> Iterator[torch.Tensor]:
    """Yield a batch of windows per step."""
    windows = Windows(text, run.length, run.steps * run.batch, run.seed)
    for start in range(0, len(windows), run.batch):
        yield torch.stack([windows[start + row]["input_ids"] for row in range(run.batch)])


def train(model: LlamaForCausalLM, monitors: Sequence[hs.HeadMonitor], text: torch.Tensor, run: Run) -> None:
    """Train the model; every monitor sees the forward pass and hears of the update."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    for step, batch in enumerate(batches(text, run), start=1):
        run.fault.strike(model, step, run.fault_step)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, run)
        with ExitStack() as watching:
            for monitor in monitors:
                watching.enter_context(monitor)
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite():  # one update with NaN makes every weight NaN, and hides where it began
            optimizer.step()
        for monitor in monitors:
            monitor.step()
        if step % 100 == 0 or step == run.steps:
            sys.stderr.write(f"step {step:5d}  loss {loss.item():.3f}\n")
        if run.checkpoints and step % run.checkpoints == 0:
            model.save_pretrained(run.out / f"checkpoint-{step}")
            byte_tokenizer().save_pretrained(run.out / f"checkpoint-{step}")
        if any(monitor.should_stop for monitor in monitors):
            break


def main() -> None:
    """Train as the command line says."""
    run = read_options(__doc__)
    model = make_model(run)
    monitor = hs.HeadMonitor(model, every=run.every, path=run.out / "monitor.jsonl")
    train(model, [monitor], read_bytes(run.text), run)
    monitor.close()
    for alert in monitor.alerts:
        print(alert)


if __name__ == "__main__":
    main()
