"""The model card of a pruned model: what was removed, why, and what it cost."""

from typing import Any

from headscape._version import __version__
from headscape.pruning.pruned import Pruned
from headscape.pruning.trial import PruningTrial


def model_card(
    trial: PruningTrial, pruned: Pruned, *, name: str, weights_license: str = "", measured: Any = None
) -> str:
    """Return the card as Markdown.

    Parameters
    ----------
    trial, pruned
        What was tried and what was made of it.
    name
        Of the original model.
    weights_license
        Of the original weights, as their files state it.
    measured
        The :class:`Speed` of both models, if it was measured.
    """
    manifest = pruned.manifest
    loading = (
        "Every layer keeps the same number of heads, so that plain `from_pretrained` of transformers loads it."
        if manifest.plain
        else "Layers differ from what the config of this family can say: load it with headscape.\n\n```python\n"
        'import headscape as hs\n\nmodel = hs.load_pruned("this-folder").model\n```'
    )
    rows = [
        f"| {layer.layer} | {', '.join(map(str, layer.removed))} | {len(layer.kept)} of {layer.n_heads} |"
        for layer in manifest.layers
        if layer.removed
    ]
    costs = [f"| {what} | {interval} |" for what, interval in trial.increases.items()]
    speed = f"\n## Measured speed\n\n```\n{measured}\n```\n" if measured is not None else ""
    return f"""---
tags: [headscape, pruned]
base_model: {manifest.model.get("name", name)}
---
# {name}, without {len(pruned.removed)} attention heads

Made by headscape {__version__} from {name}. License of the original weights: {weights_license or "not stated"}.

{pruned.summary}

## Why these heads

Chosen by `{trial.method}` on {trial.windows[0]} windows of calibration data, and judged on {trial.windows[1]} windows
held out. {" ".join(trial.findings)}

## What it cost

Loss of the intact model: {trial.intact.mean():.4g} ({trial.loss}).

| | rise of the loss, with interval |
|---|---|
{chr(10).join(costs)}

## What it saves

```
{pruned.savings}
```
{speed}
## What was removed

| layer | heads | kept |
|---|---|---|
{chr(10).join(rows)}

## How to load it

{loading}
"""
