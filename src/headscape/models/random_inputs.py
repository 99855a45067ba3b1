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
_IMAGE_SIDE = 64


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
        inputs["pixel_values"] = torch.randn(windows, *_image_shape(vision), generator=generator)
    for name, sound in _sound_shapes(config).items():
        if name in wanted:
            inputs[name] = torch.randn(windows, *sound, generator=generator)
    if not inputs:
        raise ModelError(
            f"{type(model).__name__} takes neither tokens nor images nor speech, so that no probe can be made for "
            "it. Give inputs=... yourself, as the arguments of its forward."
        )
    return [{name: x[i : i + 1] for name, x in inputs.items()} for i in range(windows)]


def _image_shape(config: Any) -> tuple[int, ...]:
    """Return the shape of an image, or of a video's frames; models of images of any size get a small one."""
    said = getattr(config, "image_size", _IMAGE_SIDE)
    side = said if isinstance(said, int) else said[0]
    image = (getattr(config, "num_channels", 3), side, side)
    frames = getattr(config, "num_frames", None)
    return image if frames is None else (frames, *image)


def _sound_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of speech by the argument that takes it: waves, or spectra of some frames."""
    if hasattr(config, "conv_stride"):
        return {"input_values": (20 * prod(config.conv_stride),)}
    if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
        return {"input_values": (config.max_length, config.num_mel_bins)}
    if hasattr(config, "input_feat_per_channel"):
        return {"input_features": (2 * _DECODER_LENGTH, config.input_feat_per_channel)}
    if hasattr(config, "max_source_positions"):
        return {"input_features": (config.num_mel_bins, 2 * config.max_source_positions)}
    return {}


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
