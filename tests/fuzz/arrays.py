"""Arrays in the formats of others, which carry no digests: right is what the format's own library reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from safetensors.numpy import load_file, save_file

import headscape as hs
from fuzz.mutations import BYTES, FOLDERS, PLACES
from fuzz.structured import JSON, lying_npy, lying_npz, lying_safetensors, odd_numbers
from fuzz.target import Found, Target
from samples import smooth_tensor

X = smooth_tensor((8, 8, 3)) ** 2
FILE = (*BYTES, *PLACES[:-2])


def _reader(name: str) -> Callable[[Path], Found]:
    return lambda root: {"data": hs.load_tensor(root / name).data}


def _meaning(values: Any) -> Sequence[Found]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(f"{array.dtype} {array.shape} is no tensor")
    return [{"data": array}, {"data": array.astype(np.float64)}]


def _only(arrays: Any) -> Any:
    [name] = arrays
    return arrays[name]


def _zarr(root: Path) -> Any:
    found: Any = zarr.open(root / "x.zarr", mode="r")
    return (found[next(iter(found.array_keys()))] if isinstance(found, zarr.Group) else found)[...]


def _save_zarr(root: Path) -> None:
    zarr.create_array(store=root / "x.zarr", data=X, chunks=(4, 8, 3))


def _save_zarr_group(root: Path) -> None:
    zarr.open_group(root / "x.zarr", mode="w", zarr_format=2).create_array("x", data=X, chunks=(4, 8, 3))


def _organize(name: str) -> Callable[[Path, Path], list[Any]]:
    return lambda root, out: ["organize", root / name, "-o", out, "--n-iter", 1, "--figures", "none"]


ARRAYS = (
    Target(
        "npy",
        lambda root: np.save(root / "x.npy", X),
        _reader("x.npy"),
        (*FILE, *(lying_npy, odd_numbers) * 6),
        1300,
        lambda root: _meaning(np.load(root / "x.npy", allow_pickle=False)),
        command=_organize("x.npy"),
    ),
    Target(
        "npz",
        lambda root: np.savez_compressed(root / "x.npz", x=X),
        _reader("x.npz"),
        (*FILE, *(lying_npz,) * 8),
        1000,
        lambda root: _meaning(_only(np.load(root / "x.npz", allow_pickle=False))),
        command=_organize("x.npz"),
    ),
    Target(
        "safetensors",
        lambda root: save_file({"x": X}, root / "x.safetensors"),
        _reader("x.safetensors"),
        (*FILE, *(lying_safetensors,) * 8),
        1000,
        lambda root: _meaning(_only(load_file(root / "x.safetensors"))),
        command=_organize("x.safetensors"),
    ),
    Target(
        "zarr",
        _save_zarr,
        _reader("x.zarr"),
        (*BYTES, *PLACES, *FOLDERS, *JSON, *JSON),
        800,
        lambda root: _meaning(_zarr(root)),
        command=_organize("x.zarr"),
    ),
    Target(
        "zarr v2 group",
        _save_zarr_group,
        _reader("x.zarr"),
        (*BYTES, *PLACES, *FOLDERS),
        400,
        lambda root: _meaning(_zarr(root)),
    ),
)
