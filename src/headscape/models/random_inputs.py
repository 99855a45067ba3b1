"""Inputs for a test run of a model that nobody gave an input for: random tokens or pixels, the same every time."""

from __future__ import annotations

import inspect
from math import prod
from typing import Any

from headscape.errors import ModelError
from headscape.models.lazy_torch import torch
from headscape.models.plain_arguments import plain_probe
from headscape.models.plain_facts import is_plain

_DECODER_LENGTH = 24
_PLAIN_LENGTH = 64


def probe_windows(
    model: torch.nn.Module, *, length: int | None = None, windows: int = 2, seed: int = 0
) -> list[dict[str, torch.Tensor]]:
    """Return arguments for the forward of a model of text, images or speech: batches of one without padding.

    Windows have by default enough tokens for a visible block larger than the head dimension (at least 64), within what
    the model allows.
    """
    if is_plain(model):
        found = plain_probe(model, length or _PLAIN_LENGTH, windows, seed)
        if found is None:
            raise ModelError(
                f"it is not known what {type(model).__name__} takes, so that its attention cannot be looked for. Give "
                "inputs, or set model.example_input_array to an example."
            )
        return [{name: x[i : i + 1] for name, x in found.items()} for i in range(windows)]
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    wanted = inspect.signature(model.forward).parameters
    inputs: dict[str, torch.Tensor] = {}
    if "input_ids" in wanted:
        n = length or default_length(config)
        inputs["input_ids"] = _tokens(config, (windows, n), generator)
    if "decoder_input_ids" in wanted and getattr(config, "is_encoder_decoder", False):
        shape = (windows, min(length or _DECODER_LENGTH, _DECODER_LENGTH))
        inputs["decoder_input_ids"] = _tokens(config, shape, generator)
    if "pixel_values" in wanted:
        vision = getattr(config, "vision_config", None) or config
        size = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
        channels = getattr(vision, "num_channels", 3)
        inputs["pixel_values"] = torch.randn(windows, channels, size, size, generator=generator)
    if "input_features" in wanted and hasattr(config, "max_source_positions"):  # spectra of speech
        frames = 2 * config.max_source_positions
        inputs["input_features"] = torch.randn(windows, config.num_mel_bins, frames, generator=generator)
    if "input_values" in wanted and hasattr(config, "conv_stride"):  # waves of speech
        inputs["input_values"] = torch.randn(windows, 20 * prod(config.conv_stride), generator=generator)
    if not inputs:
        raise ModelError(
            f"{type(model).__name__} takes neither tokens nor images nor speech, so that no probe can be made for "
            "it. Give inputs=... yourself, as the arguments of its forward."
        )
    return [{name: x[i : i + 1] for name, x in inputs.items()} for i in range(windows)]


def _tokens(config: Any, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(4, config.get_text_config().vocab_size, shape, generator=generator)


def default_length(config: Any) -> int:
    """Return a length whose late queries x early keys outnumber the head dimension, if the model takes it."""
    text = config.get_text_config()
    d = getattr(text, "head_dim", None) or text.hidden_size // getattr(text, "num_attention_heads", 1)
    said = getattr(text, "max_position_embeddings", None)
    most = said if said and said > 0 else 4096
    # RoBERTa and its like start to count positions after the padding token.
    return int(max(2, min(max(64, 2 * d + 16), most - 4)))
