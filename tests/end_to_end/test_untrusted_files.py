"""Files that nobody vouches for, through the command line: one line, exit code 2, no warnings before it."""

import json
import os
import struct

import numpy as np
import pytest
import zarr

import headscape as hs
from tests.cli_runs import headscape, headscape_here, one_line

X = np.random.default_rng(0).random((6, 6, 3))


def parentheses(path):
    header = b"(" * 5000 + b"\n"
    path.with_suffix(".npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return path.with_suffix(".npy")


def too_large(path):
    np.save(path.with_suffix(".npy"), X * 1e308)
    return path.with_suffix(".npy")


def pipe(path):
    os.mkfifo(path.with_suffix(".npz"))
    return path.with_suffix(".npz")


def float8(path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}}).encode()
    path.with_suffix(".safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return path.with_suffix(".safetensors")


def huge_zarr(path):
    group = zarr.open_group(path.with_suffix(".zarr"), mode="w")
    group.create_array("x", data=X)
    (path.with_suffix(".zarr") / "notes.txt").write_text("zarr warns of files that it does not know")
    metadata = path.with_suffix(".zarr") / "x/zarr.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "shape": [10**6, 10**6, 3]}))
    return path.with_suffix(".zarr")


def nested_header(path):
    path.mkdir()
    (path / "headscape.json").write_text("[" * 50_000)
    return path


def chunk_deleted(path):
    hs.save_tensor(hs.NetworkTensor(X), path)
    next(p for p in (path / "parts/tensor/data").rglob("c*") if p.is_file()).unlink()
    return path


def empty_header(path):
    hs.save_tensor(hs.NetworkTensor(X), path)
    (path / "headscape.json").write_text('{"format": "headscape/tensor/1"}')
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (parentheses, "damaged"),
        (too_large, "must not exceed"),
        (pipe, "regular file"),
        (float8, "dtype that numpy lacks"),
        (huge_zarr, "does not fit its data"),
        (nested_header, "damaged"),
        (chunk_deleted, "Delete the folder"),
        (empty_header, "damaged"),
    ],
)
def test_one_line(tmp_path, monkeypatch, capsys, make, words):
    source = make(tmp_path / "x")
    one_line(headscape_here(monkeypatch, capsys, "organize", source, "-o", tmp_path / "out"), words)


@pytest.mark.parametrize(
    ("make", "words"), [(too_large, "must not exceed"), (huge_zarr, "does not fit its data")]
)
def test_no_warning_before_the_line(tmp_path, make, words):
    one_line(headscape("organize", make(tmp_path / "x"), "-o", tmp_path / "out"), words)
