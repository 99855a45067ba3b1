import json
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import zarr
from safetensors.numpy import save_file

import headscape as hs

X = np.random.default_rng(0).random((4, 5, 6)).astype(np.float32)


def write(tmp_path, kind, arrays):
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, next(iter(arrays.values())))
    elif kind == "npz":
        np.savez(path, **arrays)
    elif kind == "safetensors":
        save_file(arrays, path)
    else:
        group = zarr.open_group(path, mode="w")
        for name, x in arrays.items():
            group.create_array(name, data=x)
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "zarr"])
def test_every_format(tmp_path, kind):
    t = hs.load_tensor(write(tmp_path, kind, {"attention": X}), field="probs")
    np.testing.assert_array_equal(np.asarray(t), X)
    assert t.field == "probs"


def test_a_single_zarr_array(tmp_path):
    zarr.create_array(store=tmp_path / "a.zarr", data=X)
    np.testing.assert_array_equal(np.asarray(hs.load_tensor(tmp_path / "a.zarr")), X)


@pytest.mark.parametrize("kind", ["npz", "safetensors", "zarr"])
def test_several_arrays_need_a_name(tmp_path, kind):
    path = write(tmp_path, kind, {"a": X, "b": X + 1})
    np.testing.assert_array_equal(np.asarray(hs.load_tensor(path, array="b")), X + 1)
    with pytest.raises(hs.HeadscapeError, match=r"holds 2 arrays \(a, b\)"):
        hs.load_tensor(path)
    with pytest.raises(hs.HeadscapeError, match="no array 'c'; it has: a, b"):
        hs.load_tensor(path, array="c")


def test_axes_are_brought_into_order(tmp_path):
    stacked = np.random.default_rng(1).random((2, 3, 5, 4))
    path = write(tmp_path, "npy", {"a": stacked})
    t = hs.load_tensor(path, axes="layer, head, query, key")
    np.testing.assert_array_equal(t.head(1, 2), stacked[1, 2])
    path = write(tmp_path, "npy", {"a": np.moveaxis(X, 2, 0)})
    np.testing.assert_array_equal(np.asarray(hs.load_tensor(path, axes="head,query,key")), X)
    with pytest.raises(hs.HeadscapeError, match="axes must name query and key"):
        hs.load_tensor(path, axes="row,col,head")
    with pytest.raises(hs.HeadscapeError, match="names 4 axes, but the array has shape"):
        hs.load_tensor(path, axes="layer,head,query,key")


def test_own_store_keeps_every_label(tmp_path):
    t = hs.NetworkTensor(
        X,
        heads=[(0, i) for i in range(6)],
        tokens=list("abcd"),
        key_tokens=list("vwxyz"),
        field="energy",
        provenance={"m": 1},
    )
    hs.save_tensor(t, tmp_path / "t")
    hs.save_tensor(t, tmp_path / "t")
    again = hs.load_tensor(tmp_path / "t")
    np.testing.assert_array_equal(np.asarray(again), X)
    assert (again.heads, again.tokens, again.key_tokens) == (t.heads, t.tokens, t.key_tokens)
    assert (again.field, again.provenance) == ("energy", {"m": 1})
    with pytest.raises(hs.HeadscapeError, match="leave out array and axes"):
        hs.load_tensor(tmp_path / "t", array="x")


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_truncated_files(tmp_path, kind):
    path = write(tmp_path, kind, {"a": X})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(hs.HeadscapeError, match="damaged, truncated"):
        hs.load_tensor(path)


def test_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(hs.HeadscapeError, match="Python objects, which headscape never loads"):
        hs.load_tensor(tmp_path / "o.npy")


def test_missing_unknown_and_foreign(tmp_path):
    with pytest.raises(hs.HeadscapeError, match="does not exist"):
        hs.load_tensor(tmp_path / "none.npy")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(hs.HeadscapeError, match=r"unknown ending '\.txt'"):
        hs.load_tensor(tmp_path / "a.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(hs.HeadscapeError, match="not a readable zarr"):
        hs.load_tensor(tmp_path / "folder")
    hs.organize(X, n_iter=1).save(tmp_path / "org")
    with pytest.raises(hs.HeadscapeError, match="holds a headscape organization, but a network tensor"):
        hs.load_tensor(tmp_path / "org")


def npy(header, body=b""):
    """Return the bytes of a .npy file with this header."""
    text = header.encode()
    text += b" " * (64 - (len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def described(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


HEADERS = {
    "parentheses": "(" * 5000,
    "closed parentheses": "(" * 4000 + ")" * 4000,
    "signs": "-" * 9000 + "1",
    "a thousand billion": described((10**6, 10**6)),
    "more than 64 bits": described((10**30, 2)),
    "negative": described((4, -3)),
    "boolean": described((True, 2)),
    "words": described((2, 2), "'<U4'"),
    "records": described((2, 2), "[('a', '<f8')]"),
    "no dtype": described((2, 2), "'nothing'"),
    "empty": described((0, 10**15)),
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_headers_that_make_no_sense(tmp_path, kind, header, recwarn):
    data = npy(HEADERS[header], bytes(64))
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", data)
    with pytest.raises(hs.HeadscapeError, match=r"damaged|real numbers|empty axis"):
        hs.load_tensor(path)
    assert not recwarn.list


def test_zip_bombs_are_refused_before_memory_is_taken(tmp_path):
    size = 1 << 28
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as file,
    ):
        file.write(npy(described((size, 1), "'|u1'")))
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    assert peak_of(lambda: refused(tmp_path / "x.npz", "does not fit its data")) < 1 << 24


def refused(path, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.load_tensor(path)


def peak_of(call):
    """Return how many bytes a call takes at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_other_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.txt", "words")
    refused(tmp_path / "x.npz", "holds no array")
    np.save(tmp_path / "y.npy", X)
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    refused(tmp_path / "y.npz", "damaged, truncated")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "BF16"])
def test_dtypes_that_numpy_lacks(tmp_path, dtype):
    size = 2 if dtype == "BF16" else 1
    header = json.dumps({"a": {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, 4 * size]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * size))
    refused(tmp_path / "x.safetensors", "dtype that numpy lacks")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors"])
def test_only_regular_files_are_read(tmp_path, name):
    os.mkfifo(tmp_path / name)
    refused(tmp_path / name, "must be a regular file")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    refused(tmp_path / name, "must be a regular file")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("nowhere")
    refused(tmp_path / name, "leads nowhere")
    refused(tmp_path / ("x" * 300 + name), "cannot be read")


def change_zarr(path, **changes):
    values = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps({**values, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [10**6, 10**6, 10]},
        {"shape": "x"},
        {"shape": [4, 5]},
        {"codecs": []},
        {"codecs": 3},
        {"data_type": "string"},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 5, 6]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**9, 10**5, 6]}}},
        {"chunk_grid": {"name": "other", "configuration": {}}},
    ],
    ids=str,
)
def test_zarr_metadata_that_make_no_sense(tmp_path, changes, recwarn):
    zarr.create_array(store=tmp_path / "a.zarr", data=X, chunks=(2, 5, 6))
    change_zarr(tmp_path / "a.zarr", **changes)
    refused(tmp_path / "a.zarr", "not a readable zarr|does not fit its data")
    assert not recwarn.list


def test_zarr_folders_of_nonsense(tmp_path):
    zarr.create_array(store=tmp_path / "a.zarr", data=X, chunks=(2, 5, 6))
    (tmp_path / "a.zarr/zarr.json").write_text("[" * 50_000)
    refused(tmp_path / "a.zarr", "not a readable zarr")
    (tmp_path / "a.zarr/zarr.json").unlink()
    os.mkfifo(tmp_path / "a.zarr/zarr.json")
    refused(tmp_path / "a.zarr", "must be a regular file")


def test_absent_chunks_of_zarr_are_said(tmp_path, caplog):
    zarr.create_array(store=tmp_path / "a.zarr", data=X, chunks=(2, 5, 6))
    (tmp_path / "a.zarr/c/1/0/0").unlink()
    np.testing.assert_array_equal(hs.load_tensor(tmp_path / "a.zarr").data[2:], 0)
    assert "1 of 2 chunks are absent" in caplog.text


def test_masked_entries_are_refused():
    with pytest.raises(hs.HeadscapeError, match="must not have masked entries"):
        hs.NetworkTensor(np.ma.masked_less(X, 0.5))
    np.testing.assert_array_equal(hs.NetworkTensor(np.ma.array(X)).data, X)


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e308), ("float64", 1e151), ("float32", 1e32)])
def test_numbers_whose_sums_overflow_are_refused(dtype, scale):
    x = ((1 + X.astype(np.float64)) / 2 * scale).astype(dtype)
    for function in (hs.NetworkTensor, lambda y: hs.organize(y, n_iter=1)):
        with pytest.raises(hs.HeadscapeError, match=f"must not exceed .* in {dtype}.*Divide by it"):
            function(-x)


def test_heads_in_front_are_not_read_as_queries(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 8, 8)))
    with pytest.raises(hs.HeadscapeError, match=r"looks like \(head, query, key\)"):
        hs.load_tensor(tmp_path / "x.npy")
    assert hs.load_tensor(tmp_path / "x.npy", axes="head,query,key").shape == (8, 8, 3)
    assert hs.load_tensor(tmp_path / "x.npy", axes="query,key,head").shape == (3, 8, 8)
