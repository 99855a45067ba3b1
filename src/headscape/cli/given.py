"""What the shared options say, checked before anything is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headscape.cli.options import LOADING
from headscape.errors import InputError

DTYPES = ("float32", "bfloat16", "float16")


def check_counts(given: SimpleNamespace) -> None:
    """Raise unless every count that was given is at least 1."""
    for name in ("windows", "calibration_windows", "length", "n_iter", "threads"):
        value = getattr(given, name, None)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, but is {value}.")


def inputs_of(given: SimpleNamespace) -> Any:
    """Return what a model is shown: the texts, the images, or None for the sample text."""
    if given.text and given.images is not None:
        raise InputError("specify either --text or --images, not both.")
    for path in [*(given.text or ()), *([given.images] if given.images is not None else [])]:
        if not path.exists():
            raise InputError(f"{path} does not exist.")
    if given.images is not None:
        from headscape.recorder.image_files import images_in

        return images_in(given.images) if given.images.is_dir() else [given.images]
    texts = given.text or []
    return texts[0] if len(texts) == 1 else texts or None


def split_inputs(given: SimpleNamespace) -> tuple[Any, Any]:
    """Return what evaluates and what calibrates; None calibrates on the first half of what evaluates."""
    inputs = inputs_of(given)
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
    return {name: getattr(given, name) for name in ("device", "dtype", "revision", "trust_remote_code")}


def opened(sources: list[str], given: SimpleNamespace) -> Any:
    """Open the sources of a command: one of any kind, or several tensors."""
    from headscape.study.source import open_source

    loading = loading_of(given)
    if given.dtype not in DTYPES:
        raise InputError(f"--dtype must be one of {', '.join(DTYPES)}, but is {given.dtype!r}.")
    options = {name: getattr(given, name, None) for name in ("array", "axes", "field")}
    source = open_source(sources[0] if len(sources) == 1 else sources, **options, load=loading)
    ignored = [name for name, (_, default) in LOADING.items() if loading[name] != default]
    if ignored and not hasattr(source, "tokenizer"):
        raise InputError(
            f"--{ignored[0].replace('_', '-')} says how a model is loaded, but {sources[0]} is not a model."
        )
    return source


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
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
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
        if not layer.isdigit() or not head.isdigit():
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
    for word in (word.strip() for word in names.split(",")):
        column = word.removesuffix(REPAIRED).removesuffix(REVERSED)
        if column in METHODS or table is None:
            found[word] = word
        else:
            scores = read_scores(table, column)
            found[word] = -scores if REVERSED in word else scores
    return found


def counts_of(text: str | None, option: str = "--counts") -> list[str] | None:
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
        if not word.removesuffix("%").replace(".", "", 1).isdigit() or ("." in word and "%" not in word):
            raise InputError(f"{option} must be numbers or shares such as 3,14,10%, but is {text!r}.")
    return words
