"""A linear layer of an attention module as a matrix (output, input), with one block of rows or columns per head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headscape.models.lazy_torch import torch


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear layer whose inputs are the outputs of heads, side by side.

        y_t = sum_h W_O^h o_{t,h} (+ b),   W_O = (W_O^1 | ... | W_O^H)

    ``module`` is a Linear, or GPT-2's Conv1D, which keeps its weight the other way round.
    """

    module: torch.nn.Module
    n_heads: int = 1

    @property
    def matrix(self) -> torch.Tensor:
        """The weight as (output, head x d); a view, writing to it changes the model."""
        weight = self.module.get_parameter("weight")
        return weight.T if is_transposed(self.module) else weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias (output,), if there is one."""
        bias: torch.Tensor | None = getattr(self.module, "bias", None)
        return bias

    @property
    def head_dim(self) -> int:
        """Columns per head."""
        return int(self.matrix.shape[1]) // self.n_heads

    def columns(self, heads: Sequence[int]) -> torch.Tensor:
        """Return the numbers of the columns of some heads, in their order."""
        return blocks(heads, self.head_dim)

    def write(self, matrix: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Write a matrix (output, head x d), and a bias if there is one, into the layer."""
        with torch.no_grad():
            self.matrix.copy_(matrix)
            if bias is not None and self.bias is not None:
                self.bias.copy_(bias)

    def select(self, kept: torch.Tensor, axis: int) -> None:
        """Keep some outputs (axis 0) or inputs (axis 1); the module itself stays the same object."""
        transposed = is_transposed(self.module)
        module: Any = self.module
        module.weight = selected(module.weight, kept, 1 - axis if transposed else axis)
        if axis == 0 and self.bias is not None:
            module.bias = selected(module.bias, kept, 0)
        names = ("nf", "nx") if transposed else ("out_features", "in_features")
        setattr(module, names[axis], len(kept))


@contextmanager
def put_back(projections: Iterable[Projection]) -> Iterator[None]:
    """Put the weights and biases of projections back at the end of a block, whatever was written to them."""
    before = [
        (p, p.matrix.detach().clone(), None if p.bias is None else p.bias.detach().clone())
        for p in projections
    ]
    try:
        yield
    finally:
        for projection, matrix, bias in before:
            projection.write(matrix, bias)


def is_linear(module: torch.nn.Module) -> bool:
    """Tell whether a module is a plain linear layer."""
    return isinstance(module, torch.nn.Linear) or is_transposed(module)


def products(module: torch.nn.Module) -> int:
    """Return the multiplications per token with a module's own weights: of linear layers, and torch's attention."""
    if is_linear(module):
        return module.get_parameter("weight").numel()
    if isinstance(module, torch.nn.MultiheadAttention):
        return sum(
            w.numel() for name, w in module.named_parameters(recurse=False) if name.endswith("proj_weight")
        )
    return 0


def is_transposed(module: torch.nn.Module) -> bool:
    """Tell whether a module is GPT-2's Conv1D, a linear layer that keeps its weight as (input, output)."""
    return type(module).__name__ == "Conv1D"


def blocks(numbers: Sequence[int], size: int) -> torch.Tensor:
    """Return the places of numbered blocks of one size, block after block."""
    # On the CPU also where a model is being built on the meta device.
    return torch.cat(
        [torch.arange(i * size, (i + 1) * size, device="cpu") for i in numbers]
        or [torch.arange(0, device="cpu")]
    )


def selected(weight: torch.Tensor, kept: torch.Tensor, axis: int) -> torch.nn.Parameter:
    """Return a new parameter with some entries of an axis."""
    values = weight.detach().index_select(axis, kept.to(weight.device))
    return torch.nn.Parameter(values, requires_grad=weight.requires_grad)
