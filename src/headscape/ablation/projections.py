"""The output projection of an attention module: its weight has one block of columns per head.

y_t = sum_h W_O^h o_{t,h} (+ b),   W_O = (W_O^1 | ... | W_O^H)
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from headscape.errors import ModelError
from headscape.models.attention_modules import AttentionSite

# Where the families keep it: inside the attention module, or beside it in a block called "output" (BERT).
_INSIDE = ("o_proj", "out_proj", "c_proj", "out_lin", "dense", "Wo", "o", "projection", "proj")
_BESIDE = "output.dense"


@dataclass(frozen=True, eq=False)
class OutputProjection:
    """The output projection of a site.

    Attributes
    ----------
    module
        A Linear, or GPT-2's Conv1D, which keeps its weight the other way round.
    n_heads
        How many blocks of columns the weight has.
    """

    module: torch.nn.Module
    n_heads: int

    @property
    def matrix(self) -> torch.Tensor:
        """The weight as (output, head x d); a view, writing to it changes the model."""
        weight = self.module.get_parameter("weight")
        return weight.T if _is_transposed(self.module) else weight

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
        d = self.head_dim
        return torch.cat([torch.arange(head * d, (head + 1) * d) for head in heads] or [torch.arange(0)])


def output_projection(model: torch.nn.Module, site: AttentionSite) -> OutputProjection:
    """Return the output projection of a site, or raise a :class:`ModelError` if none is found."""
    modules = dict(model.named_modules())
    inside = modules[site.module]
    found = [part for name in _INSIDE if (part := getattr(inside, name, None)) is not None]
    parent = site.module.rpartition(".")[0]
    beside = modules.get(f"{parent}.{_BESIDE}")
    for module in (*found, *([beside] if beside is not None else [])):
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.dim() == 2:
            width = weight.shape[0 if _is_transposed(module) else 1]
            if width % site.n_heads == 0:
                return OutputProjection(module, site.n_heads)
    raise ModelError(
        f"no output projection was found in {site.module} ({type(inside).__name__}), so that its heads cannot be "
        "weighed by it. Methods that do without it: haar, gradient, attention-entropy, confidence, "
        "tree-redundancy, leave-one-out, random."
    )


def output_projections(model: torch.nn.Module, sites: Sequence[AttentionSite]) -> dict[int, OutputProjection]:
    """Return the output projections of all sites by layer; layers that share one module are refused."""
    found = {site.layer: output_projection(model, site) for site in sites}
    if len({id(projection.module) for projection in found.values()}) < len(found):
        raise ModelError(
            f"the layers of {type(model).__name__} share their weights, so that a head cannot be weighed by its "
            "output projection in one layer alone. Methods that do without it: haar, gradient, "
            "attention-entropy, confidence, tree-redundancy, leave-one-out, random."
        )
    return found


@contextmanager
def put_back(projections: Iterable[OutputProjection]) -> Iterator[None]:
    """Put the weights and biases of projections back at the end of a block, whatever was written to them."""
    before = [
        (p, p.matrix.detach().clone(), None if p.bias is None else p.bias.detach().clone())
        for p in projections
    ]
    try:
        yield
    finally:
        for projection, matrix, bias in before:
            write(projection, matrix, bias)


def write(projection: OutputProjection, matrix: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """Write a matrix (output, head x d), and a bias if there is one, into a projection."""
    with torch.no_grad():
        projection.matrix.copy_(matrix)
        if bias is not None and projection.bias is not None:
            projection.bias.copy_(bias)


def _is_transposed(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"
