"""Our Transformer-XL: observed like a model of transformers, read and cut by its own names.

A head of it has rows of W_q, W_k, W_v and W_r, one row of the biases u and v, and columns of W_o.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headscape.models.adapters.protocol import LayerHeads, Weights
from headscape.models.adapters.slicing import require_plain_layers, shared_weights
from headscape.models.adapters.transformers_models import TransformersAdapter
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection, blocks, selected

if TYPE_CHECKING:
    from headscape.models.anatomy import AttentionModule

_LAYERS = ("qkv_net", "r_net", "o_net")
_BIASES = ("r_w_bias", "r_r_bias")


class TransformerXLAdapter(TransformersAdapter):
    """Sees the calls as in every model of transformers, because the model calls its attention the same way."""

    def accepts(self, model: Any) -> bool:
        """Tell whether a model is ours, without loading its code for others."""
        return any(kind.__module__ == f"{__package__}.model" for kind in type(model).__mro__)

    def weights(self, module: AttentionModule) -> tuple[Weights, Weights, Weights]:
        """Return W_q, W_k and W_v, cut into heads."""
        whole = Projection(module.module.get_submodule("qkv_net")).matrix.detach().float().cpu().numpy()
        w_q, w_k, w_v = whole.reshape(3, module.n_heads, -1, whole.shape[1])
        return w_q, w_k, w_v

    def output(self, module: AttentionModule) -> Projection:
        """Return the output projection."""
        return Projection(module.module.get_submodule("o_net"), module.n_heads)

    def require_sliceable(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Raise unless each layer has plain linear layers and biases of its own."""
        config: Any = model.config
        if not config.untie_r:
            raise shared_weights(model)
        modules = [model.get_submodule(layer.module) for layer in layers]
        require_plain_layers(model, [module.get_submodule(name) for module in modules for name in _LAYERS])

    def slice(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut."""
        self.require_sliceable(model, layers)
        for layer in layers:
            if layer.removed:
                _cut(model.get_submodule(layer.module), layer)


def _cut(module: Any, layer: LayerHeads) -> None:
    n, d = layer.n_heads, module.d_head
    rows = blocks(layer.kept, d)
    Projection(module.qkv_net).select(torch.cat([rows, n * d + rows, 2 * n * d + rows]), axis=0)
    Projection(module.r_net).select(rows, axis=0)
    Projection(module.o_net, n).select(rows, axis=1)
    for name in _BIASES:
        setattr(module, name, selected(getattr(module, name), torch.tensor(layer.kept), 0))
    module.n_head = len(layer.kept)
