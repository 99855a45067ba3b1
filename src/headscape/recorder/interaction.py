"""The learned interaction of every head, read off a model's projection weights."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from headscape.energy.spectrum import Spectrum, interaction_spectrum
from headscape.errors import ModelError
from headscape.tensor.attention_record import AttentionRecord

_QUERY_NAMES = ("q_proj", "query", "q_lin", "query_proj", "q")
_KEY_NAMES = ("k_proj", "key", "k_lin", "key_proj", "k")
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
        w_q, w_k = head_weights(modules[record.module], record.n_heads, record.n_kv_heads, record.module)
        for head in range(record.n_heads):
            spectra[record.layer, head] = interaction_spectrum(w_q[head], w_k[record.kv_head(head)])
    return spectra


def head_weights(
    module: torch.nn.Module, n_heads: int, n_kv_heads: int, name: str = "the module"
) -> tuple[Weights, Weights]:
    """Return W_Q (head, d, model) and W_K (kv_head, d, model) of an attention module.

    Examples
    --------
    >>> attention = torch.nn.Module()
    >>> attention.q_proj, attention.k_proj = torch.nn.Linear(6, 8), torch.nn.Linear(6, 4)
    >>> [w.shape for w in head_weights(attention, n_heads=4, n_kv_heads=2)]
    [(4, 2, 6), (2, 2, 6)]
    """
    parts = dict(module.named_children())
    query = next((parts[n] for n in _QUERY_NAMES if n in parts), None)
    key = next((parts[n] for n in _KEY_NAMES if n in parts), None)
    if query is not None and key is not None:
        w_q, w_k = _matrix(query), _matrix(key)
        return w_q.reshape(n_heads, -1, w_q.shape[1]), w_k.reshape(n_kv_heads, -1, w_k.shape[1])
    for fused in (*_ONE_AFTER_ANOTHER, *_HEAD_BY_HEAD, "c_attn"):
        if fused in parts:
            whole = _matrix(parts[fused])
            interleaved = fused in _HEAD_BY_HEAD or (
                # GPTBigCode without shared keys keeps the three parts of a head together; GPT-2 does not.
                fused == "c_attn" and n_heads == n_kv_heads and type(parts[fused]).__name__ != "Conv1D"
            )
            return _split(whole, n_heads, n_kv_heads, interleaved)
    raise ModelError(
        f"no query and key projections were found in {name} ({type(module).__name__}), which has "
        f"{', '.join(parts) or 'no parts'}: its learned interaction W_Q^T W_K cannot be read."
    )


def _split(whole: Weights, n_heads: int, n_kv_heads: int, interleaved: bool) -> tuple[Weights, Weights]:
    """Cut a matrix of queries, keys and values into its heads."""
    d = whole.shape[0] // (n_heads + 2 * n_kv_heads)
    if interleaved:
        heads = whole.reshape(n_heads, 3, d, whole.shape[1])
        return heads[:, 0], heads[:, 1]
    w_q, w_k = whole[: n_heads * d], whole[n_heads * d : (n_heads + n_kv_heads) * d]
    return w_q.reshape(n_heads, d, -1), w_k.reshape(n_kv_heads, d, -1)


def _matrix(part: torch.nn.Module) -> Weights:
    """Return the weight of a projection as (output, input)."""
    weight = part.get_parameter("weight").detach().to(device="cpu", dtype=torch.float32).numpy()
    # GPT-2's Conv1D keeps its weight the other way round.
    return np.asarray(weight.T if type(part).__name__ == "Conv1D" else weight)
