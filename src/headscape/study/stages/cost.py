"""What work is expected to cost in seconds: the sizes it grows with, and what was measured at one of them.

All seconds are those of 2 cores without a GPU, at 270 heads and windows of 256 tokens (SmolLM2-135M, 135 million
parameters); a stage states its own as ``cost``. They are good for an estimate: within a factor of two.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headscape.models.loading import Model
from headscape.study.stages.context import Data
from headscape.tensor.capture import Capture

REFERENCE_HEADS, REFERENCE_TOKENS = 270, 256
OPERATIONS = 1.5e11
"""Floating-point operations of a model in a second."""
ORGANIZING = 2.7
"""Organizing one window."""
BACKWARD = 3.0
"""A forward pass with gradients, in forward passes."""
RESUMED = 0.8
"""An evaluation with heads off, in forward passes: the layers before the first of them are not computed again."""
REPAIR = 0.08
"""Fitting the output projection of one layer."""


@dataclass(frozen=True)
class Size:
    """The sizes that the time of a command grows with.

    Parameters
    ----------
    heads, layers, tokens, windows
        Of what is analyzed; ``tokens`` are those of a window.
    parameters
        Of the model, 0 if it does not run.
    """

    heads: int
    layers: int
    tokens: int
    windows: int
    parameters: int = 0

    def times(self, heads: float = 1.0, tokens: float = 2.0) -> float:
        """Return how much longer work takes than at the reference, if it grows with these powers of the sizes.

        Examples
        --------
        >>> Size(heads=540, layers=30, tokens=512, windows=6).times()
        8.0
        """
        return float((self.heads / REFERENCE_HEADS) ** heads * (self.tokens / REFERENCE_TOKENS) ** tokens)

    @property
    def forward(self) -> float:
        """Seconds of a forward pass over one window.

        Examples
        --------
        >>> Size(270, 30, 256, 6, parameters=135_000_000).forward
        0.4608
        """
        return 2 * self.parameters * self.tokens / OPERATIONS


def parameters_of(model: Model | None) -> int:
    """Return the number of weights of a model, 0 if there is none."""
    return 0 if model is None else sum(weight.numel() for weight in model.model.parameters())


def size_of_data(data: Data, parameters: int = 0) -> Size:
    """Return the sizes of windows that are there already."""
    if isinstance(data, Capture):
        first = data.record(0, data.layers[0])
        tokens = first.n_queries
    else:
        tokens = max(data.tensor(0).shape[:2])
    return Size(len(data.heads), len(data.layers), tokens, data.n_windows, parameters)


def ablation_seconds(
    size: Size, methods: Iterable[str], counts: int, draws: int, *, windows: int = 16, calibration: int = 16
) -> float:
    """Return the expected seconds of an ablation study: its evaluations, its rankings and its repairs.

    Examples
    --------
    >>> small = Size(270, 30, 256, 16, parameters=135_000_000)
    >>> round(ablation_seconds(small, ["haar", "random"], counts=7, draws=10) / 60)
    8
    """
    total = windows * size.forward
    for label in methods:
        method = label.removesuffix("+repair").removesuffix(":reversed")
        orders = draws if method == "random" else 1
        total += orders * counts * RESUMED * windows * size.forward
        if label != method and label.endswith("+repair"):
            total += orders * counts * (calibration * size.forward + size.layers * REPAIR)
        if method.startswith(("haar", "tree")):
            total += calibration * ORGANIZING * size.times()
        elif method == "leave-one-out":
            total += size.heads * RESUMED * calibration * size.forward
        elif method != "random":
            total += calibration * BACKWARD * size.forward
    return total
