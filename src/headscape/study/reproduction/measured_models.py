"""The models whose keys are measured: networks at hand, checkpoints of a training run, and the paper's by hub name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headscape.energy.table import EnergyTables, energy_tables
from headscape.errors import HeadscapeError
from headscape.models.loading import Model, load_model
from headscape.recorder.capturing import capture
from headscape.study.reproduction.experiment import Observation, Verdict
from headscape.study.reproduction.networks import ENCODER, LANGUAGE, TRANSFORMER_XL, Networks, short_title
from headscape.tensor.capture import Capture

PAPER = "paper"
PAPER_MODELS = (
    "EleutherAI/pythia-160m",
    "EleutherAI/pythia-410m",
    "EleutherAI/pythia-1b",
    "EleutherAI/pythia-2.8b",
    "openai-community/gpt2",
    "openai-community/gpt2-medium",
    "openai-community/gpt2-large",
    "facebook/opt-350m",
    "facebook/opt-1.3b",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-1.5B",
    "Qwen/Qwen2.5-3B",
    "meta-llama/Llama-3.2-1B",
    "meta-llama/Llama-3.2-3B",
    "microsoft/phi-2",
    "mistralai/Mistral-7B-v0.1",
)
"""The 16 models of IS figure 2 (arXiv 2605.02907) by hub name; that LLaMA-3.2 is there in two sizes is our reading."""
WINDOWS = 4


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """One model with its number of parameters and a capture of a few windows."""

    name: str
    parameters: float
    capture: Capture
    untrained: bool = False


def measured_models(networks: Networks) -> Iterator[MeasuredModel | Observation]:
    """Yield the models one by one; for one that cannot be loaded, the observation that says why."""
    for role in networks.present((LANGUAGE, ENCODER)):
        yield _of_role(networks, role)
    for name in networks.choice.models:
        for one in PAPER_MODELS if name == PAPER else (name,):
            yield _of_name(networks, one)
    if networks.choice.transformer_xl is not None:
        yield _of_role(networks, TRANSFORMER_XL)
        return
    for step in networks.training.checkpoints:
        name = f"Transformer-XL, {step} steps of training" if step else "Transformer-XL (random weights)"
        yield _of_model(networks, networks.training.model(step), name, untrained=step == 0)


def energy_measures(networks: Networks, captured: Capture) -> EnergyTables:
    """Return the energy measures of a capture at the full length of its windows."""
    length = int(captured.record(0, captured.layers[0]).keys.shape[-2])
    return energy_tables(captured, [length], engine=networks.engine, progress=networks.progress)


def _of_role(networks: Networks, role: str) -> MeasuredModel:
    captured = networks.capture(role)
    few = captured.select(windows=range(min(WINDOWS, captured.n_windows)))
    return MeasuredModel(networks.title(role), _parameters(networks.model(role)), few)


def _of_name(networks: Networks, name: str) -> MeasuredModel | Observation:
    networks.progress(f"loading {name}", 0, 1)
    try:
        return _of_model(networks, load_model(name))
    except HeadscapeError as error:
        return Observation(name, networks.source(LANGUAGE), f"Not tested: {error}", Verdict.untested)


def _of_model(
    networks: Networks, model: Model, name: str | None = None, *, untrained: bool = False
) -> MeasuredModel:
    captured = capture(
        model,
        networks.inputs(TRANSFORMER_XL),
        windows=networks.windows(WINDOWS),
        length=networks.sizes.length,
        sample="random",
        seed=networks.seed,
    )
    return MeasuredModel(name or short_title(model), _parameters(model), captured, untrained)


def _parameters(model: Any) -> float:
    return float(sum(weight.numel() for weight in model.model.parameters()))
