"""Inputs for a test run of a model that nobody gave an input for: random tokens or pixels, the same every time."""

import inspect
from typing import Any

import torch

from headscape.errors import ModelError

_DECODER_LENGTH = 24


def probe_windows(
    model: torch.nn.Module, *, length: int | None = None, windows: int = 2, seed: int = 0
) -> list[dict[str, torch.Tensor]]:
    """Return arguments for the forward of a model: windows (batches of one) without padding.

    Parameters
    ----------
    model
        A transformers model of text or images.
    length
        Tokens per window; by default enough for a visible block larger than the head dimension (at least 64),
        within what the model allows.
    windows
        How many.
    seed
        Of the random tokens or pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    wanted = inspect.signature(model.forward).parameters
    inputs: dict[str, torch.Tensor] = {}
    if "input_ids" in wanted:
        n = length or default_length(config)
        vocabulary = config.get_text_config().vocab_size
        inputs["input_ids"] = torch.randint(4, vocabulary, (windows, n), generator=generator)
        if "decoder_input_ids" in wanted and getattr(config, "is_encoder_decoder", False):
            shape = (windows, min(n, _DECODER_LENGTH))
            inputs["decoder_input_ids"] = torch.randint(4, vocabulary, shape, generator=generator)
    if "pixel_values" in wanted:
        vision = getattr(config, "vision_config", None) or config
        size = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
        channels = getattr(vision, "num_channels", 3)
        inputs["pixel_values"] = torch.randn(windows, channels, size, size, generator=generator)
    if not inputs:
        raise ModelError(
            f"{type(model).__name__} takes neither input_ids nor pixel_values, so that no probe can be made for "
            "it. Give inputs=... yourself, as the arguments of its forward."
        )
    return [{name: x[i : i + 1] for name, x in inputs.items()} for i in range(windows)]


def default_length(config: Any) -> int:
    """Return a length whose late queries x early keys outnumber the head dimension, if the model takes it."""
    text = config.get_text_config()
    d = getattr(text, "head_dim", None) or text.hidden_size // getattr(text, "num_attention_heads", 1)
    most = getattr(text, "max_position_embeddings", None) or 4096
    # RoBERTa and its like start to count positions after the padding token.
    return int(max(2, min(max(64, 2 * d + 16), most - 4)))


def sample_text() -> str:
    """Return English prose that comes with every Python: its own help texts, one after another."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))
