"""A study as display data for the report: everything the page shows, small enough to be inside it."""

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from headscape.ablation.ablation_result import REPAIRED, AblationStudy, is_random
from headscape.analysis.entropy import coefficients_by_support
from headscape.energy.spectrum import energy_spectrum
from headscape.models.license import packaged_name
from headscape.report.ablation_figures import method_colors
from headscape.report.measures import MEASURES, in_table, measure_of
from headscape.report.page import PageData
from headscape.report.pictures import float_text, gray_png, root_bytes, signed_bytes
from headscape.study.tables import json_value
from headscape.tensor.fields import field_of_head

if TYPE_CHECKING:
    from headscape.study.study import Study

WINDOW = 0
MANY_HEADS = 512
NEAREST = 10
COEFFICIENTS = 192


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator,unused-ignore]
def page_data(study: "Study") -> PageData:
    """Return what the report shows of a study; pictures are of its first window."""
    pairs = study.capture.heads
    sections: dict[str, Any] = {"geometry": _geometry(study)}
    if study.entropy is not None:
        sections["entropy"] = _entropy(study)
    if study.energy is not None:
        sections["energy"] = _energy(study)
    if study.ablation is not None:
        sections["ablation"] = _ablation(study.ablation)
    sections["window"] = _window(study)
    sections["haar"] = _haar(study)
    return PageData(
        title=_title(study),
        heads={
            "names": [f"{layer}.{head}" for layer, head in pairs],
            "layer": [layer for layer, _ in pairs],
            "head": [head for _, head in pairs],
        },
        measures=_measures(study),
        findings=list(study.findings),
        warnings=[
            {
                "title": f"{w.name.replace('-', ' ')}{f' ({w.axis})' if w.axis else ''}:",
                "message": w.message,
            }
            for w in study.warnings
        ],
        facts=_facts(study),
        about=_about(study),
        first=_first(study),
        sections=sections,
    )


def _title(study: "Study") -> str:
    name = study.capture.provenance.get("model", {}).get("name", "")
    return f"{packaged_name(name)}" if name else "attention heads"


def _facts(study: "Study") -> list[tuple[str, str]]:
    capture = study.capture
    record = capture.record(WINDOW, capture.layers[0])
    return [
        ("heads", str(len(capture.heads))),
        ("layers", str(len(capture.layers))),
        ("key-value heads", str(len(capture.kv_heads))),
        ("windows", str(study.windows)),
        ("tokens a window", str(record.keys.shape[1])),
        ("organized field", study.parameters["field"]),
    ]


def _about(study: "Study") -> list[tuple[str, str, bool]]:
    provenance = study.capture.provenance
    model = provenance.get("model", {})
    parameters = {name: v for name, v in study.parameters.items() if name not in ("model", "organize")}
    rows = [
        ("Model", ", ".join(f"{name} {value}" for name, value in model.items() if value is not None), False),
        ("License of the weights", str(study.about.get("license", "not stated")), False),
        ("Command", str(study.about.get("command", "")), True),
        ("Parameters", shlex.join(f"{name}={value}" for name, value in parameters.items()), True),
        ("Organization", _pairs(study.organization.parameters), True),
        ("Seed", str(study.parameters["seed"]), False),
        ("Hash of the input", str(provenance.get("input_hash", "")), True),
        ("Versions", _pairs(provenance.get("versions", {})), False),
        ("Time", ", ".join(f"{name} {value:.1f} s" for name, value in study.seconds.items()), False),
        ("Stages", ", ".join(study.results), False),
    ]
    return [row for row in rows if row[1]]


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _measures(study: "Study") -> list[dict[str, Any]]:
    shown = []
    known = list(MEASURES)
    columns = sorted(map(str, study.heads), key=lambda c: known.index(c) if c in known else len(known))
    for column in columns:
        measure = measure_of(column)
        values = [json_value(value) for value in study.heads[column]]
        shown.append(
            {
                "key": column,
                "title": measure.title,
                "meaning": measure.meaning,
                "panel": measure.panel,
                "table": in_table(column),
                "numeric": in_table(column) and not any(isinstance(v, (str, bool)) for v in values),
                "values": values,
            }
        )
    return shown


def _first(study: "Study") -> int:
    """Open with the head of median entropy: neither the dullest nor the wildest."""
    if study.entropy is None:
        return 0
    ranks = study.entropy.stability.mean_ranks
    return int(np.argsort(ranks, kind="stable")[len(ranks) // 2])


def _geometry(study: "Study") -> dict[str, Any]:
    organization = study.organization
    tree, emd = organization.trees["head"], organization.emd["head"]
    folders, order = tree.folders, tree.order
    affinity = organization.affinities["head"][np.ix_(order, order)]
    nearest = np.argsort(emd + np.diag(np.full(len(emd), -1.0)), axis=1, kind="stable")[:, 1 : NEAREST + 1]
    return {
        "coordinates": organization.diffusion_map("head", n_components=3).round(7).tolist(),
        "order": order.tolist(),
        "folders": {
            "parent": folders.parent.tolist(),
            "start": folders.start.tolist(),
            "stop": folders.stop.tolist(),
            "level": folders.first_level.tolist(),
        },
        "affinity": {"png": gray_png(np.round(255 * affinity.clip(0, 1)).astype(np.uint8))},
        "nearest": {
            "index": nearest.tolist(),
            "emd": np.take_along_axis(emd, nearest, axis=1).tolist(),
        },
    }


def _entropy(study: "Study") -> dict[str, Any]:
    assert study.entropy is not None
    stability, windows = study.entropy.stability, len(study.entropy.entropies)
    order = np.argsort(stability.mean_ranks, kind="stable")
    repeated = windows > 1
    return {
        "windows": study.entropy.entropies.tolist(),
        "order": order.tolist(),
        "share": stability.share,
        "low": [int(i) for i in order if repeated and stability.bottom_counts[i] == windows],
        "high": [int(i) for i in order[::-1] if repeated and stability.top_counts[i] == windows],
    }


def _energy(study: "Study") -> dict[str, Any]:
    curves = []
    for record in study.capture.records(WINDOW):
        for layer, head in study.capture.heads:
            if layer == record.layer:
                keys = record.keys[record.kv_head(head)]
                spectrum = energy_spectrum(record.queries[head], keys, record.scale)
                curves.append(np.cumsum(spectrum.variance_shares))
    components = max(len(curve) for curve in curves)
    padded = [np.pad(curve, (0, components - len(curve)), mode="edge") for curve in curves]
    return {
        "spectrum": float_text(np.nan_to_num(np.stack(padded))),
        "components": components,
        "invariants": [
            {
                "test": count.test,
                "passed": count.counts["passed"],
                "failed": count.counts["failed"],
                "not_judged": count.counts["not judged"],
                "worst": json_value(count.worst[0]),
                "allowed": json_value(count.worst[1]),
                "heads": [f"{layer}.{head}" for layer, head in count.failed_heads],
                "detail": count.detail,
            }
            for count in study.summaries["energy"].detail.invariants
        ],
    }


def _ablation(study: AblationStudy) -> dict[str, Any]:
    colors = method_colors(study.methods)
    curves = []
    for method, curve in study.curves.items():
        found = [study.interval(method, count) for count in study.counts]
        verdict = study.verdicts.get(method)
        curves.append(
            {
                "method": method,
                "color": colors[method],
                "random": is_random(method),
                "repaired": method.endswith(REPAIRED),
                "increase": [i.estimate for i in found],
                "low": [json_value(i.low) for i in found],
                "high": [json_value(i.high) for i in found],
                "verdict": "" if verdict is None else verdict.word,
                "difference": None if verdict is None else str(verdict.difference),
                "order": [] if is_random(method) else [f"{layer}.{head}" for layer, head in curve.orders[0]],
            }
        )
    return {
        "counts": list(study.counts),
        "heads": study.n_heads,
        "windows": len(study.intact),
        "loss": study.loss,
        "intact": float(study.intact.mean()),
        "curves": curves,
    }


def _window(study: "Study") -> dict[str, Any]:
    """Return pictures of attention and energy, at most 128 x 128 (64 x 64 past 512 heads), 8 bits."""
    capture, organization = study.capture, study.organization
    size = 64 if len(capture.heads) > MANY_HEADS else 128
    attention: dict[str, list[Any]] = {"png": [], "high": []}
    energy: dict[str, list[Any]] = {"png": [], "limit": []}
    n_queries = n_keys = 0
    for record in capture.records(WINDOW):
        for head in (h for layer, h in capture.heads if layer == record.layer):
            n_queries, n_keys = record.queries.shape[1], record.keys.shape[1]
            visible = record.visible_to(head)[:size, :size]
            pixels, high = root_bytes(field_of_head(record, head, "probs")[:size, :size])
            attention["png"].append(gray_png(pixels))
            attention["high"].append(high)
            pixels, limit = signed_bytes(field_of_head(record, head, "energy")[:size, :size], visible)
            energy["png"].append(gray_png(pixels))
            energy["limit"].append(limit)
    rows, columns = min(size, n_queries), min(size, n_keys)
    cut = f", the first {columns} of {n_keys} tokens" if n_keys > columns else ""
    order = organization.order
    return {
        "rows": rows,
        "columns": columns,
        "tokens": {
            "query": list(capture.tokens(WINDOW)[:rows]),
            "key": list(capture.key_tokens(WINDOW)[:columns]),
        },
        "query_order": order["query"][order["query"] < rows].tolist(),
        "key_order": order["key"][order["key"] < columns].tolist(),
        "attention": attention,
        "energy": energy,
        "note": f"Window {WINDOW + 1}{cut}. Colors of the attention follow its cube root.",
    }


def _haar(study: "Study") -> dict[str, Any]:
    x = study.capture.tensor(WINDOW, study.parameters["field"])
    trees = {axis: study.organization.trees[axis] for axis in ("query", "key")}
    total = trees["query"].n_points * trees["key"].n_points
    found = coefficients_by_support(x, trees, min(COEFFICIENTS, total))
    values: NDArray[np.float64] = found.values[:COEFFICIENTS]
    return {
        "values": float_text(values.T),
        "count": len(values),
        "supports": found.supports[:COEFFICIENTS].tolist(),
    }
