"""``head_patterns``: what every head attends to, from whatever source."""

from collections.abc import Collection, Iterable
from typing import Any

import pandas as pd

from headscape.engine import Progress, no_progress
from headscape.study.analyze import analyze
from headscape.study.engines import AnyEngine
from headscape.study.source import open_source
from headscape.study.study import Study


def head_patterns(
    source: Any = "default",
    inputs: Any = None,
    *,
    windows: int | None = None,
    length: int | None = None,
    sample: str = "spread",
    axes: str | None = None,
    stack: str | None = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    engine: AnyEngine = None,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Score the attention patterns of every head, and name the heads.

    Parameters
    ----------
    source
        A model, a capture, a study, or attention probabilities: an array (query, key, head), another order with
        ``axes``, or a list of them, one per window. Tensors without token strings give only the scores that need
        none, captures those that need no model.
    inputs, windows, length, sample, stack, layers, heads, seed, tokenizer, engine, progress
        As for :func:`headscape.analyze`.
    axes
        The order of the axes of an array, such as "layer,head,query,key".

    Returns
    -------
    DataFrame, indexed by (layer, head)
        One column a score (see :data:`headscape.analysis.pattern_kinds.PATTERNS`), ``sink_key``, ``offset_by``,
        ``pattern`` (the kind, or "mixed") and ``name`` (with its number), means over windows.
        ``analyze(...)["patterns"]`` has chance levels and intervals too.

    Notes
    -----
    One forward pass per window, and three more for the scores that need probes. Scores are sums over attention,
    sum(A * D) / sum(A), as in TransformerLens' head detector: "previous_token", "duplicate_token" and "induction" are
    the same numbers as its ``mul``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((32, 32, 2))
    >>> x[:, 0, 0] = 1.0
    >>> x[:, :, 1] = np.eye(32)
    >>> head_patterns(x)["name"].tolist()
    ['first token (1.00)', 'self (1.00)']
    """
    opened = open_source(source, axes=axes, field="probs", tokenizer=tokenizer)
    everything = (windows, stack, layers, heads) == (None,) * 4
    if isinstance(opened, Study) and "patterns" in opened and everything:
        table: pd.DataFrame = opened["patterns"].table
        return table
    study = analyze(
        opened,
        inputs,
        windows=windows,
        length=length,
        sample=sample,
        stages=["patterns"],
        stack=stack,
        layers=layers,
        heads=heads,
        seed=seed,
        engine=engine,
        progress=progress,
    )
    found: pd.DataFrame = study["patterns"].table
    return found
