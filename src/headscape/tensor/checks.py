"""Checks on arrays and numbers that come from outside: one place says what is wrong, where, and what to do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import LocalEngine
from headscape.errors import InputError

FloatArray = NDArray[np.floating]

MAX_WINDOWS, MAX_LENGTH, MAX_DRAWS, MAX_SEED = 100_000, 1_000_000, 10_000, 2**63 - 1
"""Bounds on what a caller gives: windows, tokens of a window, random draws, seeds."""

# Enough to keep the temporary masks of a check small beside the array that is checked.
_ROWS_BYTES = 1 << 24
# By bytes per number. float32 is added up in float32 before it is squared in float64.
_LARGEST = {4: 1e31, 8: 1e150}
_ROUNDING = 1e-2


def without_torch(x: Any) -> Any:
    """Return what can become an array: tensors of torch on the CPU and without gradients, the value of a proxy."""
    if not hasattr(x, "detach") and not isinstance(x, np.ndarray) and hasattr(x, "value"):
        x = x.value  # what nnsight saved
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    return x.float() if "bfloat16" in str(x.dtype) else x


def as_float_array(x: object, name: str = "the array") -> FloatArray:
    """Return x as a floating array without copying where possible.

    float32 and float64 stay, half precision becomes float32, integers and booleans become float64.
    Everything else (objects, strings, complex numbers) is refused, and so are masked entries.
    """
    if np.ma.is_masked(x):
        raise InputError(
            f"{name} must not have masked entries: there are no missing values here. Fill them first, with x.filled(0)."
        )
    array = np.asarray(without_torch(x))
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return array.astype(np.float32 if array.itemsize <= 4 else np.float64, copy=False)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    raise InputError(
        f"{name} must hold real numbers (float32, float64, float16 or integers), but its dtype is "
        f"{array.dtype}. Convert it with .astype('float32') first."
    )


def require_finite(x: FloatArray, name: str = "the array") -> None:
    """Raise if x holds NaN or infinity, with counts and the place of the first, or numbers whose sums overflow.

    Zeros are data; there is no missing value in a network tensor, so NaN is never repaired silently.
    """
    finite_bounds(x, name)


def finite_bounds(x: FloatArray, name: str = "the array") -> tuple[float, float]:
    """Return the smallest and the largest entry of x, or raise as :func:`require_finite` does."""
    if x.size == 0 or x.ndim == 0:
        return 0.0, 0.0
    rows = max(1, _ROWS_BYTES // max(1, x[0].nbytes))
    blocks = [slice(start, start + rows) for start in range(0, len(x), rows)]

    def bounds(block: slice) -> tuple[float, float]:
        # Minimum and maximum pass NaN on and show infinities: one cheap pass without a mask for good data.
        return float(x[block].min()), float(x[block].max())

    found = np.array(list(LocalEngine().map(bounds, blocks)))
    if not np.isfinite(found).all():
        bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
        raise InputError(_where_not_finite(x, name, [blocks[number] for number in bad]))
    low, high = float(found[:, 0].min()), float(found[:, 1].max())
    largest = max(-low, high)
    if largest > _LARGEST.get(x.itemsize, np.inf):
        raise InputError(
            f"{name} must not exceed {_LARGEST[x.itemsize]:g} in {x.dtype}, where sums and squares overflow, but its "
            f"largest magnitude is {largest:g}. Divide by it first, and set masked logits to 0."
        )
    return low, high


def _where_not_finite(x: FloatArray, name: str, blocks: list[slice]) -> str:
    """Say how many entries are not finite, and where the first is."""
    nan = inf = 0
    first: tuple[int, ...] = ()
    for block in blocks:
        part = x[block]
        nan += int(np.isnan(part).sum())
        inf += int(np.isinf(part).sum())
        if not first:
            place = np.unravel_index(int(np.argmax(~np.isfinite(part))), part.shape)
            first = (int(place[0]) + block.start, *(int(i) for i in place[1:]))
    return (
        f"{name} must be finite, but {nan} entries are NaN and {inf} are infinite (of {x.size}); the "
        f"first is at index {first}. Masked logits hold -inf: use the field 'probs' or 'energy', or set "
        "masked entries to 0."
    )


def require_probabilities(x: FloatArray) -> None:
    """Raise unless a (query, key[, head]) array can hold attention probabilities; sums are allowed some rounding."""
    lowest, highest = float(x.min()), float(x.sum(axis=1).max())
    if lowest < 0 or highest > 1 + _ROUNDING:
        raise InputError(
            f"probabilities are not negative and their rows sum to at most 1, but the smallest is {lowest:.3g} and a "
            f"row sums to {highest:.3g}: name the field that the tensor holds."
        )


def require_axes(x: FloatArray, ranks: tuple[int, ...], name: str = "the array") -> None:
    """Raise unless x has one of the given numbers of axes and none of them is empty."""
    if x.ndim not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise InputError(
            f"{name} must have {wanted} axes (query, key[, head]), but its shape is {x.shape}. For a "
            "(layer, head, query, key) array use NetworkTensor.from_layers, or axes='layer,head,query,key' in "
            "load_tensor and organize."
        )
    if 0 in x.shape:
        raise InputError(f"{name} must not have an empty axis, but its shape is {x.shape}.")


def require_integer(value: Any, name: str, low: int, high: int) -> None:
    """Raise unless a value is a whole number between two bounds, which are allowed."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}, but is {value!r}.")


def require_number(value: Any, name: str, low: float, high: float) -> None:
    """Raise unless a value is a number between two bounds, which are allowed; NaN is not."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, but is {value!r}.")
