"""``capture``: run a model over windows of input and keep its queries and keys."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models import require_models_extra
from headscape.models.loading import Model, load_model
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import KIND, Capture, window_name
from headscape.tensor.capture_window import Labels, write_window
from headscape.tensor.store import Store, content_hash, software_versions

if TYPE_CHECKING:
    import torch

    from headscape.recorder.inputs import WindowInput


def capture(
    model: Any,
    inputs: Any,
    *,
    tokenizer: Any = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    windows: int | None = None,
    length: int | None = 256,
    join: bool = False,
    exact: bool = False,
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    path: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> Capture:
    """Capture the queries and keys of every attention head of a model.

    Parameters
    ----------
    model
        A loaded transformers model, which is left exactly as it was, or a name: a folder, a .gguf file,
        "default" (SmolLM2-135M), "minilm", or a Hugging Face name (the only one that uses the network).
    inputs
        A text or the path of a text file (cut into windows), a list of texts or dataset rows (a window each),
        token ids (one run is cut, a batch is taken row by row), a batch of forward arguments with its padding,
        or images (files, arrays, PIL).
    tokenizer
        For text and labels; models loaded by name bring theirs. For images, an image processor.
    layers
        Only these layers.
    heads
        Only these (layer, head) pairs of the first stack; their layers are stored whole.
    windows
        How many windows; by default all of a list or batch, and up to 6 of one text.
    length
        Tokens per window, special ones included. None takes every text whole.
    join
        Run the texts of a list together before cutting.
    exact
        Also keep the probabilities that the model's own code computes, for comparison: O(L^2) a head.
    device, dtype, revision, trust_remote_code
        For models loaded by name: where and in which precision ("float32"), which version, and whether code
        that comes with the model may run.
    path
        Folder to write to, window by window. A capture that was stopped goes on at the next window when it is
        called again in the same way. Without a path the capture is kept in memory.

    Returns
    -------
    Capture

    Notes
    -----
    One forward pass per window. Padding is cut out. An encoder-decoder model without ``decoder_input_ids``
    repeats its input. Memory beyond the forward pass: 4 L d (heads + kv_heads) bytes a layer.
    """
    require_models_extra()
    from headscape.recorder.inputs import InputReader

    loaded = as_loaded(model, tokenizer, device, dtype, revision, trust_remote_code)
    prepared = InputReader(loaded.model, loaded.tokenizer, length, windows, join).read(inputs)
    return capture_windows(
        loaded,
        prepared,
        layers=layers,
        heads=heads,
        length=length,
        exact=exact,
        path=path,
        progress=progress,
    )


def capture_windows(
    loaded: Model,
    windows: "Sequence[WindowInput]",
    *,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    length: int | None = None,
    exact: bool = False,
    path: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> Capture:
    """Capture windows that are read already; the parameters are those of :func:`capture`."""
    pairs = None if heads is None else sorted({(int(layer), int(head)) for layer, head in heads})
    chosen = _chosen_layers(layers, pairs)
    parameters = {
        "model": loaded.provenance(),
        "n_windows": len(windows),
        "length": length,
        "layers": None if chosen is None else sorted(chosen),
        "heads": None if pairs is None else [list(pair) for pair in pairs],
        "exact": exact,
    }
    run = _Run(loaded, chosen, pairs, exact)
    if path is not None:
        return _to_store(run, windows, parameters, path, progress)
    records, labels = [], []
    for number, window in enumerate(windows):
        progress("capturing", number, len(windows))
        records.append(run.records(window, number))
        labels.append(stack_labels(records[-1], window.labels))
    progress("capturing", len(windows), len(windows))
    provenance = {**parameters, "versions": _versions(), "input_hash": input_hash(windows)}
    return Capture.from_records(records, tokens=labels, provenance=provenance, heads=pairs)


class _Run:
    """The forward passes of one capture."""

    def __init__(
        self,
        loaded: Model,
        layers: Collection[int] | None,
        heads: Sequence[tuple[int, int]] | None,
        exact: bool,
    ) -> None:
        self.model, self.layers, self.heads, self.exact = loaded.model, layers, heads, exact

    def records(self, window: "WindowInput", number: int) -> list[AttentionRecord]:
        """Return the records of one window, or raise if the model cannot take it."""
        from headscape.models.forward_pass import arguments_for, without_extras
        from headscape.recorder.recording import record_batch

        arguments = arguments_for(self.model, window.arguments)
        # Neither a cache of keys nor logits of all tokens is wanted; they would take most of the memory.
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
        return rows[0]


def _to_store(
    run: _Run,
    windows: "Sequence[WindowInput]",
    parameters: Mapping[str, Any],
    path: str | os.PathLike[str],
    progress: Progress,
) -> Capture:
    with Store.create(
        path, KIND, parameters=parameters, input_hash=input_hash(windows), versions=_versions()
    ) as store:
        for number, window in enumerate(windows):
            progress("capturing", number, len(windows))
            if store.has(window_name(number)):
                continue
            records = run.records(window, number)
            with store.writing(window_name(number)) as part:
                write_window(part, records, stack_labels(records, window.labels))
        progress("capturing", len(windows), len(windows))
    return Capture.load(path)


def stack_labels(records: Sequence[AttentionRecord], sides: Mapping[str, tuple[str, ...]]) -> Labels:
    """Give the queries and keys of every stack the labels of the input, the decoder or the patches."""
    labels: dict[str, dict[str, tuple[str, ...]]] = {}
    for record in records:
        in_decoder = record.kind == "cross" or "decoder" in record.module
        own = "decoder" if in_decoder and "decoder" in sides else "input"
        n_queries, n_keys = record.queries.shape[1], record.keys.shape[1]
        found = {"query": _fitting(sides, own, n_queries)}
        if record.kind == "cross":
            found["key"] = _fitting(sides, "input", n_keys)
        labels.setdefault(record.stack, {axis: names for axis, names in found.items() if names})
    return labels


def _fitting(sides: Mapping[str, tuple[str, ...]], side: str, n: int) -> tuple[str, ...]:
    """Return the labels of a side if they fit, or those of image patches after the model's own tokens."""
    if len(sides.get(side, ())) == n:
        return sides[side]
    patches = sides.get("pixels", ())
    if patches and n >= len(patches):
        return (*(f"[{i}]" for i in range(n - len(patches))), *patches)
    return ()


def as_loaded(
    model: Any,
    tokenizer: Any = None,
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Return a model with its tokenizer, loading it if a name is given: see :func:`capture`."""
    import torch

    if isinstance(model, (str, os.PathLike)):
        loaded = load_model(
            model,
            device=device,
            dtype=dtype or "float32",
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        return Model(loaded.model, tokenizer or loaded.tokenizer, loaded.name, loaded.revision)
    if isinstance(model, Model):
        return Model(model.model, tokenizer or model.tokenizer, model.name, model.revision)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model must be a transformers model or a name, but is {type(model).__name__}.")
    if device is not None or dtype is not None:
        raise InputError(
            "device and dtype are for models loaded by name, and a loaded model is left as it is: move it with "
            "model.to(...) first."
        )
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
    return Model(model, tokenizer, str(name), revision)


def _chosen_layers(
    layers: Collection[int] | None, heads: Sequence[tuple[int, int]] | None
) -> frozenset[int] | None:
    if layers is None and heads is None:
        return None
    of_heads = {layer for layer, _ in heads or ()}
    chosen = frozenset(int(layer) for layer in layers) if layers is not None else frozenset(of_heads)
    if not chosen or (heads is not None and not of_heads <= chosen):
        raise InputError("layers and heads must name at least one layer, and heads only layers among layers.")
    return chosen


def input_hash(windows: "Sequence[WindowInput]") -> str:
    """Return a hash of everything that a model is given in some windows."""
    return content_hash(*(np.frombuffer(window.hash().encode(), dtype=np.uint8) for window in windows))


def _versions() -> dict[str, str]:
    return software_versions("torch", "transformers")
