"""Options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[
    str,
    typer.Argument(
        help="'default' (SmolLM2-135M), 'minilm', a model folder, a .gguf file, or a Hugging Face name."
    ),
]
Device = Annotated[str | None, typer.Option(help="Where the model runs, for example cuda. (default: cpu)")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hugging Face name.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let the model run code that comes with it.")
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

SplitText = Annotated[
    Path | None,
    typer.Option(
        help="Text file: its first half calibrates, its second evaluates. (default: a text that comes with Python)"
    ),
]
LabeledImages = Annotated[
    Path | None, typer.Option(help="Folder of images; a subfolder per label gives labels and accuracies.")
]
CalibrationText = Annotated[Path | None, typer.Option(help="Text file to calibrate on.")]
EvaluationText = Annotated[Path | None, typer.Option(help="Text file to evaluate on.")]
EvaluationWindows = Annotated[
    int | None, typer.Option(help="Windows to evaluate on. (default: 16 of a text, all images)")
]
CalibrationWindows = Annotated[
    int | None, typer.Option(help="Windows to calibrate on. (default: 16 of a text, all images)")
]
Table = Annotated[
    Path | None, typer.Option(help="A heads.csv whose columns can be methods (low goes first).")
]
