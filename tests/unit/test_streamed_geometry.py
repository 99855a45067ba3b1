"""Heads organized from a capture on disk, without the tensor: as from the tensor, whatever the blocks."""

import numpy as np
import pytest

import headscape as hs
from headscape.engine import LocalEngine
from headscape.errors import InputError
from headscape.geometry.streamed_emd import streamed_emd
from headscape.geometry.streamed_geometry import streamed_heads, streamed_organization
from headscape.geometry.streamed_plan import streamed_plan
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import field_of_head


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(2, 3, 4, 40, 8)), rng.normal(size=(2, 3, 2, 40, 8))
    return hs.Capture.from_arrays(2 * queries, keys).save(tmp_path_factory.mktemp("streamed") / "capture")


def in_float64(capture, window, field="probs"):
    """The tensor, from queries in float64."""
    found = []
    for record in capture.records(window):
        exact = record.replace(queries=record.queries.astype(np.float64))
        heads = [head for layer, head in capture.heads if layer == record.layer]
        found += [field_of_head(exact, head, field) for head in heads]
    return np.stack(found, axis=2)


@pytest.mark.parametrize("field", ["probs", "logits", "energy"])
def test_as_from_the_tensor(capture, field):
    x = capture.tensor(1, field)
    whole = hs.organize(x, n_iter=1, n_eigs=6)
    found = streamed_heads(capture, 1, field=field, n_eigs=6, dtype=np.float64)
    initial = hs.Questionnaire(n_iter=1, n_eigs=6).fit(in_float64(capture, 1, field))
    np.testing.assert_allclose(found.geometry.emd, initial.emd_["head"], rtol=1e-10, atol=0)
    for axis in ("query", "key"):
        assert (found.trees[axis].labels == initial.initial_trees_[axis].labels).all()
    assert (found.geometry.tree.labels == initial.trees_["head"].labels).all()
    single = streamed_heads(capture, 1, field=field, n_eigs=6).geometry.emd
    np.testing.assert_allclose(single, whole.emd["head"], rtol=1e-5, atol=0)


@pytest.mark.parametrize("head_trees", ["latest", "initial"])
def test_the_whole_questionnaire_as_from_the_tensor(capture, head_trees):
    options = {"n_iter": 2, "n_eigs": 6, "head_trees": head_trees, "init": "gaussian"}
    expected = hs.Questionnaire(**options).fit(in_float64(capture, 0))
    found = streamed_organization(capture, 0, dtype=np.float64, **options).organization
    for axis in ("query", "key", "head"):
        np.testing.assert_allclose(found.emd[axis], expected.emd_[axis], rtol=1e-10, atol=0)
        assert (found.trees[axis].labels == expected.trees_[axis].labels).all()
        assert len(found.history[axis]) == 2
    assert found.heads == capture.heads


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.5)])
@pytest.mark.parametrize("axis", ["head", "query", "key"])
def test_blocks_and_threads_change_nothing(capture, axis, alpha, beta):
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    x = in_float64(capture, 0)
    expected = hs.tree_emd(x, trees, axis, alpha, beta)
    for block, threads in ((9, 2), (10_000, 1)):
        how = {"block": block, "engine": LocalEngine(threads)}
        found = streamed_emd(capture, 0, trees, axis, alpha, beta, dtype=np.float64, **how)
        np.testing.assert_allclose(found.emd, expected, rtol=1e-10, atol=0)
        assert found.relative_error() == 0


@pytest.mark.parametrize("axis", ["head", "query", "key"])
def test_an_estimate_is_near_and_does_not_depend_on_blocks(capture, axis):
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    exact = streamed_emd(capture, 0, trees, axis).emd
    one, other = (
        streamed_emd(capture, 0, trees, axis, approximate=True, block=block, engine=LocalEngine(threads))
        for block, threads in ((3, 2), (1000, 1))
    )
    np.testing.assert_allclose(one.emd, other.emd, rtol=1e-5)
    above = np.triu_indices(len(exact), 1)
    error = np.abs(one.emd - exact)[above] / exact[above]
    assert 0 < np.median(error) < 1.3 * one.relative_error(0.5) < 0.05
    assert (one.emd == one.emd.T).all()
    assert (one.emd != streamed_emd(capture, 0, trees, axis, approximate=True, seed=1).emd).any()


def test_some_heads_of_a_causal_capture_with_sinks_and_bias():
    rng = np.random.default_rng(3)

    def record(layer):
        q, k = rng.normal(size=(2, 3, 20, 4)).astype(np.float32)
        more = {"bias": rng.normal(size=(3, 20, 20)).astype(np.float32), "sinks": np.ones(3, np.float32)}
        return AttentionRecord(layer, q, k, 0.5, causal_visibility(20), softcap=3.0, **more)

    capture = hs.Capture.from_records([[record(0), record(1)]], heads=[(0, 2), (1, 0), (1, 1)])
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    for axis in ("head", "query"):
        expected = hs.tree_emd(in_float64(capture, 0), trees, axis)
        found = streamed_emd(capture, 0, trees, axis, dtype=np.float64, block=5)
        np.testing.assert_allclose(found.emd, expected, rtol=1e-10, atol=0)


def test_finished_logits_without_queries_and_keys():
    """Rows are taken in the order of the tree, whatever a record holds."""
    rng = np.random.default_rng(4)
    visible = causal_visibility(20)
    scores = rng.normal(size=(5, 20, 20)).astype(np.float32)
    capture = hs.Capture.from_records([[AttentionRecord.without_products(0, visible, scores=scores)]])
    x = np.asarray(capture.tensor(0))
    trees = hs.organize(x, n_iter=1).trees
    np.testing.assert_allclose(streamed_emd(capture, 0, trees).emd, hs.tree_emd(x, trees, "head"), rtol=1e-5)


def test_an_interrupted_run_resumes_and_damage_is_computed_again(capture, tmp_path, caplog):
    class StopError(Exception):
        pass

    def stop_in_the_middle(stage, done, total):
        if stage == "EMD of head" and done == 3:
            raise StopError

    options = {"path": tmp_path / "run", "engine": LocalEngine(1)}
    with pytest.raises(StopError):
        streamed_heads(capture, progress=stop_in_the_middle, **options)
    blocks = sorted((tmp_path / "run" / "parts").glob("*-block-*"))
    assert len(blocks) == 3
    torn = next(path for path in blocks[0].glob("sums/c.*") if path.is_file())
    torn.write_bytes(torn.read_bytes()[:-1])
    next(path for path in blocks[1].glob("sums/c.*") if path.is_file()).unlink()
    computed = []

    def count(stage, done, total):
        computed.append((stage, done))

    found = streamed_heads(capture, progress=count, **options)
    assert caplog.text.count("computed again") == 2
    assert (found.geometry.emd == streamed_heads(capture).geometry.emd).all()
    # The whole is kept and its blocks are gone; a third run computes nothing.
    assert {path.name for path in (tmp_path / "run" / "parts").iterdir()} == {"grams", "emd-001-head"}
    computed.clear()
    again = streamed_heads(capture, progress=count, **options)
    assert not computed
    assert (again.geometry.emd == found.geometry.emd).all()


def test_an_estimated_questionnaire_resumes(capture, tmp_path):
    options = {"n_iter": 2, "approximate": True, "path": tmp_path / "run", "engine": LocalEngine(1)}

    def stop(stage, done, total):
        if stage.startswith("iteration 2") and "query" in stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        streamed_organization(capture, progress=stop, **options)
    finished = {path.name for path in (tmp_path / "run" / "parts").iterdir()}
    assert {"emd-001-head", "emd-002-query", "emd-003-key", "emd-004-head"} < finished
    stages = []
    found = streamed_organization(capture, progress=lambda stage, *_: stages.append(stage), **options)
    assert {stage for stage in stages if "EMD" in stage} == {
        "iteration 2/2: EMD of query",
        "iteration 2/2: EMD of key",
    }
    assert set(found.organization.parameters["errors"]) == {"query", "key", "head"}
    fresh = streamed_organization(capture, **{**options, "path": None})
    for axis in ("query", "key", "head"):
        assert (found.organization.emd[axis] == fresh.organization.emd[axis]).all()


def test_memory_that_does_not_suffice(capture):
    with pytest.raises(InputError, match="memory must be at least"):
        streamed_heads(capture, memory=1 << 20)
    with pytest.raises(InputError, match="fewer workers"):
        streamed_plan(capture, 0, 230 << 20, LocalEngine(512))


def test_trees_that_do_not_fit(capture):
    trees = hs.organize(np.ones((5, 6, 7)), n_iter=1).trees
    with pytest.raises(InputError, match="must have 40 points"):
        streamed_emd(capture, 0, trees)
    with pytest.raises(InputError, match="none for key"):
        streamed_emd(capture, 0, {"query": hs.PartitionTree.trivial(40)})
    with pytest.raises(InputError, match="axis must be"):
        streamed_emd(capture, 0, trees, "layer")


def test_blocks_are_as_large_as_the_memory_allows(capture):
    """At 2,048 x 2,048 x 1,024, without reading it: the plan asks one head for its size."""

    class Large:
        heads = kv_heads = tuple((layer, head) for layer in range(32) for head in range(32))

        def head(self, window, layer, head):
            queries = np.zeros((1, 2048, 32), np.float32)
            return AttentionRecord(layer, queries, queries, 1.0, causal_visibility(2048))

    limits = (2700 << 20, 2850 << 20, 4 << 30)
    plans = [streamed_plan(Large(), 0, memory, LocalEngine(2), dithered=True) for memory in limits]
    assert [plan.memory <= limit for plan, limit in zip(plans, limits, strict=True)] == [True] * 3
    blocks = [plan.blocks["head"] for plan in plans]
    assert blocks == sorted(blocks)
    assert blocks[0] < blocks[2]
    with pytest.raises(InputError, match="fewer workers"):
        streamed_plan(Large(), 0, 1 << 30, LocalEngine(2), dithered=True)
