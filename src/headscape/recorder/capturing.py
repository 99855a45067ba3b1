"""``capture``: run a model over windows of input and keep its queries and keys."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.models.anatomy import how_observed
from headscape.models.forward_pass import arguments_for, without_extras
from headscape.models.loading import Model, as_model
from headscape.recorder.inputs import InputReader, WindowInput
from headscape.recorder.recording import record_batch
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import KIND, Capture, window_name
from headscape.tensor.capture_window import Labels, write_window
from headscape.tensor.store import Store, content_hash, software_versions

KEPT_BYTES = 1 << 28
"""Records of so many bytes stay in memory once they are written, and are not read back."""


def capture(
    model: Any,
    inputs: Any,
    *,
    tokenizer: Any = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    windows: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    seed: int = 0,
    join: bool = False,
    exact: bool = False,
    path: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> Capture:
    """Capture the queries and keys of every attention head of a model.

    Parameters
    ----------
    model
        A transformers model (left unchanged), a :func:`headscape.load_model` result, or a name as
        :func:`headscape.load_model` takes it: a folder, a .gguf file, "default", "minilm" or a Hugging Face name.
    inputs
        A text, a text file or a list of text files (sampled, see ``sample``); a list of strings or dataset rows
        (one window each); token ids (one run is sampled, a batch is taken row by row); a batch of forward
        arguments; or images: files, a folder, arrays, PIL images.
    tokenizer
        Tokenizer for text and labels, or image processor; models loaded by name bring theirs.
    layers
        Capture only these layers.
    heads
        Keep only these (layer, head) pairs of the first stack; their layers are stored whole.
    windows
        Number of windows; by default all of a list or batch, and up to 6 of a text. Several text files share
        them evenly.
    length
        Tokens per window, special tokens included. None takes every text whole.
    sample
        Which windows of a text: "spread" evenly over it, the "first" ones, or "random" ones; never overlapping,
        always in the order of the text.
    seed
        Seed of ``sample="random"``.
    join
        Join the texts of a list into one before sampling.
    exact
        Also keep the probabilities that the model's own code computes, for comparison: O(L^2) per head.
    path
        Folder to write to, window by window; resumes if interrupted. Without a path the capture stays in memory.
    engine
        An engine of other processes (:func:`headscape.open_engine`) runs several windows at once, with a copy of the
        model in each; by default one forward pass at a time, here.
    progress
        Progress callback.

    Returns
    -------
    Capture
        ``capture.provenance`` records model, input hash, length, sample, seed, versions, in ``"sources"`` the name
        of each window's text (None for text without a name), in ``"special_tokens"`` those around each window's
        text, in ``"special_tokens_seen"`` those anywhere in the windows, and in ``"newlines"`` that line
        ends were changed to LF.

    Notes
    -----
    One forward pass per window. Padding is cut out. An encoder-decoder model without ``decoder_input_ids``
    repeats its input. Memory beyond the forward pass: 4 L d (heads + kv_heads) bytes per layer. Of a large text
    file only the regions of its windows are read.
    """
    loaded = as_model(model, tokenizer)
    reader = InputReader(
        loaded.model, loaded.tokenizer, length, windows, join, sample=sample, seed=seed, labels=False
    )
    return capture_windows(
        loaded,
        reader.read(inputs),
        layers=layers,
        heads=heads,
        length=length,
        sample=sample,
        seed=seed,
        exact=exact,
        path=path,
        engine=engine,
        progress=progress,
    )


def capture_windows(
    loaded: Model,
    windows: Sequence[WindowInput],
    *,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    length: int | None = None,
    sample: str | None = None,
    seed: int | None = None,
    exact: bool = False,
    path: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> Capture:
    """Capture windows that are read already; parameters as for :func:`capture`, those of reading are recorded."""
    pairs = None if heads is None else sorted({(int(layer), int(head)) for layer, head in heads})
    chosen = _chosen_layers(layers, pairs)
    sources = [window.source for window in windows]
    parameters = {
        "model": loaded.provenance(),
        "n_windows": len(windows),
        "length": length,
        "sample": sample,
        "seed": seed,
        "sources": sources if any(sources) else None,
        **how_read(windows),
        "special_tokens_seen": special_tokens_seen(windows, loaded.tokenizer),
        "layers": None if chosen is None else sorted(chosen),
        "heads": None if pairs is None else [list(pair) for pair in pairs],
        "exact": exact,
    }
    run = _Run(loaded, chosen, pairs, exact, engine or LocalEngine())
    if path is not None:
        return _to_store(run, windows, parameters, path, progress)
    records, labels = [], []
    progress("capturing", 0, len(windows))
    for number, window, found in run.all(windows, range(len(windows))):
        records.append(found)
        labels.append(stack_labels(found, window.labels))
        progress("capturing", number + 1, len(windows))
    provenance = {**parameters, **run.observed, "versions": _versions(), "input_hash": input_hash(windows)}
    return Capture.from_records(records, tokens=labels, provenance=provenance, heads=pairs)


class _Run:
    """The forward passes of one capture."""

    def __init__(
        self,
        loaded: Model,
        layers: Collection[int] | None,
        heads: Sequence[tuple[int, int]] | None,
        exact: bool,
        engine: Engine,
    ) -> None:
        self.model, self.layers, self.heads, self.exact = loaded.model, layers, heads, exact
        self.engine = engine
        self.observed: dict[str, str] = {}
        """How attention was seen, once a window has shown it: only then is it known that a model calls no function."""

    def all(
        self, windows: Sequence[WindowInput], numbers: Iterable[int]
    ) -> Iterator[tuple[int, WindowInput, list[AttentionRecord]]]:
        """Yield some windows with their records, in order: one after the other here, or at once in other processes."""
        tasks = [(number, windows[number]) for number in numbers]
        # Threads would run one model at the same time, whose modules are watched; torch has threads of its own.
        found = self.engine.map(self.records, tasks) if self.engine.remote else map(self.records, tasks)
        for (number, window), (records, observed) in zip(tasks, found, strict=True):
            self.observed = observed
            yield number, window, records

    def records(self, task: tuple[int, WindowInput]) -> tuple[list[AttentionRecord], dict[str, str]]:
        """Return the records of one window and how they were seen, or raise if the model cannot take it."""
        number, window = task
        arguments = arguments_for(self.model, window.arguments)
        # A cache of keys and the logits of all tokens would take most of the memory, and nothing reads them.
        extra = without_extras(self.model)
        rows = record_batch(
            self.model,
            {**arguments, **extra},
            layers=self.layers,
            exact=self.exact,
            what=f"window {number}",
        )
        for record in rows[0]:
            record.require_finite()
        if self.heads is not None:
            Capture.from_records(rows, heads=self.heads)  # raises before anything is written
        return rows[0], how_observed(self.model)


def _to_store(
    run: _Run,
    windows: Sequence[WindowInput],
    parameters: Mapping[str, Any],
    path: str | os.PathLike[str],
    progress: Progress,
) -> Capture:
    with Store.create(
        path, KIND, parameters=parameters, input_hash=input_hash(windows), versions=_versions()
    ) as store:
        missing = [number for number in range(len(windows)) if not store.sound(window_name(number))]
        progress("capturing", len(windows) - len(missing), len(windows))
        kept: dict[int, list[AttentionRecord]] = {}
        room = KEPT_BYTES
        for number, window, records in run.all(windows, list(missing)):
            with store.writing(window_name(number)) as part:
                write_window(part, records, stack_labels(records, window.labels), run.observed)
            if (size := _bytes(records)) <= room:
                kept[number], room = records, room - size
            missing.remove(number)
            progress("capturing", len(windows) - len(missing), len(windows))
    return Capture.load(path).with_records(kept)


def stack_labels(records: Sequence[AttentionRecord], sides: Mapping[str, tuple[str, ...]]) -> Labels:
    """Return the labels of the queries and keys of every stack: those of the input, the decoder or the patches."""
    labels: dict[str, dict[str, tuple[str, ...]]] = {}
    for record in records:
        in_decoder = record.kind == "cross" or "decoder" in record.module
        own = "decoder" if in_decoder and "decoder" in sides else "input"
        n_queries, n_keys = record.n_queries, record.n_keys
        found = {"query": _fitting(sides, own, n_queries)}
        if record.kind == "cross":
            found["key"] = _fitting(sides, "input", n_keys)
        elif n_keys > n_queries:  # a memory holds at most so many of the tokens before the window
            before = sides.get("memory", ())[n_queries - n_keys :]
            found["key"] = _fitting({"input": (*before, *found["query"])}, "input", n_keys)
        labels.setdefault(record.stack, {axis: names for axis, names in found.items() if names})
    return labels


def _bytes(records: Sequence[AttentionRecord]) -> int:
    """Return the bytes of all arrays of some records, of those that they share once."""
    names = ("queries", "keys", "visible", "bias", "probs", "scores")
    arrays = {id(a): a for record in records for name in names if (a := getattr(record, name)) is not None}
    return sum(array.nbytes for array in arrays.values())


def _fitting(sides: Mapping[str, tuple[str, ...]], side: str, n: int) -> tuple[str, ...]:
    """Return the labels of a side if they fit, or those of image patches after the model's own tokens."""
    if len(sides.get(side, ())) == n:
        return sides[side]
    patches = sides.get("pixels", ())
    if patches and n >= len(patches):
        return (*(f"[{i}]" for i in range(n - len(patches))), *patches)
    return ()


def _chosen_layers(
    layers: Collection[int] | None, heads: Sequence[tuple[int, int]] | None
) -> frozenset[int] | None:
    if layers is None and heads is None:
        return None
    of_heads = {layer for layer, _ in heads or ()}
    chosen = frozenset(int(layer) for layer in layers) if layers is not None else frozenset(of_heads)
    if not chosen or (heads is not None and not of_heads <= chosen):
        raise InputError("layers must name at least one layer, and heads must lie in those layers.")
    return chosen


def input_hash(windows: Sequence[WindowInput]) -> str:
    """Return a hash of the arguments of all windows."""
    return content_hash(*(np.frombuffer(window.hash().encode(), dtype=np.uint8) for window in windows))


def how_read(windows: Sequence[WindowInput]) -> dict[str, Any]:
    """Return what became of the texts of all windows: special tokens, and line ends if some were changed."""
    return {name: value for window in windows for name, value in window.reading.items()}


def special_tokens_seen(windows: Sequence[WindowInput], tokenizer: Any) -> list[str] | None:
    """Return which labels of the windows are special tokens; None without a tokenizer that knows its own."""
    if not hasattr(tokenizer, "all_special_tokens"):
        return None
    seen = {label for window in windows for labels in window.labels.values() for label in labels}
    return sorted(seen & set(map(str, tokenizer.all_special_tokens)))


def _versions() -> dict[str, str]:
    return software_versions("torch", "transformers")
