"""What a model is judged by: its own loss, window by window, whatever the batches."""

import numpy as np
import pytest
import torch
import transformers

import headscape.ablation.objective as objective_module
from evaluator_cases import evidence_of, objective_of
from headscape.errors import InputError, ModelError
from headscape.recorder.gates import switched_off
from tiny_models import (
    BIDIRECTIONAL,
    inputs_of,
    tiny_causal_model,
    tiny_model,
    token_ids,
)

MASK, PAD = 3, 0


class Masking:
    """A tokenizer that knows a mask and special tokens, all that hiding tokens needs."""

    mask_token_id, all_special_ids = MASK, (0, 1, 2, 3)

    def decode(self, ids):
        return f"t{ids[0]}"

    def convert_ids_to_tokens(self, ids):
        return [f"t{i}" for i in ids]


def scrambled(model, seed=0):
    """Scale the weights up, so that heads matter."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(std=0.3)
    return model.eval()


def masked_model():
    return scrambled(transformers.BertForMaskedLM(transformers.BertConfig(**BIDIRECTIONAL["Bert"])))


def classifier(labels=3):
    config = transformers.BertConfig(**BIDIRECTIONAL["Bert"], num_labels=labels)
    return scrambled(transformers.BertForSequenceClassification(config))


def own_loss(model, **arguments):
    with torch.no_grad():
        return model(**arguments).loss.item()


@pytest.mark.parametrize("family", ["GPT2", "Llama", "OPT", "Gemma2"])
def test_the_loss_of_a_language_model_is_its_own(family):
    model, ids = tiny_causal_model(family), token_ids(3)
    objective = objective_of(model, ids)
    found = objective.evaluate(model)
    wanted = [own_loss(model, input_ids=row[None], labels=row[None]) for row in ids]
    np.testing.assert_allclose(found.losses, wanted, rtol=1e-5)
    assert (objective.name, objective.perplexity, found.accuracy) == ("nats per token", True, None)


def test_labels_of_a_language_model_are_shifted_as_the_model_does_it():
    model, ids = tiny_causal_model("Llama"), token_ids(3)
    labels = ids.clone()
    labels[:, :5] = -100
    found = objective_of(model, {"input_ids": ids, "labels": labels}).evaluate(model)
    wanted = [
        own_loss(model, input_ids=row[None], labels=label[None])
        for row, label in zip(ids, labels, strict=True)
    ]
    np.testing.assert_allclose(found.losses, wanted, rtol=1e-5)
    with torch.no_grad():
        guesses = model(ids).logits.argmax(dim=-1)
    np.testing.assert_allclose(found.accuracy, (guesses[:, 4:-1] == ids[:, 5:]).double().mean(dim=1))


def padded(ids, lengths, side):
    """Return rows of several lengths as one padded batch, with its mask."""
    width = max(lengths)
    batch = torch.full((len(lengths), width), PAD)
    mask = torch.zeros_like(batch)
    for row, length in enumerate(lengths):
        place = slice(width - length, width) if side == "left" else slice(0, length)
        batch[row, place], mask[row, place] = ids[row, :length], 1
    return {"input_ids": batch, "attention_mask": mask}


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_counts_for_nothing(side):
    model, ids, lengths = tiny_causal_model("Llama"), token_ids(3), [12, 7, 4]
    found = objective_of(model, padded(ids, lengths, side)).evaluate(model).losses
    rows = [ids[i : i + 1, :length] for i, length in enumerate(lengths)]
    wanted = [own_loss(model, input_ids=row, labels=row) for row in rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_batches_do_not_change_the_losses_of_windows(monkeypatch):
    model, ids = tiny_causal_model("Llama"), token_ids(5)
    together = objective_of(model, ids)
    monkeypatch.setattr(objective_module, "_TOKENS_A_BATCH", 24)
    apart = objective_of(model, ids)
    assert [batch.rows for batch in together.batches] == [5]
    assert [batch.rows for batch in apart.batches] == [2, 2, 1]
    assert together.n_windows == apart.n_windows == 5
    np.testing.assert_allclose(apart.evaluate(model).losses, together.evaluate(model).losses, rtol=1e-5)


def test_windows_of_several_lengths_keep_their_order():
    model, ids = tiny_causal_model("Llama"), token_ids(4)
    rows = [ids[0], ids[1, :7], ids[2, :7], ids[3]]
    objective = objective_of(model, [row.numpy() for row in rows])
    assert [batch.rows for batch in objective.batches] == [1, 2, 1]
    wanted = [own_loss(model, input_ids=row[None], labels=row[None]) for row in rows]
    np.testing.assert_allclose(objective.evaluate(model).losses, wanted, rtol=1e-5)


def test_a_classifier_is_judged_by_its_labels():
    model, ids, labels = classifier(), token_ids(6), torch.tensor([0, 1, 2, 0, 1, 2])
    objective = objective_of(model, {"input_ids": ids, "labels": labels})
    found = objective.evaluate(model)
    wanted = [
        own_loss(model, input_ids=row[None], labels=label[None])
        for row, label in zip(ids, labels, strict=True)
    ]
    np.testing.assert_allclose(found.losses, wanted, rtol=1e-4)
    with torch.no_grad():
        right = model(ids).logits.argmax(dim=-1) == labels
    assert found.accuracy.tolist() == right.double().tolist()
    assert (objective.labeled, objective.perplexity) == (True, False)


def test_only_hidden_tokens_of_a_masked_model_count():
    model, ids = masked_model(), token_ids(3)
    ids[:, 0], ids[:, -1] = 1, 2
    objective = objective_of(model, ids, Masking())
    [batch] = objective.batches
    hidden = batch.arguments["input_ids"] == MASK
    assert torch.equal(hidden, batch.targets != -100)
    assert torch.equal(batch.targets[hidden], ids[hidden])
    assert torch.equal(batch.arguments["input_ids"][~hidden], ids[~hidden])
    assert (hidden.sum(dim=1) >= 1).all()
    assert hidden.float().mean() < 0.3
    assert not hidden[:, [0, -1]].any()  # special tokens say nothing
    wanted = [
        own_loss(model, input_ids=row[None], labels=target[None])
        for row, target in zip(batch.arguments["input_ids"], batch.targets, strict=True)
    ]
    np.testing.assert_allclose(objective.evaluate(model).losses, wanted, rtol=1e-5)


def test_the_seed_hides_tokens():
    model, ids = masked_model(), token_ids(3)
    first, again, other = (
        objective_of(model, ids, Masking(), seed=seed).batches[0].targets for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_padding_does_not_make_more_tokens_hidden():
    model, ids = masked_model(), token_ids(3, length=40)
    mask = torch.zeros_like(ids)
    mask[:, :10] = 1
    targets = objective_of(model, {"input_ids": ids, "attention_mask": mask}, Masking()).batches[0].targets
    assert (targets[:, 10:] == -100).all()
    assert (targets != -100).sum(dim=1).tolist() == [2, 2, 2]  # 15 % of ten, not of forty


def test_windows_with_nothing_to_hide_are_refused():
    ids = token_ids(2)
    ids[1] = 2
    with pytest.raises(InputError, match="nothing but special tokens"):
        objective_of(masked_model(), ids, Masking())


def test_a_masked_model_needs_a_mask_token():
    with pytest.raises(InputError, match="needs a tokenizer with a mask token"):
        objective_of(masked_model(), token_ids(2))


@pytest.mark.parametrize("family", ["Bert", "ViT"])
def test_other_models_are_judged_by_how_much_their_output_moves(family):
    model, inputs = tiny_model(family), inputs_of(family, rows=3)
    objective = objective_of(model, inputs)
    assert objective.relative is False
    assert objective.evaluate(model).losses.tolist() == [0.0, 0.0, 0.0]
    evaluator = evidence_of(model, inputs)
    off = [(0, 1), (1, 2)]
    with torch.no_grad(), switched_off(evaluator.modules, off):
        moved = model(**inputs).last_hidden_state
        found = objective.evaluate(model).losses
    with torch.no_grad():
        intact = model(**inputs).last_hidden_state
    wanted = (moved - intact).square().sum(dim=(1, 2)) / intact.square().sum(dim=(1, 2))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert (found > 1e-3).all()


def test_a_loss_of_the_users_own():
    model, ids = tiny_causal_model("GPT2"), token_ids(3)

    def last_margin(output, arguments):
        assert torch.equal(arguments["input_ids"], ids)
        return output.logits[:, -1, 5]

    objective = objective_of(model, ids, loss=last_margin)
    with torch.no_grad():
        wanted = model(ids).logits[:, -1, 5]
    np.testing.assert_allclose(objective.evaluate(model).losses, wanted, rtol=1e-5)
    assert objective.name == "the given loss"


def test_an_own_loss_is_shown_the_labels():
    model, ids, labels = classifier(), token_ids(3), torch.tensor([2, 0, 1])
    objective = objective_of(
        model, {"input_ids": ids, "labels": labels}, loss=lambda _, arguments: arguments["labels"].float()
    )
    assert objective.evaluate(model).losses.tolist() == [2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("loss", "came"),
    [
        (lambda output, _: output.logits.mean(), r"gave \(\)"),
        (lambda output, _: output.logits[:, :, 0], r"gave \(3, 12\)"),
        (lambda output, _: 1.0, "gave float"),
    ],
)
def test_an_own_loss_gives_one_number_per_row(loss, came):
    model = tiny_causal_model("GPT2")
    with pytest.raises(InputError, match=rf"a tensor \(3,\), but {came}"):
        objective_of(model, token_ids(3), loss=loss).evaluate(model)


def test_losses_that_are_not_finite_are_refused():
    model = tiny_causal_model("GPT2")
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = torch.nan
    with pytest.raises(ModelError, match="the loss of 3 of 3 windows is not finite"):
        objective_of(model, token_ids(3)).evaluate(model)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0.0, 1.0, 2.0]), "labels must be numbers of classes, one per row"),
        (torch.zeros(3, 12, dtype=torch.long), "labels must be numbers of classes, one per row"),
        (torch.tensor([0, 1, 7]), "labels must be below 3, but go up to 7"),
        (torch.tensor([0, 1, -1]), "labels must be from 0, or -100 where nothing is asked, but one is -1"),
    ],
)
def test_labels_that_do_not_fit(labels, message):
    model = classifier()
    with pytest.raises(InputError, match=message):
        objective_of(model, {"input_ids": token_ids(3), "labels": labels}).evaluate(model)


def test_labels_need_a_model_with_an_output_for_them():
    model = tiny_model("Bert")
    with pytest.raises(InputError, match="this one gives no logits"):
        objective_of(model, {"input_ids": token_ids(3), "labels": torch.tensor([0, 1, 2])}).evaluate(model)


def test_one_token_says_nothing_about_the_next():
    with pytest.raises(InputError, match="at least 2 tokens"):
        objective_of(tiny_causal_model("Llama"), np.array([[5]]))


def test_a_language_model_without_token_ids():
    model = tiny_causal_model("Llama")
    embeds = torch.randn(2, 6, model.config.hidden_size)
    with pytest.raises(InputError, match="judged by token ids, but the inputs hold inputs_embeds"):
        objective_of(model, {"inputs_embeds": embeds})
