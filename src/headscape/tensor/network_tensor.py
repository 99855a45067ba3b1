"""The network tensor: all heads of one context window in one labelled array (OA 3.1.2, arXiv 2506.15541)."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import lazy_loader
import numpy as np
from numpy.typing import DTypeLike, NDArray

from headscape.errors import InputError
from headscape.tensor.checks import FloatArray, as_float_array, require_axes, require_finite

if TYPE_CHECKING:
    import xarray
else:
    xarray = lazy_loader.load("xarray")  # half a second, for one method

AXES = ("query", "key", "head")
WITHOUT_SINKS = "probs_without_sinks"
FIELDS = ("probs", "logits", "energy", "log_ratio", WITHOUT_SINKS)
LAYER_AXES = ("layer", "head", "query", "key")


def axis_names(rank: int) -> tuple[str, ...]:
    """Return the names of the axes of a plain array: query, key, head, then axis3, axis4, ..."""
    return AXES[:rank] + tuple(f"axis{i}" for i in range(len(AXES), rank))


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkTensor:
    """A labelled query x key x head array (or query x key, for a single head).

    Parameters
    ----------
    data : (query, key[, head]) array
        Finite real numbers. Queries and keys may differ in number (cross-attention).
    heads
        The (layer, head) pair of every point of the head axis, layer-major; by default all in layer 0.
    tokens
        One string per query, and per key as well if ``key_tokens`` is not given and the lengths agree.
    key_tokens
        One string per key, for cross-attention.
    field
        What the numbers are: "probs", "logits", "energy", "log_ratio", "probs_without_sinks", or any other word for
        data from elsewhere.
    provenance
        Where the tensor comes from: model, text, window, parameters.

    Examples
    --------
    >>> t = NetworkTensor(np.ones((4, 4, 2)), heads=[(0, 0), (0, 1)], field="probs")
    >>> np.asarray(t).shape, t.heads
    ((4, 4, 2), ((0, 0), (0, 1)))
    """

    data: FloatArray
    heads: Sequence[tuple[int, int]] = ()
    tokens: Sequence[str] | None = None
    key_tokens: Sequence[str] | None = None
    field: str = "unknown"
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        data = as_float_array(self.data, "a network tensor")
        require_axes(data, (2, 3), "a network tensor")
        require_finite(data, "a network tensor")
        n_heads = data.shape[2] if data.ndim == 3 else 1
        heads = tuple((int(layer), int(head)) for layer, head in self.heads)
        heads = heads or tuple((0, head) for head in range(n_heads))
        _require_labels("heads", heads, n_heads, "head")
        if len(set(heads)) != len(heads):
            raise InputError("heads must be different (layer, head) pairs, but some pair comes twice.")
        tokens = None if self.tokens is None else tuple(map(str, self.tokens))
        keys = None if self.key_tokens is None else tuple(map(str, self.key_tokens))
        if keys is None and tokens is not None and data.shape[0] == data.shape[1]:
            keys = tokens
        if tokens is not None:
            _require_labels("tokens", tokens, data.shape[0], "query")
        if keys is not None:
            _require_labels("key_tokens", keys, data.shape[1], "key")
        for name, value in (("data", data), ("heads", heads), ("tokens", tokens), ("key_tokens", keys)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "provenance", dict(self.provenance))

    @classmethod
    def from_layers(cls, x: object, **labels: Any) -> Self:
        """Build from a (layer, head, query, key) array, the shape that stacked attentions have.

        Examples
        --------
        >>> NetworkTensor.from_layers(np.ones((2, 3, 5, 5))).heads[-1]
        (1, 2)
        """
        array = as_float_array(x, "a (layer, head, query, key) array")
        if array.ndim != 4:
            raise InputError(
                f"a (layer, head, query, key) array must have 4 axes, but its shape is {array.shape}."
            )
        layers, heads, queries, keys = array.shape
        data = np.moveaxis(array.reshape(layers * heads, queries, keys), 0, 2)
        pairs = [(layer, head) for layer in range(layers) for head in range(heads)]
        return cls(np.ascontiguousarray(data), heads=pairs, **labels)

    @classmethod
    def from_axes(cls, x: object, axes: str, **labels: Any) -> Self:
        """Build from an array whose axes come in another order.

        Parameters
        ----------
        x : array
        axes
            The names of its axes, such as "head,query,key" or "layer,head,query,key".
        **labels
            Those of the class.

        Examples
        --------
        >>> NetworkTensor.from_axes(np.ones((2, 3, 5, 4)), "layer,head,query,key").shape
        (5, 4, 6)
        """
        array = as_float_array(x, "x")
        names = _words(axes)
        wanted = {2: AXES[:2], 3: AXES, 4: LAYER_AXES}.get(len(names), ())
        if set(names) != set(wanted):
            raise InputError(
                f"axes must name query and key, and head, and layer, each at most once (for example "
                f"'layer,head,query,key'), but is {axes!r}."
            )
        if array.ndim != len(names):
            raise InputError(f"axes {axes!r} names {len(names)} axes, but the array has shape {array.shape}.")
        arranged = array.transpose([names.index(axis) for axis in wanted])
        if len(names) == 4:
            return cls.from_layers(arranged, **labels)
        return cls(np.ascontiguousarray(arranged), **labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.data.shape

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        return axis_names(self.data.ndim)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.data, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self.data)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{axis} {n}" for axis, n in zip(self.axes, self.shape, strict=True))
        return f"NetworkTensor({sizes}, field={self.field!r}, dtype={self.data.dtype})"

    def head(self, layer: int, head: int) -> FloatArray:
        """Return the (query, key) matrix of one head."""
        try:
            index = tuple(self.heads).index((layer, head))
        except ValueError:
            last = max(self.heads)
            raise InputError(
                f"there is no head {layer}.{head} in this tensor; it has {len(self.heads)} heads, the last is "
                f"{last[0]}.{last[1]} (layer.head)."
            ) from None
        return self.data[:, :, index] if self.data.ndim == 3 else self.data

    def to_xarray(self) -> "xarray.DataArray":
        """Return an xarray.DataArray with the labels as coordinates."""
        coords: dict[str, Any] = {}
        if self.data.ndim == 3:
            coords["layer"] = ("head", [layer for layer, _ in self.heads])
            coords["head_in_layer"] = ("head", [head for _, head in self.heads])
        if self.tokens is not None:
            coords["token"] = ("query", list(self.tokens))
        if self.key_tokens is not None:
            coords["key_token"] = ("key", list(self.key_tokens))
        return xarray.DataArray(
            self.data, dims=self.axes, coords=coords, name=self.field, attrs=dict(self.provenance)
        )


def with_axes(x: object, axes: str | None = None) -> NetworkTensor | FloatArray:
    """Return the tensor that an array with these axes stands for.

    Parameters
    ----------
    x : NetworkTensor or array
    axes
        As in :meth:`NetworkTensor.from_axes`. A plain array of two or three axes needs none: it is
        (query, key[, head]). ``"query,key,head,axis3"`` and so on leave an array of any number of axes as it is.
    """
    if isinstance(x, NetworkTensor):
        if axes is not None:
            raise InputError(f"a NetworkTensor knows its axes: leave out axes={axes!r}.")
        return x
    array = as_float_array(x, "x")
    names = axis_names(array.ndim)
    if axes is not None:
        return array if _words(axes) == names else NetworkTensor.from_axes(array, axes)
    if array.ndim > len(AXES):
        raise InputError(
            f"x must have 2 or 3 axes (query, key[, head]) unless its axes are named, but its shape is "
            f"{array.shape}. Pass axes='layer,head,query,key' for stacked attentions (or use "
            f"NetworkTensor.from_layers), or axes={','.join(names)!r} to organize each axis by itself."
        )
    return array


def _words(axes: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in axes.split(","))


def _require_labels(name: str, labels: Sequence[object], n: int, axis: str) -> None:
    if len(labels) != n:
        raise InputError(f"{name} must have one entry per {axis} ({n}), but has {len(labels)}.")
