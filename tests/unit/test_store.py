"""The store: parts appear whole or not at all, one writer at a time, newer formats refused."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import headscape as hs
from headscape.errors import FileFormatError, StorageError
from headscape.tensor import store as store_module
from headscape.tensor.store import Store, content_hash, write_text_atomically

PARAMETERS = {"a": 1}


def create(path, **changes):
    return Store.create(path, "thing", **{"parameters": PARAMETERS, "input_hash": "h", **changes})


def write(path, name="w0"):
    with create(path) as store, store.writing(name) as part:
        part.array("x", np.arange(5))
        part.attributes(words=["a"])


def test_round_trip(tmp_path):
    write(tmp_path / "s")
    part = Store.open(tmp_path / "s", "thing").read("w0")
    np.testing.assert_array_equal(part.array("x"), np.arange(5))
    np.testing.assert_array_equal(part.array("x", slice(1, 3)), [1, 2])
    assert part.attributes == {"words": ["a"]}
    with pytest.raises(FileFormatError, match="no array 'y', only x"):
        part.array("y")


def test_scalars_and_empty_arrays(tmp_path):
    with create(tmp_path / "s") as store, store.writing("p") as part:
        part.array("zero", np.zeros((0, 3)))
        part.array("scalar", np.float64(2.5))
    part = Store.open(tmp_path / "s", "thing").read("p")
    assert part.array("zero").shape == (0, 3)
    assert part.array("scalar") == 2.5


def test_a_failed_part_leaves_nothing_and_the_finished_one_stays(tmp_path):
    write(tmp_path / "s")
    with create(tmp_path / "s") as store:
        with pytest.raises(RuntimeError, match="boom"), store.writing("w1") as part:
            part.array("x", np.arange(3))
            raise RuntimeError("boom")
        assert store.parts() == ["w0"]
    assert [p.name for p in (tmp_path / "s" / "parts").iterdir()] == ["w0"]


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    with create(tmp_path / "s") as store:
        with store.writing("w0") as part:
            part.array("x", np.arange(3))

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(store_module.PartWriter, "array", full)
        with (
            pytest.raises(StorageError, match=r"disk is full .*free some space and run"),
            store.writing("w1") as part,
        ):
            part.array("x", np.arange(3))
        assert store.parts() == ["w0"]


def test_kill_in_the_middle_then_go_on(tmp_path):
    code = f"""
import numpy as np, sys, time
from headscape.tensor.store import Store
with Store.create({str(tmp_path / "s")!r}, "thing", parameters={{"a": 1}}, input_hash="h") as store:
    with store.writing("w0") as part:
        part.array("x", np.arange(5))
    with store.writing("w1") as part:
        part.array("x", np.arange(5))
        print("ready", flush=True)
        time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with pytest.raises(StorageError, match="another run is writing"):
        create(tmp_path / "s")
    process.kill()
    process.wait()
    assert any(p.name.startswith(".partial") for p in (tmp_path / "s" / "parts").iterdir())
    with create(tmp_path / "s") as store:
        assert store.parts() == ["w0"]
        with store.writing("w1") as part:
            part.array("x", np.arange(5))
    assert Store.open(tmp_path / "s", "thing").parts() == ["w0", "w1"]
    assert not any(p.name.startswith(".partial") for p in (tmp_path / "s" / "parts").iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": {"a": 2}}, "started with a=1, now a=2"),
        ({"input_hash": "g"}, "started with other inputs"),
        ({"seed": 1}, "seed"),
    ],
)
def test_only_the_same_run_goes_on(tmp_path, change, words):
    write(tmp_path / "s")
    with pytest.raises(StorageError, match=words):
        create(tmp_path / "s", **change)
    create(tmp_path / "s").__exit__(None, None, None)


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"holds other files \(precious.txt"):
        create(tmp_path)


def test_reading_needs_no_lock_and_cannot_write(tmp_path):
    write(tmp_path / "s")
    with create(tmp_path / "s"):
        reader = Store.open(tmp_path / "s", "thing")
        assert reader.has("w0")
        with pytest.raises(StorageError, match="opened for reading"), reader.writing("w9"):
            pass
    with pytest.raises(FileFormatError, match=r"no finished part 'w9' \(finished: w0\)"):
        reader.read("w9")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ('{"format": "headscape/thing/2"}', "reads thing only up to number 1. Update headscape"),
        ('{"format": "headscape/other/1"}', "holds a headscape other, but a thing is wanted"),
        ('{"format": "pickle"}', "must have a header"),
        ("[1, 2]", "JSON object"),
        ('{"format": ', "damaged"),
        ("[" * 50_000, "damaged"),
        ('{"a": ' * 50_000, "damaged"),
        ('{"format": "headscape/thing/1"}', "'versions' is missing or of a wrong type"),
        (
            '{"format": "headscape/thing/1", "versions": {}, "parameters": [], "input_hash": ""}',
            "'parameters' is missing",
        ),
        (r'{"format": "\ud800"}', "must have a header"),
    ],
)
def test_headers(tmp_path, header, words):
    write(tmp_path / "s")
    (tmp_path / "s" / "headscape.json").write_text(header)
    with pytest.raises(FileFormatError, match=words):
        Store.open(tmp_path / "s", "thing")


def test_not_a_store(tmp_path):
    with pytest.raises(FileFormatError, match=r"no headscape\.json"):
        Store.open(tmp_path, "thing")


def test_a_header_that_was_edited_is_refused(tmp_path):
    write(tmp_path / "s")
    header = tmp_path / "s" / "headscape.json"
    header.write_text(header.read_text().replace('"input_hash": "h"', '"input_hash": "g"'))
    with pytest.raises(FileFormatError, match=r"headscape\.json is damaged or was edited"):
        Store.open(tmp_path / "s", "thing")


def test_a_header_that_is_no_file_is_refused(tmp_path):
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")):
        folder = tmp_path / make.__name__
        folder.mkdir()
        make(folder / "headscape.json")
        with pytest.raises(FileFormatError, match="must be a regular file"):
            Store.open(folder, "thing")


def test_a_run_that_was_stopped_while_it_wrote_the_header_starts_anew(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".partial-0a1b2c3d-headscape.json").write_text('{"form')
    write(tmp_path / "s")
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == [".lock", "headscape.json", "parts"]


def test_header_says_what_made_it(tmp_path):
    write(tmp_path / "s")
    header = json.loads((tmp_path / "s" / "headscape.json").read_text())
    assert header["format"] == "headscape/thing/1"
    assert header["versions"]["headscape"] == hs.__version__
    assert (header["parameters"], header["input_hash"]) == (PARAMETERS, "h")


def test_hash_sees_bytes_shape_and_dtype():
    x = np.arange(6.0)
    assert content_hash(x) == content_hash(x.copy())
    assert len({content_hash(y) for y in (x, x + 1, x.reshape(2, 3), x.astype(np.float32))}) == 4
    assert content_hash(x.astype(">f8")) == content_hash(x)


def test_texts_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_text_atomically(path, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module.os, "fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
