"""A part is read as it was written, or refused: nothing that is lost, exchanged or changed passes."""

import json
import os
import shutil

import numpy as np
import pytest
import zarr

from headscape.errors import FileFormatError
from headscape.tensor.store import Store

X = np.random.default_rng(0).normal(size=(4, 5, 6))
CHUNK = "x/c.1.0.0"


@pytest.fixture
def part(tmp_path):
    path = tmp_path / "s"
    with Store.create(path, "thing", parameters={}, input_hash="h") as store:
        for name in ("w0", "w1"):
            with store.writing(name) as writer:
                writer.array("x", X, chunks=(1, 5, 6))
                writer.array("y", X[:, 0] + 1, chunks=(1, 6))
                writer.array("zeros", np.zeros((3, 2)))
                writer.attributes(words=["a", "b"], scale=0.5)
    return path / "parts" / "w0"


def read(part, index=...):
    found = Store.open(part.parent.parent, "thing").read(part.name)
    return found.attributes, found.array("x", index)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def replace(path, make):
    path.unlink()
    make(path)


def swap(one, two):
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def outside(part):
    """A copy of the chunk that lies outside of the store."""
    copy = part.parent.parent.parent / "copy"
    shutil.copy(part / CHUNK, copy)
    return copy


def drop_from_marker(part):
    marker = json.loads((part / "part.json").read_text())
    del marker["files"][CHUNK]
    (part / "part.json").write_text(json.dumps(marker))


DAMAGES = {
    "chunk deleted": lambda part: (part / CHUNK).unlink(),
    "chunks deleted": lambda part: [chunk.unlink() for chunk in (part / "x").glob("c.*")],
    "file for a folder": lambda part: (shutil.rmtree(part / "x"), (part / "x").write_text("")),
    "dangling link": lambda part: replace(part / CHUNK, lambda p: p.symlink_to("nowhere")),
    "link out": lambda part: (copy := outside(part), replace(part / CHUNK, lambda p: p.symlink_to(copy))),
    "link to itself": lambda part: replace(part / CHUNK, lambda p: p.symlink_to(p)),
    "folder": lambda part: replace(part / CHUNK, os.mkdir),
    "pipe": lambda part: replace(part / CHUNK, os.mkfifo),
    "device": lambda part: replace(part / CHUNK, lambda p: p.symlink_to("/dev/zero")),
    "chunks swapped": lambda part: swap(part / CHUNK, part / "x/c.2.0.0"),
    "chunk copied": lambda part: shutil.copy(part / "x/c.2.0.0", part / CHUNK),
    "emptied": lambda part: (part / CHUNK).write_bytes(b""),
    "longer": lambda part: (part / CHUNK).write_bytes((part / CHUNK).read_bytes() + b"0"),
    "terabyte": lambda part: os.truncate(part / CHUNK, 1 << 40),
    "attributes edited": lambda part: edit(part / "zarr.json", "0.5", "0.6"),
    "attributes deleted": lambda part: (part / "zarr.json").unlink(),
    "shape edited": lambda part: edit(part / "x/zarr.json", "4,", "3,"),
    "array deleted": lambda part: shutil.rmtree(part / "x"),
    "fill value edited": lambda part: edit(part / "x/zarr.json", '"fill_value": 0.0', '"fill_value": 1.0'),
    "marker deleted": lambda part: (part / "part.json").unlink(),
    "marker cut": lambda part: os.truncate(part / "part.json", 100),
    "marker edited": drop_from_marker,
    "marker nested": lambda part: (part / "part.json").write_text("[" * 50_000),
    "marker of another part": lambda part: edit(
        part / "part.json", '"files": {', '"files": {"z": [1, "0"], '
    ),
    "marker a pipe": lambda part: replace(part / "part.json", os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damages_are_refused(part, damage):
    DAMAGES[damage](part)
    with pytest.raises(FileFormatError, match=f"Delete the folder {part} and run"):
        read(part)
    np.testing.assert_array_equal(read(part.with_name("w1"))[1], X)


def test_a_part_elsewhere_is_refused(part, tmp_path):
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileFormatError, match="leads out of"):
        read(part)


def test_files_that_are_not_listed_change_nothing(part):
    shutil.copy(part / "y/c.0.0", part / "zeros/c.0.0")
    (part / "more").mkdir()
    found = Store.open(part.parent.parent, "thing").read("w0")
    np.testing.assert_array_equal(found.array("zeros"), 0)
    assert found.names() == ["x", "y", "zeros"]


def test_only_what_is_read_is_verified(part):
    (part / CHUNK).unlink()
    (part / "y/c.0.0").write_bytes(b"")
    np.testing.assert_array_equal(read(part, slice(2, 4))[1], X[2:])


def test_the_marker_lists_arrays_and_files(part):
    marker = json.loads((part / "part.json").read_text())
    assert marker["format"] == "headscape/part/1"
    assert marker["arrays"]["x"] == {"shape": [4, 5, 6], "dtype": "float64", "chunks": 4}
    assert (
        marker["arrays"]["zeros"]["chunks"] == 0
    )  # zarr writes no chunk that holds nothing but its fill value
    assert marker["files"][CHUNK][0] == (part / CHUNK).stat().st_size
    written = {p.relative_to(part).as_posix() for p in part.rglob("*") if p.is_file()}
    assert written - set(marker["files"]) == {"part.json"}


@pytest.fixture
def older(part):
    """The same store as an older headscape would have left it: without digests."""
    header = part.parent.parent / "headscape.json"
    values = json.loads(header.read_text())
    del values["digest"]
    header.write_text(json.dumps(values))
    for name in ("w0", "w1"):
        (part.with_name(name) / "part.json").unlink()
    return part


def test_older_stores_are_read_with_one_warning(older, caplog):
    for name in ("w0", "w1", "w0"):
        attributes, x = read(older.with_name(name))
        assert attributes == {"words": ["a", "b"], "scale": 0.5}
        np.testing.assert_array_equal(x, X)
    assert [record.message for record in caplog.records if "not verified" in record.message] == [
        f"{older.parent.parent} was written by an older headscape: its parts have no digests and are not verified"
    ]


@pytest.mark.parametrize(
    "damage", ["dangling link", "link out", "link to itself", "folder", "pipe", "device", "emptied"]
)
def test_older_stores_hold_regular_files_only(older, damage):
    DAMAGES[damage](older)
    with pytest.raises(FileFormatError, match=rf"Delete the folder {older}"):
        read(older)


@pytest.mark.parametrize("shape", ["[4000000000, 5, 6]", "[40000, 5000, 6]"])
def test_shapes_that_do_not_fit_are_refused_before_memory_is_taken(older, shape):
    values = json.loads((older / "x/zarr.json").read_text())
    (older / "x/zarr.json").write_text(json.dumps({**values, "shape": json.loads(shape)}))
    with pytest.raises(FileFormatError, match="does not fit its data"):
        read(older)


def test_zarr_itself_still_reads_a_part(part):
    np.testing.assert_array_equal(zarr.open_array(part / "x", mode="r")[...], X)


def test_parts_cannot_change_places(tmp_path):
    with Store.create(tmp_path / "store", "kind", parameters={}, input_hash="0") as store:
        for number, name in enumerate(("first", "second")):
            with store.writing(name) as part:
                part.array("x", np.full(4, float(number)))
    parts = tmp_path / "store" / "parts"
    for old, new in (("first", "kept"), ("second", "first"), ("kept", "second")):
        (parts / old).rename(parts / new)
    with pytest.raises(FileFormatError, match="holds the part 'second'"):
        Store.open(tmp_path / "store", "kind").read("first")
