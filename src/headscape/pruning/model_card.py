"""The model card of a pruned model: what was removed, why, and what it cost."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from headscape._version import __version__
from headscape.output import counted
from headscape.pruning.pruned import Pruned

if TYPE_CHECKING:
    from headscape.pruning.trial import PruningTrial


def model_card(pruned: Pruned, trial: "PruningTrial | None" = None) -> str:
    """Return the card of a pruned model as Markdown, with the trial that chose its heads if there was one."""
    manifest = pruned.manifest
    base = manifest.model.get("name", "")
    name, weights = (base, "not stated") if trial is None else (trial.model.title, trial.model.license)
    speed = f"\n## Measured speed\n\n```\n{pruned.speed}\n```\n" if pruned.speed is not None else ""
    rows = [
        f"| {layer.layer} | {', '.join(map(str, layer.removed))} | {len(layer.kept)} of {layer.n_heads} |"
        for layer in manifest.layers
        if layer.removed
    ]
    # The hub links to its own models, owner/name, and warns of anything else, such as folders.
    on_hub = re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", base) and not Path(base).exists()
    link = f"base_model: {base}\n" if on_hub else ""
    return f"""---
tags: [headscape, pruned]
{link}---
# {name}, without {counted(len(pruned.removed), "attention head")}

Made by headscape {__version__} from {name}. License of the original weights: {weights}.

{pruned.description}

{_choice(pruned) if trial is None else _trial(trial)}
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

{_loading(manifest.plain)}{"" if trial is None or trial.model.tokenizer is None else _TOKENIZER}
"""


def _choice(pruned: Pruned) -> str:
    """Return what the manifest says about the choice of the heads."""
    manifest = pruned.manifest
    said = {"Chosen by": manifest.method, "Calibrated on": manifest.calibration, "Cost": manifest.evaluation}
    lines = [f"{what}: {text}." for what, text in said.items() if text]
    return "## Why these heads\n\n" + "\n".join(lines) + "\n" if lines else ""


def _trial(trial: "PruningTrial") -> str:
    costs = "\n".join(f"| {what} | {interval} |" for what, interval in trial.increases.items())
    return f"""## Why these heads

Chosen by `{trial.method}` on {counted(trial.windows[0], "calibration window")}, evaluated on \
{counted(trial.windows[1], "held-out window")}.
{" ".join(trial.findings)}

## What it cost

Loss of the intact model: {trial.intact.mean():.4g} ({trial.loss}).

| | loss increase, with 95 % interval (of random heads: range of the draws) |
|---|---|
{costs}
"""


_LOAD = """

```python
import headscape as hs

model = hs.load_pruned("this-folder").model
```"""
_TOKENIZER = """

The tokenizer, if it was saved too, is `transformers.AutoTokenizer.from_pretrained("this-folder")`."""


def _loading(plain: bool) -> str:
    if plain:
        return (
            "Every layer keeps the same number of heads, so that plain `from_pretrained` of transformers loads it, and "
            f"so does headscape.{_LOAD}"
        )
    return (
        "Layers differ from what the config of this family can say: load it with headscape. Plain `from_pretrained` "
        "raises; `ignore_mismatched_sizes`, which its error mentions, would fill the cut layers with random weights."
        f"{_LOAD}"
    )
