"""Transformer-XL: its terms, its memory, its files, and what the rest of headscape does with it."""

import json
import math

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError, ModelError
from headscape.models.anatomy import attention_modules
from headscape.models.transformer_xl.model import TransfoXLConfig, TransfoXLLMHeadModel
from headscape.models.transformer_xl.vocabulary import word_tokenizer
from headscape.recorder.gates import switched_off
from headscape.recorder.recording import record_batch
from headscape.tensor.fields import logits, probs

SMALL = {
    "vocab_size": 60,
    "cutoffs": [20, 40],
    "div_val": 2,
    "d_model": 16,
    "d_embed": 16,
    "d_inner": 24,
    "n_layer": 2,
    "n_head": 4,
    "d_head": 6,
    "mem_len": 12,
    "clamp_len": 9,
    "same_length": False,
}
WORDS = ["<eos>", "<unk>", *(f"w{i}" for i in range(58))]
UNEVEN = [(0, 0), (0, 2), (1, 3)]


def small_model(**changes):
    torch.manual_seed(0)
    model = TransfoXLLMHeadModel(TransfoXLConfig(**SMALL | changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # far from uniform attention, so that a wrong term would show
            weight.normal_(0, 0.4)
    return model


def random_ids(*shape, seed=0):
    return torch.randint(0, 60, shape, generator=torch.Generator().manual_seed(seed))


def output_of(model, ids, **more):
    with torch.no_grad():
        return model(ids, **more).logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as the original is published: config, pickled tensors of all names, and a vocabulary."""
    path, model = tmp_path_factory.mktemp("original"), small_model()
    published = {"tie_weight": True, "ext_len": 0, "tgt_len": 128, "init": "normal", "sample_softmax": -1}
    names = {"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"]}
    (path / "config.json").write_text(json.dumps(SMALL | published | names))
    (path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.save({**weights, "transformer.pos_emb.inv_freq": torch.ones(8)}, path / "pytorch_model.bin")
    return path


def test_content_and_position_logits_are_those_of_the_paper():
    model, ids, before = small_model(), random_ids(1, 5), random_ids(1, 4, seed=1)
    mems = model.remember(before)
    [[record, _]] = record_batch(model, {"input_ids": ids, "mems": mems})
    module, head, d = model.transformer.layers[0].dec_attn, 1, 6
    with torch.no_grad():
        states = torch.cat([mems[0, 0], model.transformer.word_emb(ids)[0]]).double()
        w_q, w_k, _ = (w[head * d : (head + 1) * d].double() for w in module.qkv_net.weight.chunk(3))
        w_r = module.r_net.weight[head * d : (head + 1) * d].double()
        u, v = module.r_w_bias[head].double(), module.r_r_bias[head].double()
    for i in range(5):
        for j in range(i + 5):  # four keys of the memory, then those of the segment
            n = min(i + 4 - j, SMALL["clamp_len"])
            angles = [n / 10_000 ** (2 * k / 16) for k in range(8)]
            sinusoid = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)
            query = w_q @ states[i + 4]
            content = float((query + u) @ (w_k @ states[j])) / math.sqrt(d)
            position = float((query + v) @ (w_r @ sinusoid)) / math.sqrt(d)
            products = record.scale * record.queries[head, i] @ record.keys[head, j]
            assert products == pytest.approx(content, abs=1e-4)
            assert record.bias[head, i, j] == pytest.approx(position, abs=1e-4)
            assert logits(record, head)[i, j] == pytest.approx(content + position, abs=1e-4)
    assert not record.bias[:, ~record.visible].any()


@pytest.mark.parametrize("changes", [{}, {"same_length": True, "mem_len": 7}], ids=["whole", "same length"])
def test_captured_probabilities_are_the_models_own(changes):
    model, ids = small_model(**changes), random_ids(2, 10)
    mems = model.remember(random_ids(2, 12, seed=1))
    before = output_of(model, ids, mems=mems)
    with torch.no_grad():
        wanted = model(ids, mems=mems, output_attentions=True).attentions
    for row, records in enumerate(record_batch(model, {"input_ids": ids, "mems": mems}, exact=True)):
        for record, attention in zip(records, wanted, strict=True):
            found = np.stack([probs(record, head) for head in range(record.n_heads)])
            np.testing.assert_allclose(found, attention[row], atol=1e-5)
            np.testing.assert_allclose(record.probs, attention[row], atol=1e-5)
    assert torch.equal(output_of(model, ids, mems=mems), before)


def test_padding_changes_nothing():
    model, ids = small_model(), random_ids(1, 6)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], dim=1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    torch.testing.assert_close(
        output_of(model, padded, attention_mask=mask)[:, 3:], output_of(model, ids), atol=1e-5, rtol=0
    )
    [records] = record_batch(model, {"input_ids": padded, "attention_mask": mask})
    [alone] = record_batch(model, {"input_ids": ids})
    np.testing.assert_allclose(probs(records[1], 2), probs(alone[1], 2), atol=1e-5)


@pytest.mark.parametrize("segment", [1, 4, 30])
def test_a_memory_that_holds_everything_is_as_good_as_one_long_segment(segment):
    model, ids = small_model(mem_len=40, clamp_len=-1), random_ids(2, 20)
    mems = model.remember(ids[:, :14], segment=segment)
    assert mems.shape == (2, 2, 14, 16)
    torch.testing.assert_close(output_of(model, ids[:, 14:], mems=mems), output_of(model, ids)[:, 14:])


def test_the_memory_carries_no_gradient_and_keeps_its_length():
    model = small_model().train()
    mems = model(random_ids(2, 20), labels=random_ids(2, 20)).mems
    assert mems.shape == (2, 2, 12, 16)
    assert not mems.requires_grad


def test_loss_is_the_cross_entropy_of_the_logits():
    model, ids = small_model(), random_ids(2, 30)
    labels = ids.clone()
    labels[0, :10] = -100
    scores = output_of(model, ids)
    torch.testing.assert_close(scores.exp().sum(dim=-1), torch.ones(2, 30))
    wanted = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(model(ids, labels=labels).loss, wanted)


def test_it_trains():
    model, ids = small_model(dropout=0.0).train(), random_ids(2, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    assert model.crit.out_layers[1].weight is model.transformer.word_emb.emb_layers[1].weight


def test_a_published_folder_loads_with_its_vocabulary(folder):
    loaded, ids = hs.load_model(folder), random_ids(1, 8)
    assert torch.equal(output_of(loaded.model, ids), output_of(small_model(), ids))
    assert loaded.tokenizer("w3 unheard\nw0")["input_ids"] == [5, 1, 0, 2]
    assert loaded.provenance()["type"] == "transfo-xl"
    capture = hs.capture(loaded, "w3 w4\n" * 50, length=16, windows=2)
    assert capture.tokens(0)[:4] == ("w3", "w4", "<eos>", "w3")


def test_what_is_saved_loads_again(folder, tmp_path):
    model = hs.load_model(folder).model
    model.save_pretrained(tmp_path)
    word_tokenizer(WORDS).save_pretrained(tmp_path)
    again = hs.load_model(tmp_path)
    assert torch.equal(output_of(again.model, random_ids(1, 8)), output_of(model, random_ids(1, 8)))
    assert again.tokenizer("w3\n")["input_ids"] == [5, 0]


def test_pickles_are_not_read(folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "vocab.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes((folder / "pytorch_model.bin").read_bytes())
    assert hs.load_model(tmp_path).tokenizer is None
    torch.save({"crit.cluster_bias": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="damaged or incomplete"):
        hs.load_model(tmp_path)


def test_a_damaged_vocabulary_is_named(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(ModelError, match=r"vocab\.txt is damaged.*<unk>"):
        hs.load_model(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["<unk>", *map(str, range(80))]))
    with pytest.raises(ModelError, match="81 words, but the model only 60"):
        hs.load_model(tmp_path)


@pytest.mark.parametrize("heads", [[(0, 1), (1, 2)], UNEVEN], ids=["even", "uneven"])
def test_a_pruned_model_computes_what_the_gated_one_does(heads, tmp_path):
    model, ids, before = small_model(), random_ids(2, 8), random_ids(2, 12, seed=1)
    with switched_off(attention_modules(model), heads):
        mems = model.remember(before, segment=5)
        wanted = output_of(model, ids, mems=mems)
    pruned = hs.prune(model, heads)
    assert pruned.manifest.plain == (heads is not UNEVEN)
    assert {m.name: m.n_heads for m in attention_modules(pruned.model)} == {
        f"transformer.layers.{layer}.dec_attn": 4 - sum(at == layer for at, _ in heads) for layer in range(2)
    }
    hs.save_pruned(pruned, tmp_path / "pruned")
    for found in (
        pruned.model,
        hs.load_pruned(tmp_path / "pruned").model,
        hs.load_model(tmp_path / "pruned").model,
    ):
        mems = found.remember(before, segment=5)
        torch.testing.assert_close(output_of(found, ids, mems=mems), wanted, atol=1e-5, rtol=0)


def test_shared_biases_allow_gates_but_no_removal():
    model = small_model(untie_r=False)
    modules = attention_modules(model)
    intact = output_of(model, random_ids(1, 8))
    with switched_off(modules, [(0, 0)]):
        assert not torch.equal(output_of(model, random_ids(1, 8)), intact)
    with pytest.raises(ModelError, match="share their weights"):
        hs.prune(model, [(0, 0)])


def test_weights_of_a_head_make_its_queries_and_keys():
    model = small_model()
    [module, _] = attention_modules(model)
    w_q, w_k, w_v = module.weights()
    assert w_q.shape == w_k.shape == w_v.shape == (4, 6, 16)
    states = model.transformer.word_emb(random_ids(1, 5))[0].detach().numpy()
    [[record, _]] = record_batch(model, {"input_ids": random_ids(1, 5)})
    np.testing.assert_allclose(record.keys[2], states @ w_k[2].T, atol=1e-4)
    bias = model.transformer.layers[0].dec_attn.r_w_bias.detach().numpy()
    np.testing.assert_allclose(record.queries[2], states @ w_q[2].T + bias[2], atol=1e-4)


def test_analysis_patterns_and_ablation_with_memory(folder, tmp_path):
    model, ids = hs.load_model(folder), random_ids(4, 44)
    windows = {"input_ids": ids[:, 12:], "memory_ids": ids[:, :12]}
    capture = hs.capture(model, windows)
    tensor = capture.tensor(0, "probs")
    assert np.asarray(tensor).shape == (32, 44, 8)
    assert list(tensor.key_tokens) == model.tokenizer.convert_ids_to_tokens(ids[0])
    assert hs.organize(tensor).order["key"].shape == (44,)
    assert hs.energy_table(capture)["beyond_products"].unique().tolist() == ["position bias"]
    study = hs.analyze(model, windows, out=tmp_path / "study")
    assert len(study.heads) == 8
    assert study.heads["previous_token"].notna().all()
    result = hs.ablation_study(model, windows, methods=("haar",), draws=2)
    assert (result.intact > 0).all()


def test_bad_input_is_explained():
    model, ids = small_model(), random_ids(1, 6)
    with pytest.raises(InputError, match=r"mems must be .*\(1, 2, \.\.\., 16\).*\(12, 1, 16\)"):
        model(ids, mems=torch.zeros(12, 1, 16))
    with pytest.raises(InputError, match="mem_len is 0"):
        small_model(mem_len=0).remember(ids)
    with pytest.raises(InputError, match="token ids must be from 0 to 59"):
        hs.capture(model, {"input_ids": ids, "memory_ids": ids + 60})
    with pytest.raises(InputError, match="cutoffs must grow"):
        TransfoXLConfig(vocab_size=10, cutoffs=[20])
    with pytest.raises(InputError, match="leaves no width"):
        TransfoXLConfig(vocab_size=60, cutoffs=[20, 40], d_embed=8, div_val=4)
    with pytest.raises(InputError, match="attn_type must be 0"):
        TransfoXLConfig(attn_type=1)
    with pytest.raises(InputError, match="every word once"):
        word_tokenizer(["a", "a", "<unk>"])


@pytest.mark.real
def test_the_size_of_the_paper_captures_and_organizes():
    """16 layers of 8 heads, dimension 410, 256 tokens after a memory of 256 (arXiv 2506.15541, appendix)."""
    torch.manual_seed(0)
    sizes = {"d_model": 410, "d_embed": 410, "n_layer": 16, "n_head": 8, "d_head": 51, "d_inner": 2100}
    words = {"vocab_size": 20_000, "cutoffs": [2_000, 8_000], "div_val": 2}
    model = TransfoXLLMHeadModel(TransfoXLConfig(**sizes, **words, mem_len=256, clamp_len=512)).eval()
    ids = torch.randint(0, 20_000, (1, 512), generator=torch.Generator().manual_seed(0))
    capture = hs.capture(model, {"input_ids": ids[:, 256:], "memory_ids": ids[:, :256]})
    tensor = capture.tensor(0)
    assert tensor.shape == (256, 512, 128)
    np.testing.assert_allclose(np.asarray(tensor).sum(axis=1), 1.0, atol=1e-4)
    organization = hs.organize(tensor)
    assert [len(organization.order[axis]) for axis in ("query", "key", "head")] == [256, 512, 128]
    assert organization.trees["head"].depth > 1
