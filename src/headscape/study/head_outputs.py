"""What every head adds to its layer's output projection, token by token: the activations that CKA compares."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import ModelError
from headscape.models.anatomy import of_stack, output_projections
from headscape.models.forward_pass import arguments_for, evaluating, forward, without_extras
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model
from headscape.recorder.inputs import WindowInput


def head_outputs(model: Model, window: WindowInput, stack: str | None) -> dict[int, NDArray[np.float32]]:
    """Return the outputs of all heads before the output projection, (token, head, d) by layer.

    Notes
    -----
    One forward pass. Memory: 4 bytes a token, head and dimension.
    """
    modules = of_stack(model.modules(), stack)
    seen: dict[int, NDArray[np.float32]] = {}

    def watch(layer: int, heads: int) -> Any:
        def keep(_: Any, arguments: tuple[Any, ...]) -> None:
            entered = arguments[0].detach()
            rows = entered.reshape(-1, entered.shape[-1]).float().cpu().numpy()
            if rows.shape[1] % heads:
                raise ModelError(f"the outputs of layer {layer} do not fall into {heads} heads.")
            seen[layer] = rows.reshape(len(rows), heads, -1)

        return keep

    counts = {module.layer: module.n_heads for module in modules}
    with evaluating(model.model), torch.no_grad(), ExitStack() as hooks:
        for layer, projection in output_projections(modules).items():
            hooks.enter_context(projection.module.register_forward_pre_hook(watch(layer, counts[layer])))
        arguments = arguments_for(model.model, window.arguments)
        forward(model.model, {**arguments, **without_extras(model.model)}, "a window")
    return seen
