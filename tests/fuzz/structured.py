"""Damages that keep a file's outer form: JSON with other values, array headers that lie, archives that swell."""

import ast
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutations import Mutation, files_in

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 7, 1.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63, 10**30),
    *(
        "",
        "x",
        "../../x",
        "\0",
        "ü\ud800",
        "1",
        "nan",
        [],
        {},
        [[]],
        [None],
        {"x": 1},
        [1, 2, 3],
        [[0, 0]],
        ["x"] * 9,
    ),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*path, key))


def _parent(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _edited(rng: random.Random, document: Any) -> tuple[Any, str]:
    """Return a JSON document with one edit, and the words for it."""
    path = rng.choice(list(_places(document)))
    if not path:
        value = rng.choice(ODD_VALUES)
        return value, f"all = {value!r:.30}"
    parent, key, name = _parent(document, path), path[-1], ".".join(map(str, path))
    kind = rng.choice(("value", "value", "value", "drop", "near", "repeat", "nest"))
    if kind == "drop":
        del parent[key]
    elif kind == "near" and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        parent[key] += rng.choice((-1, 1))
    elif kind == "repeat" and isinstance(parent[key], list) and parent[key]:
        parent[key].append(rng.choice(parent[key]))
    elif kind == "nest":
        parent[key] = [parent[key]]
    else:
        parent[key] = rng.choice(ODD_VALUES)
        kind = f"= {parent[key]!r:.30}"
    return document, f"{name} {kind}"


def edit_json(rng: random.Random, root: Path) -> str | None:
    """Change, drop, repeat or wrap one value of a JSON file."""
    files = files_in(root, ".json")
    if not files:
        return None
    path = rng.choice(files)
    document, words = _edited(rng, json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
    return f"edit_json {path.relative_to(root)}: {words}"


def odd_json(rng: random.Random, root: Path) -> str | None:
    """Write a JSON file in a way that parsers choke on: nested 50,000-fold, huge digits, in another encoding."""
    files = files_in(root, ".json")
    if not files:
        return None
    path = rng.choice(files)
    text = path.read_text(encoding="utf-8")
    kinds: dict[str, Callable[[], bytes]] = {
        "nested lists": lambda: b"[" * 50_000 + b"]" * 50_000,
        "nested objects": lambda: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "nested inside": lambda: (
            text.rstrip()[:-1] + ', "x": ' + "[" * 50_000 + "]" * 50_000 + "}"
        ).encode(),
        "many digits": lambda: (text.rstrip()[:-1] + ', "x": ' + "9" * 10_000 + "}").encode(),
        "utf-16": lambda: text.encode("utf-16"),
        "byte order mark": lambda: b"\xef\xbb\xbf" + text.encode(),
        "two documents": lambda: (text + text).encode(),
        "not UTF-8": lambda: text.encode().replace(b'"', b'"\xff', 1),
        "twice each key": lambda: (text.rstrip()[:-1] + ", " + text.lstrip()[1:]).encode(),
        "number": lambda: b"1e999999",
    }
    kind = rng.choice(sorted(kinds))
    path.write_bytes(kinds[kind]())
    return f"odd_json {path.relative_to(root)}: {kind}"


JSON: tuple[Mutation, ...] = (edit_json, edit_json, odd_json)

ODD_SHAPES: tuple[Any, ...] = (
    *(
        (),
        (0,),
        (1,),
        (-1,),
        (2**40,),
        (2**62, 2**62),
        (10**30,),
        (1, 2, 3, 4),
        (0, 0, 0),
        (2**31, 2),
        (1,) * 40,
    ),
    *((True, 2), (1.5,), ("3",), None, (8, 8, 10**9)),
)
ODD_DTYPES = (
    *("<f4", "<f8", ">f8", "<f2", "|b1", "<i8", "|u1", "<c16", "|O", "|V8", "<U4", "|S8", "<M8[s]", "<f16"),
    *("nonsense", [("a", "<f8"), ("b", "<f8")], "", 3),
)


def _npy(header: object, body: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """Return the bytes of a .npy file with a header as given, right or not."""
    text = (header if isinstance(header, str) else repr(header)).encode("latin1", "replace") + b"\n"
    size = struct.pack(
        "<H" if version == (1, 0) else "<I", len(text) & (0xFFFF if version == (1, 0) else 0xFFFFFFFF)
    )
    return b"\x93NUMPY" + bytes(version) + size + text + body


def _lying_npy(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return a .npy file whose header says something else about the same bytes."""
    start = 10 + struct.unpack("<H", data[8:10])[0]
    header, body = ast.literal_eval(data[10:start].decode()), data[start:]
    kind = rng.choice(
        ("shape", "shape", "descr", "order", "drop", "extra", "version", "deep", "code", "near")
    )
    if kind == "shape":
        header["shape"] = rng.choice(ODD_SHAPES)
    elif kind == "near":
        shape = list(header["shape"])
        shape[rng.randrange(len(shape))] += rng.choice((-1, 1))
        header["shape"] = tuple(shape)
    elif kind == "descr":
        header["descr"] = rng.choice(ODD_DTYPES)
    elif kind == "order":
        header["fortran_order"] = rng.choice((True, 1, "no", None))
    elif kind == "drop":
        del header[rng.choice(sorted(header))]
    elif kind == "extra":
        header["more"] = 1
    elif kind == "version":
        return _npy(header, body, rng.choice(((2, 0), (3, 0), (4, 0), (0, 0)))), kind
    elif kind == "deep":
        return _npy(rng.choice(("(" * 9000 + ")" * 9000, "-" * 60_000 + "1", "[" * 9000)), body), kind
    else:
        return _npy(
            rng.choice(("__import__('os').system('x')", "{}", "", "\0", "{'shape': " + "9" * 9000)), body
        ), kind
    return _npy(header, body), f"{kind} {header!s:.90}"


def lying_npy(rng: random.Random, root: Path) -> str | None:
    """Make the header of a .npy file lie."""
    files = files_in(root, ".npy")
    if not files:
        return None
    path = rng.choice(files)
    data, words = _lying_npy(rng, path.read_bytes())
    path.write_bytes(data)
    return f"lying_npy {path.name}: {words}"


def _zeros_member(name: str, megabytes: int) -> bytes:
    """Return a .npz file of zeros with one array that is a thousand times larger than the file."""
    count = megabytes << 20
    shape = (256, 1024, count // (256 * 1024))
    head = _npy({"descr": "|u1", "fortran_order": False, "shape": shape}, b"")
    block = bytes(1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    repeated = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush a block does not depend on what came before: it can be repeated as it is.
    body = first + repeated * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    check = zlib.crc32(head)
    for _ in range(megabytes):
        check = zlib.crc32(block, check)
    encoded, size = f"{name}.npy".encode(), len(head) + count
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, check, len(body), size, len(encoded), 0)
    local = b"PK\x03\x04" + fields + encoded
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + encoded
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(body), 0)
    return local + body + central + end


def lying_npz(rng: random.Random, root: Path) -> str | None:
    """Write an .npz archive whose members lie, repeat, swell or are missing."""
    files = files_in(root, ".npz")
    if not files:
        return None
    path = rng.choice(files)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    kind = rng.choice(
        (*("header",) * 12, *("twice", "none", "outside", "plain", "renamed", "packed") * 2, "bomb")
    )
    if kind == "bomb":
        path.write_bytes(_zeros_member("x", 3000))
        return f"lying_npz {path.name}: bomb"
    name = rng.choice(sorted(members))
    data, words, written = members[name], kind, io.BytesIO()
    if kind == "header":
        members[name], words = _lying_npy(rng, data)
    elif kind == "none":
        members = {}
    elif kind == "outside":
        members = {f"../../{name}": data}
    elif kind == "plain":
        members[name] = rng.randbytes(100)
    elif kind == "renamed":
        members = {rng.choice(("x.txt", "x", "ü.npy", ".npy", "a/b.npy")): data}
    packing = rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)) if kind == "packed" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(written, "w", packing) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        if kind == "twice":
            other = bytearray(data)
            other[-1] ^= 1
            archive.filelist[0].filename = name + "x"
            archive.writestr(name, bytes(other))
            archive.filelist[0].filename = name
    path.write_bytes(written.getvalue())
    return f"lying_npz {path.name}: {words}"


def lying_safetensors(rng: random.Random, root: Path) -> str | None:
    """Edit the JSON header of a .safetensors file: shapes, dtypes and offsets that do not fit, or other lengths."""
    files = files_in(root, ".safetensors")
    if not files:
        return None
    path = rng.choice(files)
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    tensors = sorted(name for name in header if name != "__metadata__")
    name, other = rng.choice(tensors), rng.choice(tensors)
    kind = rng.choice(("any", "any", "shape", "dtype", "swap", "drop", "rename", "length", "extra"))
    words = f"{kind} {name}"
    if kind == "any":
        header, words = _edited(rng, header)
    elif kind == "shape":
        header[name]["shape"] = list(rng.choice(ODD_SHAPES) or [2])
    elif kind == "dtype":
        header[name]["dtype"] = rng.choice(("F64", "F16", "BF16", "I64", "I8", "BOOL", "F8_E4M3", "C64", "x"))
    elif kind == "swap":
        one, two = header[name]["data_offsets"], header[other]["data_offsets"]
        header[name]["data_offsets"], header[other]["data_offsets"] = two, one
    elif kind == "drop":
        del header[name]
    elif kind == "rename":
        header[name + rng.choice(("x", ".weight", "\0"))] = header.pop(name)
    elif kind == "extra":
        header["more"] = {"dtype": "F32", "shape": [0], "data_offsets": [len(body), len(body)]}
    text = json.dumps(header).encode()
    length = rng.choice((0, 1, len(text) - 1, len(text) + 8, 2**40, 2**63)) if kind == "length" else len(text)
    path.write_bytes(struct.pack("<Q", length) + text + body)
    return f"lying_safetensors {path.name}: {words:.90}"


def odd_numbers(rng: random.Random, root: Path) -> str | None:
    """Write another array into a .npy file: NaN, infinities, the largest numbers, other kinds, other sizes."""
    files = files_in(root, ".npy")
    if not files:
        return None
    path = rng.choice(files)
    x = np.load(path)
    changes: dict[str, Callable[[], Any]] = {
        "nan": lambda: np.where(np.arange(x.size).reshape(x.shape) == rng.randrange(x.size), np.nan, x),
        "inf": lambda: np.where(np.arange(x.size).reshape(x.shape) == rng.randrange(x.size), -np.inf, x),
        "all nan": lambda: np.full(x.shape, np.nan),
        "largest": lambda: np.full(x.shape, np.finfo(x.dtype).max),
        "tiny": lambda: x * 1e-300,
        "constant": lambda: np.ones(x.shape),
        "zero": lambda: np.zeros(x.shape),
        "complex": lambda: x * 1j,
        "integers": lambda: (x * 100).astype(np.int32),
        "bool": lambda: x > 0,
        "half": lambda: x.astype(np.float16),
        "big-endian": lambda: x.astype(">f8"),
        "fortran": lambda: np.asfortranarray(x),
        "text": lambda: x.astype(str),
        "dates": lambda: np.zeros(x.shape, "M8[s]"),
        "one axis": lambda: x.ravel(),
        "four axes": lambda: x[None],
        "one point": lambda: x[:1, :1, :1],
        "no points": lambda: x[:0],
    }
    kind = rng.choice(sorted(changes))
    np.save(path, changes[kind]())
    return f"odd_numbers {path.name}: {kind}"
