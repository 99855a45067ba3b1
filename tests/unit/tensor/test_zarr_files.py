"""What is written is what zarr itself would write, and zarr reads it."""

import json

import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from headscape.errors import FileFormatError, InputError
from headscape.tensor.zarr_files import array_files, group_file, read_array

ARRAYS = {
    "edges": (np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32), (2, 3)),
    "double": (np.linspace(-1, 1, 12).reshape(2, 2, 3), (1, 2, 3)),
    "transposed": (np.arange(12.0).reshape(3, 4).T, (4, 3)),
    "big-endian": (np.arange(6, dtype=">i4"), (4,)),
    "integers": (np.arange(-3, 4, dtype=np.int64), (7,)),
    "bytes": (np.arange(6, dtype=np.uint8), (6,)),
    "booleans": (np.eye(3, dtype=bool), (3, 3)),
    "no number": (np.array(2.5), ()),
    "negative zero": (np.array([-0.0, 0.0]), (1,)),
    "not finite": (np.array([np.nan, np.inf]), (2,)),
    "empty": (np.empty((0, 3)), (1, 3)),
}


def written(folder, files):
    for path, content in files:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", ARRAYS)
def test_zarr_reads_what_is_written(tmp_path, name):
    data, chunks = ARRAYS[name]
    found = zarr.open_array(written(tmp_path / "x", array_files(data, chunks)), mode="r")[...]
    np.testing.assert_array_equal(found, data)
    assert found.dtype == data.dtype.newbyteorder("=")
    np.testing.assert_array_equal(np.signbit(found.astype(float)), np.signbit(data.astype(float)))


@pytest.mark.parametrize("name", ARRAYS)
def test_metadata_are_those_of_zarr(tmp_path, name):
    data, chunks = ARRAYS[name]
    own = json.loads(dict(array_files(data, chunks))["zarr.json"])
    zarr.create_array(
        tmp_path / "x",
        data=data.astype(data.dtype.newbyteorder("=")),
        chunks=chunks,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
    )
    assert own == json.loads((tmp_path / "x/zarr.json").read_text())


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_written_is_read_without_zarr(name):
    data, chunks = ARRAYS[name]
    files = dict(array_files(data, chunks))
    found = read_array(files["zarr.json"], files.get)
    np.testing.assert_array_equal(found, data)
    assert found.dtype == data.dtype.newbyteorder("=")
    np.testing.assert_array_equal(np.signbit(found.astype(float)), np.signbit(data.astype(float)))


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 4), slice(3, 99), slice(-2, None), slice(4, 2)])
def test_some_slices_are_read_from_their_own_chunks(rows):
    data, chunks = ARRAYS["edges"]
    files, asked = dict(array_files(data, chunks)), []
    found = read_array(files["zarr.json"], lambda path: asked.append(path) or files.get(path), rows)
    np.testing.assert_array_equal(found, data[rows])
    places = range(len(data))[rows]
    assert {int(path.split(".")[1]) for path in asked} == {row // chunks[0] for row in places}


def test_arrays_of_other_writers_and_steps_are_left_to_zarr(tmp_path):
    zarr.create_array(tmp_path / "x", data=np.arange(6.0), chunks=(2,))
    assert read_array((tmp_path / "x/zarr.json").read_bytes(), {}.get) is None
    assert read_array(b'{"shape": 3}', {}.get) is None
    files = dict(array_files(np.arange(6.0), (2,)))
    assert read_array(files["zarr.json"], files.get, slice(0, 6, 2)) is None


def test_a_changed_chunk_is_noticed_by_its_checksum():
    files = dict(array_files(np.arange(6.0), (6,)))
    changed = bytearray(files["c.0"])
    changed[5] ^= 1
    with pytest.raises(FileFormatError, match="checksum"):
        read_array(files["zarr.json"], {"c.0": bytes(changed)}.get)


def test_zeros_take_no_file():
    files = dict(array_files(np.array([0.0, 0.0, 0.0, 1.0]), (2,)))
    assert sorted(files) == ["c.1", "zarr.json"]


def test_zarr_reads_attributes(tmp_path):
    written(tmp_path / "x", [("zarr.json", group_file({"words": ["ä"], "value": float("inf")}))])
    assert dict(zarr.open_group(tmp_path / "x", mode="r").attrs) == {"words": ["ä"], "value": float("inf")}


def test_words_are_refused():
    with pytest.raises(InputError, match="only numbers and booleans"):
        list(array_files(np.array(["a"]), (1,)))
