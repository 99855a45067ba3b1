"""Network tensors with a known organization, for the demonstration, the tests and the benchmarks."""

import numpy as np

from headscape.errors import InputError
from headscape.tensor.network_tensor import NetworkTensor


def planted_tensor(
    queries: int = 96,
    keys: int = 96,
    layers: int = 6,
    heads_per_layer: int = 8,
    groups: int = 4,
    noise: float = 0.05,
    seed: int = 0,
) -> NetworkTensor:
    """Return a network tensor whose heads fall into planted groups and whose axes are shuffled.

    Queries, keys and the heads of a group have hidden coordinates on which the entries depend smoothly; each
    group has patterns of its own, so the groups are far apart and inside a group the heads form a line.

    Returns
    -------
    NetworkTensor
        float32, field "synthetic"; ``provenance`` holds the planted ``groups`` (one number per head) and the
        hidden coordinates ``query``, ``key``, ``head``.

    Examples
    --------
    >>> planted_tensor(queries=8, keys=8, layers=2, heads_per_layer=3, groups=2).shape
    (8, 8, 6)
    """
    n_heads = layers * heads_per_layer
    if not 1 <= groups <= n_heads:
        raise InputError(f"groups must be between 1 and the number of heads ({n_heads}), but is {groups}.")
    rng = np.random.default_rng(seed)
    hidden = {axis: rng.random(n) for axis, n in (("query", queries), ("key", keys), ("head", n_heads))}
    group = rng.permutation(np.arange(n_heads) % groups)
    x = np.empty((queries, keys, n_heads), dtype=np.float32)
    for index in range(n_heads):
        g, h = group[index], hidden["head"][index]
        q = (g % 3 + 1) * hidden["query"] + 0.15 * h
        k = (g // 3 + 1) * hidden["key"] + 0.2 * g
        x[:, :, index] = np.sin(np.pi * np.add.outer(q, k)) + np.cos(2 * np.pi * np.subtract.outer(q, k))
    x += noise * rng.standard_normal(x.shape, dtype=np.float32)
    return NetworkTensor(
        x,
        heads=[(layer, head) for layer in range(layers) for head in range(heads_per_layer)],
        field="synthetic",
        provenance={
            "source": "planted_tensor",
            "seed": seed,
            "groups": group.tolist(),
            **{axis: coordinates.tolist() for axis, coordinates in hidden.items()},
        },
    )
