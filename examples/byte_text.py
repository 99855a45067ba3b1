"""Text as bytes, in windows: all that a small language model needs to be trained on any file."""

from pathlib import Path

import numpy as np
import torch

from headscape.models.sample_text import sample_text

VOCABULARY = 256


def read_bytes(path: Path | None) -> torch.Tensor:
    """Return the bytes of a file, of the sample text bundled with Python if none is given."""
    raw = sample_text().encode() if path is None else path.read_bytes()
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).astype(np.int64))


class Windows(torch.utils.data.Dataset):
    """As many windows of a text as training needs, at random places that the seed decides."""

    def __init__(self, text: torch.Tensor, length: int, count: int, seed: int) -> None:
        self.text, self.length = text, length
        self.starts = np.random.default_rng(seed).integers(0, len(text) - length, size=count)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        window = self.text[self.starts[index] : self.starts[index] + self.length]
        return {"input_ids": window, "labels": window}
