"""Several processes that train one model (DDP): who writes, and how their samples become one."""

from __future__ import annotations

import os

from headscape.models.lazy_torch import torch

_LARGEST = ("logit_max", "nonfinite")
_OF_RANK_0 = ("nearest_head",)


def rank() -> int:
    """Return the number of this process, 0 if there is only one.

    Before the process group exists, as where Lightning makes it later, it is what the launcher put into the
    environment.
    """
    if _initialized():
        return torch.distributed.get_rank()
    return _environment("RANK") or _environment("NODE_RANK") or _environment("LOCAL_RANK")


def world_size() -> int:
    """Return the number of processes in the process group; 1 without one."""
    return torch.distributed.get_world_size() if _initialized() else 1


def launched() -> int:
    """Return the number of processes, also before the process group exists."""
    return max(world_size(), _environment("WORLD_SIZE"))


def _initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _environment(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def reduced(
    values: torch.Tensor | None, metrics: tuple[str, ...], device: torch.device
) -> torch.Tensor | None:
    """Return the mean over all processes of (metric, head) values that each of them measured on its own rows.

    None if one of them has none: the others must not wait for it. The largest value counts for "logit_max" and
    "nonfinite"; a NaN of one process is left out of the means.
    """
    complete = torch.tensor(int(values is not None), device=device)
    torch.distributed.all_reduce(complete, torch.distributed.ReduceOp.MIN)
    if values is None or not complete:
        return None
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
