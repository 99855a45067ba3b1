"""Models of transformers that compute attention through its attention interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.errors import ModelError
from headscape.models.adapters.attention_interface import shown_calls
from headscape.models.adapters.families import BESIDE, HEAD_BY_HEAD, INPUTS, OUTPUTS, known_family
from headscape.models.adapters.protocol import Weights
from headscape.models.adapters.slicing import keep_heads, output_module, require_sliceable
from headscape.models.adapters.watching import watched_calls
from headscape.models.projection import Projection

if TYPE_CHECKING:
    from headscape.models.anatomy import AttentionModule


class TransformersAdapter:
    """Sees every call through a registered attention function; reads and cuts weights by the table of families."""

    name = "attention interface"
    observe = staticmethod(shown_calls)
    watch = staticmethod(watched_calls)
    require_sliceable = staticmethod(require_sliceable)
    slice = staticmethod(keep_heads)

    def accepts(self, model: Any) -> bool:
        """Tell whether a model can be switched to another attention function."""
        return hasattr(model, "set_attn_implementation")

    def weights(self, module: AttentionModule) -> tuple[Weights, Weights, Weights]:
        """Return the matrices of the input projections, cut into heads."""
        inside, n, n_kv = module.module, module.n_heads, module.n_kv_heads
        family, parts = known_family(type(inside)), dict(inside.named_children())
        layouts = INPUTS if family is None else (family.inputs,)
        names = next((names for names in layouts if parts.keys() >= {*names}), None)
        if names is None:
            raise ModelError(
                f"no projections to queries, keys and values were found in {module.name} ({type(inside).__name__}), "
                f"which has {', '.join(parts) or 'no parts'}: the weights of its heads cannot be read."
            )
        matrices = [Projection(parts[name]).matrix.detach().float().cpu().numpy() for name in names]
        if len(names) == 1:
            by_head = names in HEAD_BY_HEAD if family is None else family.head_by_head
            matrices = _split(matrices[0], n, n_kv, by_head and n == n_kv)
        w_q, w_k, w_v = (
            w.reshape(count, -1, w.shape[-1]) for w, count in zip(matrices, (n, n_kv, n_kv), strict=True)
        )
        return w_q, w_k, w_v

    def output(self, module: AttentionModule) -> Projection:
        """Return the first linear layer, inside the module or beside it, that fits the number of heads."""
        family = known_family(type(module.module))
        for path in (*OUTPUTS, f"{BESIDE}output.dense") if family is None else (family.output,):
            try:
                found = Projection(output_module(module.model, module.name, path), module.n_heads)
                fits = found.matrix.dim() == 2 and found.matrix.shape[1] % module.n_heads == 0
            except AttributeError:
                continue
            if fits:
                return found
        raise ModelError(
            f"no output projection was found in {module.name} ({type(module.module).__name__}), so that its heads "
            "cannot be weighed by it."
        )


def _split(whole: Weights, n_heads: int, n_kv_heads: int, by_head: bool) -> list[Weights]:
    """Cut a matrix of queries, keys and values into its three parts, (head, d, model) or (head x d, model)."""
    d = whole.shape[0] // (n_heads + 2 * n_kv_heads)
    if by_head:
        heads = whole.reshape(n_heads, 3, d, whole.shape[1])
        return [heads[:, part] for part in range(3)]
    return np.split(whole, [n_heads * d, (n_heads + n_kv_heads) * d])
