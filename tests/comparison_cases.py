"""Networks to compare: the tiny model, and copies of it with known differences."""

import argparse
import ast
import copy
import dataclasses
import inspect
import typing
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

import headscape as hs
from headscape.analysis.comparison.gromov_wasserstein import gromov_wasserstein
from headscape.analysis.comparison.window_test import EVERYTHING, LEVEL
from headscape.study.compared_source import ComparedSource, noise_floor, scaled_emds, window_noise
from headscape.study.head_matching import Matching
from headscape.study.pair_tests import PairTests
from headscape.study.source_words import about_source, original_heads

TINY_MODEL = Path(__file__).parents[1] / "examples" / "tiny_model"
STAGES = ["patterns", "entropy", "energy"]
WINDOWS, LENGTH, D_HEAD = 6, 48, 16
# Query heads 0, 1 share a key-value head, and 2, 3 another: groups move as a whole, heads inside their group.
ORDER = (3, 2, 0, 1)


@cache
def tiny():
    return hs.load_model(TINY_MODEL)


def copy_of_tiny():
    """Return a copy whose weights can be changed."""
    return dataclasses.replace(tiny(), model=copy.deepcopy(tiny().model))


def attention_of(model, layer):
    return model.model.model.layers[layer].self_attn


def with_heads_in_order(layer, order=ORDER):
    """Return a copy that does the same, but whose head i of a layer is head order[i] of the tiny model."""
    model = copy_of_tiny()
    attention = attention_of(model, layer)
    shared = [order[i] // 2 for i in (0, 2)]
    with torch.no_grad():
        for projection, heads in (
            (attention.q_proj, order),
            (attention.k_proj, shared),
            (attention.v_proj, shared),
        ):
            rows = projection.weight.reshape(-1, D_HEAD, projection.weight.shape[1])
            projection.weight.copy_(rows[list(heads)].reshape(projection.weight.shape))
        columns = attention.o_proj.weight.reshape(attention.o_proj.weight.shape[0], -1, D_HEAD)
        attention.o_proj.weight.copy_(columns[:, list(order)].reshape(attention.o_proj.weight.shape))
    return model


def with_noise(layer, relative, seed=0, elsewhere=0.0):
    """Return a copy with noise on the queries and keys of a layer, relative to the size of the weights.

    ``elsewhere`` is the noise on all other layers.
    """
    model = copy_of_tiny()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for place in [layer] if not elsewhere else range(4):
            amount = relative if place == layer else elsewhere
            for projection in (attention_of(model, place).q_proj, attention_of(model, place).k_proj):
                weight = projection.weight
                weight += amount * weight.std() * torch.randn(weight.shape, generator=generator)
    return model


def farthest_layer(pair):
    """Return the layer whose heads moved farthest on the same windows."""
    rows = pair.shifts[pair.shifts["level"] == "layer"].set_index("layer")
    return rows["moved"].idxmax()


def study_of(model, inputs=None, **options):
    """Analyze as a comparison needs it."""
    settings = {"windows": WINDOWS, "length": LENGTH, "n_iter": 1, "stages": STAGES}
    return hs.analyze(model, inputs, **{**settings, **options})


@cache
def tiny_study():
    return study_of(tiny())


def changed(pair, level="layer"):
    """Return the layers, heads or measures of a pair that changed."""
    rows = pair.at(level)
    rows = rows[rows["verdict"] == "changed"]
    if level == "network":
        return set(rows["measure"])
    columns = {"layer": ["layer"], "head": ["layer", "head"], "folder": ["folder"]}[level]
    return {tuple(row) if len(columns) > 1 else row[0] for row in rows[columns].to_numpy().tolist()}


def pairs_are_of_order(pair, layer, order=ORDER):
    """Tell whether every head was found: in the layer where ``order`` put it, elsewhere at its own place."""
    own = {(row.layer_a, row.head_a): (row.layer_b, row.head_b) for row in pair.correspondence.itertuples()}
    moved = {(layer, head): (layer, place) for place, head in enumerate(order)}
    return own == {head: moved.get(head, head) for head in tiny_study().data.heads}


def all_topics():
    """Return all text that the tiny model was trained on."""
    return "\n\n".join(topics[name] for name in sorted(topics))


def prose():
    """Return the paragraphs of running text in what the tiny model was trained on."""
    paragraphs = all_topics().split("\n\n")
    return "\n\n".join(
        p for p in paragraphs if len(p) > 200 and all(line[:1].isalpha() for line in p.split("\n"))
    )


def code():
    """Return Python code without comments and docstrings."""
    tree = ast.parse("\n".join(inspect.getsource(module) for module in (argparse, inspect, typing)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def study_of_all_topics(**options):
    """Analyze the tiny model on random windows of all text that it was trained on."""
    return study_of(tiny(), all_topics(), sample="random", **options)


def disjoint_sets(study, pairs, windows):
    """Yield pairs of disjoint window sets of a study, drawn at random."""
    rng = np.random.default_rng(1)
    for _ in range(pairs):
        order = rng.permutation(study.windows)
        yield order[:windows], order[windows : 2 * windows]


def false_alarms(study, *, pairs, windows, matched="number"):
    """Count the pairs of disjoint window sets of one study between which something seems to change."""
    source, emds = compared(study)
    heads = np.arange(len(source.heads))
    alarms = 0
    for seed, chosen in enumerate(disjoint_sets(study, pairs, windows)):
        tests = PairTests(source, source, (emds, emds), chosen, Matching(matched, heads, heads))
        _, changes = tests.run(paired=False, level=LEVEL, seed=seed)
        alarms += "changed" in set(changes["verdict"])
    return alarms


def told_apart(a, b, *, pairs, windows):
    """Count the pairs of window sets of two studies between which anything, or any single measure, changed."""
    (first, emds), (second, others) = compared(a), compared(b)
    heads, rng = np.arange(len(first.heads)), np.random.default_rng(1)
    found = {"any": 0, "single": 0}
    for seed in range(pairs):
        chosen = tuple(rng.permutation(study.windows)[:windows] for study in (a, b))
        tests = PairTests(first, second, (emds, others), chosen, Matching("number", heads, heads))
        changes = tests.run(paired=False, level=LEVEL, seed=seed)[1]
        which = set(changes[changes["verdict"] == "changed"]["measure"])
        found["any"] += bool(which)
        found["single"] += bool(which - {EVERYTHING})
    return found


def compared(study):
    """Return a study of the tiny model as a comparison sees it, and its EMDs in median EMDs."""
    about = about_source(tiny(), study)
    return ComparedSource.of_study("tiny", study, about, original_heads(study, about)), scaled_emds(study)


def distances_beyond_noise(study, *, pairs, windows):
    """Count the pairs of disjoint window sets of one study whose geometries are farther apart than the noise."""
    emds, found = scaled_emds(study), 0
    for chosen in disjoint_sets(study, pairs, windows):
        a, b = (emds[one].mean(axis=0) for one in chosen)
        found += gromov_wasserstein(a, b).distance > noise_floor([window_noise(emds[one]) for one in chosen])
    return found
