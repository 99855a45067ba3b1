"""Train a small GPT-2 with Hugging Face's Trainer and a monitor on its attention heads.

    python examples/train_with_monitor_trainer.py --text tinyshakespeare.txt -o out/gpt2
    headscape monitor out/gpt2/monitor.jsonl --follow        # in another terminal

A GPT-2 with 4 layers of 4 heads learns the bytes of a text file (by default the sample text bundled with Python) in
about 3 minutes on 2 cores. The monitor is one callback; its aggregates appear beside the loss in the trainer's log and,
with ``--report-to tensorboard`` (or wandb, trackio), in its dashboards. ``--fault growing-keys`` breaks the run on
purpose, to see what the monitor says.
"""

from collections.abc import Sequence
from typing import Any

import torch
from byte_text import VOCABULARY, Windows, byte_tokenizer, read_bytes
from training_options import Run, read_options
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import headscape as hs


class Striking(TrainerCallback):
    """Plants the fault of a run before every step."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_step_begin(self, args: Any, state: Any, control: Any, *, model: torch.nn.Module, **_: Any) -> None:
        """Strike before the step that follows."""
        self.run.fault.strike(model, state.global_step + 1, self.run.fault_step)


class SkippingBadUpdates(TrainerCallback):
    """Drops gradients that are not finite: one such update makes every weight NaN, and hides where it began."""

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, *, model: torch.nn.Module, **_: Any
    ) -> None:
        """Leave the weights alone if a gradient is not finite."""
        if not all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters()):
            model.zero_grad()


def make_model(run: Run) -> GPT2LMHeadModel:
    """Return the untrained model."""
    torch.manual_seed(run.seed)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=run.length,
        n_embd=run.width,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)
    run.fault.prepare(model)
    return model


def train(
    model: GPT2LMHeadModel,
    monitors: Sequence[hs.HeadMonitor],
    text: torch.Tensor,
    run: Run,
) -> Trainer:
    """Train the model with its monitors, and return the trainer."""
    arguments = TrainingArguments(
        output_dir=str(run.out),
        max_steps=run.steps,
        per_device_train_batch_size=run.batch,
        learning_rate=run.rate,
        warmup_steps=run.warm_up,
        lr_scheduler_type="cosine",
        weight_decay=0.05,
        seed=run.seed,
        use_cpu=True,
        logging_steps=100,
        save_strategy="steps" if run.checkpoints else "no",
        save_steps=run.checkpoints or 500,
        report_to=run.report_to,
        disable_tqdm=True,
    )
    windows = Windows(text, run.length, run.steps * run.batch, run.seed)
    trainer = Trainer(
        model,
        arguments,
        train_dataset=windows,
        processing_class=byte_tokenizer(),
        data_collator=default_data_collator,
        callbacks=[Striking(run), SkippingBadUpdates()],
    )
    for monitor in monitors:
        monitor.callback().attach(trainer)
    trainer.train()
    return trainer


def main() -> None:
    """Train as the command line says."""
    run = read_options(__doc__)
    model = make_model(run)
    monitor = hs.HeadMonitor(model, every=run.every, path=run.out / "monitor.jsonl")
    train(model, [monitor], read_bytes(run.text), run)
    for alert in monitor.alerts:
        print(alert)


if __name__ == "__main__":
    main()
