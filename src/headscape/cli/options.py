"""Options that several commands share, each declared once, and how a command takes a group of them."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

Group = Mapping[str, tuple[Any, Any]]
"""Options by name: how typer declares each, and its default."""


class Sample(StrEnum):
    """Where in a text the windows lie."""

    spread = "spread"
    first = "first"
    random = "random"


class SinkChoice(StrEnum):
    """Whether attention sinks are organized with the other keys."""

    keep = "keep"
    leave_out = "leave-out"


SOURCE_HELP = (
    "A model ('default' is SmolLM2-135M, 'minilm', a folder, a .gguf file, a Hugging Face name), a capture, a study, "
    "or a tensor (.npy, .npz, .safetensors, zarr; several are a window each; 'synthetic' is a built-in example)."
)
SourceName = Annotated[str, typer.Argument(help=SOURCE_HELP)]
SourceNames = Annotated[list[str], typer.Argument(help=SOURCE_HELP)]
ModelName = Annotated[
    str,
    typer.Argument(
        help="'default' (SmolLM2-135M), 'minilm', a model folder (pruned ones too), a .gguf file, or a Hugging Face "
        "name."
    ),
]
Out = Annotated[
    Path, typer.Option("-o", "--out", help="Folder for the results; an interrupted run resumes there.")
]

LOADING: Group = {
    "device": (
        Annotated[str | None, typer.Option(help="Where the model runs, for example cuda. (default: cpu)")],
        None,
    ),
    "dtype": (Annotated[str, typer.Option(help="float32, bfloat16 or float16.")], "float32"),
    "revision": (
        Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hugging Face name.")],
        None,
    ),
    "trust_remote_code": (
        Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")],
        False,
    ),
}
INPUTS: Group = {
    "text": (
        Annotated[
            list[Path] | None,
            typer.Option(
                help="Text file (UTF-8); repeat it for several. (default: sample text bundled with Python)"
            ),
        ],
        None,
    ),
    "images": (
        Annotated[
            str | None,
            typer.Option(
                help="Image file, or folder of images; a subfolder per label gives labels.", metavar="PATH"
            ),
        ],
        None,
    ),
    "length": (Annotated[int | None, typer.Option(help="Tokens per window. (default: 256)")], None),
    "sample": (
        Annotated[Sample, typer.Option(help="Where in the text the windows lie.")],
        Sample.spread,
    ),
    "seed": (Annotated[int, typer.Option(help="Seed of everything random.")], 0),
}
WINDOWS: Group = {
    "windows": (
        Annotated[int | None, typer.Option(help="How many windows. (default: 6 of a text, all images)")],
        None,
    ),
}
TENSORS: Group = {
    "array": (Annotated[str | None, typer.Option(help="Which array, if a file holds several.")], None),
    "axes": (
        Annotated[
            str | None, typer.Option(help="Order of the axes in a file, for example 'layer,head,query,key'.")
        ],
        None,
    ),
    "field": (
        Annotated[
            str | None,
            typer.Option(
                help="What is organized, or what a file holds: probs, logits or energy. (default: probs)"
            ),
        ],
        None,
    ),
}
SINKS: Group = {
    "sinks": (
        Annotated[
            SinkChoice,
            typer.Option(help="Organize probabilities with attention sinks, or with these keys left out."),
        ],
        SinkChoice.keep,
    ),
}
STACK: Group = {
    "stack": (
        Annotated[str | None, typer.Option(help="Which stack of a model with several. (default: the first)")],
        None,
    ),
}
HEADS: Group = {
    "layers": (Annotated[str | None, typer.Option(help="Only these layers, for example 0-5,8.")], None),
    "heads": (
        Annotated[str | None, typer.Option(help="Only these heads as layer.head, for example 3.0,3.7.")],
        None,
    ),
}
OUTPUT: Group = {
    "json": (Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object.")], False),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")], False),
}
FIGURES: Group = {
    "figures": (Annotated[str, typer.Option(help="Formats of the figures: png,svg,pdf or none.")], "png"),
}
THREADS: Group = {
    "threads": (Annotated[int | None, typer.Option(help="Threads. (default: one per core)")], None),
}
ANALYSIS: Group = {
    **INPUTS,
    **WINDOWS,
    **TENSORS,
    **STACK,
    **HEADS,
    "n_iter": (
        Annotated[int | None, typer.Option(help="Iterations of the questionnaire. (default: 3)")],
        None,
    ),
    **THREADS,
    **FIGURES,
    "head": (
        Annotated[
            str | None, typer.Option(help="Head shown in figures of one head. (default: a typical one)")
        ],
        None,
    ),
    **LOADING,
    "csv": (Annotated[bool, typer.Option("--csv", help="Print the table of the heads as CSV.")], False),
    **OUTPUT,
}
CALIBRATION: Group = {
    "calibrate": (Annotated[Path | None, typer.Option(help="Text file to calibrate on.")], None),
    "evaluate": (Annotated[Path | None, typer.Option(help="Text file to evaluate on.")], None),
    "windows": (
        Annotated[
            int | None, typer.Option(help="Windows to evaluate on. (default: 16 of a text, all images)")
        ],
        None,
    ),
    "calibration_windows": (
        Annotated[
            int | None, typer.Option(help="Windows to calibrate on. (default: 16 of a text, all images)")
        ],
        None,
    ),
    "table": (
        Annotated[
            Path | None, typer.Option(help="A heads.csv whose columns can be methods (low goes first).")
        ],
        None,
    ),
}


def with_options(*groups: Group) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some groups; it receives them as ``given``, one attribute each.

    ``given.explicit`` has the names of all options that stand on the command line.
    """
    shared = {name: option for group in groups for name, option in group.items()}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in signature(function, eval_str=True).parameters.values() if p.name != "given"]

        def command(context: typer.Context, **values: Any) -> None:
            sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in values}
            explicit = frozenset(name for name, source in sources.items() if source == "COMMANDLINE")
            given = SimpleNamespace(explicit=explicit, **{name: values.pop(name) for name in shared})
            function(**values, given=given)

        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in shared.items()
        ]
        context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in own), *added]
        named: Any = command
        named.__name__, named.__doc__ = function.__name__, function.__doc__
        named.__signature__ = Signature(parameters)
        named.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
