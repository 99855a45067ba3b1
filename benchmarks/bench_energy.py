"""The energy field: spectra from small factors against the dense field, shared keys, memory."""

import numpy as np

from benchmarks.harness import Measure, Row, compare, peak_memory
from headscape.energy.spectrum import energy_spectrum
from headscape.energy.table import energy_tables
from headscape.engine import LocalEngine
from headscape.tensor.capture import Capture

DENSE = "numpy: s Q K^T, minus row means, svd without vectors"


def rows() -> list[Row | Measure]:
    return [*spectra(), *table(), *memory()]


def spectra() -> list[Row]:
    found = []
    for heads, length, d in ((10, 256, 64), (10, 512, 64), (10, 1024, 64), (2, 2048, 64)):
        queries, keys = np.random.default_rng(0).normal(size=(2, heads, length, d))
        found.append(
            compare(
                f"singular values of {heads} heads, L = {length}, d = {d}",
                lambda q=queries, k=keys: [energy_spectrum(*pair, 0.125) for pair in zip(q, k, strict=True)],
                lambda q=queries, k=keys: [dense_spectrum(*pair) for pair in zip(q, k, strict=True)],
                DENSE,
                wanted=">= 30x" if length == 2048 else "",
            )
        )
    return found


def dense_spectrum(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Do it as a user would without the factors."""
    logits = 0.125 * queries @ keys.T
    return np.linalg.svd(logits - logits.mean(axis=1, keepdims=True), compute_uv=False)


def table() -> list[Row]:
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(4, 9, 256, 64)), rng.normal(size=(4, 3, 256, 64))
    capture = Capture.from_arrays(queries, keys)
    one = LocalEngine(threads=1)

    def dense() -> None:
        for layer in range(4):
            for head in range(9):
                values = dense_spectrum(queries[layer, head], keys[layer, head // 3])
                np.cumsum(values**2)

    return [
        compare(
            "energy table of 36 heads (12 key-value heads), L = 256, 1 thread",
            lambda: energy_tables(capture, [256], engine=one),
            dense,
            "the dense spectrum alone, head by head",
        )
    ]


def memory() -> list[Measure]:
    code = (
        "import numpy as np\n"
        "from headscape.energy.spectrum import energy_spectrum\n"
        "energy_spectrum(*np.random.default_rng(0).normal(size=(2, 32768, 64)), 0.125)"
    )
    note = "the field itself would take 8,192 MiB"
    return [Measure("peak memory of a spectrum, L = 32,768, d = 64", peak_memory(code), "MiB", note)]
