"""Models that compute attention inline: GPT-J, GPT-Neo, BLOOM, Falcon, MPT, XLNet, DeBERTa, modules of one's own.

They are read at their softmax. Their weights are read as those of other models; heads can be switched off, but not cut
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from headscape.errors import ModelError
from headscape.models.adapters.protocol import Weights
from headscape.models.adapters.softmax_reader import read_as_configured, read_calls
from headscape.models.adapters.transformers_models import TransformersAdapter
from headscape.models.lazy_torch import torch

if TYPE_CHECKING:
    from headscape.models.anatomy import AttentionModule

_never_called: WeakSet[torch.nn.Module] = WeakSet()


class InlineAdapter(TransformersAdapter):
    """Sees every call at its softmax, with the model's eager code."""

    name = "softmax reader"
    observe = staticmethod(read_calls)
    watch = staticmethod(read_as_configured)

    def accepts(self, model: Any) -> bool:
        """Tell whether a part of a model says that it has no attention function to set, or was found to call none."""
        if model in _never_called:
            return True
        if not super().accepts(model):
            return False
        parts = [part for part in model.modules() if hasattr(part, "_can_set_attn_implementation")]
        return any(not part._can_set_attn_implementation() for part in parts)

    def weights(self, module: AttentionModule) -> tuple[Weights, Weights, Weights]:
        """Return the matrices of the input projections, cut into heads, if their sizes are those of the heads."""
        try:
            found = super().weights(module)
            fits = module.head_dim in (0, found[0].shape[1])
        except ValueError:  # sizes that no number of heads divides
            fits = False
        if not fits:
            raise ModelError(
                f"the projections of {module.name} ({type(module.module).__name__}) are not laid out by heads, so that "
                "the weights of its heads cannot be read."
            )
        return found


def read_at_softmax(model: torch.nn.Module) -> bool:
    """Have a model that never called an attention function read at its softmax; False if it is already."""
    if model in _never_called:
        return False
    _never_called.add(model)
    return True


def not_read_at_softmax(model: torch.nn.Module) -> None:
    """Take back :func:`read_at_softmax`: there was no softmax either, but code may be registered later."""
    _never_called.discard(model)
