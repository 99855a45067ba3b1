"""One captured window, in memory or as a finished part of a store: both give the same records.

On disk every attention module has its own arrays, cut into one chunk per head, so that a layer or a head is
read without the rest. Visibilities and biases that modules share are written once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headscape.tensor.attention_record import (
    AttentionRecord,
    BoolArray,
    causal_visibility,
    describe_visibility,
    full_visibility,
)
from headscape.tensor.part import Part, PartWriter, advice
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store


@dataclass(frozen=True)
class LayerInfo:
    """What is known of an attention module without reading its arrays."""

    stack: str
    layer: int
    n_heads: int
    n_kv_heads: int
    has_products: bool = True


class Window(Protocol):
    """One window: its layers, its labels, and its records one at a time."""

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """All attention modules, in the order in which the model called them."""
        ...

    def tokens(self, stack: str, axis: str) -> tuple[str, ...]:
        """Return the labels of the queries or keys of a stack; empty if unknown."""
        ...

    def record(self, stack: str, layer: int) -> AttentionRecord:
        """Return one module."""
        ...

    def head(self, stack: str, layer: int, head: int) -> AttentionRecord:
        """Return one head of a module, as a record with one head, reading nothing else."""
        ...


OBSERVED_BY = "observed_by"
Labels = Mapping[str, Mapping[str, Sequence[str]]]
"""Token strings: stack -> "query" or "key" -> one string per point."""


@dataclass(frozen=True)
class MemoryWindow:
    """A window whose records are kept in memory."""

    records: tuple[AttentionRecord, ...]
    labels: Labels

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """All attention modules, in the order in which the model called them."""
        return tuple(
            LayerInfo(r.stack, r.layer, r.n_heads, r.n_kv_heads, r.has_products) for r in self.records
        )

    def tokens(self, stack: str, axis: str) -> tuple[str, ...]:
        """Return the labels of the queries or keys of a stack; empty if unknown."""
        return tuple(self.labels.get(stack, {}).get(axis, ()))

    def record(self, stack: str, layer: int) -> AttentionRecord:
        """Return one module."""
        return next(r for r in self.records if (r.stack, r.layer) == (stack, layer))

    def head(self, stack: str, layer: int, head: int) -> AttentionRecord:
        """Return one head of a module, as a record with one head."""
        record = self.record(stack, layer)
        kv_head = record.kv_head(head)
        return record.replace(
            queries=record.queries[head : head + 1],
            keys=record.keys[kv_head : kv_head + 1],
            visible=record.visible_to(head),
            bias=None if record.bias is None else record.bias[head : head + 1],
            sinks=None if record.sinks is None else record.sinks[head : head + 1],
            probs=None if record.probs is None else record.probs[head : head + 1],
            scores=None if record.scores is None else record.scores[head : head + 1],
        )


@dataclass(frozen=True)
class StoredWindow:
    """A window that is a finished part of a store; arrays are read when a record is asked for.

    ``kept`` holds its records if they are in memory anyway, because they were just written: they are not read back.
    """

    store: Store
    name: str
    kept: tuple[AttentionRecord, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the arrays from the store itself."""
        return type(self), (self.store, self.name)

    @cached_property
    def _part(self) -> Part:
        return self.store.read(self.name)

    @cached_property
    def _attributes(self) -> dict[str, Any]:
        return self._part.attributes

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """All attention modules, in the order in which the model called them."""
        return tuple(
            LayerInfo(m["stack"], m["layer"], m["n_heads"], m["n_kv_heads"], m.get("products", True))
            for m in self._attributes["modules"]
        )

    def tokens(self, stack: str, axis: str) -> tuple[str, ...]:
        """Return the labels of the queries or keys of a stack; empty if unknown."""
        with explain_read_errors(self._part.path, advice(self._part.path)):
            return tuple(map(str, self._attributes["tokens"].get(stack, {}).get(axis, ())))

    def record(self, stack: str, layer: int) -> AttentionRecord:
        """Return one module."""
        for record in self.kept:
            if (record.stack, record.layer) == (stack, layer):
                return record.replace()  # what is computed of a record is kept as long as that is
        return self._read(stack, layer)

    @property
    def observed(self) -> dict[str, str]:
        """How attention was seen, if not by the usual attention function."""
        return {name: str(self._attributes[name]) for name in (OBSERVED_BY,) if name in self._attributes}

    def head(self, stack: str, layer: int, head: int) -> AttentionRecord:
        """Return one head of a module, as a record with one head, reading nothing else."""
        return self._read(stack, layer, head)

    def _read(self, stack: str, layer: int, head: int | None = None) -> AttentionRecord:
        with explain_read_errors(self._part.path, advice(self._part.path)):
            modules = self._attributes["modules"]
            index = next(i for i, m in enumerate(modules) if (m["stack"], m["layer"]) == (stack, layer))
            return self._module(stack, modules[index], index, head)

    def _module(self, stack: str, module: Mapping[str, Any], index: int, head: int | None) -> AttentionRecord:
        heads = kv_heads = slice(None)
        if head is not None:
            kv_head = head // (module["n_heads"] // module["n_kv_heads"])
            heads, kv_heads = slice(head, head + 1), slice(kv_head, kv_head + 1)
        if not module.get("products", True):
            return self._finished(stack, module, index, heads)
        array, sinks = self._part.array, module["sinks"]
        queries, keys = array(f"queries-{index}", heads), array(f"keys-{index}", kv_heads)
        described = [module[name] for name in ("n_heads", "n_kv_heads", "n_queries", "n_keys")]
        found = [len(queries), len(keys), queries.shape[1], keys.shape[1]]
        if found != (described if head is None else [1, 1, *described[2:]]):
            raise ValueError(
                f"queries and keys are {queries.shape} and {keys.shape}, described as {described}"
            )
        return AttentionRecord(
            layer=module["layer"],
            queries=queries,
            keys=keys,
            scale=module["scale"],
            visible=self._visible(module, heads),
            module=module["module"],
            kind=module["kind"],
            stack=stack,
            softcap=module["softcap"],
            bias=None if module["bias"] is None else array(module["bias"], heads),
            sinks=None if sinks is None else np.asarray(sinks, dtype=np.float32)[heads],
            probs=array(f"probs-{index}", heads) if module["probs"] else None,
        )

    def _finished(self, stack: str, module: Mapping[str, Any], index: int, heads: slice) -> AttentionRecord:
        """Return a module whose queries and keys are not known."""
        known = {
            name: self._part.array(f"{name}-{index}", heads) for name in ("scores", "probs") if module[name]
        }
        return AttentionRecord.without_products(
            module["layer"],
            self._visible(module, heads),
            module=module["module"],
            kind=module["kind"],
            stack=stack,
            **known,
        )

    def _visible(self, module: Mapping[str, Any], heads: slice) -> BoolArray:
        known = {"full": full_visibility, "causal": causal_visibility}
        if module["visible"] in known:
            return known[module["visible"]](module["n_queries"], module["n_keys"])
        return self._part.array(module["visible"], heads if module["visible_per_head"] else slice(None))


def write_window(
    part: PartWriter,
    records: Sequence[AttentionRecord],
    labels: Labels,
    observed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write one window into a part of a store, and how its attention was seen."""
    modules = []
    shared: dict[int, str] = {}
    for index, record in enumerate(records):
        for name in ("queries", "keys", "probs", "scores"):
            values = getattr(record, name)
            if values is not None and values.size:
                part.array(f"{name}-{index}", values, chunks=(1, *values.shape[1:]))
        modules.append(
            {
                "stack": record.stack,
                "layer": record.layer,
                "module": record.module,
                "kind": record.kind,
                "n_heads": record.n_heads,
                "n_kv_heads": record.n_kv_heads,
                "n_queries": record.n_queries,
                "n_keys": record.n_keys,
                "products": record.has_products,
                "scale": record.scale,
                "softcap": record.softcap,
                "sinks": None if record.sinks is None else [float(value) for value in record.sinks],
                "probs": record.probs is not None,
                "scores": record.scores is not None,
                "visible": _write_visible(part, record.visible, f"visible-{index}", shared),
                "visible_per_head": record.visible.ndim == 3,
                "bias": _write_shared(part, record.bias, f"bias-{index}", shared),
            }
        )
    tokens = {stack: {axis: list(names) for axis, names in of.items()} for stack, of in labels.items()}
    part.attributes(modules=modules, tokens=tokens, **observed)


def _write_visible(part: PartWriter, visible: BoolArray, name: str, shared: dict[int, str]) -> str:
    """Write a visibility unless a word describes it, and return the word or the name of the array."""
    if id(visible) not in shared and (known := describe_visibility(visible)) != "explicit":
        shared[id(visible)] = known
    return str(_write_shared(part, visible, name, shared))


def _write_shared(
    part: PartWriter, values: NDArray[Any] | None, name: str, shared: dict[int, str]
) -> str | None:
    """Write an array once, however many records hold the same object, and return its name."""
    if values is None:
        return None
    if id(values) not in shared:
        part.array(name, values, chunks=(1, *values.shape[1:]) if values.ndim == 3 else None)
        shared[id(values)] = name
    return shared[id(values)]


def chosen_heads(
    layers: Sequence[LayerInfo], stack: str, keep: frozenset[tuple[int, int]] | None
) -> Iterator[tuple[int, int]]:
    """Yield the (layer, head) pairs of a stack, layer-major, limited to ``keep`` if given."""
    for info in sorted((i for i in layers if i.stack == stack), key=lambda i: i.layer):
        for head in range(info.n_heads):
            if keep is None or (info.layer, head) in keep:
                yield info.layer, head
