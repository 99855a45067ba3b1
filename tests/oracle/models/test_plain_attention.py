"""Captured attention of plain PyTorch modules against what the modules compute themselves."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import headscape as hs
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.anatomy import observed
from headscape.recorder.recording import Recording
from headscape.tensor.fields import probs
from plain_models import (
    HEADS,
    LENGTH,
    WIDTH,
    Classifier,
    NanoGPT,
    TutorialAttention,
    VisionTransformer,
    scaled_up,
    states,
    token_ids,
)

CLOSE = {"rtol": 0, "atol": 1e-5}
KEYS = 9


def recorded(model, rows, call):
    """The records of each row of one call of a model."""
    recording = Recording(rows)
    with torch.no_grad(), observed(model, recording):
        call()
    return recording.records()


def all_probs(record):
    return np.stack([probs(record, head) for head in range(record.n_heads)])


def causal(n, form):
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    return hidden if form == "bool" else torch.zeros(n, n).masked_fill(hidden, -torch.inf)


def masks(form, rows, n_queries, n_keys):
    """The keyword arguments of one form of mask; every query sees the first key."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.rand(n_queries, n_keys, generator=generator) < 0.4
    per_head = torch.rand(rows * HEADS, n_queries, n_keys, generator=generator) < 0.4
    hidden[:, 0] = per_head[:, :, 0] = False
    padding = torch.zeros(rows, n_keys, dtype=torch.bool)
    padding[0, -3:] = True
    lowered = torch.randn(n_queries, n_keys, generator=generator)
    return {
        "none": {},
        "bool 2-D": {"attn_mask": hidden},
        "bool 3-D": {"attn_mask": per_head},
        "float 2-D": {"attn_mask": lowered.masked_fill(hidden, -torch.inf)},
        "float 3-D": {"attn_mask": torch.zeros(per_head.shape).masked_fill(per_head, -torch.inf)},
        "padding": {"key_padding_mask": padding},
        "float padding": {"key_padding_mask": torch.zeros(rows, n_keys).masked_fill(padding, -torch.inf)},
        "both": {"attn_mask": hidden, "key_padding_mask": padding},
    }[form]


FORMS = ("none", "bool 2-D", "bool 3-D", "float 2-D", "float 3-D", "padding", "float padding", "both")


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_agrees_with_its_own_weights(batch_first, form, cross, need_weights):
    options = {"kdim": 20, "vdim": 12} if cross else {}
    model = scaled_up(nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first, **options))
    rows, n_keys = 2, KEYS if cross else LENGTH
    query = states(rows)
    key, value = (states(rows, KEYS, 20, 1), states(rows, KEYS, 12, 2)) if cross else (query, query)
    given = masks(form, rows, LENGTH, n_keys)
    if not batch_first:
        query = query.transpose(0, 1)
        key, value = (key.transpose(0, 1), value.transpose(0, 1)) if cross else (query, query)
    with torch.no_grad():
        before, weights = model(query, key, value, average_attn_weights=False, **given)
    records = recorded(model, rows, lambda: model(query, key, value, need_weights=need_weights, **given))
    padding = given.get("key_padding_mask")
    for row, [record] in enumerate(records):
        assert record.kind == ("cross" if cross else "self")
        kept = np.ones(n_keys, bool) if padding is None else ~((padding[row] != 0).numpy())
        expected = weights[row].numpy()[:, :, kept]
        expected = expected if cross else expected[:, kept]
        np.testing.assert_allclose(all_probs(record), expected, **CLOSE)
    with torch.no_grad():
        after, _ = model(query, key, value, average_attn_weights=False, **given)
    assert torch.equal(before, after)


def test_a_key_of_zeros_is_a_sink():
    model = scaled_up(nn.MultiheadAttention(WIDTH, HEADS, add_zero_attn=True, batch_first=True))
    x = states(1)
    with torch.no_grad():
        output, weights = model(x, x, x, average_attn_weights=False)
    [[record]] = recorded(model, 1, lambda: model(x, x, x))
    np.testing.assert_allclose(all_probs(record), weights[0, :, :, :-1].numpy(), **CLOSE)
    with observed(model, Recording(1)), torch.no_grad():
        np.testing.assert_allclose(model(x, x, x)[0], output, **CLOSE)


def test_the_causal_hint_is_what_torch_makes_of_it():
    model = scaled_up(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    x, mask = states(1), causal(LENGTH, "bool")
    weights = model(x, x, x, attn_mask=mask, average_attn_weights=False)[1].detach()
    [[record]] = recorded(
        model, 1, lambda: model(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    )
    np.testing.assert_allclose(all_probs(record), weights[0].numpy(), **CLOSE)


class Weights:
    """Asks torch's own modules for the weights that their layers do not return."""

    def __init__(self, model):
        self.found = {}
        for name, part in model.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                part.forward = self._asking(name, part)

    def _asking(self, name, part):
        def forward(*args, **named):
            output, weights = nn.MultiheadAttention.forward(
                part,
                *args,
                **{**named, "need_weights": True, "average_attn_weights": False, "is_causal": False},
            )
            self.found[name] = weights.detach().numpy()
            return output, weights

        return forward


def transformer(batch_first=True, **options):
    return scaled_up(nn.Transformer(WIDTH, HEADS, 2, 2, 48, batch_first=batch_first, **options))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_with_masks_padding_and_cross_attention(batch_first, norm_first):
    model, again = (transformer(batch_first, norm_first=norm_first) for _ in range(2))
    again.load_state_dict(model.state_dict())
    source, target = states(2, KEYS), states(2, LENGTH, seed=1)
    padding = torch.zeros(2, KEYS, dtype=torch.bool)
    padding[1, -2:] = True
    inputs = {
        "src": source if batch_first else source.transpose(0, 1),
        "tgt": target if batch_first else target.transpose(0, 1),
        "tgt_mask": causal(LENGTH, "bool"),
        "src_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
    }
    with torch.no_grad():
        before = model(**inputs)
    capture = hs.capture(model, inputs, length=None)
    with torch.no_grad():
        assert torch.equal(model(**inputs), before)
    own = Weights(again)
    with torch.enable_grad():
        again(**inputs)
    assert capture.stacks == ("encoder", "decoder", "cross")
    for stack, path, cut_queries, cut_keys in (
        ("encoder", "encoder.layers.{}.self_attn", True, True),
        ("decoder", "decoder.layers.{}.self_attn", False, False),
        ("cross", "decoder.layers.{}.multihead_attn", False, True),
    ):
        part = capture.select(stack)
        assert part.layers == (0, 1)
        for window in range(2):
            kept = ~padding[window].numpy()
            for layer in part.layers:
                expected = own.found[path.format(layer)][window]
                expected = expected[:, :, kept] if cut_keys else expected
                expected = expected[:, kept] if cut_queries else expected
                np.testing.assert_allclose(all_probs(part.record(window, layer)), expected, **CLOSE)


def test_padded_targets_are_cut_out_of_cross_attention_too():
    model = scaled_up(
        nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 48, batch_first=True), 2)
    )
    padding = torch.zeros(1, LENGTH, dtype=torch.bool)
    padding[0, -4:] = True
    inputs = {"tgt": states(1), "memory": states(1, LENGTH, seed=1), "tgt_key_padding_mask": padding}
    capture = hs.capture(model, inputs, length=None)
    assert capture.tensor(0).shape == (LENGTH - 4, LENGTH - 4, 2 * HEADS)
    assert capture.select("cross").tensor(0).shape == (LENGTH - 4, LENGTH, 2 * HEADS)


def test_the_fast_path_of_an_encoder_is_seen():
    encoder = scaled_up(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True), 2)
    )
    again = scaled_up(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True), 2)
    )
    x, own = states(2), Weights(again)
    with torch.no_grad():
        fast = encoder(x)
    again(x)
    capture = hs.capture(encoder, x, length=None)
    for layer in (0, 1):
        expected = own.found[f"layers.{layer}.self_attn"]
        for window in (0, 1):
            np.testing.assert_allclose(all_probs(capture.record(window, layer)), expected[window], **CLOSE)
    with torch.no_grad():
        assert torch.equal(encoder(x), fast)


@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_inside_a_model_of_token_ids(batch_first):
    model, ids = scaled_up(Classifier(batch_first)), token_ids(2)
    ids[1, -3:] = 0
    ids[ids == 0] = 1
    ids[1, -3:] = 0
    with torch.no_grad():
        before = model(ids)
    capture = hs.capture(model, ids, length=None)
    assert [capture.tensor(window).shape for window in (0, 1)] == [(12, 12, 8), (9, 9, 8)]
    assert capture.tensor(1).data.sum(axis=1) == pytest.approx(1, abs=1e-5)
    with torch.no_grad():
        assert torch.equal(model(ids), before)


def test_fused_projections_agree_with_a_computation_by_hand():
    model, ids = scaled_up(NanoGPT()), token_ids(2)
    with torch.no_grad():
        before = model(ids)[0]
        x = model.h[0].norm1(model.wte(ids) + model.wpe(torch.arange(LENGTH)))
        q, k, _ = (
            torch.unflatten(y, -1, (HEADS, -1)).transpose(1, 2)
            for y in model.h[0].attn.c_attn(x).chunk(3, dim=-1)
        )
        logits = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        expected = logits.masked_fill(causal(LENGTH, "bool"), -torch.inf).softmax(dim=-1).numpy()
    capture = hs.capture(model, ids)
    for window in (0, 1):
        np.testing.assert_allclose(all_probs(capture.record(window, 0)), expected[window], **CLOSE)
    with torch.no_grad():
        assert torch.equal(model(ids)[0], before)


def test_image_blocks_agree_with_a_computation_by_hand():
    model = scaled_up(VisionTransformer())
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    kept = {}
    model.blocks[1].attn.qkv.register_forward_hook(lambda _, __, y: kept.update(qkv=y.detach()))
    with torch.no_grad():
        before = model(pixels)
    q, k, _ = kept["qkv"].reshape(2, 17, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    expected = (q @ k.transpose(-2, -1) / 8**0.5).softmax(dim=-1).numpy()
    capture = hs.capture(model, pixels)
    np.testing.assert_allclose(all_probs(capture.record(1, 1)), expected[1], **CLOSE)
    with torch.no_grad():
        assert torch.equal(model(pixels), before)


def test_registered_code_agrees_with_its_own_softmax():
    hs.register_attention(
        TutorialAttention,
        "attend",
        queries="q",
        keys="k",
        values="v",
        mask="hidden",
        mask_hides=True,
        scale="scale",
    )
    model, ids = scaled_up(NanoGPT(attention=TutorialAttention)), token_ids(2)
    kept = {}
    own = model.h[0].attn.attend

    def attend(q, k, v, hidden):
        kept["probs"] = (q @ k.transpose(-2, -1) * 0.5).masked_fill(hidden, -1e9).softmax(dim=-1)
        return own(q, k, v, hidden)

    with torch.no_grad():
        before = model(ids)[0]
        model.h[0].attn.attend = attend
        model(ids)
        del model.h[0].attn.attend
    capture = hs.capture(model, ids)
    for window in (0, 1):
        np.testing.assert_allclose(
            all_probs(capture.record(window, 0)), kept["probs"][window].numpy(), **CLOSE
        )
    with torch.no_grad():
        assert torch.equal(model(ids)[0], before)


@pytest.mark.parametrize(
    "shape", [(LENGTH, LENGTH), (2, 1, LENGTH, LENGTH), (2, HEADS, LENGTH, LENGTH), (1, 1, 1, LENGTH)]
)
@pytest.mark.parametrize("form", ["bool", "float"])
def test_masks_of_scaled_dot_product_attention(shape, form):
    class Own(nn.Module):
        def forward(self, q, mask):
            return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask, scale=0.7)

    generator = torch.Generator().manual_seed(0)
    visible = torch.rand(shape, generator=generator) < 0.6
    visible[..., 0] = True
    added = torch.randn(shape, generator=generator).masked_fill(~visible, -torch.inf)
    mask, model = visible if form == "bool" else added, Own()
    q = torch.randn(2, HEADS, LENGTH, 8, generator=generator)
    logits = q @ q.transpose(-2, -1) * 0.7
    logits = logits.masked_fill(~visible, -torch.inf) if form == "bool" else logits + added
    records = recorded(model, 2, lambda: model(q, mask))
    for row, [record] in enumerate(records):
        np.testing.assert_allclose(all_probs(record), logits.softmax(dim=-1)[row].numpy(), **CLOSE)


class Flexible(nn.Module):
    """Calls flex_attention, which torch runs without compiling while a module is observed."""

    def __init__(self, score_mod=None, visible=None):
        super().__init__()
        self.score_mod, self.visible = score_mod, visible

    def forward(self, q, k):
        mask = None
        if self.visible is not None:
            sizes = (len(q), None, q.shape[2], k.shape[2])
            mask = create_block_mask(self.visible, *sizes, device="cpu")
        return flex_attention(q, k, k, score_mod=self.score_mod, block_mask=mask, scale=0.7, enable_gqa=True)


SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])
FLEXIBLE = {
    "plain": (None, None, lambda s, q, k: s),
    "causal": (
        None,
        lambda b, h, q, k: (q >= k) | (b == 1),
        lambda s, q, k: torch.stack([s[0].masked_fill(q < k, -torch.inf), s[1]]),
    ),
    "bias": (
        lambda s, b, h, q, k: s - SLOPES[h] * (q - k).abs(),
        lambda b, h, q, k: q >= k,
        lambda s, q, k: (s - SLOPES[:, None, None] * (q - k).abs()).masked_fill(q < k, -torch.inf),
    ),
    "soft cap": (
        lambda s, b, h, q, k: torch.where(q >= k, 2 * torch.tanh(s / 2), -float("inf")),
        None,
        lambda s, q, k: (2 * torch.tanh(s / 2)).masked_fill(q < k, -torch.inf),
    ),
}


@pytest.mark.parametrize("form", FLEXIBLE)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention(form):
    score_mod, visible, expected = FLEXIBLE[form]
    model, generator = Flexible(score_mod, visible), torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, LENGTH, 8, generator=generator) for heads in (HEADS, HEADS // 2))
    places = torch.arange(LENGTH)
    scores = q @ k.repeat_interleave(2, 1).mT * 0.7
    weights = expected(scores, places[:, None], places).softmax(dim=-1)
    for row, [record] in enumerate(recorded(model, 2, lambda: model(q, k))):
        assert (record.n_heads, record.n_kv_heads) == (HEADS, HEADS // 2)
        np.testing.assert_allclose(all_probs(record), weights[row].numpy(), **CLOSE)
    off = torch.tensor([1.0, 0.0, 1.0, 1.0])

    class Gate:
        def see(self, call):
            return off

    with torch.no_grad(), observed(model, Gate()):
        gated = model(q, k)
    values = k.repeat_interleave(2, 1) * off[:, None, None]
    np.testing.assert_allclose(gated, weights @ values, **CLOSE)
    report = hs.check(model, {"q": q, "k": k}).table().set_index("test")
    assert report["failed"].sum() == 0
    assert report.loc[["recomputed probabilities", "output"], "passed"].tolist() == [HEADS, HEADS]
    # A constant that is added to logits goes through a score_mod, which may do anything with it.
    assert report.loc["softmax shift", "passed"] == (HEADS if score_mod is None else 0)


def test_grouped_keys_are_kept_unrepeated():
    class Own(nn.Module):
        def forward(self, q, k):
            return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

    q, k = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8)
    model = Own()
    [[record]] = recorded(model, 1, lambda: model(q, k))
    assert (record.n_heads, record.n_kv_heads) == (4, 2)
    logits = (q @ k.repeat_interleave(2, 1).mT / 8**0.5).masked_fill(causal(6, "bool"), -torch.inf)
    np.testing.assert_allclose(all_probs(record), logits.softmax(-1)[0].numpy(), **CLOSE)


def test_calls_carry_their_padding_and_kind():
    seen: list[AttentionCall] = []

    class Keep:
        def see(self, call):
            seen.append(call)

    model = transformer()
    padding = torch.zeros(1, KEYS, dtype=torch.bool)
    padding[0, -1] = True
    with observed(model, Keep()), torch.no_grad():
        model(states(1, KEYS), states(1), src_key_padding_mask=padding, memory_key_padding_mask=padding)
    kinds = [(call.group[1], None if call.padding is None else int(call.padding.sum())) for call in seen]
    assert kinds == [("self", 1), ("self", 1), ("self", None), ("cross", 1), ("self", None), ("cross", 1)]
