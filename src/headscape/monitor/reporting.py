"""What a trainer's dashboard gets of a sample: aggregates by default, every head on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.monitor.alert import HeadName
from headscape.monitor.sample import EVAL, Sample

_AGGREGATES: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "median": np.nanmedian,
    "min": np.nanmin,
    "max": np.nanmax,
}


def report_keys(
    sample: Sample, metrics: Sequence[str], heads: Sequence[HeadName], *, per_head: bool = False
) -> dict[str, float]:
    """Return a sample as flat keys and numbers.

    ``attn/mu_K/median``, ``/min`` and ``/max`` over all heads; with ``per_head`` also
    ``attn/layer_03/head_07/mu_K``. Stacks other than "self" come first: ``attn/decoder/layer_03/...``; evaluation steps
    begin with ``eval_attn``. Metrics that no head has a number for are left out.

    Examples
    --------
    >>> sample = Sample(0, {"mu_K": np.array([1.0, 3.0], np.float32)})
    >>> report_keys(sample, ["mu_K"], [("self", 0, 0), ("self", 0, 1)])
    {'attn/mu_K/median': 2.0, 'attn/mu_K/min': 1.0, 'attn/mu_K/max': 3.0}
    """
    start = "eval_attn" if sample.phase == EVAL else "attn"
    found: dict[str, float] = {}
    for metric in metrics:
        values = sample.values[metric].astype(np.float64)
        if np.isnan(values).all():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found |= {f"{start}/{metric}/{name}": float(take(values)) for name, take in _AGGREGATES.items()}
        if per_head:
            for (stack, layer, head), value in zip(heads, values, strict=True):
                place = "" if stack == "self" else f"{stack}/"
                found[f"{start}/{place}layer_{layer:02d}/head_{head:02d}/{metric}"] = float(value)
    return found
