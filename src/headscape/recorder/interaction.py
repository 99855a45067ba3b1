"""The learned interaction of every head, read off a model's projection weights."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from headscape.energy.spectrum import Spectrum, interaction_spectrum
from headscape.errors import ModelError
from headscape.tensor.attention_record import AttentionRecord

_APART = (
    ("q_proj", "query", "q_lin", "query_proj", "q"),
    ("k_proj", "key", "k_lin", "key_proj", "k"),
    ("v_proj", "value", "v_lin", "value_proj", "v"),
)
_ONE_AFTER_ANOTHER = ("qkv_proj", "Wqkv", "qkv", "in_proj")
_HEAD_BY_HEAD = ("query_key_value",)

Weights = NDArray[np.float32]


def interaction_spectra(
    model: torch.nn.Module, records: Iterable[AttentionRecord]
) -> dict[tuple[int, int], Spectrum]:
    """Return the spectrum of W_Q^T W_K of every head, by (layer, head).

    Parameters
    ----------
    model
        A model whose attention modules hold projections to queries and keys, apart or in one matrix.
    records
        The modules to look at: the records of one window of a capture of this model.

    Raises
    ------
    ModelError
        If a module has no projections that this reads (queries and keys through a bottleneck with a
        normalization, as in DeepSeek, have no single interaction matrix).

    Notes
    -----
    O(model d^2) per head. For rotary models this is the interaction without the rotation; biases and
    normalizations of queries and keys are left out too.
    """
    modules = dict(model.named_modules())
    spectra = {}
    for record in records:
        w_q, w_k, _ = head_weights(modules[record.module], record.n_heads, record.n_kv_heads, record.module)
        for head in range(record.n_heads):
            spectra[record.layer, head] = interaction_spectrum(w_q[head], w_k[record.kv_head(head)])
    return spectra


def head_weights(
    module: torch.nn.Module, n_heads: int, n_kv_heads: int, name: str = "the module"
) -> tuple[Weights, Weights, Weights]:
    """Return W_Q (head, d, model), W_K and W_V (kv_head, d, model) of an attention module.

    Examples
    --------
    >>> attention = torch.nn.Module()
    >>> attention.q_proj, attention.k_proj = torch.nn.Linear(6, 8), torch.nn.Linear(6, 4)
    >>> attention.v_proj = torch.nn.Linear(6, 4)
    >>> [w.shape for w in head_weights(attention, n_heads=4, n_kv_heads=2)]
    [(4, 2, 6), (2, 2, 6), (2, 2, 6)]
    """
    parts = dict(module.named_children())
    apart = [next((parts[n] for n in names if n in parts), None) for names in _APART]
    if all(part is not None for part in apart):
        matrices = [_matrix(part) for part in apart if part is not None]
        counts = (n_heads, n_kv_heads, n_kv_heads)
        query, key, value = (w.reshape(n, -1, w.shape[1]) for w, n in zip(matrices, counts, strict=True))
        return query, key, value
    for fused in (*_ONE_AFTER_ANOTHER, *_HEAD_BY_HEAD, "c_attn"):
        if fused in parts:
            whole = _matrix(parts[fused])
            interleaved = fused in _HEAD_BY_HEAD or (
                # GPTBigCode without shared keys keeps the three parts of a head together; GPT-2 does not.
                fused == "c_attn" and n_heads == n_kv_heads and type(parts[fused]).__name__ != "Conv1D"
            )
            return _split(whole, n_heads, n_kv_heads, interleaved)
    raise ModelError(
        f"no projections to queries, keys and values were found in {name} ({type(module).__name__}), which has "
        f"{', '.join(parts) or 'no parts'}: the weights of its heads cannot be read."
    )


def _split(
    whole: Weights, n_heads: int, n_kv_heads: int, interleaved: bool
) -> tuple[Weights, Weights, Weights]:
    """Cut a matrix of queries, keys and values into its heads."""
    d = whole.shape[0] // (n_heads + 2 * n_kv_heads)
    if interleaved:
        heads = whole.reshape(n_heads, 3, d, whole.shape[1])
        return heads[:, 0], heads[:, 1], heads[:, 2]
    w_q, w_k, w_v = np.split(whole, [n_heads * d, (n_heads + n_kv_heads) * d])
    return w_q.reshape(n_heads, d, -1), w_k.reshape(n_kv_heads, d, -1), w_v.reshape(n_kv_heads, d, -1)


def _matrix(part: torch.nn.Module) -> Weights:
    """Return the weight of a projection as (output, input)."""
    weight = part.get_parameter("weight").detach().to(device="cpu", dtype=torch.float32).numpy()
    # GPT-2's Conv1D keeps its weight the other way round.
    return np.asarray(weight.T if type(part).__name__ == "Conv1D" else weight)
