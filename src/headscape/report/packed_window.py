"""All heads of one window for the page: packed queries and keys, masks, and what else their probabilities need."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine
from headscape.report.packed_fields import PackedGroup, bias_line, groups_of, pack_group
from headscape.report.pictures import float_text
from headscape.tensor.attention_record import AttentionRecord, describe_visibility
from headscape.tensor.fields import energy

MOST_PAIRS = 2048 * 2048
"""Tokens x tokens of a head that a page computes without a reader waiting for it."""

Arrays = dict[str, NDArray[Any]]


def pack_window(
    records: Sequence[AttentionRecord],
    heads: Mapping[int, Sequence[int]],
    most_bytes: float,
    engine: Engine,
) -> tuple[Arrays, dict[str, Any]] | None:
    """Return the packed heads of a window as arrays and attributes.

    Parameters
    ----------
    records
        The layers of the window.
    heads
        The heads to pack, by layer.
    most_bytes
        How much they may take.
    engine
        How work is spread.

    Returns
    -------
    None if they take more, if a window is too long to be computed in the page, or if a layer adds a bias that is more
    than a function of the distance.
    """
    rows, columns = records[0].visible.shape[-2:]
    if rows * columns > MOST_PAIRS or any(_needs_pictures(record, heads[record.layer]) for record in records):
        return None
    groups: list[PackedGroup] = []
    # The first layer tells before anything else is packed whether all of them could fit; twice as much never does.
    for record in records:
        groups += engine.map(partial(_pack, record), groups_of(record, heads[record.layer]))
        so_far = sum(group.size for group in groups)
        if so_far > most_bytes or (record is records[0] and so_far * len(records) > 2 * most_bytes):
            return None
    pairs = [(record, head) for record in records for head in heads[record.layer]]
    keys = [group.keys for group in groups]
    queries = [query for group in groups for query in group.queries]
    arrays: Arrays = {
        **_joined("queries", queries),
        **_joined("keys", keys),
        "key_of": np.repeat(np.arange(len(groups)), [len(group.queries) for group in groups]),
        "rank": np.array([group.rank for group in groups]),
        "query_step": np.array([group.query_step for group in groups]),
        "key_step": np.array([group.key_step for group in groups]),
        "energy_limit": np.array(list(engine.map(partial(_energy_limit, pairs), range(len(pairs))))),
        **_masks(pairs),
        **_terms(pairs),
    }
    differences = np.concatenate([group.differences for group in groups])
    attributes = {
        "rows": rows,
        "columns": columns,
        "largest_difference": float(differences[:, 0].max()),
        "mean_difference": float(differences[:, 1].mean()),
    }
    return arrays, attributes


def packed_page(arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`pack_window` found as JSON holds it and the page's ``fields.js`` reads it."""
    rows, columns = attributes["rows"], attributes["columns"]
    page: dict[str, Any] = {
        "queries": _texts(arrays, "queries"),
        "keys": _texts(arrays, "keys"),
        "energy_limit": [float(f"{value:.4g}") for value in arrays["energy_limit"]],
        "masks": [_mask_text(np.unpackbits(m, axis=-1, count=columns)) for m in arrays["masks"]],
        **{name: arrays[name].tolist() for name in ("key_of", "rank", "query_step", "key_step", "mask_of")},
        "rows": rows,
        "columns": columns,
    }
    for name in ("softcap", "sinks"):
        if name in arrays:
            page[name] = [float(value) if np.isfinite(value) else None for value in arrays[name]]
    if "bias" in arrays:
        page["bias"] = [float_text(line) for line in arrays["bias"]]
    return page


def _needs_pictures(record: AttentionRecord, heads: Sequence[int]) -> bool:
    return record.bias is not None and any(bias_line(record, head) is None for head in heads)


def _pack(record: AttentionRecord, group: tuple[int, list[int]]) -> PackedGroup:
    return pack_group(record, *group)


def _energy_limit(pairs: Sequence[tuple[AttentionRecord, int]], number: int) -> float:
    """Return the size of a head's energy that 99.5 % of its visible pairs stay under."""
    record, head = pairs[number]
    visible = record.visible_to(head)
    if not visible.any():
        return 0.0
    return float(np.quantile(np.abs(energy(record, head)[visible]), 0.995))


def _joined(name: str, packed: Sequence[bytes]) -> Arrays:
    """Return many runs of bytes as one array, and where each ends."""
    ends = np.cumsum([len(one) for one in packed])
    return {name: np.frombuffer(b"".join(packed), dtype=np.uint8), f"{name}_ends": ends}


def _texts(arrays: Mapping[str, NDArray[Any]], name: str) -> list[str]:
    parts = np.split(arrays[name], arrays[f"{name}_ends"][:-1])
    return [base64.b64encode(part.tobytes()).decode("ascii") for part in parts]


def _masks(pairs: Sequence[tuple[AttentionRecord, int]]) -> Arrays:
    """Return the distinct visibilities as packed bits, and which of them each head has."""
    known: dict[bytes, int] = {}
    kept: list[NDArray[np.uint8]] = []
    of_head = []
    for record, head in pairs:
        bits = np.packbits(record.visible_to(head), axis=-1)
        number = known.setdefault(bits.tobytes(), len(known))
        of_head.append(number)
        if number == len(kept):
            kept.append(bits)
    return {"masks": np.stack(kept), "mask_of": np.array(of_head)}


def _mask_text(visible: NDArray[np.uint8]) -> str:
    """Return "causal", "full", or the deflated bits of any other visibility."""
    word = describe_visibility(visible.astype(bool))
    if word != "explicit":
        return word
    return base64.b64encode(zlib.compress(np.packbits(visible).tobytes(), 9)).decode("ascii")


def _terms(pairs: Sequence[tuple[AttentionRecord, int]]) -> Arrays:
    """Return soft caps, sinks and biases of the heads, of those kinds that some head has."""
    terms: Arrays = {}
    if any(record.softcap is not None for record, _ in pairs):
        terms["softcap"] = np.array([np.nan if r.softcap is None else r.softcap for r, _ in pairs])
    if any(record.sinks is not None for record, _ in pairs):
        terms["sinks"] = np.array([np.nan if r.sinks is None else r.sinks[head] for r, head in pairs])
    if any(record.bias is not None for record, _ in pairs):
        rows, columns = pairs[0][0].visible.shape[-2:]
        none = np.zeros(rows + columns - 1, dtype=np.float32)
        lines = [none if r.bias is None else bias_line(r, head) for r, head in pairs]
        terms["bias"] = np.stack([none if line is None else line for line in lines])
    return terms
