"""Captures of other libraries: look-alikes of what TransformerLens, nnsight and transformers return."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError

ROWS, HEADS, KV_HEADS, TOKENS, D, LAYERS = 2, 4, 2, 10, 8, 3


def products(seed, heads):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(ROWS, TOKENS, heads, D)).astype(np.float32)).requires_grad_()


def softmax(queries, keys, scale, extra=0.0):
    """Probabilities (batch, head, query, key) of TransformerLens' (batch, token, head, d)."""
    q, k = queries.transpose(1, 2), keys.transpose(1, 2)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q @ k.transpose(-2, -1) * scale + extra
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    return logits.masked_fill(hidden, -torch.inf).softmax(dim=-1)


class Cache(dict):
    """Holds activations by name and the model they come from, as an ActivationCache does."""

    def __init__(self, activations, **config):
        super().__init__(activations)
        self.model = SimpleNamespace(
            cfg=SimpleNamespace(**{"attn_scale": D**0.5, "use_attn_scale": True, **config})
        )


def cache_of(names, scale=D**-0.5, extra=0.0, **config):
    activations = {}
    for layer in range(LAYERS):
        place = f"blocks.{layer}.attn."
        q, k = products(layer, HEADS), products(layer + 100, KV_HEADS)
        everything = {
            "hook_q": q + 1,
            "hook_k": k - 1,
            "hook_rot_q": q,
            "hook_rot_k": k,
            "hook_pattern": softmax(q, k, scale, extra),
        }
        activations |= {place + name: everything[name] for name in names}
        activations[f"blocks.{layer}.hook_resid_pre"] = torch.zeros(ROWS, TOKENS, 16)
    return Cache(activations, **config)


ROTATED = ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k", "hook_pattern")


def stacked(capture, window):
    return capture.tensor(window).data.transpose(2, 0, 1)


def patterns(cache, window):
    return np.concatenate(
        [cache[f"blocks.{i}.attn.hook_pattern"][window].detach().numpy() for i in range(LAYERS)]
    )


def test_rotated_queries_and_keys_of_a_cache_give_its_patterns():
    cache = cache_of(ROTATED, positional_embedding_type="rotary")
    capture = hs.capture_from_cache(cache, tokens=list("abcdefghij"))
    assert capture.has_products
    assert (len(capture.heads), len(capture.kv_heads), capture.n_windows) == (12, 6, ROWS)
    assert capture.tokens(1) == tuple("abcdefghij")
    for window in range(ROWS):
        np.testing.assert_allclose(stacked(capture, window), patterns(cache, window), atol=1e-5)


def test_the_scale_is_that_of_the_model():
    cache = cache_of(ROTATED, scale=0.125, attn_scale=8.0)
    assert hs.capture_from_cache(cache).record(0, 0).scale == 0.125
    assert (
        hs.capture_from_cache(cache_of(("hook_q", "hook_k"), attn_scale=-1.0)).record(0, 0).scale == D**-0.5
    )
    assert hs.capture_from_cache(cache_of(("hook_q", "hook_k")), scale=0.3).record(0, 0).scale == 0.3


def test_patterns_stand_where_queries_and_keys_do_not_give_them(caplog):
    distance = -0.5 * (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs()
    cache = cache_of(ROTATED, extra=distance)
    capture = hs.capture_from_cache(cache)
    assert not capture.has_products
    assert "patterns alone" in caplog.text
    np.testing.assert_allclose(stacked(capture, 1), patterns(cache, 1), atol=1e-6)


def test_a_cache_of_patterns_alone():
    capture = hs.capture_from_cache(cache_of(("hook_pattern",)))
    assert not capture.has_products
    study = hs.analyze(capture, stages=["geometry", "entropy", "energy"])
    assert len(study.heads) == LAYERS * HEADS


@pytest.mark.parametrize(
    ("cache", "error"),
    [
        (cache_of(("hook_q", "hook_k"), positional_embedding_type="rotary"), "hook_rot_q"),
        (cache_of(("hook_q", "hook_k"), positional_embedding_type="alibi"), "alibi.*hook_pattern"),
        (cache_of(("hook_q", "hook_k"), use_local_attn=True), "local attention"),
        (cache_of(("hook_q",)), "must hold hook_q and hook_k"),
        (Cache({"blocks.0.hook_resid_pre": np.ones(3)}), "no attention"),
        ([1, 2], "ActivationCache"),
    ],
)
def test_caches_that_do_not_do_say_what_is_missing(cache, error):
    with pytest.raises(InputError, match=error):
        hs.capture_from_cache(cache)


class Proxy:
    """Holds a saved value, as nnsight's proxies do."""

    def __init__(self, value):
        self.value = value


def attentions(heads=(HEADS, HEADS)):
    return [softmax(products(i, n), products(i + 9, n), 0.4) for i, n in enumerate(heads)]


@pytest.mark.parametrize("wrapped", [tuple, lambda layers: [Proxy(layer) for layer in layers]])
def test_attentions_become_a_capture(wrapped):
    layers = attentions()
    capture = hs.capture_from_attentions(wrapped(layers), tokens=list("abcdefghij"))
    assert (capture.n_windows, capture.layers, capture.has_products) == (ROWS, (0, 1), False)
    assert capture.record(0, 0).visible_to(0).sum() == TOKENS * (TOKENS + 1) // 2
    for window in range(ROWS):
        expected = np.concatenate([layer[window].detach().numpy() for layer in layers])
        np.testing.assert_array_equal(stacked(capture, window), expected)


def test_layers_may_have_different_numbers_of_heads():
    capture = hs.capture_from_attentions(attentions((4, 2)))
    assert capture.heads == ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((), "one array per layer"),
        ("text", "one array per layer"),
        ((None, None), "attn_implementation='eager'"),
        ((np.ones((2, 2)),), "must be"),
        ((np.ones((1, 2, 3, 3)) / 3, np.ones((1, 2, 4, 4)) / 4), "same batch, queries and keys"),
        ((np.ones((1, 2, 3, 3)),), "sum to at most 1"),
    ],
)
def test_attentions_that_are_none_are_refused(given, error):
    with pytest.raises(InputError, match=error):
        hs.capture_from_attentions(given)


def test_tensors_with_gradients_and_half_precision_become_captures():
    q = torch.randn(2, 4, 6, 8, requires_grad=True)
    capture = hs.Capture.from_arrays(q, q.to(torch.bfloat16))
    assert capture.heads[-1] == (1, 3)
    assert hs.Capture.from_probabilities(torch.full((1, 2, 4, 4), 0.25, requires_grad=True)).heads == (
        (0, 0),
        (0, 1),
    )
