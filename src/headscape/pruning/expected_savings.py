"""What removing heads would save, without removing them: the cut is made in a copy that has shapes and no weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headscape.models.anatomy import AttentionModule, Heads, adapter_for
from headscape.models.lazy_torch import torch
from headscape.pruning.plan import planned_cuts
from headscape.pruning.removal import after_cut
from headscape.pruning.savings import Savings, cost


def expected_savings(modules: Sequence[AttentionModule], heads: Heads) -> Savings:
    """Return what a model would save without some heads, as :func:`headscape.prune` counts it.

    ``modules`` are those of the model's stack. Memory: none but the modules themselves.
    """
    before = cost(modules)
    if not heads:
        return Savings.between(before, before)
    cuts, _ = planned_cuts(heads, modules)
    model = shapes_of(modules[0].model)
    adapter_for(model).slice(model, cuts)
    return Savings.between(before, cost(after_cut([replace(m, model=model) for m in modules], cuts)))


def shapes_of(model: Any) -> Any:
    """Return a copy of a model whose weights are on the meta device: shapes and dtypes, no numbers."""
    with torch.no_grad():
        weights = {
            id(weight): torch.nn.Parameter(weight.to("meta"), requires_grad=weight.requires_grad)
            for weight in model.parameters()
        }
        buffers = {id(buffer): buffer.to("meta") for buffer in model.buffers()}
    return copy.deepcopy(model, memo={**weights, **buffers})
