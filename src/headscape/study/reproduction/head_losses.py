"""What single heads are worth: the loss of a network with some of its heads switched off."""

from __future__ import annotations

from typing import Any

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.errors import HeadscapeError
from headscape.recorder.inputs import InputReader
from headscape.study.reproduction.networks import IMAGE_ROLES, Networks

TEXT_WINDOWS, IMAGES = 12, 500
"""Windows of each text, and images, that a loss is measured on."""


def loss_inputs(networks: Networks, role: str) -> dict[str, Any]:
    """Return what a network is judged on, by name: its texts one by one, or images with their labels."""
    if role not in IMAGE_ROLES:
        return networks.texts()
    images = networks.labeled_images(role, IMAGES, seed=networks.seed + 1)
    return {networks.source(role): images} if images and isinstance(images[0], dict) else {}


def head_evaluator(networks: Networks, role: str, inputs: Any) -> HeadEvaluator | HeadscapeError:
    """Return an evaluator on windows drawn with another seed than the captured ones, or why there is none."""
    model = networks.model(role)
    is_image = role in IMAGE_ROLES
    reader = InputReader(
        model.model,
        model.tokenizer,
        None if is_image else networks.sizes.length,
        None if is_image else TEXT_WINDOWS,
        sample="random",
        seed=networks.seed + 1,
    )
    try:
        evaluator = HeadEvaluator(model, reader.read(inputs), seed=networks.seed)
        _ = evaluator.intact
    except HeadscapeError as error:
        return error
    return evaluator


def judged_data(evaluator: HeadEvaluator, role: str, name: str) -> str:
    """Return in words what a network was judged on."""
    return f"{len(evaluator.windows)} random {'images' if role in IMAGE_ROLES else 'windows'}; {name}"
