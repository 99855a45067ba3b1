"""What the options say, checked before anything is loaded."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.progress import LONG
from headscape.errors import InputError
from headscape.output import in_words

LOADING_OPTIONS = ("device", "dtype", "revision", "trust_remote_code")
OF_MODELS = ("text", "images", "length", "sample", *LOADING_OPTIONS)
OF_TENSORS = ("array", "axes")
DEVICES = "(cpu|cuda|mps|xpu|npu|hpu|xla)(:[0-9]{1,3})?"
MAX_THREADS = 1024


def check_given(sources: list[str], given: SimpleNamespace, runs_model: str = "") -> None:
    """Raise unless all shared options are within their bounds, and apply to what the sources are.

    Nothing but the headers of the sources is read; ``runs_model`` names a command that takes models only.
    """
    _check_bounds(given)
    _check_words(given)
    _check_engine(given)
    if hasattr(given, "dtype"):
        _check_loading(sources[0], given)
    from headscape.study.source import MODEL, TENSOR, require_field, source_kind

    kinds = [source_kind(source) for source in sources]
    if len(sources) > 1 and set(kinds) != {TENSOR}:
        place = next(i for i, kind in enumerate(kinds) if kind != TENSOR)
        raise InputError(f"several sources must be tensors, one per window, but {sources[place]} is not one.")
    if runs_model and kinds[0] != MODEL:
        raise InputError(
            f"{runs_model} runs the model, but {sources[0]} is a {kinds[0]}, which holds no weights: pass the model."
        )
    for names, kind, wanted in ((OF_MODELS, MODEL, "models"), (OF_TENSORS, TENSOR, "tensor files")):
        for name in names if kind != kinds[0] else ():
            if name in given.explicit:
                raise InputError(f"{_flag(name)} is for {wanted}, but {sources[0]} is a {kinds[0]}.")
    field = getattr(given, "field", None)
    require_field(field)
    _check_field(sources[0], kinds[0], field)


def _check_bounds(given: SimpleNamespace) -> None:
    from headscape.tensor.checks import MAX_LENGTH, MAX_SEED, MAX_WINDOWS, require_integer

    bounds = {
        "windows": (1, MAX_WINDOWS),
        "calibration_windows": (1, MAX_WINDOWS),
        "length": (1, MAX_LENGTH),
        "threads": (1, MAX_THREADS),
        "workers": (1, MAX_THREADS),
        "seed": (0, MAX_SEED),
    }
    for name, (low, high) in bounds.items():
        value = getattr(given, name, None)
        if value is not None:
            require_integer(value, _flag(name), low, high)


def _check_engine(given: SimpleNamespace) -> None:
    """Raise unless the options say together how work is spread."""
    from headscape.study.engines import require_engine

    if hasattr(given, "engine"):
        threads = getattr(given, "threads", None)
        require_engine(given.engine, given.scheduler, given.workers, threads)


def engine_of(given: SimpleNamespace) -> Any:
    """Open the engine that the options describe, for the length of a block."""
    from headscape.study.engines import open_engine

    threads = getattr(given, "threads", None)
    return open_engine(given.engine, scheduler=given.scheduler, workers=given.workers, threads=threads)


def _check_words(given: SimpleNamespace) -> None:
    """Raise if a name that was given is empty: it must not stand for the default."""
    for name in ("stack", "array", "axes", "field"):
        value = getattr(given, name, None)
        if value is not None and not value.strip():
            raise InputError(f"{_flag(name)} must not be empty.")


def _check_loading(source: str, given: SimpleNamespace) -> None:
    """Raise unless a model can be loaded as the options say."""
    from headscape.models.loading import require_dtype
    from headscape.models.packaged import PACKAGED

    require_dtype(given.dtype, "--dtype")
    if given.device is not None and not re.fullmatch(DEVICES, given.device):
        raise InputError(f"--device must be a device such as cpu, cuda or cuda:1, but is {given.device!r}.")
    revision = given.revision
    if revision is not None and (not revision.strip() or source in PACKAGED or Path(source).exists()):
        raise InputError(
            f"--revision is a branch, tag or commit of a Hugging Face name, but is {revision!r} for {source}."
        )


def _check_field(source: str, kind: str, field: str | None) -> None:
    """Raise if a source cannot have a field, or is known to hold another one."""
    from headscape.study.source import SYNTHETIC
    from headscape.tensor.network_tensor import FIELDS

    if field is None:
        return
    if kind != "tensor" and field not in FIELDS:
        raise InputError(f"--field must be one of {', '.join(FIELDS)} for a {kind}, but is {field!r}.")
    if kind == "tensor" and (source == SYNTHETIC or (Path(source) / "headscape.json").exists()):
        raise InputError(f"--field says what a plain file holds, but {source} knows its field: leave it out.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def inputs_of(given: SimpleNamespace) -> Any:
    """Return what a model is shown: the texts, the images, or None for the sample text."""
    if given.text and given.images is not None:
        raise InputError("specify either --text or --images, not both.")
    for path in given.text or ():
        require_file(path, "--text")
    if given.images is not None:
        for name in ("length", "sample"):
            if name in given.explicit:
                raise InputError(f"{_flag(name)} is for texts: an image is one window.")
        # An empty path would be the present folder.
        path = Path(given.images or "(empty)")
        if not path.is_dir():
            require_file(path, "--images")
            return [path]
        from headscape.recorder.image_files import images_in

        return images_in(path)
    texts = given.text or []
    return texts[0] if len(texts) == 1 else texts or None


def require_file(path: Path, option: str) -> None:
    """Raise unless a path is that of a regular file: devices and pipes may never end."""
    if not path.exists():
        raise InputError(f"{option}: {path} does not exist.")
    if not path.is_file():
        raise InputError(f"{option} must be a file, but {str(path)!r} is not a regular file.")


def split_inputs(given: SimpleNamespace) -> tuple[Any, Any]:
    """Return what evaluates and what calibrates; None calibrates on the first half of what evaluates."""
    inputs = inputs_of(given)
    for name in ("evaluate", "calibrate"):
        if getattr(given, name) is not None:
            require_file(getattr(given, name), f"--{name}")
    if given.evaluate is not None and inputs is not None:
        raise InputError("specify --evaluate with --calibrate, or --text, or --images, not several of them.")
    if given.calibrate is not None and given.evaluate is None:
        raise InputError("--calibrate needs --evaluate: the text to evaluate on.")
    if inputs is None and given.evaluate is None:
        from headscape.models.sample_text import sample_text

        inputs = sample_text()
    return inputs if given.evaluate is None else given.evaluate, given.calibrate


def loading_of(given: SimpleNamespace) -> dict[str, Any]:
    """Return how a model is loaded."""
    return {name: getattr(given, name) for name in LOADING_OPTIONS}


def opened(sources: list[str], given: SimpleNamespace) -> Any:
    """Open the sources of a command: one of any kind, or several tensors."""
    from headscape.study.source import open_source

    options = {name: getattr(given, name, None) for name in ("array", "axes", "field")}
    tell_conversion(sources[0], given)
    return open_source(sources[0] if len(sources) == 1 else sources, **options, load=loading_of(given))


def tell_conversion(source: str, given: SimpleNamespace) -> None:
    """Say to people that weights are converted first, before it is known how long the rest takes."""
    from headscape.study.expected_time import converting_seconds

    if given.quiet or given.json or getattr(given, "csv", False):
        return
    seconds = converting_seconds(source)
    if seconds is not None and seconds >= LONG:
        sys.stderr.write(f"Expected time: {in_words(seconds)} to convert the weights, the first time only.\n")


def formats_of(figures: str) -> list[str]:
    """Return the formats of the figures, or raise if one is unknown.

    Examples
    --------
    >>> formats_of("png,svg"), formats_of("none")
    (['png', 'svg'], [])
    """
    from headscape.report.style import FORMATS

    formats = [] if figures == "none" else [word.strip() for word in figures.split(",")]
    unknown = [word for word in formats if word not in FORMATS]
    if unknown:
        raise InputError(f"figure formats are {', '.join(FORMATS)} or none, but --figures is {figures!r}.")
    return formats


def _is_number(word: str) -> bool:
    """Tell whether a word is a number that a layer, a head or a length can have: at most six digits."""
    return re.fullmatch("[0-9]{1,6}", word) is not None


def parse_numbers(text: str | None, option: str) -> list[int] | None:
    """Return the numbers of a list of numbers and ranges.

    Examples
    --------
    >>> parse_numbers("0-3,8", "--layers")
    [0, 1, 2, 3, 8]
    """
    if text is None:
        return None
    numbers: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not _is_number(first) or (dash and (not _is_number(last) or int(last) < int(first))):
            raise InputError(f"{option} must be numbers and ranges such as 0-5,8, but is {text!r}.")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


def parse_heads(text: str | None, option: str) -> list[tuple[int, int]] | None:
    """Return the (layer, head) pairs of a list written as layer.head.

    Examples
    --------
    >>> parse_heads("3.0,3.7", "--heads")
    [(3, 0), (3, 7)]
    """
    if text is None:
        return None
    pairs: list[tuple[int, int]] = []
    for word in text.split(","):
        layer, _, head = word.strip().partition(".")
        if not _is_number(layer) or not _is_number(head):
            raise InputError(f"{option} must be heads as layer.head, such as 3.0,3.7, but is {text!r}.")
        pairs.append((int(layer), int(head)))
    return pairs


def parse_head(text: str | None, option: str) -> tuple[int, int] | None:
    """Return one (layer, head) pair."""
    heads = parse_heads(text, option)
    if heads is not None and len(heads) != 1:
        raise InputError(f"{option} takes one head such as 5.0, but {text!r} names {len(heads)}.")
    return None if heads is None else heads[0]


def methods_of(names: str, table: Path | None) -> dict[str, Any]:
    """Return ranking methods by name; other names are columns of the table."""
    from headscape.ablation.curves import REPAIRED
    from headscape.ablation.rankings import METHODS, REVERSED, read_scores

    found: dict[str, Any] = {}
    if table is not None:
        require_file(table, "--table")
    for word in (word.strip() for word in names.split(",")):
        column = word.removesuffix(REPAIRED).removesuffix(REVERSED)
        if column in METHODS or table is None:
            found[word] = word
        else:
            scores = read_scores(table, column)
            found[word] = -scores if REVERSED in word else scores
    if table is not None and all(isinstance(score, str) for score in found.values()):
        raise InputError(f"--table {table} is not used: none of {names} is one of its columns.")
    return found


def counts_of(text: str | None) -> list[str] | None:
    """Return the words of a list of numbers and percentages.

    Examples
    --------
    >>> counts_of("3, 10%")
    ['3', '10%']
    """
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    for word in words:
        share = re.fullmatch(r"([0-9]{1,3}(\.[0-9]{1,6})?)%", word)
        if not (_is_number(word) and int(word) > 0) and not (share and 0 < float(share[1]) <= 100):
            raise InputError(f"--counts must be numbers or shares such as 3,14,10%, but is {text!r}.")
    return words
