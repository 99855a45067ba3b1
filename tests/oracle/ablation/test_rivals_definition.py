"""Published pruning methods against slow loops written from their formulas, layer after layer on raw activations."""

import numpy as np
import pytest
import torch

from evaluator_cases import evidence_of
from headscape.ablation.greedy import removable_units, single_heads
from headscape.ablation.layerwise import uniform_quotas
from headscape.ablation.rivals import rival_choice
from tiny_models import tiny_causal_model, token_ids

IDS = token_ids(8, length=30)
DAMPING = 0.05
D = 8  # head dimension of the tiny models


def inputs_of_layer(evaluator, layer, matrices, biases):
    """Activations (token, head x d) that enter a layer, with the matrices of earlier layers replaced."""
    found = []
    projection = evaluator.projections[layer]
    hook = projection.module.register_forward_pre_hook(
        lambda _, arguments: found.append(arguments[0].detach().flatten(0, 1).double().numpy())
    )
    before = {at: evaluator.projections[at].matrix.detach().clone() for at in matrices}
    try:
        for at, matrix in matrices.items():
            evaluator.projections[at].write(torch.from_numpy(matrix).float())
        with torch.no_grad():
            for batch in evaluator.objective.batches:
                evaluator.model.eval()(**batch.arguments)
    finally:
        hook.remove()
        for at, matrix in before.items():
            evaluator.projections[at].write(matrix)
    return np.concatenate(found)


def columns(heads):
    return np.concatenate([np.arange(h * D, (h + 1) * D) for h in heads]) if len(heads) else np.arange(0)


def slimgpt_layer(weights, x, n_gone):
    """One head at a time: score by the diagonal of the Cholesky factor, update column after column, drop its rows."""
    weights, n = weights.copy(), len(x)
    hessian = 2 / n * x.T @ x
    hessian += DAMPING * np.mean(np.diag(hessian)) * np.eye(len(hessian))
    left, gone = list(range(weights.shape[1] // D)), []
    for _ in range(n_gone):
        inverse = np.linalg.inv(hessian[np.ix_(columns(left), columns(left))])
        scores = {}
        for place, head in enumerate(left):
            own = slice(place * D, (place + 1) * D)
            factor = np.linalg.cholesky(inverse[own, own])
            scores[head] = sum(
                np.sum(weights[:, c] ** 2) / factor[j, j] ** 2 for j, c in enumerate(columns([head]))
            )
        head = min(scores, key=scores.get)
        order = [head, *(other for other in left if other != head)]
        permuted = np.linalg.inv(hessian[np.ix_(columns(order), columns(order))])
        upper = np.linalg.cholesky(permuted).T
        block = weights[:, columns(order)]
        for i in range(D):
            error = block[:, i] / upper[i, i]
            block = block - np.outer(error, upper[i])
        weights[:, columns(order)] = block
        weights[:, columns([head])] = 0.0
        left.remove(head)
        gone.append(head)
    return gone, weights


def squared_error(weights, x, gone, damping):
    """The smallest damped squared error without some heads, by least squares with one more row per weight."""
    kept = columns([h for h in range(weights.shape[1] // D) if h not in gone])
    ridge = np.sqrt(damping * np.mean(np.sum(x**2, axis=0)))
    rows = np.vstack([x[:, kept], ridge * np.eye(len(kept))])
    wanted = np.vstack([x @ weights.T, ridge * weights[:, kept].T])
    fitted = np.linalg.lstsq(rows, wanted)[0]
    found = np.zeros_like(weights)
    found[:, kept] = fitted.T
    # Of the columns that go, the damping counts the weight they lose.
    lost = ridge**2 * np.sum(weights[:, columns(gone)] ** 2)
    return np.sum((rows @ fitted - wanted) ** 2) + lost, found


def osscar_layer(weights, x, n_gone):
    """Greedy by the true increase of the error, then swaps while it falls."""
    heads, gone = range(weights.shape[1] // D), []
    for _ in range(n_gone):
        prices = {h: squared_error(weights, x, [*gone, h], DAMPING)[0] for h in heads if h not in gone}
        gone.append(min(prices, key=prices.get))
    best = squared_error(weights, x, gone, DAMPING)[0]
    while True:
        trials = [
            [*(g for g in gone if g != out), other] for out in gone for other in heads if other not in gone
        ]
        prices = [squared_error(weights, x, trial, DAMPING)[0] for trial in trials]
        if min(prices) >= best * (1 - 1e-9):
            return gone, squared_error(weights, x, gone, DAMPING)[1]
        best, gone = min(prices), trials[int(np.argmin(prices))]


def wanda_layer(weights, x, n_gone):
    norms = np.sqrt(np.sum(x**2, axis=0)) / np.sqrt(len(x))
    scores = [
        np.sum(np.mean(np.abs(weights), axis=0)[c] * norms[c]) for c in map(columns, [[h] for h in range(4)])
    ]
    gone = np.argsort(scores)[:n_gone].tolist()
    left = weights.copy()
    left[:, columns(gone)] = 0.0
    return gone, left


@pytest.fixture(scope="module", params=["Llama", "GPT2"])
def evaluator(request):
    return evidence_of(tiny_causal_model(request.param), IDS)


@pytest.mark.parametrize(
    ("method", "layer_rule"),
    [("slimgpt", slimgpt_layer), ("osscar", osscar_layer), ("wanda-sp", wanda_layer)],
)
@pytest.mark.parametrize("count", [3, 4, 6])
def test_layer_after_layer(evaluator, method, layer_rule, count):
    found = rival_choice(evaluator, method, count, damping=DAMPING)
    quotas = {0: count // 2, 1: count - count // 2}  # the deeper layer loses one more
    matrices, gone = {}, []
    for layer in (0, 1):
        weights = evaluator.projections[layer].matrix.detach().double().numpy()
        x = inputs_of_layer(evaluator, layer, matrices, {})
        heads, matrices[layer] = layer_rule(weights, x, quotas[layer])
        gone += [(layer, head) for head in heads]
    assert sorted(found.heads) == sorted(gone)
    for layer, matrix in matrices.items():
        np.testing.assert_allclose(found.repair.matrices[layer].numpy(), matrix, atol=2e-4)
    # As published, a bias is left alone.
    for layer, bias in found.repair.biases.items():
        torch.testing.assert_close(bias, evaluator.projections[layer].bias.detach())


def test_flap(evaluator):
    found = rival_choice(evaluator, "flap", 3)
    scores, means = {}, {}
    for layer in (0, 1):
        weights = evaluator.projections[layer].matrix.detach().double().numpy()
        x = inputs_of_layer(evaluator, layer, {}, {})
        s = np.array([(np.var(x[:, i]) * np.sum(weights[:, i] ** 2)) ** 2 for i in range(x.shape[1])])
        z = (s - s.mean()) / s.std()
        means[layer] = x.mean(axis=0)
        scores |= {(layer, head): z[columns([head])].mean() for head in range(4)}
    wanted = sorted(scores, key=scores.get)[:3]
    assert list(found.heads) == wanted
    for layer in {layer for layer, _ in wanted}:
        removed = columns([head for at, head in wanted if at == layer])
        projection = evaluator.projections[layer]
        matrix = projection.matrix.detach().double().numpy()
        old = 0.0 if projection.bias is None else projection.bias.detach().numpy()
        shift = matrix[:, removed] @ means[layer][removed]
        np.testing.assert_allclose(found.repair.biases[layer].numpy(), old + shift, atol=1e-5)
        assert not found.repair.matrices[layer][:, removed].any()


def test_a_constant_is_added_where_the_projection_has_no_bias():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    found = rival_choice(evaluator, "flap", 1)
    [(layer, head)] = found.heads
    projection = evaluator.projections[layer]
    x = torch.randn(3, 32)
    with torch.no_grad():
        plain = projection.module(torch.where(torch.arange(32) // D == head, 0.0, x))
        with found.repair.applied(evaluator.projections):
            torch.testing.assert_close(projection.module(x), plain + found.repair.biases[layer])
        torch.testing.assert_close(
            projection.module(x), torch.nn.functional.linear(x, projection.matrix.detach())
        )


@pytest.mark.parametrize("method", ["flap", "wanda-sp", "slimgpt", "osscar"])
def test_units_can_be_cut_out(method):
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)  # 4 heads, 2 key-value heads
    found = rival_choice(evaluator, method, 4, removable_units, damping=DAMPING)
    assert 2 <= len(found.heads) <= 4
    for layer in (0, 1):
        gone = sorted(head for at, head in found.heads if at == layer)
        assert gone in ([], [0, 1], [2, 3], [0, 2], [0, 3], [1, 2], [1, 3])


def test_layers_lose_the_same_number_and_deeper_ones_the_rest():
    modules = evidence_of(tiny_causal_model("Llama"), IDS).modules
    assert uniform_quotas(modules, 5, single_heads) == {0: 2, 1: 3}
    assert uniform_quotas(modules, 5, removable_units) == {0: 2, 1: 2}
    assert uniform_quotas(modules, 2, removable_units) == {0: 0, 1: 2}
    assert uniform_quotas(modules, 8, single_heads) == {0: 4, 1: 4}


def test_the_damping_is_chosen_by_left_out_windows():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    chosen = rival_choice(evaluator, "slimgpt", 3)
    again = rival_choice(evaluator, "slimgpt", 3, damping=chosen.repair.strength.ridge)
    assert chosen.heads == again.heads
    for layer, matrix in chosen.repair.matrices.items():
        torch.testing.assert_close(again.repair.matrices[layer], matrix)
