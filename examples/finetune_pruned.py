"""Fine-tune a pruned language model for a few steps, and see whether it pays.

    python examples/finetune_pruned.py PRUNED TEXT OUT [--steps 100]

PRUNED is a folder that ``headscape prune`` wrote, TEXT a UTF-8 file: its first half trains, its second evaluates.
"""

import argparse
from pathlib import Path

import torch

import headscape as hs

LENGTH, BATCH, RATE = 256, 4, 2e-5


def windows_of(model_folder: Path, text: str, count: int | None = None) -> torch.Tensor:
    """Cut a text into windows of token ids."""
    tokenizer = hs.load_model(model_folder).tokenizer
    ids = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    return ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)[:count]


def loss_on(model: torch.nn.Module, windows: torch.Tensor) -> float:
    """Return the mean loss over windows, in nats per token."""
    with torch.no_grad():
        losses = [model(input_ids=rows, labels=rows).loss for rows in windows.split(BATCH)]
    return float(torch.stack(losses).mean())


def main() -> None:
    """Train, evaluate before and after, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pruned", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    pruned = hs.load_pruned(options.pruned)
    model = pruned.model
    text = options.text.read_text(encoding="utf-8")
    half = len(text) // 2
    training, held_out = (
        windows_of(options.pruned, text[:half]),
        windows_of(options.pruned, text[half:], count=16),
    )
    print(f"before: {loss_on(model, held_out):.4f} nats per token")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(0)
    model.train()
    for step in range(options.steps):
        rows = training[torch.randint(len(training), (BATCH,), generator=generator)]
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 10) * (1 - step / options.steps)
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    print(f"after {options.steps} steps: {loss_on(model, held_out):.4f} nats per token")
    hs.save_pruned(model, options.out, tokenizer=hs.load_model(options.pruned).tokenizer)


if __name__ == "__main__":
    main()
