"""Folders that headscape writes: captures, studies, tensors, organizations, ablation studies."""

from pathlib import Path
from typing import Any

import numpy as np

import headscape as hs
from fuzz.mutations import BYTES, FOLDERS, PLACES
from fuzz.structured import JSON
from fuzz.target import Found, Target
from samples import smooth_tensor
from studies import small_capture, small_study

SMALL: dict[str, Any] = {"windows": 2, "layers": 2, "heads": 2, "length": 10}
STORED = (*BYTES, *PLACES, *PLACES, *FOLDERS, *JSON, *JSON)


def _labels(data: Any) -> dict[str, Any]:
    tokens = {f"tokens {window}": data.tokens(window) for window in range(data.n_windows)}
    return {"heads": tuple(data.heads), **tokens}


def read_capture(root: Path) -> Found:
    capture = hs.Capture.load(root / "capture")
    fields = {
        f"{field} {window}": capture.tensor(window, field).data
        for window in range(capture.n_windows)
        for field in ("probs", "logits", "energy")
    }
    return fields | _labels(capture) | {"hash": capture.provenance["input_hash"]}


def read_study(root: Path) -> Found:
    study = hs.Study.load(root / "study")
    trees = {
        f"{name} {number} {axis}": np.asarray(value)
        for number, organization in enumerate(study.organizations)
        for name, of_axes in (("emd", organization.emd), ("order", organization.order))
        for axis, value in of_axes.items()
    }
    table = {f"column {name}": study.heads[name].to_numpy() for name in study.heads}
    said = {f"finding {sentence}": True for sentence in study.findings}
    return trees | table | said | {"parameters": dict(study.parameters)} | _labels(study.data)


def read_tensor(root: Path) -> Found:
    x = hs.load_tensor(root / "tensor")
    return {"data": x.data, "heads": x.heads, "tokens": x.tokens, "keys": x.key_tokens, "field": x.field}


def read_organization(root: Path) -> Found:
    found = hs.Organization.load(root / "organization")
    return dict(found.arrays()) | {"attributes": found.attributes()}


def read_ablation(root: Path) -> Found:
    study = hs.AblationStudy.load(root / "ablation")
    curves = {f"losses {name}": curve.losses for name, curve in study.curves.items()}
    orders = {f"orders {name}": curve.orders for name, curve in study.curves.items()}
    return {**curves, **orders, "intact": study.intact, "counts": study.counts, "findings": study.findings}


def _save_ablation(root: Path) -> None:
    from fuzz.models import TINY, WORDS

    options: dict[str, Any] = {"length": 16, "windows": 2, "calibration_windows": 2, "draws": 2}
    hs.ablation_study(TINY, WORDS, ["output-norm", "random"], [2], out=root / "ablation", **options)


def _labelled() -> hs.NetworkTensor:
    return hs.NetworkTensor(
        smooth_tensor((6, 7, 4)), tokens=list("abcdef"), key_tokens=list("ghijklm"), field="x"
    )


STORES = (
    Target(
        "capture",
        lambda root: small_capture(**SMALL).save(root / "capture"),
        read_capture,
        STORED,
        1500,
        unfinished=True,
        command=lambda root, out: [
            "organize",
            root / "capture",
            "-o",
            out,
            "--n-iter",
            1,
            "--figures",
            "none",
        ],
    ),
    Target(
        "study",
        lambda root: small_study(**SMALL).save(root / "study"),
        read_study,
        STORED,
        700,
        unfinished=True,
        command=lambda root, out: ["check", root / "study"],
    ),
    Target(
        "tensor folder",
        lambda root: hs.save_tensor(_labelled(), root / "tensor"),
        read_tensor,
        STORED,
        800,
        command=lambda root, out: [
            "organize",
            root / "tensor",
            "-o",
            out,
            "--n-iter",
            1,
            "--figures",
            "none",
        ],
    ),
    Target(
        "organization",
        lambda root: hs.organize(_labelled(), n_iter=1).save(root / "organization"),
        read_organization,
        STORED,
        600,
    ),
    Target("ablation study", _save_ablation, read_ablation, STORED, 500),
)
