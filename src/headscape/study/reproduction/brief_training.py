"""Networks that no package brings: a Transformer-XL of the paper's size, trained briefly, and an untrained ViT-B/16."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscape.engine import Progress, no_progress
from headscape.errors import FileFormatError
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model, load_model
from headscape.models.own_models import register_own_models
from headscape.models.quiet import quiet_transformers

N_HEADS = 8
"""Heads of a layer, as in OA C.1."""
RATE, ROWS, SAVED = 5e-4, 2, 4
"""Learning rate, rows of a batch, and checkpoints kept besides the first."""
_FEWEST = 2


@dataclass(frozen=True)
class Training:
    """The checkpoints of a brief training run: folders by their number of steps, the first untrained."""

    checkpoints: dict[int, Path]

    def model(self, steps: int | None = None) -> Model:
        """Return the model after as many steps, by default after all."""
        return load_model(self.checkpoints[max(self.checkpoints) if steps is None else steps])


def briefly_trained(
    folder: Path,
    text: Any,
    *,
    layers: int,
    width: int,
    length: int,
    steps: int,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Training:
    """Train a Transformer-XL with 8 heads a layer on a text for a few steps, or find the one trained before.

    Parameters
    ----------
    folder
        Keeps the checkpoints; an interrupted training resumes at the last of them.
    text
        A text, or a list of text files.
    layers, width, length, steps
        Layers, width of the model, tokens of a row, and optimizer steps.
    seed, progress
        Seed of weights and rows, and the progress callback.

    Notes
    -----
    The paper trains on WikiText-103 with a GPU. A few dozen steps leave the weights far from converged:
    results speak of such a network.
    """
    marks = sorted({round(steps * i / SAVED) for i in range(SAVED + 1)})
    found = {mark: folder / f"checkpoint-{mark}" for mark in marks}
    state = folder / "optimizer.pt"
    if not all((path / "config.json").exists() for path in found.values()):
        register_own_models()
        for mark, model, tokenizer in _training(
            _whole(text), marks, layers, width, length, seed, state, progress
        ):
            partial = folder / f".partial-{mark}"
            with quiet_transformers():
                model.save_pretrained(partial)
                tokenizer.save_pretrained(partial)
            shutil.rmtree(found[mark], ignore_errors=True)
            partial.rename(found[mark])
        state.unlink(missing_ok=True)
    return Training(found)


def untrained_vision(seed: int = 0, *, tiny: bool = False) -> Model:
    """Return a ViT with the config of ViT-B/16 (12 layers of 12 heads, 197 tokens) and random weights.

    ``tiny`` gives one of 2 layers with 4 heads and 17 tokens, for a trial.
    """
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, Any] = (
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        | {"image_size": 32, "patch_size": 8}
        if tiny
        else {}
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = ViTForImageClassification(ViTConfig(**sizes))
    return Model(model.eval(), None, "ViT-B/16")


def _whole(text: Any) -> str:
    """Return a text, or several files as one."""
    if isinstance(text, str):
        return text
    return "\n".join(Path(path).read_text(encoding="utf-8") for path in text)


def _training(
    text: str,
    marks: list[int],
    layers: int,
    width: int,
    length: int,
    seed: int,
    state: Path,
    progress: Progress,
) -> Iterator[tuple[int, Any, Any]]:
    """Train, and yield model and tokenizer at every mark; from the last mark on, if a state was left there."""
    from headscape.models.transformer_xl.vocabulary import word_tokenizer

    words = _vocabulary(text)
    tokenizer = word_tokenizer(words)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    model = _model(len(words), layers, width, length, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    first = _resumed(state, model, optimizer)
    for step in range(first, marks[-1] + 1):
        if step in marks and (step > first or step == 0):
            yield step, model.eval(), tokenizer
            kept = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            partial = state.with_name(f"partial-{state.name}")
            torch.save(kept, partial)
            partial.replace(state)
        if step == marks[-1]:
            return
        progress("training the Transformer-XL", step, marks[-1])
        starts = np.random.default_rng([seed, step]).integers(0, len(ids) - length, size=ROWS)
        rows = torch.stack([ids[start : start + length + 1] for start in starts])
        hidden, *_ = model.train().transformer(rows[:, :-1], None)
        loss: Any = model.crit.loss(hidden, rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()


def _resumed(state: Path, model: Any, optimizer: Any) -> int:
    """Take up the state that an interrupted run left, and return its step; 0 if there is none."""
    if not state.exists():
        return 0
    try:
        kept = torch.load(state, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        return int(kept["step"])
    except Exception as error:  # what a file cut short ends in depends on where it was cut
        raise FileFormatError(f"{state} is damaged ({error}): delete its folder.") from error


def _vocabulary(text: str) -> list[str]:
    """Return the words of a text that occur more than once, the most frequent first."""
    from headscape.models.transformer_xl.vocabulary import END_OF_LINE, UNKNOWN

    special = (END_OF_LINE, UNKNOWN)
    counts = Counter(text.split()).most_common()
    return [*special, *(word for word, count in counts if count >= _FEWEST and word not in special)]


def _model(words: int, layers: int, width: int, length: int, seed: int) -> Any:
    """Return an untrained Transformer-XL."""
    from headscape.models.transformer_xl.config import TransfoXLConfig
    from headscape.models.transformer_xl.model import TransfoXLLMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TransfoXLLMHeadModel(
            TransfoXLConfig(
                vocab_size=words,
                cutoffs=[],
                div_val=1,
                d_model=width,
                d_embed=width,
                n_layer=layers,
                n_head=N_HEADS,
                d_head=max(4, width // N_HEADS),
                d_inner=5 * width,
                mem_len=0,
                clamp_len=length,
                same_length=False,
                dropout=0.0,
            )
        )
