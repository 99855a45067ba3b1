"""Options that several commands share, each declared once, and how a command takes a group of them."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import be_quiet

Group = Mapping[str, tuple[Any, Any]]
"""Options by name: the type of each, and how typer declares it."""


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
    "or a tensor (.npy, .npz, .safetensors, zarr; several files: one window each; 'synthetic' is a built-in example)."
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


def option(kind: Any, text: str, *names: str, default: Any = None, **more: Any) -> tuple[Any, Any]:
    """Declare an option by its type and its help."""
    return kind, typer.Option(default, *names, help=text, **more)


LOADING: Group = {
    "device": option(str | None, "Where the model runs, for example cuda. (default: cpu)"),
    "dtype": option(str, "float32, bfloat16 or float16.", default="float32"),
    "revision": option(str | None, "Branch, tag or commit of a Hugging Face name."),
    "trust_remote_code": option(
        bool, "Run code that comes with the model.", "--trust-remote-code", default=False
    ),
}
INPUTS: Group = {
    "text": option(
        list[Path] | None,
        "Text file (UTF-8); repeat it for several. (default: sample text bundled with Python)",
    ),
    "images": option(
        str | None, "Image file, or folder of images; a subfolder per label gives labels.", metavar="PATH"
    ),
    "length": option(int | None, "Tokens per window. (default: 256)"),
    "sample": option(Sample, "Where in the text the windows lie.", default=Sample.spread),
    "seed": option(int, "Random seed.", default=0),
}
WINDOWS: Group = {"windows": option(int | None, "How many windows. (default: 6 of a text, all images)")}
TENSORS: Group = {
    "array": option(str | None, "Which array, if a file holds several."),
    "axes": option(str | None, "Order of the axes in a file, for example 'layer,head,query,key'."),
    "field": option(
        str | None, "What is organized, or what a file holds: probs, logits or energy. (default: probs)"
    ),
}
SINKS: Group = {
    "sinks": option(
        SinkChoice,
        "Organize probabilities with attention sinks, or with these keys left out.",
        default=SinkChoice.keep,
    ),
}
STACK: Group = {"stack": option(str | None, "Which stack of a model with several. (default: the first)")}
HEADS: Group = {
    "layers": option(str | None, "Only these layers, for example 0-5,8."),
    "heads": option(str | None, "Only these heads as layer.head, for example 3.0,3.7."),
}
OUTPUT: Group = {
    "json": option(bool, "Print a summary as one JSON object.", "--json", default=False),
    "quiet": option(bool, "Print nothing but errors.", "--quiet", "-q", default=False),
}
RUN: Group = {**LOADING, **OUTPUT}
"""What every command that may run a model takes."""
FIGURES: Group = {"figures": option(str, "Formats of the figures: png,svg,pdf or none.", default="png")}
ENGINE: Group = {
    "engine": option(
        str, "How work is spread: local (threads) or dask (processes, a cluster).", default="local"
    ),
    "scheduler": option(
        str | None, "Address of a running Dask scheduler, for example tcp://host:8786.", metavar="ADDRESS"
    ),
    "workers": option(
        int | None,
        "With --engine dask: processes of a cluster started on this machine. (default: one per core)",
    ),
}
THREADS: Group = {"threads": option(int | None, "Threads. (default: one per core)"), **ENGINE}
ANALYSIS: Group = {
    **INPUTS,
    **WINDOWS,
    **TENSORS,
    **STACK,
    **HEADS,
    "n_iter": option(int | None, "Iterations of the tree building (questionnaire). (default: 3)"),
    **THREADS,
    **FIGURES,
    "head": option(str | None, "Head shown in figures of one head. (default: a typical one)"),
    **LOADING,
    "verbose": option(bool, "Print all findings, each with its statistics.", "--verbose", default=False),
    "csv": option(bool, "Print the table of the heads as CSV.", "--csv", default=False),
    **OUTPUT,
}
CALIBRATION: Group = {
    "calibrate": option(Path | None, "Text file to calibrate on."),
    "evaluate": option(Path | None, "Text file to evaluate on."),
    "windows": option(int | None, "Windows to evaluate on. (default: 16 of a text, all images)"),
    "calibration_windows": option(int | None, "Windows to calibrate on. (default: 16 of a text, all images)"),
    "table": option(Path | None, "A heads.csv whose columns can be methods (low goes first)."),
}


def _paragraphs(text: str) -> str:
    """Return a docstring with its paragraphs unwrapped, so that the terminal wraps them at its own width."""
    return "\n\n".join(" ".join(part.split("\n")) for part in cleandoc(text).split("\n\n"))


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
            if getattr(given, "quiet", False):
                be_quiet()
            function(**values, given=given)

        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=declared, annotation=kind)
            for name, (kind, declared) in shared.items()
        ]
        context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in own), *added]
        named: Any = command
        named.__name__, named.__doc__ = function.__name__, _paragraphs(function.__doc__ or "")
        named.__signature__ = Signature(parameters)
        named.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
