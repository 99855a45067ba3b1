"""``headscape energy``: invariants, spectra, incoherence and spread of the energy field of every head."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.analysis import run_analysis
from headscape.cli.given import formats_of, parse_numbers
from headscape.cli.options import ANALYSIS, TENSORS, Out, with_options
from headscape.errors import InputError


@with_options({name: ANALYSIS[name] for name in ANALYSIS if name not in (*TENSORS, "n_iter")})
def energy(
    sources: Annotated[
        list[str], typer.Argument(help="A model, a capture or a study, as for headscape analyze.")
    ],
    out: Out = Path("out/energy"),
    lengths: Annotated[
        str | None,
        typer.Option(help="Prefixes to measure at, for example 64,128,256. (default: powers of two)"),
    ] = None,
    signatures: Annotated[
        bool,
        typer.Option("--signatures", help="Also zero-sum and spectral signatures of every head (slower)."),
    ] = False,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="Study of another model, to draw mu_K over models; repeatable."),
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Measure the energy field of every head and say what holds for the model, with counter-examples.

    The analysis with the stages "energy" and "interaction": about 2 seconds per window of 270 heads on 2 cores.

    Example:  headscape energy default -o out/energy
    """
    options = {"lengths": parse_numbers(lengths, "--lengths"), "signatures": signatures}
    if beside and not formats_of(given.figures):
        raise InputError("--beside draws a figure, but --figures is none.")
    from headscape.study.study import Study

    models = [_incoherence(Study.load(path), path) for path in beside or []]
    study = run_analysis(sources, out, given, stages=["energy", "interaction"], options=options)
    if models:
        from headscape.report.energy_figures import incoherence_models_figure
        from headscape.report.style import save_figures

        figure = incoherence_models_figure([_incoherence(study, out), *models])
        save_figures({"incoherence_models": figure}, out / "figures", formats_of(given.figures))


def _incoherence(study: Any, path: Path) -> Any:
    """Return mu_K and the size of a study's model, or raise if the study does not know them."""
    from headscape.report.energy_figures import ModelIncoherence

    model = study.data.provenance.get("model", {})
    if "energy" not in study or not model.get("parameters"):
        raise InputError(
            f"{path} has no energy measures of a model of known size: run headscape energy on the model itself."
        )
    size, name = float(model["parameters"]), str(model.get("name"))
    return ModelIncoherence.of_tables(study["energy"].tables, name, size, str(model.get("type")))
