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
        Keeps the checkpoints; what is finished there is not trained again.
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
    if not all((path / "config.json").exists() for path in found.values()):
        register_own_models()
        for mark, model, tokenizer in _training(_whole(text), marks, layers, width, length, seed, progress):
            partial = folder / f".partial-{mark}"
            with quiet_transformers():
                model.save_pretrained(partial)
                tokenizer.save_pretrained(partial)
            shutil.rmtree(found[mark], ignore_errors=True)
            partial.rename(found[mark])
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
    text: str, marks: list[int], layers: int, width: int, length: int, seed: int, progress: Progress
) -> Iterator[tuple[int, Any, Any]]:
    """Train, and yield model and tokenizer at every mark."""
    from headscape.models.transformer_xl.config import TransfoXLConfig
    from headscape.models.transformer_xl.model import TransfoXLLMHeadModel
    from headscape.models.transformer_xl.vocabulary import END_OF_LINE, UNKNOWN, word_tokenizer

    counts = Counter(text.split())
    known = [
        word
        for word, count in counts.most_common()
        if count >= _FEWEST and word not in (UNKNOWN, END_OF_LINE)
    ]
    words = [END_OF_LINE, UNKNOWN, *known]
    tokenizer = word_tokenizer(words)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = TransfoXLLMHeadModel(
            TransfoXLConfig(
                vocab_size=len(words),
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
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for step in range(marks[-1] + 1):
            if step in marks:
                yield step, model.eval(), tokenizer
            if step == marks[-1]:
                return
            progress("training the Transformer-XL", step, marks[-1])
            starts = rng.integers(0, len(ids) - length, size=ROWS)
            rows = torch.stack([ids[start : start + length + 1] for start in starts])
            hidden, *_ = model.train().transformer(rows[:, :-1], None)
            loss: Any = model.crit.loss(hidden, rows[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
