"""The images of a folder, in order, without torch."""

import subprocess
import sys

import pytest

from headscape.errors import InputError
from headscape.recorder.image_files import images_in


def touch(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_images_are_sorted_and_other_files_left_out(tmp_path):
    touch(tmp_path, "b.png", "a.JPG", "notes.txt")
    assert images_in(tmp_path) == [tmp_path / "a.JPG", tmp_path / "b.png"]


def test_labels_take_turns(tmp_path):
    touch(tmp_path / "cat", "1.png", "2.png", "3.png")
    touch(tmp_path / "dog", "1.png")
    rows = images_in(tmp_path)
    assert [(row["label"], row["image"].name) for row in rows] == [
        ("cat", "1.png"),
        ("dog", "1.png"),
        ("cat", "2.png"),
        ("cat", "3.png"),
    ]


def test_folders_without_images(tmp_path):
    touch(tmp_path / "empty")
    with pytest.raises(InputError, match=r"has no images \(\.png"):
        images_in(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        images_in(tmp_path / "missing")


def test_torch_is_not_needed():
    code = "import sys; import headscape.recorder.image_files; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_images_beside_labeled_ones_are_refused(tmp_path):
    touch(tmp_path / "cat", "1.png")
    touch(tmp_path, "2.png")
    with pytest.raises(InputError, match="1 images directly and 1 in subfolders"):
        images_in(tmp_path)


def test_a_folder_with_the_ending_of_an_image_is_a_label(tmp_path):
    touch(tmp_path / "cat.png", "1.png")
    assert [row["label"] for row in images_in(tmp_path)] == ["cat.png"]
