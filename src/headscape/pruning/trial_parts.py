"""The finished parts of a pruning trial: choice, repair, recovery and evaluation, so that it resumes if interrupted.

Orders of removal are kept by the method and the kind of their steps, everything else by the heads that it is about.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.ablation_files import AblationParts
from headscape.ablation.repair import Repair
from headscape.ablation.ridge_fit import Strength
from headscape.models.lazy_torch import torch
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import Order
from headscape.tensor.store import Store, content_hash, software_versions

KIND = "pruning-trial"
Arrays = Mapping[str, NDArray[Any]]


class TrialParts(AblationParts):
    """Arrays by the name of their part, in memory, and in a folder if there is one."""

    def get(self, name: str, compute: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a part, computing and keeping them if they are not there yet."""
        if not self.has(name):
            self.write(name, compute())
        return self.read(name)

    def clear(self) -> None:
        """Delete all parts."""
        for name in [*self._kept, *(() if self.store is None else self.store.parts())]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Delete a part that a later one replaces."""
        self._kept.pop(name, None)
        if self.store is not None:
            shutil.rmtree(self.store.path / "parts" / name, ignore_errors=True)


@contextmanager
def trial_parts(
    folder: str | os.PathLike[str] | None, parameters: Mapping[str, Any], input_hash: str, seed: int
) -> Iterator[TrialParts]:
    """Open the parts of a trial for the length of a block; a run that ends before its first part leaves no folder."""
    if folder is None:
        yield TrialParts()
        return
    path, known = Path(folder), software_versions("torch", "transformers")
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    options: Any = {"versions": known, "seed": seed}
    with Store.create(path, KIND, parameters=parameters, input_hash=input_hash, **options) as store:
        try:
            yield TrialParts(store)
        finally:
            if made and not store.parts():
                shutil.rmtree(path, ignore_errors=True)
                for parent in made[1:]:
                    with suppress(OSError):
                        parent.rmdir()


def heads_key(heads: Pairs) -> str:
    """Return what names the parts of some heads, whatever their order."""
    return content_hash(np.asarray(sorted(heads), dtype=np.int64))[:16]


def order_arrays(order: Order) -> dict[str, NDArray[Any]]:
    """Return an order of removal as arrays: the pairs, and the step of each."""
    pairs = [pair for step in order for pair in step]
    steps = [number for number, step in enumerate(order) for _ in step]
    return {"heads": np.asarray(pairs, dtype=np.int64).reshape(-1, 2), "steps": np.asarray(steps, np.int64)}


def order_of(arrays: Arrays) -> Order:
    """Return the order that :func:`order_arrays` took apart."""
    steps: list[list[tuple[int, int]]] = [[] for _ in range(int(arrays["steps"].max(initial=-1)) + 1)]
    for step, (layer, head) in zip(arrays["steps"], arrays["heads"], strict=True):
        steps[step].append((int(layer), int(head)))
    return tuple(map(tuple, steps))


def repair_arrays(repair: Repair) -> dict[str, NDArray[Any]]:
    """Return the weights of a repair as arrays; half precision is kept in float32, which holds it exactly."""
    found = {f"matrix-{layer}": _array(matrix) for layer, matrix in repair.matrices.items()}
    found |= {f"bias-{layer}": _array(bias) for layer, bias in repair.biases.items()}
    strength = repair.strength
    if strength is not None:
        found["strength"] = np.frombuffer(json.dumps(asdict(strength)).encode(), dtype=np.uint8)
    return found


def repair_of(arrays: Arrays, like: torch.Tensor) -> Repair:
    """Return the repair that :func:`repair_arrays` took apart, with the device and dtype of a weight."""
    parts: dict[str, dict[int, torch.Tensor]] = {"matrix": {}, "bias": {}}
    for name, values in arrays.items():
        what, _, layer = name.partition("-")
        if what in parts:
            parts[what][int(layer)] = torch.from_numpy(np.ascontiguousarray(values)).to(like)
    strength = Strength(**json.loads(arrays["strength"].tobytes())) if "strength" in arrays else None
    return Repair(parts["matrix"], parts["bias"], strength)


def _array(values: torch.Tensor) -> NDArray[Any]:
    plain = values.detach().cpu()
    return np.asarray(plain.float().numpy() if plain.element_size() < 4 else plain.numpy())
