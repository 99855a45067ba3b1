"""Every sentence of the findings against its numbers, computed once more from what was measured."""

import re
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

import finding_sentences  # noqa: F401  registers what the sentences say
import headscape as hs
from finding_checks import CHECKS, check
from headscape.study.stages import STAGES
from studies import small_study

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
CONSTANT = {
    "arXiv 2605.02907: medians near 1.5 at L = 256 in 16 models from 124M to 7B parameters",
    "arXiv 2605.02907: variance is spread over the keys in every model tested",
    "arXiv 2604.04384: 2-11 for the energy field, 38-75 for W_Q^T W_K (d = 64 or 128)",
}
"""What papers report: nothing of the study is in it."""


def sinking_tensors(sinks, windows=5, length=40, heads=24, first=0.8):
    """Return probabilities in which the first heads attend to some keys, the others to what is near."""
    rng = np.random.default_rng(3)
    made = []
    for _ in range(windows):
        x = np.tril(rng.gamma(0.5, size=(heads, length, length)) + 1e-3)
        for head in range(heads // 2):
            for key in sinks:
                x[head, key:, key] += first * x[head, key:].sum(-1) * (1 + 0.02 * head)
        x /= x.sum(-1, keepdims=True)
        made.append(
            hs.NetworkTensor.from_axes(
                x.reshape(4, heads // 4, length, length), "layer,head,query,key", field="probs"
            )
        )
    return made


def one_sharp_key():
    """Return a capture in which one head of many has a dominant key, and its variance sits on it."""
    rng = np.random.default_rng(5)
    queries, keys = rng.normal(size=(4, 6, 4, 40, 6)), rng.normal(size=(4, 6, 4, 40, 6))
    keys[:, 2, 1, 7] *= 30
    return hs.Capture.from_arrays(queries, keys)


def concentrated_heads():
    """Return a capture whose queries see little but one key, though its keys have ordinary norms."""
    rng = np.random.default_rng(6)
    queries = 0.01 * rng.normal(size=(1, 2, 2, 24, 6))
    keys = rng.normal(size=(1, 2, 2, 24, 6))
    keys[..., :-1, 0], keys[..., -1, :] = 0.0, 0.0
    keys[..., -1, 0], queries[..., 0] = 2.5, 50 * rng.normal(size=(1, 2, 2, 24))
    return hs.Capture.from_arrays(queries, keys)


STUDIES = {
    "model": lambda: hs.analyze(
        MODEL,
        topics["assert"] * 20,
        windows=6,
        length=64,
        n_iter=1,
        k=50,
        stages=["+ablation", "+softmax"],
        methods=["gradient", "random", "reconstruction+repair"],
        softmax_n_iter=1,
    ),
    "captured": lambda: small_study(windows=3),
    "one window": lambda: small_study(windows=1, length=130, lengths=[32, 64]),
    "many layers": lambda: small_study(windows=5, layers=7, length=20, fields=["logits"]),
    "two sinks": lambda: hs.analyze(sinking_tensors((0, 20)), n_iter=1, k=50),
    "one sink": lambda: hs.analyze(sinking_tensors((4,), first=3.0), n_iter=1, k=50),
    "sinks left out": lambda: hs.analyze(sinking_tensors((0, 20)), n_iter=1, k=50, sinks="leave out"),
    "one sharp key": lambda: hs.analyze(one_sharp_key(), n_iter=1, k=50),
    "concentrated": lambda: hs.analyze(concentrated_heads(), n_iter=1, k=50),
    "equal windows": lambda: hs.analyze(sinking_tensors((0,), windows=1) * 4, n_iter=1, k=50),
    "much noise": lambda: small_study(windows=4, noise=0.4, stages=["folders"]),
    "few heads": lambda: small_study(windows=4, layers=1, heads=2, length=8),
}


@pytest.fixture(scope="module")
def studies():
    return {name: make() for name, make in STUDIES.items()}


def sentences(study):
    """Yield every sentence with its stage, and the statistics behind it."""
    for stage, outcome in study.outcomes.items():
        for finding in outcome.findings:
            yield stage, str(finding)
            statistics = getattr(finding, "statistics", "")
            if statistics and statistics not in CONSTANT:
                yield stage, statistics


@pytest.mark.parametrize("name", STUDIES)
def test_every_sentence_says_what_was_measured(studies, name):
    told = list(sentences(studies[name]))
    assert told
    for stage, sentence in told:
        check(studies[name], stage, sentence)


def test_every_check_is_of_a_sentence_that_is_said(studies):
    used = {check(study, *told) for study in studies.values() for told in sentences(study)}
    names = [recompute.__name__ for _, _, recompute in CHECKS]
    assert set(names) == {names[place] for place in used}


def test_every_stage_that_speaks_is_heard(studies):
    heard = {stage for study in studies.values() for stage, _ in sentences(study)}
    silent = {"pictures", "geometry"}
    assert heard == {stage.name for stage in STAGES} - silent


def test_a_sentence_without_a_check_is_noticed(studies):
    with pytest.raises(AssertionError, match="no check is registered"):
        check(studies["captured"], "energy", "Something new: 3 of 12 heads are odd.")


@pytest.mark.parametrize("stage", ["energy", "folders", "patterns", "entropy"])
def test_a_wrong_number_is_noticed(studies, stage):
    """Change the first number of every sentence of a stage: no check may let it pass."""
    changed = 0
    for of, sentence in sentences(studies["model"]):
        first = re.search(r"(?<![\w.])\d+(?=[ .,)])", sentence)
        if of != stage or first is None:
            continue
        wrong = f"{sentence[: first.start()]}{int(first[0]) + 1}{sentence[first.end() :]}"
        with pytest.raises((AssertionError, KeyError)):
            check(studies["model"], stage, wrong)
        changed += 1
    assert changed
