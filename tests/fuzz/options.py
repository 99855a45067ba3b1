"""Options that make no sense: each must be refused, before anything is loaded."""

import random
from pathlib import Path
from typing import Any

from fuzz.models import TINY

OPTIONS = "options"
COUNTS = (
    "0",
    "-1",
    "-999999999999999999999",
    "x",
    "",
    "1.5",
    "1e3",
    "nan",
    "inf",
    "1e999",
    "0x10",
    "10" * 12,
    "--",
    "１.0",
)
RATIOS = ("-1", "nan", "x", "", "-0.5", "1e999", "-inf")
LISTS = (
    "",
    ",",
    "1,,2",
    "a",
    "-3",
    "4-2",
    "1-",
    "0-",
    "1;2",
    "1.x",
    "nan",
    "9999999999999999999999999999",
    "\u0660",
)
HEADS = ("", "1", "a.b", "1.2.3", "1,", "0.", ".0", "-1.0", "0.0,,0.1", "99.99", "0.99999999999999999999")
PATHS = ("", "/proc/x/y", "/dev/null/x", "\n/nowhere", "nowhere/at/all.txt")
WORDS = ("", "x", "../../x", "probs,", "\n", "PROBS", "a" * 300)

BAD: dict[str, dict[str, tuple[str, ...]]] = {
    "organize {npy} -o {out}": {
        "--n-iter": COUNTS,
        "--threads": COUNTS,
        "--window": ("-1", "1", "99", "x", "", "1.5"),
        "--alpha": RATIOS[1:4],
        "--eps-scale": RATIOS,
        "--tree-constant": RATIOS,
        "--n-eigs": COUNTS,
        "--max-memory": RATIOS,
        "--init": WORDS,
        "--tree": WORDS,
        "--field": WORDS,
        "--array": WORDS,
        "--axes": WORDS,
        "--figures": WORDS,
        "--stack": WORDS,
        "--text": PATHS,
        "--images": PATHS,
        "--dtype": WORDS,
    },
    "entropy {capture} -o {out}": {
        "--windows": COUNTS,
        "--n-iter": COUNTS,
        "--k": ("0", "-5", "x", "", "nan", "-0.5", "inf"),
        "--p": RATIOS,
        "--fields": ("x", "../../x", "PROBS"),
        "--layers": LISTS,
        "--heads": HEADS,
        "--head": HEADS,
        "--threads": COUNTS,
        "--field": WORDS,
        "--stack": WORDS,
        "--figures": WORDS,
        "--text": PATHS,
        "--length": COUNTS,
        "--dtype": ("x,,y", "float64", ""),
        "--device": ("", "x", "cuda:99"),
        "--revision": ("x",),
    },
    "energy {capture} -o {out}": {
        "--lengths": (*LISTS, "0"),
        "--beside": PATHS,
        "--dtype": ("x,,y",),
        "--heads": HEADS,
    },
    "softmax {capture} -o {out}": {
        "--draws": COUNTS,
        "--masked": WORDS,
        "--n-iter": COUNTS,
        "--windows": COUNTS,
    },
    "check {capture}": {
        "--tolerance": (*RATIOS, "0"),
        "--windows": COUNTS,
        "--out": PATHS[:3],
        "--against": PATHS[:3],
    },
    "analyze {capture} -o {out}": {
        "--windows": COUNTS,
        "--stages": WORDS,
        "--set": ("k", "=", "k=", "kk=3", "k=-1", "k=x", "p=nan", "n_iter=0"),
    },
    "capture {model} -o {out}": {
        "--windows": COUNTS,
        "--length": COUNTS,
        "--layers": LISTS,
        "--heads": HEADS,
        "--sample": WORDS,
        "--text": PATHS,
        "--images": PATHS,
        "--dtype": WORDS,
        "--device": ("", "x", "cuda:99"),
        "--seed": ("-1", "x", ""),
    },
    "ablate {model} -o {out} --length 16": {
        "--counts": ("", "0", "-1", "x", "101%", "17", "1,,2", "nan"),
        "--draws": ("0", "1", "-1", "x", ""),
        "--methods": WORDS,
        "--table": PATHS,
        "--evaluate": PATHS,
        "--calibrate": PATHS,
        "--calibration-windows": COUNTS,
        "--windows": COUNTS,
    },
    "prune {model} -o {out} --length 16": {
        "--fraction": ("-1", "0", "1.5", "nan", "x", "", "inf"),
        "--heads": HEADS,
        "--method": WORDS,
        "--table": PATHS[1:],
        "--windows": COUNTS,
        "--manifest": ("/proc/x/y", "/dev/null/x"),
    },
    "organize {npy}": {"-o": ("", "/proc/x", "/dev/null/x")},
    "entropy {capture}": {"-o": ("", "/proc/x", "/dev/null/x")},
    "prune {model}": {"-o": ("", "/proc/x", "/dev/null/x")},
    "{nothing}": {"": ("nonsense", "--nonsense", "ANALYZE", "organize")},
}


def bad_options(rng: random.Random, folder: Path) -> list[Any]:
    """Return the words of a command with one option that must be refused."""
    command = rng.choice(sorted(BAD))
    option = rng.choice(sorted(BAD[command]))
    value = rng.choice(BAD[command][option])
    places = {
        "npy": folder / "npy" / "x.npy",
        "capture": folder / "capture" / "capture",
        "out": folder / "out",
        "model": TINY,
        "nothing": "",
    }
    # The folder may hold spaces: words are filled in one by one.
    words = [word.format(**places) for word in command.split()]
    given = [f"{option}={value}"] if option.startswith("--") else [option, value]
    return [word for word in [*words, *given] if word or value == ""]
