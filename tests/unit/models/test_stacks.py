from headscape.models.stacks import LayerNumbers, attention_kind, stack_names


def numbered(names):
    numbers = LayerNumbers()
    calls = [numbers.of(name) for name in names]
    groups = list(dict.fromkeys(group for group, _ in calls))
    return [layer for _, layer in calls], list(stack_names(groups).values())


def test_one_stack_is_self():
    assert numbered([f"model.layers.{i}.self_attn" for i in range(3)]) == ([0, 1, 2], ["self"])


def test_layers_without_attention_leave_gaps():
    assert numbered(["layers.3.self_attn", "layers.7.self_attn"])[0] == [3, 7]


def test_self_and_cross_attention_are_numbered_apart():
    names = ["encoder.block.0.layer.0.SelfAttention", "decoder.block.0.layer.0.SelfAttention"]
    names += ["decoder.block.0.layer.1.EncDecAttention", "decoder.block.1.layer.0.SelfAttention"]
    assert numbered(names) == ([0, 0, 0, 1], ["encoder", "decoder", "cross"])


def test_text_and_vision_are_told_apart():
    names = ["vision_model.encoder.layers.0.self_attn", "text_model.encoder.layers.0.self_attn"]
    assert numbered(names)[1] == ["vision", "text"]


def test_stacks_without_telling_words_keep_their_prefix():
    assert numbered(["left.0.attn", "right.0.attn"])[1] == ["left", "right"]
    assert numbered(["encoder.a.0.attn", "encoder.b.0.attn"])[1] == ["encoder.a:self", "encoder.b:self"]


def test_shared_layers_are_numbered_in_call_order():
    assert numbered(["albert.layers.0.attention"] * 3)[0] == [0, 1, 2]
    assert numbered(["pooling.attention"])[0] == [0]


def test_kinds():
    for name in ("decoder.layers.0.encoder_attn", "h.3.crossattention", "decoder.layers.1.cross_attn"):
        assert attention_kind(name) == "cross"
    for name in ("encoder.layers.0.self_attn", "cross_encoder.layer.1.attention.self"):
        assert attention_kind(name) == "self"
