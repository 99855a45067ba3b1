"""Plain PyTorch modules: found, gated, cut, and refused with one clear error."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import headscape as hs
from headscape.errors import InputError, ModelError
from headscape.models.anatomy import attention_modules, watched
from headscape.recorder.gates import gated, switched_off
from plain_models import (
    HEADS,
    LENGTH,
    WIDTH,
    Block,
    Classifier,
    FusedCausalAttention,
    NanoGPT,
    TutorialAttention,
    VisionTransformer,
    next_token_loss,
    scaled_up,
    states,
    token_ids,
)


def encoder(batch_first=True):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=batch_first)
    return scaled_up(nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first))


def images(rows=2):
    return torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(0))


CASES = {
    "nanoGPT": (lambda: scaled_up(NanoGPT()), token_ids),
    "encoder": (encoder, states),
    "classifier": (lambda: scaled_up(Classifier()), token_ids),
    "image model": (lambda: scaled_up(VisionTransformer()), images),
}
PREFIX = {
    "nanoGPT": "h.{}.attn",
    "encoder": "layers.{}.self_attn",
    "classifier": "encoder.layers.{}.self_attn",
}
OUTPUT = {"nanoGPT": "c_proj", "encoder": "out_proj", "classifier": "out_proj", "image model": "proj"}


def tensor(output):
    return output[0] if isinstance(output, tuple) else output


def zeroed(model, output, off):
    """The model with the columns of some heads zeroed in its output projections."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in off:
            projection = [
                m for name, m in model.named_modules() if name.endswith(f".{output}") and "patch" not in name
            ]
            projection[layer].weight[:, head * 8 : (head + 1) * 8] = 0.0
    return model


@pytest.mark.parametrize("case", CASES)
def test_modules_are_found_without_input(case):
    model = CASES[case][0]()
    found = attention_modules(model)
    assert [(m.layer, m.n_heads, m.n_kv_heads, m.head_dim) for m in found] == [(0, 4, 4, 8), (1, 4, 4, 8)]
    assert [m.name for m in found] == [PREFIX.get(case, "blocks.{}.attn").format(layer) for layer in (0, 1)]
    assert all(m.output.matrix.shape == (WIDTH, WIDTH) for m in found)
    for module in found:
        w_q, w_k, w_v = module.weights()
        assert w_q.shape == w_k.shape == w_v.shape == (HEADS, 8, WIDTH)


@pytest.mark.parametrize("case", CASES)
def test_gates_equal_zeroed_columns_and_leave_the_model_alone(case):
    make, inputs = CASES[case]
    model, x, off = make(), inputs(2), [(0, 1), (1, 3)]
    modules = attention_modules(model)
    with torch.no_grad():
        before = tensor(model(x))
        with switched_off(modules, off):
            found = tensor(model(x))
        expected = tensor(zeroed(model, OUTPUT[case], off)(x))
        assert torch.equal(tensor(model(x)), before)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, before, atol=1e-3)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_gates_agree_with_finite_differences(case):
    make, inputs = CASES[case]
    model, x = make().double(), inputs(2)
    x = x.double() if x.is_floating_point() else x
    modules = attention_modules(
        model, {"src": x} if case == "encoder" else {"x": x} if case == "image model" else None
    )
    gates = {m.layer: torch.ones(HEADS, dtype=torch.float64, requires_grad=True) for m in modules}

    def loss():
        return tensor(model(x)).square().sum()

    with gated(modules, gates):
        exact = torch.autograd.grad(loss(), list(gates.values()))
    for layer, head in ((0, 2), (1, 0)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = {m.layer: torch.ones(HEADS, dtype=torch.float64) for m in modules}
            moved[layer][head] += step
            with gated(modules, moved):
                ends.append(float(loss()))
        assert float(exact[layer][head]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)


def test_nested_gates_multiply():
    model, x = encoder(), states(2)
    modules = attention_modules(model)
    half, quarter = ({0: torch.full((HEADS,), factor)} for factor in (0.5, 0.25))
    with torch.no_grad():
        with gated(modules, half), gated(modules, half):
            nested = model(x)
        with gated(modules, quarter):
            torch.testing.assert_close(nested, model(x))


@pytest.mark.parametrize("case", ["nanoGPT", "encoder"])
def test_watching_a_training_step_changes_nothing(case):
    make, inputs = CASES[case]
    seen = []

    class Keep:
        def see(self, call):
            seen.append((call.name, call.dropout))

    def step(watch):
        model, x = make().train(), inputs(2)
        torch.manual_seed(0)
        if watch:
            with watched(model, Keep()):
                loss = tensor(model(x)).square().mean()
        else:
            loss = tensor(model(x)).square().mean()
        loss.backward()
        return [loss, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert all(torch.equal(a, b) for a, b in zip(step(False), step(True), strict=True))
    assert [rate for _, rate in seen] == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("case", CASES)
def test_pruned_models_equal_gated_ones_and_can_be_pruned_again(case):
    make, inputs = CASES[case]
    model, x, off = make(), inputs(2), [(0, 1), (1, 0), (1, 3)]
    with torch.no_grad():
        before = tensor(model(x))
        with switched_off(attention_modules(model), off):
            expected = tensor(model(x))
        pruned = hs.prune(model, off)
        torch.testing.assert_close(tensor(pruned.model(x)), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(tensor(model(x)), before)
        weights = sum(p.numel() for p in model.parameters()) - sum(
            p.numel() for p in pruned.model.parameters()
        )
        biases = 3 * 8 * len(off)
        assert (
            weights
            == 4 * 8 * WIDTH * len(off) + biases
            == pruned.savings.parameters.before - pruned.savings.parameters.after
        )
        assert [m.n_heads for m in attention_modules(pruned.model)] == [3, 2]
        again = hs.prune(pruned.model, [(0, 0)])  # the first head of the smaller model
        assert again.removed == ((0, 0), (0, 1), (1, 0), (1, 3))
        with switched_off(attention_modules(model), again.removed):
            torch.testing.assert_close(tensor(again.model(x)), tensor(model(x)), rtol=1e-4, atol=1e-4)


def test_a_pruned_encoder_takes_padding_and_trains():
    model, x = encoder(), states(2)
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, -4:] = True
    pruned = hs.prune(model, [(0, 0), (1, 2)]).model
    with torch.no_grad(), switched_off(attention_modules(model), [(0, 0), (1, 2)]):
        expected = model(x, src_key_padding_mask=padding)
    with torch.no_grad():
        found = pruned(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found[~padding], expected[~padding], rtol=1e-4, atol=1e-4)
    pruned.train()(x).sum().backward()
    assert pruned.layers[0].self_attn.in_proj_weight.grad.shape == (3 * 24, WIDTH)
    assert isinstance(pruned.layers[0].self_attn, nn.MultiheadAttention)


def test_pruned_multihead_attention_with_own_widths_returns_weights():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(WIDTH, HEADS, kdim=20, vdim=12, batch_first=True)

        def forward(self, x, memory, other):
            return self.attn(x, memory, other, average_attn_weights=False)

    model = scaled_up(Own())
    model.example_input_array = inputs = {
        "x": states(2),
        "memory": states(2, 9, 20),
        "other": states(2, 9, 12),
    }
    whole = model(**inputs)[1]
    pruned = hs.prune(model, [(0, 2)]).model
    output, weights = pruned(**inputs)
    torch.testing.assert_close(weights, whole[:, [0, 1, 3]])
    assert output.shape == (2, LENGTH, WIDTH)


def test_dropout_of_a_pruned_fused_projection_stays():
    pruned = hs.prune(scaled_up(NanoGPT()), [(0, 0)]).model
    attention = pruned.h[0].attn
    assert (attention.dropout_rate, attention.resid_dropout.p, attention.is_causal) == (0.1, 0.1, True)
    assert {name for name, _ in pruned.named_parameters()} == {
        name for name, _ in NanoGPT().named_parameters()
    }


class Interleaved(FusedCausalAttention):
    """Queries, keys and values of the first head, then of the second: cutting blocks of thirds would be wrong."""

    def forward(self, x):
        batch, n, width = x.size()
        q, k, v = self.c_attn(x).view(batch, n, self.n_head, 3, -1).permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, n, width))


class Normalized(FusedCausalAttention):
    """Queries are normalized after the projection."""

    def forward(self, x):
        batch, n, width = x.size()
        q, k, v = (
            torch.unflatten(y, -1, (self.n_head, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(functional.normalize(q, dim=-1), k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, n, width))


def test_weights_are_read_only_where_their_layout_is_known():
    interleaved, normalized = (scaled_up(NanoGPT(attention=kind)) for kind in (Interleaved, Normalized))
    with pytest.raises(ModelError, match=r"h\.0\.attn .*cannot be read"):
        attention_modules(interleaved)[0].weights()
    w_q, _, w_v = attention_modules(normalized)[0].weights()
    whole = normalized.h[0].attn.c_attn.weight.detach().numpy()
    assert np.array_equal(w_q[1], whole[8:16])
    assert np.array_equal(w_v[3], whole[88:])


@pytest.mark.parametrize("attention", [Interleaved, Normalized])
def test_what_cannot_be_cut_says_that_gating_works(attention):
    model = scaled_up(NanoGPT(attention=attention))
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match=r"cannot cut heads out of h\.0\.attn .*Switching heads off works"):
        hs.prune(model, [(0, 1)], in_place=True)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    ranking = hs.rank_heads(model, token_ids(4), "leave-one-out", loss=next_token_loss, length=None)
    assert len(ranking.scores) == 8


def test_saving_a_pruned_plain_module_says_how(tmp_path):
    with pytest.raises(InputError, match=r"torch\.save"):
        hs.save_pruned(hs.prune(encoder(), [(0, 0)]), tmp_path / "out")


def register(**changes):
    how = {"queries": "q", "keys": "k", "values": "v", "mask": "hidden", "mask_hides": True, "scale": "scale"}
    hs.register_attention(TutorialAttention, "attend", **{**how, **changes})


def test_registered_code_is_gated():
    register()
    model, ids = scaled_up(NanoGPT(attention=TutorialAttention)), token_ids(2)
    modules = attention_modules(model)
    with torch.no_grad(), switched_off(modules, [(1, 2)]):
        found = model(ids)[0]
    with torch.no_grad():
        expected = zeroed(model, "to_out", [(1, 2)])(ids)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert "attend" not in vars(model.h[0].attn)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scale": 0.2}, r"not softmax\(s Q K\^T \+ mask\) V"),
        ({"mask_hides": False}, r"not softmax\(s Q K\^T \+ mask\) V"),
        ({"mask": None}, r"not softmax\(s Q K\^T \+ mask\) V"),
        ({"head_axis": 2}, r"head_axis|must broadcast|multiple"),
        ({"scale": "width"}, "scale is registered as 'width'"),
    ],
)
def test_wrong_registrations_are_noticed(changes, error):
    register(**changes)
    with pytest.raises(ModelError, match=error):
        hs.capture(scaled_up(NanoGPT(attention=TutorialAttention)), token_ids(2))
    register()


@pytest.mark.parametrize(
    ("kind", "method", "changes", "error"),
    [
        (dict, "attend", {}, "class of torch.nn.Module"),
        (TutorialAttention, "attends", {}, "no 'attends'"),
        (TutorialAttention, "attend", {"queries": "query"}, "'query' is none: it has q, k, v, hidden"),
        (TutorialAttention, "attend", {"head_axis": 3}, "head_axis must be 1 or 2"),
    ],
)
def test_bad_registrations_are_refused(kind, method, changes, error):
    how = {"queries": "q", "keys": "k", "values": "v"}
    with pytest.raises(InputError, match=error):
        hs.register_attention(kind, method, **{**how, **changes})


class Joined(TutorialAttention):
    def forward(self, x):
        return self.attend(self.to_q(x), self.to_k(x), self.to_v(x))


class Odd(nn.Module):
    """Six heads of queries over four of keys."""

    def attend(self, q, k, v):
        return q

    def forward(self, x):
        q, k = torch.randn(len(x), 6, 5, 8), torch.randn(len(x), 4, 5, 8)
        return x + self.attend(q, k, k).mean()


def test_wrong_shapes_of_registered_code_are_one_clear_error():
    register()
    with pytest.raises(ModelError, match=r"must be \(batch, head, token, d\).*\(2, 12, 32\)|\(1, 12, 32\)"):
        hs.capture(scaled_up(NanoGPT(attention=Joined)), token_ids(2))
    hs.register_attention(Odd, "attend", queries="q", keys="k", values="v")
    with pytest.raises(ModelError, match=r"multiple of the key-value heads.*6 heads, 4 of keys"):
        hs.capture(nn.Sequential(nn.Linear(8, 8), Odd()), torch.randn(2, 5, 8))


def test_heads_of_keys_that_do_not_divide_are_one_clear_error():
    class Own(nn.Module):
        def forward(self, x):
            q, k = torch.randn(len(x), 6, 5, 8), torch.randn(len(x), 4, 5, 8)
            return functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    with pytest.raises(ModelError, match="multiple of the key-value heads"):
        hs.capture(Own(), torch.randn(2, 5, 8))
    with pytest.raises(InputError, match="multiple of the key-value heads"):
        hs.Capture.from_arrays(np.ones((6, 5, 8)), np.ones((4, 5, 8)))


def test_learned_keys_are_refused():
    model = nn.Sequential(nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True))[0]
    with pytest.raises(ModelError, match="add_bias_kv"):
        hs.capture(model, states(5))


def test_code_of_its_own_says_what_to_do():
    class Own(TutorialAttention):
        pass

    model = scaled_up(NanoGPT(attention=lambda: nn.Linear(WIDTH, WIDTH)))
    with pytest.raises(ModelError, match=r"no attention was seen.*register_attention"):
        hs.capture(model, token_ids(2))
    with pytest.raises(ModelError, match=r"example_input_array"):
        hs.prune(nn.Sequential(nn.Linear(4, 4)), [(0, 0)])


def test_compiled_modules_run_uncompiled_and_are_not_watched():
    model, x = encoder(), states(2)
    expected = hs.capture(model, x)
    found = hs.capture(torch.compile(model), x)
    assert all(np.array_equal(found.tensor(w).data, expected.tensor(w).data) for w in (0, 1))
    model.layers[1] = torch.compile(model.layers[1])
    assert hs.capture(model, x).heads == expected.heads
    with pytest.raises(ModelError, match=r"_orig_mod"), watched(model, None):
        pass


def test_token_first_models_are_one_clear_error():
    class Own(Classifier):
        def forward(self, tokens):
            return self.encoder(self.embed(tokens))

    with pytest.raises(ModelError, match=r"\(batch, token\)"):
        hs.capture(scaled_up(Own(batch_first=False)), token_ids(2))


class ByHand(FusedCausalAttention):
    """As nanoGPT does where torch has no fused attention."""

    def forward(self, x):
        q, k, v = (
            torch.unflatten(y, -1, (self.n_head, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1)
        )
        logits = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = functional.softmax(logits.masked_fill(hidden, float("-inf")), dim=-1)
        return self.c_proj((weights @ v).transpose(1, 2).flatten(2))


def test_attention_by_hand_is_read_at_its_softmax():
    fused, by_hand = scaled_up(NanoGPT()), scaled_up(NanoGPT(attention=ByHand))
    by_hand.load_state_dict(fused.state_dict())
    expected, found = (hs.capture(model, token_ids(2)) for model in (fused, by_hand))
    assert found.provenance["observed_by"] == "softmax reader"
    for window in (0, 1):
        np.testing.assert_allclose(found.tensor(window).data, expected.tensor(window).data, atol=1e-5)
    off = [(0, 1), (1, 2)]
    outputs = []
    for model in (fused, by_hand):
        with torch.no_grad(), switched_off(attention_modules(model), off):
            outputs.append(model(token_ids(2))[0])
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)


def test_blocks_alone_are_modules_too():
    block = scaled_up(Block(FusedCausalAttention()))
    assert hs.capture(block, states(2)).heads == tuple((0, head) for head in range(HEADS))
