"""Images of every kind: the pixels that people see, or one clear error."""

import os
import struct
import tracemalloc
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

from headscape.errors import InputError
from headscape.recorder.image_files import images_in
from headscape.recorder.images import image_windows

RNG = np.random.default_rng(0)


def seen(item, size, channels=3):
    """Return what a model with images of this size (height, width) is shown, as bytes."""
    model = SimpleNamespace(config=SimpleNamespace(image_size=size, num_channels=channels))
    [pixels] = image_windows([item], model)
    planes = np.rint((pixels.numpy()[0] + 1) * 127.5)
    return np.moveaxis(planes, 0, 2)


def picture(height=6, width=4):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "webp"])
def test_formats_without_loss_keep_every_pixel(tmp_path, ending):
    x = picture()
    Image.fromarray(x).save(tmp_path / f"a.{ending}", **({"lossless": True} if ending == "webp" else {}))
    np.testing.assert_array_equal(seen(tmp_path / f"a.{ending}", (6, 4)), x)


def test_one_pixel(tmp_path):
    Image.new("RGB", (1, 1), (10, 20, 30)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(seen(tmp_path / "a.png", 8), np.full((8, 8, 3), (10, 20, 30)))


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path):
    x = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    for ending in ("png", "tif"):
        Image.fromarray(x).save(tmp_path / f"a.{ending}")
        shown = seen(tmp_path / f"a.{ending}", (3, 4), channels=1)[:, :, 0]
        np.testing.assert_array_equal(shown, np.rint(x / 257))


def test_sixteen_bits_of_color_keep_the_high_byte(tmp_path):
    high = picture(2, 3)
    wide = high.astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in wide)
    write_png(tmp_path / "a.png", (3, 2), rows, bits=16)
    np.testing.assert_array_equal(seen(tmp_path / "a.png", (2, 3)), high)


def test_transparent_parts_lie_on_white(tmp_path):
    x = np.zeros((1, 3, 4), dtype=np.uint8)
    x[0, :, 3] = 0, 255, 51
    Image.fromarray(x).save(tmp_path / "a.png")
    expected = [[255] * 3, [0] * 3, [204] * 3]
    np.testing.assert_array_equal(seen(tmp_path / "a.png", (1, 3))[0], expected)
    np.testing.assert_array_equal(seen(Image.open(tmp_path / "a.png"), (1, 3))[0], expected)


def test_palettes_and_their_transparent_color(tmp_path):
    indexed = Image.new("P", (2, 1))
    indexed.putpalette([10, 20, 30, 40, 50, 60])
    indexed.putdata([0, 1])
    indexed.save(tmp_path / "a.gif", transparency=1)
    np.testing.assert_array_equal(seen(tmp_path / "a.gif", (1, 2))[0], [[10, 20, 30], [255, 255, 255]])


@pytest.mark.parametrize("ending", ["gif", "webp", "png"])
def test_animations_show_their_first_frame(tmp_path, ending):
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue", "lime")]
    more = {"lossless": True} if ending == "webp" else {}
    frames[0].save(tmp_path / f"a.{ending}", save_all=True, append_images=frames[1:], duration=50, **more)
    with Image.open(tmp_path / f"a.{ending}") as read:
        assert read.n_frames == 3
    np.testing.assert_array_equal(seen(tmp_path / f"a.{ending}", 4), np.full((4, 4, 3), (255, 0, 0)))


def test_exif_rotation_is_applied(tmp_path):
    x = picture(6, 4)
    for turn, expected in ((1, x), (3, x[::-1, ::-1]), (6, np.rot90(x, -1)), (8, np.rot90(x))):
        exif = Image.Exif()
        exif[0x0112] = turn
        Image.fromarray(x).save(tmp_path / "a.png", exif=exif)
        np.testing.assert_array_equal(seen(tmp_path / "a.png", expected.shape[:2]), expected)


def test_cmyk(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    assert np.abs(seen(tmp_path / "a.jpg", 8) - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_white_is_white_in_every_mode(mode):
    white = Image.new("RGBA" if mode.endswith("A") else "RGB", (3, 3), "white").convert(mode)
    np.testing.assert_array_equal(seen(white, 3), np.full((3, 3, 3), 255))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_thirty_two_bits_have_no_scale(mode):
    with pytest.raises(InputError, match="8 or 16 bits per channel"):
        seen(Image.new(mode, (3, 3)), 3)


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "gif", "tif", "webp"])
@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.95])
def test_truncated_files(tmp_path, ending, share):
    file = tmp_path / f"a.{ending}"
    Image.fromarray(picture(40, 30)).save(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="is not a readable image"):
        seen(file, 8)


@pytest.mark.parametrize(
    "content", [b"\0" * 100, b"\x89PNG\r\n\x1a\n", b"GIF89a", b"<html></html>", b"RIFF0000WEBP"]
)
def test_other_files_with_the_ending_of_an_image(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.png is not a readable image"):
        seen(tmp_path / "a.png", 8)


@pytest.mark.parametrize("side", [10_000, 20_000, 1_000_000])
def test_huge_images_are_refused_before_they_are_decoded(tmp_path, side):
    write_png(tmp_path / "a.png", (side, side), b"\0" * 1000)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"too large.*{side**2} pixels.*limit of \d+ pixels"):
        seen(tmp_path / "a.png", 8)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_text_in_an_image_does_not_unpack_without_end(tmp_path):
    bomb = b"Comment\0\0" + zlib.compress(b"\0" * 100_000_000)
    write_png(tmp_path / "a.png", (1, 1), b"\0\1\2\3", extra=chunk(b"zTXt", bomb))
    with pytest.raises(InputError, match="is not a readable image"):
        seen(tmp_path / "a.png", 8)


def test_what_is_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    for name in ("pipe.png", "zero.png", "folder.png"):
        with pytest.raises(InputError, match="not a regular file"):
            seen(tmp_path / name, 8)
    with pytest.raises(InputError, match="does not exist"):
        seen(tmp_path / "none.png", 8)
    with pytest.raises(InputError, match="is not a readable image"):
        seen("a" * 5000 + ".png", 8)


def test_models_with_other_channels_take_pixel_values_only():
    with pytest.raises(InputError, match="images of 4 channels"):
        seen(Image.new("RGB", (3, 3)), 3, channels=4)


def test_a_folder_of_many_images_is_listed_in_order(tmp_path):
    for number in range(100_000):
        os.close(os.open(tmp_path / f"{number:06d}.png", os.O_CREAT | os.O_WRONLY))
    found = images_in(tmp_path)
    assert len(found) == 100_000
    assert found == sorted(found)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, size, rows, bits=8, extra=b""):
    """Write a PNG file by hand, as Pillow does not write all there are."""
    header = struct.pack(">IIBBBBB", *size, bits, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
