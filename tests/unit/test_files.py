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
    with pytest.raises(hs.HeadscapeError, match="no readable zarr"):
        hs.load_tensor(tmp_path / "folder")
    hs.organize(X, n_iter=1).save(tmp_path / "org")
    with pytest.raises(hs.HeadscapeError, match="holds a headscape organization, but a network tensor"):
        hs.load_tensor(tmp_path / "org")
