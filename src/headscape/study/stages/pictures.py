"""The stage "pictures": what the panel of a head shows of its attention, small enough for the report.

Of a capture, the page gets packed queries and keys of all tokens and computes the fields itself. Where these would
take too much (long windows, thousands of heads), and of tensors, it gets pictures of at most ``SIDE`` cells a side;
with more tokens than cells, these are means over blocks of tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.report.packed_window import Arrays, pack_window, packed_page
from headscape.report.pictures import block_means, gray_png, root_bytes, signed_bytes
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Option, Outcome, Stage
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.checks import MAX_WINDOWS, require_integer
from headscape.tensor.fields import energy, probs
from headscape.tensor.network_tensor import WITHOUT_SINKS
from headscape.tensor.sinks import LEFT_OUT

if TYPE_CHECKING:
    from headscape.study.study import Study

SIDE = 256
PACKED_BYTES = 5e6
"""What packed queries and keys of a window may take; in the page it is a third more."""
CELLS = 6e6
"""Cells of all pictures of a window together."""
_Head = tuple[AttentionRecord, int] | NDArray[Any]
SCRIPTS = ("fields.js", "pictures.js", "larger_view.js")


class Pictures(Stage):
    """Keeps what the panel of a head shows of its attention and energy."""

    name, title, doing, unit = "pictures", "Attention of the heads", "drawing heads", "model"
    always = concurrent = True
    cost = 0.7
    options = (
        Option(
            "picture_windows",
            1,
            "Windows whose attention the report shows; each adds what the first takes, about 6 MB for 270 heads of "
            "256 tokens.",
        ),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the number of windows is one."""
        require_integer(options["picture_windows"], "picture_windows", 1, MAX_WINDOWS)

    def measure(self, context: Context, piece: int) -> Result:
        """Return packed queries and keys, or pictures, of the first windows."""
        count = min(context.options[self.name]["picture_windows"], context.data.n_windows)
        arrays: Arrays = {}
        described = []
        for window in range(count):
            found, about = _window(context, window)
            arrays |= {f"{window}.{name}": array for name, array in found.items()}
            described.append(about)
            context.progress(self.doing, window + 1, count)
        return Result(arrays, {"windows": described})

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Say nothing: the pictures speak."""
        return Outcome(context.frame({}))

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return what is shown of every head, with the tokens."""
        result = study.results[self.name][0]
        if (
            "windows" not in result.attributes
        ):  # written before queries and keys were packed: seconds to do it now
            result = self.measure(Context(study.data, study.parameters, {self.name: self.defaults()}), 0)
        windows = [_page(study, result, number) for number in range(len(result.attributes["windows"]))]
        script = "\n".join(page_file(name) for name in SCRIPTS)
        return (
            Section("window", data={"windows": windows}, panel=page_file("pictures.html"), script=script),
        )


def _window_order(of: "Study | Context", number: int) -> dict[str, NDArray[np.int64]]:
    """Return the organizing permutations of a window, if it is organized; sinks that trees leave out come first."""
    if number >= len(of.organizations):
        return {}
    order, field = of.organizations[number].order, of.parameters["field"]
    if field != WITHOUT_SINKS:
        return order
    x = of.data.tensor(number, field)
    found = {}
    for axis, left in x.provenance.get(LEFT_OUT, {}).items():
        kept = np.setdiff1d(np.arange(len(order[axis]) + len(left)), left)
        found[axis] = np.concatenate([np.asarray(left, dtype=np.int64), kept[order[axis]]])
    return found


def _window(context: Context, number: int) -> tuple[Arrays, dict[str, Any]]:
    """Return one window as packed queries and keys if it can be, else as pictures."""
    data = context.window(number)
    if isinstance(data, Capture) and data.has_products:
        heads = {layer: [h for of, h in data.heads if of == layer] for layer in data.layers}
        packed = pack_window(list(data.records(0)), heads, PACKED_BYTES, context.engine)
        if packed is not None:
            return packed
    return _pictures(context, number)


@dataclass(frozen=True, eq=False)
class _Draw:
    """Draws one head: bytes, and the value that they are multiples of, per kind of picture."""

    heads: Sequence[_Head]
    kinds: tuple[str, ...]
    shape: tuple[int, int]
    order: tuple[NDArray[np.int64], ...]

    def __call__(self, place: int) -> list[tuple[NDArray[np.uint8], float]]:
        head = self.heads[place]
        attention = _attention(head)
        seen = np.ones(attention.shape, dtype=bool)  # what is masked has no probability, and counts as such
        made = []
        for kind in self.kinds:
            if kind == "energy":
                assert isinstance(head, tuple)  # only captures have an energy
                record, number = head
                means = block_means(energy(record, number), record.visible_to(number), self.shape)
                made.append(signed_bytes(*means))
            else:
                values = attention if kind == "attention" else attention[np.ix_(*self.order)]
                made.append(root_bytes(block_means(values, seen, self.shape)[0]))
        return made


def _pictures(context: Context, number: int) -> tuple[Arrays, dict[str, Any]]:
    """Return pictures of attention and energy; where cells are blocks, also of the attention in organized order."""
    data = context.window(number)
    heads: list[_Head]
    if isinstance(data, Capture):
        records = {record.layer: record for record in data.records(0)}
        heads = [(records[layer], head) for layer, head in data.heads]
    else:
        x = data.tensor(0)
        heads = [x.head(*pair) for pair in x.heads]
    size = _attention(heads[0]).shape
    has_energy = isinstance(data, Capture) and data.has_products
    kinds: tuple[str, ...] = ("attention", "energy") if has_energy else ("attention",)
    order: tuple[NDArray[np.int64], ...] = ()
    if (found_order := _window_order(context, number)) and max(size) > _side(len(heads), kinds):
        kinds = (*kinds, "organized")
        order = tuple(found_order[axis] for axis in ("query", "key"))
    side = _side(len(heads), kinds)
    draw = _Draw(heads, kinds, (min(size[0], side), min(size[1], side)), order)
    found = list(context.engine.map(draw, range(len(heads))))
    arrays: Arrays = {}
    for place, kind in enumerate(kinds):
        arrays[kind] = np.stack([of_head[place][0] for of_head in found])
        arrays[f"{kind}_limit"] = np.array([of_head[place][1] for of_head in found])
    return arrays, {"rows": size[0], "columns": size[1]}


def _side(heads: int, kinds: Sequence[str]) -> int:
    """Return how many cells a side the pictures of so many heads may have."""
    return max(1, min(SIDE, int(np.sqrt(CELLS / (heads * len(kinds))))))


def _attention(head: _Head) -> NDArray[Any]:
    """Return the probabilities of a head; tensors of another kind are shifted so that nothing is below 0."""
    if isinstance(head, tuple):
        return probs(*head)
    return head - min(0.0, float(head.min()))


def _page(study: "Study", result: Result, number: int) -> dict[str, Any]:
    """Return one window as the page reads it."""
    about = result.attributes["windows"][number]
    start = f"{number}."
    arrays = {name.removeprefix(start): x for name, x in result.arrays.items() if name.startswith(start)}
    rows, columns = about["rows"], about["columns"]
    queries, keys = study.data.tokens(number), study.data.key_tokens(number)
    order = _window_order(study, number)
    page: dict[str, Any] = {
        "rows": rows,
        "columns": columns,
        "tokens": {"query": list(queries), "key": [] if keys == queries and rows == columns else list(keys)},
        "order": {axis: order[axis].tolist() for axis in ("query", "key") if axis in order},
        "note": _note(study, about, arrays, number),
    }
    if "queries" in arrays:
        return {**packed_page(arrays, about), **page}
    page["cells"] = list(arrays["attention"].shape[1:])
    for kind in ("attention", "energy", "organized"):
        if kind in arrays:
            limits = [float(f"{value:.4g}") for value in arrays[f"{kind}_limit"]]
            page[kind] = {"png": [gray_png(pixels) for pixels in arrays[kind]], "limit": limits}
    return page


def _note(study: "Study", about: Mapping[str, Any], arrays: Arrays, number: int) -> str:
    """Say which window is shown, and how exactly."""
    rows, columns = about["rows"], about["columns"]
    tokens = f"{columns} tokens" if rows == columns else f"{rows} queries and {columns} keys"
    window = f"Window {number + 1} of {study.windows}, all {tokens}."
    colors = "Colors of the attention follow its cube root."
    if "queries" in arrays:
        return (
            f"{window} Computed here from rounded queries and keys: probabilities differ from the exact ones by at "
            f"most {about['largest_difference']:.2g}, on average by {about['mean_difference']:.1g}. {colors}"
        )
    cells = arrays["attention"].shape[1:]
    if cells == (rows, columns):
        return f"{window} Values are rounded to 85 steps. {colors}"
    blocks = " x ".join(f"{n / count:.3g}" for n, count in zip((rows, columns), cells, strict=True))
    reason = (
        "all of them would make the page too large"
        if "energy" in arrays
        else "queries and keys are not known"
    )
    return (
        f"{window} Coarse: every cell is the mean over a block of about {blocks} tokens, since {reason}. "
        f"{colors}"
    )
