"""Plain PyTorch modules: ``nn.MultiheadAttention``, calls of ``scaled_dot_product_attention``, registered code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headscape.models.adapters.families import INPUTS
from headscape.models.adapters.plain_slicing import keep_plain_heads, require_fused, require_plain_sliceable
from headscape.models.adapters.protocol import LayerHeads, Weights
from headscape.models.adapters.torch_calls import shown_torch_calls, watched_torch_calls
from headscape.models.adapters.transformers_models import TransformersAdapter
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection

if TYPE_CHECKING:
    from headscape.models.anatomy import AttentionModule


class PlainAdapter(TransformersAdapter):
    """Sees the calls that a module makes to torch; of other modules than torch's own, weights are found by name."""

    name = "calls of torch functions"
    observe = staticmethod(shown_torch_calls)
    watch = staticmethod(watched_torch_calls)

    def accepts(self, model: Any) -> bool:
        """Tell whether a model is a module; what it is made of shows when it runs."""
        return isinstance(model, torch.nn.Module)

    def weights(self, module: AttentionModule) -> tuple[Weights, Weights, Weights]:
        """Return W_Q, W_K and W_V of torch's own module, or of linear layers that are called as such layers are."""
        inside: Any = module.module
        if not isinstance(inside, torch.nn.MultiheadAttention):
            parts = {name for name, _ in inside.named_children()}
            if not any(len(names) == 3 and parts >= {*names} for names in INPUTS):
                counts = (module.n_heads, module.n_kv_heads, tuple(range(module.n_heads)))
                require_fused(inside, LayerHeads(module.layer, module.name, *counts))
            return super().weights(module)
        fused: torch.Tensor | None = inside.in_proj_weight
        apart = [inside.q_proj_weight, inside.k_proj_weight, inside.v_proj_weight]
        matrices = apart if fused is None else list(fused.chunk(3))
        arrays = [matrix.detach().float().cpu().numpy() for matrix in matrices]
        w_q, w_k, w_v = (array.reshape(module.n_heads, -1, array.shape[1]) for array in arrays)
        return w_q, w_k, w_v

    def output(self, module: AttentionModule) -> Projection:
        """Return the output projection."""
        inside = module.module
        if isinstance(inside, torch.nn.MultiheadAttention):
            return Projection(inside.out_proj, module.n_heads)
        return super().output(module)

    def require_sliceable(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Raise unless the modules are torch's own, or compute what one fused projection does."""
        require_plain_sliceable(model, layers)

    def slice(self, model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
        """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut."""
        keep_plain_heads(model, layers)
