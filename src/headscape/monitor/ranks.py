"""Several processes that train one model (DDP): who writes, and how their samples become one."""

from __future__ import annotations

from headscape.models.lazy_torch import torch

_LARGEST = ("logit_max", "nonfinite")
_OF_RANK_0 = ("nearest_head",)


def rank() -> int:
    """Return the number of this process, 0 if there is only one."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def reduced(values: torch.Tensor, metrics: tuple[str, ...]) -> torch.Tensor:
    """Return the mean over all processes of (metric, head) values that each of them measured on its own rows.

    The largest value counts for "logit_max" and "nonfinite"; a NaN of one process is left out of the means.
    """
    known = values.isfinite()
    sums = torch.cat([torch.where(known, values, 0.0), known.to(values)])
    torch.distributed.all_reduce(sums)
    largest = torch.where(known, values, float("-inf"))
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    total, count = sums.chunk(2)
    mean = total / count  # 0 / 0 is NaN: nobody knows
    first = values.clone()
    torch.distributed.broadcast(first, 0)
    for index, name in enumerate(metrics):
        if name in _LARGEST:
            mean[index] = torch.where(count[index] > 0, largest[index], float("nan"))
        elif name in _OF_RANK_0:
            mean[index] = first[index]
    return mean
