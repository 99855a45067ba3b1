"""The networks of the experiments: each is loaded, captured and organized once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.entropy import head_entropy
from headscape.analysis.windows import staged
from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import Organization, organize
from headscape.models.loading import Model, load_model
from headscape.models.sample_text import sample_text
from headscape.output import counted
from headscape.recorder.capturing import capture
from headscape.recorder.images import pair, vision_config
from headscape.study.reproduction.brief_training import N_HEADS, Training, briefly_trained, untrained_vision
from headscape.study.reproduction.experiment import Observation, Verdict
from headscape.study.reproduction.random_images import drawn_images, random_images
from headscape.study.reproduction.work_times import WorkTimes
from headscape.study.stages.result import Result
from headscape.tensor.capture import Capture
from headscape.tensor.store import Store

LANGUAGE, TRANSFORMER_XL, ENCODER = "language", "transformer-xl", "encoder"
VISION, UNTRAINED_VISION = "vision", "untrained-vision"
ROLES = (LANGUAGE, TRANSFORMER_XL, VISION, UNTRAINED_VISION, ENCODER)
IMAGE_ROLES = (VISION, UNTRAINED_VISION)
TENSOR_ROLES = (LANGUAGE, TRANSFORMER_XL, VISION, UNTRAINED_VISION)
"""Networks whose tensors are organized."""
JUDGED_ROLES = (LANGUAGE, TRANSFORMER_XL, VISION)
"""Those with a loss; an untrained one has none worth lowering."""
K_HEAD = 400
"""Wavelets of an entropy of a head, as in OA 3.2."""
_ENTROPIES = "entropies"


@dataclass(frozen=True)
class Choice:
    """Which networks stand in for those of the papers, and on what data.

    Parameters
    ----------
    language, encoder
        Models as :func:`headscape.load_model` takes them.
    transformer_xl
        Folder of a Transformer-XL; None trains one of the paper's size briefly on the text.
    vision
        A trained image model, measured beside the ViT-B/16 with random weights; None for that one alone.
    models
        More models for the claims about keys.
    texts
        Text files; empty for the sample text bundled with Python.
    images
        Image file or folder; None for drawn shapes.
    """

    language: str = "default"
    encoder: str = "minilm"
    transformer_xl: str | None = None
    vision: str | None = None
    models: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    images: str | None = None


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Parameters
    ----------
    windows, length
        Windows per network and tokens per window (a vision model sees its own number of patches).
    control_windows
        Windows of an untrained network.
    heads
        Heads of each network whose softmax is taken apart.
    longest
        Tokens of the longest window of the energy's verification.
    constructed
        Tokens of the heads that are built to fail.
    layers, width, steps
        Of the Transformer-XL that is trained, if none is given.
    """

    windows: int = 20
    control_windows: int = 6
    length: int = 256
    heads: int = 24
    longest: int = 1024
    constructed: int = 64
    layers: int = 16
    width: int = 410
    steps: int = 60


QUICK = Sizes(
    windows=4,
    control_windows=4,
    length=32,
    heads=2,
    longest=64,
    constructed=16,
    layers=2,
    width=32,
    steps=8,
)


class Networks:
    """Gives experiments their networks by role, and keeps what took long in a store.

    Parameters
    ----------
    store
        Where captures, organizations and trained weights are kept.
    choice, sizes, seed
        What is taken, how much of it, and the seed of everything random.
    engine, progress
        Where the work is done, and the progress callback.
    """

    def __init__(
        self,
        store: Store,
        choice: Choice,
        sizes: Sizes,
        seed: int = 0,
        engine: Engine | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.store, self.choice, self.sizes, self.seed = store, choice, sizes, seed
        self.engine, self.progress = engine or LocalEngine(), progress
        self.times = WorkTimes(store.path / "times.json")
        self._models: dict[str, Model] = {}
        self._captures: dict[str, Capture] = {}

    def present(self, roles: Iterable[str]) -> tuple[str, ...]:
        """Return those of the roles that are filled: a trained image model is there only if it was given."""
        return tuple(role for role in roles if role != VISION or self.choice.vision is not None)

    def title(self, role: str) -> str:
        """Return what a network is called in sentences."""
        if role == TRANSFORMER_XL and self.choice.transformer_xl is None:
            size = f"{self.sizes.layers} x {N_HEADS} heads"
            return f"Transformer-XL ({size}, {self.sizes.steps} steps of training)"
        if role == UNTRAINED_VISION:
            return "ViT-B/16 (random weights)" if self.sizes != QUICK else "small ViT (random weights)"
        return short_title(self.model(role))

    def data(self, role: str, windows: int) -> str:
        """Return in words what a network was shown."""
        captured = self.capture(role)
        tokens = captured.record(0, captured.layers[0]).queries.shape[-2]
        noun = "image" if role in IMAGE_ROLES else "window"
        count = counted(min(windows, captured.n_windows), f"random {noun}")
        return f"{count} of {tokens} tokens; {self.source(role, windows)}"

    def source(self, role: str, windows: int | None = None) -> str:
        """Return in words where the first windows of a network come from: one of each text in turn."""
        if role in IMAGE_ROLES:
            return "drawn shapes" if self.choice.images is None else Path(self.choice.images).name
        return ", ".join(Path(text).name for text in self.choice.texts[:windows]) or "sample text"

    def observed(self, role: str, windows: int, found: str, verdict: Verdict, figure: str) -> Observation:
        """Return what was found on a network, with its name and its data."""
        return Observation(
            self.title(role), self.data(role, windows), found, verdict, figure, role == UNTRAINED_VISION
        )

    def model(self, role: str) -> Model:
        """Return a network, loaded once."""
        if role not in self._models:
            self.progress(f"loading the {role} network", 0, 1)
            self._models[role] = self._load(role)
        return self._models[role]

    def inputs(self, role: str) -> Any:
        """Return what a network is shown: texts, or images."""
        if role in IMAGE_ROLES:
            return [row["image"] if isinstance(row, dict) else row for row in self.labeled_images(role)]
        return [Path(text) for text in self.choice.texts] or sample_text()

    def labeled_images(self, role: str, count: int | None = None, seed: int | None = None) -> list[Any]:
        """Return images drawn at random, by default those of the windows: with labels if their folder has some."""
        windows = self.sizes.control_windows if role == UNTRAINED_VISION else self.sizes.windows
        count, seed = count or windows, self.seed if seed is None else seed
        if self.choice.images is None:
            size = pair(vision_config(self.model(role).model.config).image_size)
            return list(drawn_images(count, max(size), seed))
        return random_images(Path(self.choice.images), count, seed)

    def windows(self, count: int) -> int:
        """Return how many windows to take for ``count``: every text has one at least."""
        return max(count, len(self.choice.texts))

    def texts(self) -> dict[str, Any]:
        """Return the texts by name; a single one as its two halves, so that there are several."""
        if len(self.choice.texts) > 1:
            return {Path(text).name: Path(text) for text in self.choice.texts}
        if self.choice.texts:
            whole, name = (
                Path(self.choice.texts[0]).read_text(encoding="utf-8"),
                Path(self.choice.texts[0]).name,
            )
        else:
            whole, name = sample_text(), "sample text"
        half = len(whole) // 2
        return {f"{name}, first half": whole[:half], f"{name}, second half": whole[half:]}

    def capture(self, role: str) -> Capture:
        """Return the windows of a network: drawn at random, as the papers do, and one of each text in turn."""
        if role not in self._captures:
            inputs = self.inputs(role)
            windows = len(inputs) if role in IMAGE_ROLES else self.windows(self.sizes.windows)
            found = self.captured(role, inputs, "capture", windows)
            texts = 1 if role in IMAGE_ROLES else max(1, len(self.choice.texts))
            self._captures[role] = found.select(windows=in_turn(found.n_windows, texts))
        return self._captures[role]

    def captured(self, role: str, inputs: Any, name: str, windows: int, length: int | None = None) -> Capture:
        """Return a capture of other inputs, kept under a name of its own."""
        sampled: dict[str, Any] = (
            {} if role in IMAGE_ROLES else {"length": length or self.sizes.length, "sample": "random"}
        )
        model = self.model(role)
        with self.times.timed(f"{role}: capture"):
            return capture(
                model,
                inputs,
                windows=windows,
                seed=self.seed,
                path=self.store.path / "networks" / f"{role}-{name}",
                progress=staged(self.progress, role),
                **sampled,
            )

    def organization(self, role: str, window: int) -> Organization:
        """Return the organization of one window, from the store if it is there."""
        kept = self._organized(role, window)
        return Organization.from_arrays(kept.arrays, kept.attributes)

    def entropies(self, role: str, windows: int) -> NDArray[np.float64]:
        """Return the Haar entropies (window, head) of the first windows, each on its own trees."""
        count = min(windows, self.capture(role).n_windows)
        return np.stack([self._organized(role, window).arrays[_ENTROPIES] for window in range(count)])

    def _organized(self, role: str, window: int) -> Result:
        """Return the organization of one window with its entropies, computed once."""
        part = f"organization-{role}-{window:05d}"
        if not self.store.has(part):
            captured = self.capture(role)
            with self.times.timed(f"{role}: organization"):
                tensor = captured.tensor(window)
                tell = staged(self.progress, f"organizing {role}, window {window + 1}")
                found = organize(tensor, engine=self.engine, progress=tell)
                entropies = {_ENTROPIES: head_entropy(tensor.data, found.trees, K_HEAD)}
                with self.store.writing(part) as writer:
                    Result({**found.arrays(), **entropies}, found.attributes()).write(writer)
        return Result.read(self.store.read(part))

    def some_heads(self, role: str) -> list[tuple[int, int]]:
        """Return heads drawn at random, in their order: those whose softmax is taken apart."""
        heads = self.capture(role).heads
        rng = np.random.default_rng(self.seed)
        chosen = rng.choice(len(heads), size=min(self.sizes.heads, len(heads)), replace=False)
        return [heads[i] for i in sorted(chosen)]

    @cached_property
    def training(self) -> Training:
        """The briefly trained Transformer-XL, with its checkpoints."""
        with self.times.timed(f"{TRANSFORMER_XL}: training"):
            return briefly_trained(
                self.store.path / "networks" / "transformer-xl",
                self.inputs(TRANSFORMER_XL),
                layers=self.sizes.layers,
                width=self.sizes.width,
                length=self.sizes.length,
                steps=self.sizes.steps,
                seed=self.seed,
                progress=self.progress,
            )

    def _load(self, role: str) -> Model:
        if role == TRANSFORMER_XL and self.choice.transformer_xl is None:
            return self.training.model()
        if role == UNTRAINED_VISION:
            return untrained_vision(self.seed, tiny=self.sizes == QUICK)
        names: dict[str, str | None] = {
            LANGUAGE: self.choice.language,
            ENCODER: self.choice.encoder,
            TRANSFORMER_XL: self.choice.transformer_xl,
            VISION: self.choice.vision,
        }
        name = names.get(role)
        if name is None:
            raise InputError(f"the role of a network must be one of {', '.join(ROLES)}, but is {role!r}.")
        return load_model(name)


def short_title(model: Model) -> str:
    """Return what a model is called: of a folder its name alone."""
    return Path(model.title).name if Path(model.title).exists() else model.title


def in_turn(windows: int, texts: int) -> list[int]:
    """Return the windows of several texts, which are captured text by text, one of each text in turn.

    Examples
    --------
    >>> in_turn(5, 2)
    [0, 3, 1, 4, 2]
    """
    shares = np.array_split(np.arange(windows), texts)
    return [int(window) for turn in zip_longest(*shares) for window in turn if window is not None]


def of_heads(heads: Sequence[tuple[int, int]], count: int = 6) -> str:
    """Return (layer, head) pairs as they are written: 3.5, 10.7, ..."""
    shown = ", ".join(f"{layer}.{head}" for layer, head in heads[:count])
    return shown + (", ..." if len(heads) > count else "")
