"""How much faster a pruned model runs here: both models timed in turns, prefill and decoding apart.

Prefill is one forward pass over a window; decoding is one token after another with the cache that it left.
The two models take turns within each repeat, so that a machine that grows busy slows both.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models.forward_pass import arguments_for, evaluating
from headscape.models.lazy_torch import torch
from headscape.models.plain_arguments import as_called
from headscape.models.plain_facts import config_of, is_plain
from headscape.models.random_inputs import probe_windows
from headscape.output import counted

WIDEST_RANGE = 2.0
"""Ratios whose largest is more than this many times their smallest are no result."""


@dataclass(frozen=True)
class Timing:
    """Seconds of both models over the repeats.

    Examples
    --------
    >>> timing = Timing((2.0, 2.2, 1.8), (1.0, 1.0, 1.2))
    >>> timing.ratio, timing.range
    (2.0, (1.5, 2.2))
    >>> print(Timing((2.0, 2.2, 1.8), (1.0, 1.1, 3.0)))
    2000.0 ms -> 1100.0 ms, too noisy to tell how much faster (0.60 to 2.00 times over 3 repeats)
    """

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times faster the second model is, repeat by repeat."""
        return tuple(old / new for old, new in zip(self.before, self.after, strict=True))

    @property
    def ratio(self) -> float:
        """The ratio of the median times."""
        return statistics.median(self.before) / statistics.median(self.after)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest ratio."""
        return min(self.ratios), max(self.ratios)

    @property
    def noisy(self) -> bool:
        """Whether the range is wider than a factor of two, so that the ratio is no result."""
        low, high = self.range
        return high > WIDEST_RANGE * low

    def summary(self) -> list[float | None]:
        """Return the ratio, None if it is no result, and its range, as JSON can hold them."""
        return [None if self.noisy else self.ratio, *self.range]

    def __str__(self) -> str:
        low, high = self.range
        old, new = statistics.median(self.before), statistics.median(self.after)
        times = f"{1e3 * old:.1f} ms -> {1e3 * new:.1f} ms"
        if self.noisy:
            spread = f"{low:.2f} to {high:.2f} times over {counted(len(self.before), 'repeat')}"
            return f"{times}, too noisy to tell how much faster ({spread})"
        noise = ", within the noise of the timing" if low < 1 < high else ""
        return f"{times}, {self.ratio:.2f} times as fast ({low:.2f} to {high:.2f}{noise})"


@dataclass(frozen=True)
class Speed:
    """Measured speed of a model before and after.

    Attributes
    ----------
    prefill
        One forward pass over ``length`` tokens, or one image.
    decoding
        ``new_tokens`` tokens, one by one; None for models that do not generate.
    length
        Tokens of the window; None for models of images.
    new_tokens, threads
        How many tokens were decoded, and with how many threads of the processor.
    """

    prefill: Timing
    decoding: Timing | None
    length: int | None
    new_tokens: int
    threads: int

    def summary(self) -> dict[str, list[float | None]]:
        """Return how many times faster (None where that is too noisy to tell), with the range."""
        timings = {"prefill": self.prefill, "decoding": self.decoding}
        return {what: timing.summary() for what, timing in timings.items() if timing is not None}

    def __str__(self) -> str:
        what = "one image" if self.length is None else f"{self.length} tokens"
        lines = [f"forward pass over {what}: {self.prefill}"]
        if self.decoding is not None:
            lines.append(f"decoding of {self.new_tokens} tokens: {self.decoding}")
        return "\n".join(lines)


def measured_speed(
    before: Any,
    after: Any,
    *,
    length: int = 256,
    new_tokens: int = 16,
    repeats: int = 5,
    progress: Progress = no_progress,
) -> Speed:
    """Time two models with the same inputs, on the same device, in turns and in evaluation mode.

    The window has ``length`` tokens, less if the models take fewer; images have their own number. One more round than
    ``repeats`` warms up and is not counted.
    """
    for name, value in (("length", length), ("new_tokens", new_tokens), ("repeats", repeats)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, but is {value}.")
    most = _longest(before, new_tokens)
    [window] = probe_windows(before, length=length if most is None else min(length, most), windows=1)
    inputs = arguments_for(before, window)
    rounds = []
    with evaluating(before), evaluating(after), torch.no_grad():
        for repeat in range(repeats + 1):
            progress("timing", repeat, repeats + 1)
            rounds.append([_timed(model, inputs, new_tokens) for model in (before, after)])
    progress("timing", repeats + 1, repeats + 1)
    seconds = np.array(rounds[1:])  # (repeat, model, part)
    prefill, decoding = (Timing(*map(tuple, seconds[:, :, part].T.tolist())) for part in (0, 1))
    plain = is_plain(before)
    tokens = next((x for name, x in inputs.items() if name == "input_ids" or (plain and x.dim() == 3)), None)
    n = None if tokens is None else int(tokens.shape[1])
    return Speed(prefill, decoding if _decodes(before) else None, n, new_tokens, torch.get_num_threads())


def _timed(model: Any, inputs: dict[str, Any], new_tokens: int) -> tuple[float, float]:
    """Return the seconds of prefill and of decoding (0 for models that do not)."""
    if not _decodes(model):
        return _seconds(model, lambda: model(**as_called(model, inputs))), 0.0
    state: dict[str, Any] = {}

    def prefill() -> None:
        output = model(**inputs, use_cache=True, logits_to_keep=1)
        state.update(cache=output.past_key_values, token=output.logits[:, -1:].argmax(-1))

    def decode() -> None:
        for _ in range(new_tokens):
            output = model(state["token"], past_key_values=state["cache"], use_cache=True)
            state["token"] = output.logits[:, -1:].argmax(-1)

    return _seconds(model, prefill), _seconds(model, decode)


def _seconds(model: Any, work: Callable[[], object]) -> float:
    on_gpu = next(model.parameters()).is_cuda
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _decodes(model: Any) -> bool:
    return not is_plain(model) and bool(model.can_generate())


def _longest(model: Any, new_tokens: int) -> int | None:
    """Return how many tokens a model takes and still has room to decode."""
    most = getattr(config_of(model).get_text_config(), "max_position_embeddings", None)
    # RoBERTa and its like start to count positions after the padding token.
    return None if most is None else max(1, most - 4 - (new_tokens if _decodes(model) else 0))
