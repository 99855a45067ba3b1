"""Linear layers in float32 on processors whose long vectors torch's BLAS does not use.

torch multiplies float32 matrices on the CPU by MKL, which takes vectors of 512 bits on Intel's processors only. oneDNN,
which torch brings along, takes what a processor has: on Zen 5 it is 2.2 times as fast, and linear layers are most of a
forward pass. Both round in float32; sums are added in another order.
"""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from headscape.models.lazy_torch import torch
from headscape.models.plain_facts import is_plain

_CPU_FACTS = Path("/proc/cpuinfo")
_TOLERANCE = 1e-5


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x W^T in the faster of the two ways, without gradients.

    Examples
    --------
    >>> import torch
    >>> linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 7.0]]
    """
    if _suits(x, weight) and _faster():
        return _product(x.detach().contiguous(), weight.detach().contiguous(), None)
    return torch.nn.functional.linear(x.detach(), weight.detach())


def fast_linear_layers(model: torch.nn.Module) -> AbstractContextManager[Any]:
    """Let the linear layers of a model of transformers be computed in the faster of the two ways, for a block.

    Plain modules are left alone, because torch has fast paths of its own for them, and so are compiled models and
    blocks within which something else watches torch's functions. Weights that take gradients are computed as ever.
    """
    compiled = hasattr(model, "_orig_mod")
    if is_plain(model) or compiled or torch._C._len_torch_function_stack() or not _faster():
        return nullcontext()
    mode: AbstractContextManager[Any] = _mode_type()()
    return mode


@cache
def _faster() -> bool:
    """Tell whether oneDNN is the faster way on this processor, and gives the same."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not _made_by_amd():
        return False
    x, weight = (torch.linspace(-1, 1, n * 48).reshape(n, 48).sin() for n in (5, 7))
    try:
        found = _product(x, weight, None)
    except (AttributeError, RuntimeError):  # torch was built without oneDNN, or calls it in another way
        return False
    return torch.allclose(found, torch.nn.functional.linear(x, weight), rtol=_TOLERANCE, atol=_TOLERANCE)


def _made_by_amd() -> bool:
    """Tell whether the processor is known to be AMD's."""
    facts = _CPU_FACTS.read_text(encoding="utf-8", errors="replace") if _CPU_FACTS.exists() else ""
    return "AuthenticAMD" in facts + platform.processor()


def _suits(x: torch.Tensor, *weights: torch.Tensor | None) -> bool:
    """Tell whether tensors are plain ones of float32 on the CPU."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    return x.numel() > 0 and all(
        type(one) in kinds and one.dtype is torch.float32 and one.device.type == "cpu"
        for one in (x, *weights)
        if one is not None
    )


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return x W^T + b by oneDNN, as torch's own compiler calls it."""
    found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


@cache
def _mode_type() -> Any:
    """Return the mode; its classes are made here, because their bases are torch's."""
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    class Product(torch.autograd.Function):
        """The product, with gradients of what enters it."""

        @staticmethod
        def forward(context: Any, x: Any, weight: Any, bias: Any = None) -> Any:
            context.save_for_backward(weight)
            return _product(x, weight, bias)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context: Any, gradient: Any) -> Any:
            (weight,) = context.saved_tensors
            return _product(gradient.contiguous(), weight.t().contiguous(), None), None, None

    class LinearLayers(TorchFunctionMode):
        """Computes linear layers that suit, and hands everything else to torch."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (
                func is functional.linear
                and not kwargs
                and _suits(*args)
                and not torch.compiler.is_compiling()
            ):
                learning = any(one is not None and one.requires_grad for one in args[1:])
                if not (learning and torch.is_grad_enabled()):
                    return Product.apply(*args)  # type: ignore[no-untyped-call]
            return func(*args, **(kwargs or {}))

    return LinearLayers
