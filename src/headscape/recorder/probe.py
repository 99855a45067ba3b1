"""Inputs for a test run of a model that nobody gave an input for: random tokens or pixels, the same every time."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from headscape.errors import ModelError

_DECODER_LENGTH = 24


def probe_inputs(
    model: torch.nn.Module, *, length: int | None = None, rows: int = 2, seed: int = 0
) -> dict[str, Any]:
    """Return arguments for the forward of a model: ``rows`` windows without padding.

    Parameters
    ----------
    model
        A transformers model of text or images.
    length
        Tokens per window; by default enough for a visible block larger than the head dimension (at least 64),
        within what the model allows.
    rows
        Number of windows.
    seed
        Of the random tokens or pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    wanted = inspect.signature(model.forward).parameters
    device = next(model.parameters()).device
    inputs: dict[str, Any] = {}
    if "input_ids" in wanted:
        text = getattr(config, "text_config", None) or config
        n = length or _default_length(text)
        inputs["input_ids"] = torch.randint(4, text.vocab_size, (rows, n), generator=generator)
        if "decoder_input_ids" in wanted and getattr(config, "is_encoder_decoder", False):
            shape = (rows, min(n, _DECODER_LENGTH))
            inputs["decoder_input_ids"] = torch.randint(4, text.vocab_size, shape, generator=generator)
    if "pixel_values" in wanted:
        vision = getattr(config, "vision_config", None) or config
        size = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
        pixels = torch.randn(rows, getattr(vision, "num_channels", 3), size, size, generator=generator)
        inputs["pixel_values"] = pixels.to(next(model.parameters()).dtype)
    if not inputs:
        raise ModelError(
            f"{type(model).__name__} takes neither input_ids nor pixel_values, so that no probe can be made for it. "
            "Give inputs=... yourself, as the arguments of its forward."
        )
    return on_device(inputs, device)


def on_device(inputs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return inputs with their tensors on a device."""
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


def _default_length(config: Any) -> int:
    """Return a length whose late queries x early keys are more than the head dimension, if the model takes it."""
    heads = getattr(config, "num_attention_heads", 1)
    d = getattr(config, "head_dim", None) or config.hidden_size // heads
    most = getattr(config, "max_position_embeddings", None) or 4096
    # RoBERTa and its like start to count positions after the padding token.
    return int(max(2, min(max(64, 2 * d + 16), most - 4)))
