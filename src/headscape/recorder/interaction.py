"""The learned interaction of every head, read off a model's projection weights."""

from collections.abc import Sequence

from headscape.energy.spectrum import Spectrum, interaction_spectrum
from headscape.models.anatomy import AttentionModule


def interaction_spectra(modules: Sequence[AttentionModule]) -> dict[tuple[int, int], Spectrum]:
    """Return the spectrum of W_Q^T W_K of every head of a stack, by (layer, head).

    O(model d^2) per head. For rotary models this is the interaction without the rotation; biases and normalizations of
    queries and keys are left out too. Queries and keys that go through a bottleneck with a normalization, as in
    DeepSeek, have no single interaction matrix: a :class:`ModelError` is raised.
    """
    spectra = {}
    for module in modules:
        w_q, w_k, _ = module.weights()
        for head in range(module.n_heads):
            shared = head * module.n_kv_heads // module.n_heads
            spectra[module.layer, head] = interaction_spectrum(w_q[head], w_k[shared])
    return spectra
