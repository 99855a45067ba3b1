"""Texts and images. Right is what a plain decoder makes of the same bytes."""

import atexit
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

import headscape as hs
from fuzz.models import TINY, WORDS, tiny
from fuzz.mutations import BYTES, PLACES, Mutation
from fuzz.target import Found, Target
from headscape.models.quiet import quiet_transformers
from tiny_models import tiny_classifier

FILE = (*BYTES, *PLACES[:-2])


def _captured(inputs: Any, **options: Any) -> Found:
    capture = hs.capture(tiny(), inputs, length=16, **options)
    windows = {f"probs {window}": capture.tensor(window).data for window in range(capture.n_windows)}
    return windows | {f"tokens {window}": capture.tokens(window) for window in range(capture.n_windows)}


def _save_text(root: Path) -> None:
    (root / "text.txt").write_text(WORDS + "Grüße, 世界! 🙂\n\n" + WORDS, encoding="utf-8")


def read_text(root: Path) -> Found:
    return _captured(root / "text.txt", windows=2)


def text_meanings(root: Path) -> Sequence[Found]:
    """Decode as UTF-8, with LF for every line end; the windows must be pieces of that text."""
    raw = (root / "text.txt").read_bytes()
    text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    found = _captured(text, windows=2)
    for name, tokens in found.items():
        if name.startswith("tokens") and "".join(tokens) not in text and all(t in text for t in tokens):
            raise ValueError(f"{name} are no piece of the text")
    return [found]


def odd_text(rng: random.Random, root: Path) -> str:
    """Write the text in another encoding, with other line ends or other characters, empty or very long."""
    text = (root / "text.txt").read_text(encoding="utf-8")
    place = rng.randrange(len(text))
    strange = (
        "\0",
        "\x1a",
        "\x7f",
        "\u2028",
        "\ufeff",
        "\u202e",
        "\ue000",
        "a\u0301" * 50,
        "\U0010ffff",
        "<|end|>",
    )
    kinds: dict[str, Callable[[], bytes]] = {
        **{
            code: lambda code=code: text.encode(code)
            for code in ("utf-16", "utf-16-le", "utf-32", "utf-7", "utf-8-sig")
        },
        **{
            code: lambda code=code: text.encode(code, "replace")
            for code in ("latin-1", "cp1252", "shift_jis", "cp037")
        },
        "CRLF": lambda: text.replace(". ", ".\r\n").encode(),
        "CR": lambda: text.replace(". ", ".\r").encode(),
        "mixed line ends": lambda: text.replace(". ", rng.choice((".\n\r", ".\r\r\n"))).encode(),
        "strange": lambda: (text[:place] + rng.choice(strange) + text[place:]).encode(),
        "NULs at the end": lambda: text.encode() + bytes(rng.randrange(1, 5000)),
        "surrogate": lambda: text[:place].encode() + b"\xed\xa0\x80" + text[place:].encode(),
        "overlong": lambda: text[:place].encode() + b"\xc0\xaf" + text[place:].encode(),
        "half a character": lambda: text.encode() + "🙂".encode()[: rng.randrange(1, 4)],
        "random bytes": lambda: rng.randbytes(rng.randrange(1, 5000)),
        "random characters": lambda: "".join(chr(rng.randrange(32, 0xD7FF)) for _ in range(3000)).encode(),
        "blank": lambda: rng.choice((b" ", b"\n", b"\t \n")) * rng.randrange(0, 3000),
        "short": lambda: text[: rng.randrange(40)].encode(),
        "one long word": lambda: b"a" * rng.choice((10_000, 1_000_000)),
        "one long line": lambda: text.replace("\n", " ").encode() * 20,
        "emoji": lambda: ("👩‍👩‍👧‍👦" * 500).encode(),
        "digits": lambda: b"1" * 5000,
        "very long": lambda: text.encode() * 10_000,
    }
    weights = [0.2 if kind == "very long" else 1.0 for kind in sorted(kinds)]
    [kind] = rng.choices(sorted(kinds), weights)
    (root / "text.txt").write_bytes(kinds[kind]())
    return f"odd_text {kind}"


@cache
def _vision() -> Any:
    return tiny_classifier("ViT")


def _seen(image: Any) -> Found:
    return {"probs": hs.capture(_vision(), image).tensor(0).data}


def _picture(rng: random.Random | None = None, size: tuple[int, int] = (24, 20)) -> Any:
    draw = np.random.default_rng(0 if rng is None else rng.randrange(2**32))
    coarse = Image.fromarray(draw.integers(0, 256, (5, 6, 3), dtype=np.uint8), "RGB")
    return coarse.resize(size, Image.Resampling.BILINEAR)


def _image(root: Path) -> Path:
    return next(iter(sorted(root.glob("image.*"))), root / "image.png")


def read_image(root: Path) -> Found:
    return _seen([_image(root)])


def image_meanings(root: Path) -> Sequence[Found]:
    """Decode with Pillow alone: upright, the first frame, 16 bits scaled to 8, alpha dropped or over black or white."""
    with Image.open(_image(root)) as opened:
        opened.load()
        picture = ImageOps.exif_transpose(opened)
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        values = np.asarray(picture).astype(np.float64)
        shades = [np.clip(values, 0, 255), values // 256, np.rint(values / 257)]
        pictures = [Image.fromarray(shade.astype(np.uint8), "L").convert("RGB") for shade in shades[1:]]
    else:
        pictures = [picture.convert("RGB")]
        if picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info:
            alpha = picture.convert("RGBA")
            for shade in ("white", "black"):
                ground = Image.new("RGBA", alpha.size, shade)
                pictures.append(Image.alpha_composite(ground, alpha).convert("RGB"))
    return [_seen(np.asarray(one, dtype=np.uint8)) for one in pictures]


def _png(width: int, height: int, mode: int, depth: int, body: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, mode, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _rows(width_bytes: int, height: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 + width_bytes)) for _ in range(height)) + packer.flush()


def _rotated(rng: random.Random, path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 77))
    _picture(rng).save(path, exif=exif)


def odd_image(rng: random.Random, root: Path) -> str:
    """Write an image of another kind: sizes, modes, depths, frames, orientation, bombs, no image at all."""
    _image(root).unlink()
    modes = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F")
    kinds: dict[str, tuple[str, Callable[[Path], Any]]] = {
        **{
            f"{mode} as {end}": (
                end,
                lambda path, mode=mode: _picture(rng).convert("L" if ";" in mode else mode).save(path),
            )
            for mode in modes
            for end in ("png", "tiff", "jpg", "gif", "webp", "bmp")
        },
        "16 bits": (
            "png",
            lambda path: Image.fromarray(np.asarray(_picture(rng).convert("L")).astype("u2") * 257).save(
                path
            ),
        ),
        "1 x 1": ("png", lambda path: _picture(rng, (1, 1)).save(path)),
        "1 x 3000": ("png", lambda path: _picture(rng, (1, 3000)).save(path)),
        "large": ("png", lambda path: _picture(rng, (3000, 2000)).save(path)),
        "animated gif": (
            "gif",
            lambda path: _picture().save(path, save_all=True, append_images=[_picture(rng)] * 3),
        ),
        "animated webp": (
            "webp",
            lambda path: _picture().save(path, save_all=True, append_images=[_picture(rng)]),
        ),
        "rotated": ("jpg", lambda path: _rotated(rng, path)),
        "rotated png": ("png", lambda path: _rotated(rng, path)),
        "no width": ("png", lambda path: path.write_bytes(_png(0, 5, 2, 8, _rows(0, 5)))),
        "bomb": ("png", lambda path: path.write_bytes(_png(20_000, 20_000, 0, 1, _rows(2500, 20_000)))),
        "lying size": ("png", lambda path: path.write_bytes(_png(30_000, 30_000, 2, 8, _rows(10, 10)))),
        "huge size": ("png", lambda path: path.write_bytes(_png(2**31 - 1, 2**31 - 1, 6, 16, _rows(10, 10)))),
        "text": ("jpg", lambda path: path.write_text("not an image")),
        "svg": ("png", lambda path: path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")),
        "eps": (
            "png",
            lambda path: path.write_text(
                "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n1 0 0 setrgbcolor"
            ),
        ),
        "other ending": ("gif", lambda path: _picture(rng).save(path, format="JPEG")),
        "jpeg 2000": ("png", lambda path: _picture(rng).save(path, format="JPEG2000")),
        "long comment": (
            "png",
            lambda path: path.write_bytes(_png(5, 5, 0, 8, _rows(5, 5)).replace(b"IEND", b"zTXt")),
        ),
        "folder": ("png", lambda path: path.mkdir()),
    }
    kind = rng.choice(sorted(kinds))
    ending, write = kinds[kind]
    path = root / f"image.{ending}"
    try:
        write(path)
    except (OSError, ValueError, KeyError):  # a mode that the format does not have
        _picture(rng).save(root / "image.png")
        path.unlink(missing_ok=True) if ending != "png" else None
    return f"odd_image {kind}"


TEXT: tuple[Mutation, ...] = (*FILE, *(odd_text,) * 12)
IMAGE: tuple[Mutation, ...] = (*FILE, *(odd_image,) * 12)


def _save_jpeg(root: Path) -> None:
    _picture().save(root / "image.jpg", quality=90)


def _see(root: Path, out: Path) -> list[Any]:
    return ["capture", _vision_folder(), "-o", out, "--images", _image(root)]


@cache
def _vision_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="headscape-vision-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with quiet_transformers():
        _vision().save_pretrained(folder)
    return folder


INPUTS = (
    Target(
        "text",
        _save_text,
        read_text,
        TEXT,
        1000,
        text_meanings,
        1e-5,
        command=lambda root, out: [
            *("capture", TINY, "-o", out, "--text", root / "text.txt"),
            *("--windows", 2, "--length", 16),
        ],
    ),
    Target(
        "png image",
        lambda root: _picture().save(root / "image.png"),
        read_image,
        IMAGE,
        700,
        image_meanings,
        1e-5,
        command=_see,
    ),
    Target("jpeg image", _save_jpeg, read_image, (*FILE, odd_image), 400, image_meanings, 1e-5),
)
