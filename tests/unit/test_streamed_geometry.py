"""Heads organized from a capture on disk, without the tensor: as from the tensor, whatever the blocks."""

import numpy as np
import pytest

import headscape as hs
from headscape.engine import LocalEngine
from headscape.errors import InputError
from headscape.geometry.streamed_emd import block_plan, streamed_head_emd
from headscape.geometry.streamed_geometry import streamed_heads
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


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.5)])
def test_blocks_and_threads_change_nothing(capture, alpha, beta):
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    x = in_float64(capture, 0)
    expected = hs.tree_emd(x, trees, "head", alpha, beta)
    for block in (1, 7, 10_000):
        for threads in (1, 2):
            how = {"dtype": np.float64, "block": block, "engine": LocalEngine(threads)}
            found = streamed_head_emd(capture, 0, trees, alpha, beta, **how)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=0)


def test_some_heads_of_a_causal_capture_with_sinks_and_bias():
    rng = np.random.default_rng(3)

    def record(layer):
        q, k = rng.normal(size=(2, 3, 20, 4)).astype(np.float32)
        more = {"bias": rng.normal(size=(3, 20, 20)).astype(np.float32), "sinks": np.ones(3, np.float32)}
        return AttentionRecord(layer, q, k, 0.5, causal_visibility(20), softcap=3.0, **more)

    capture = hs.Capture.from_records([[record(0), record(1)]], heads=[(0, 2), (1, 0), (1, 1)])
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    expected = hs.tree_emd(in_float64(capture, 0), trees, "head")
    found = streamed_head_emd(capture, 0, trees, dtype=np.float64, block=5)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=0)


def test_an_interrupted_run_resumes_and_damage_is_computed_again(capture, tmp_path, caplog):
    class StopError(Exception):
        pass

    def stop_in_the_middle(stage, done, total):
        if stage == "EMD of head" and done == 3:
            raise StopError

    options = {"path": tmp_path / "run", "engine": LocalEngine(1)}
    with pytest.raises(StopError):
        streamed_heads(capture, progress=stop_in_the_middle, **options)
    blocks = sorted((tmp_path / "run" / "parts").glob("block-*"))
    assert len(blocks) == 3
    torn = next(path for path in blocks[0].glob("emd/c/**/*") if path.is_file())
    torn.write_bytes(torn.read_bytes()[:-1])
    next(path for path in blocks[1].glob("emd/c/**/*") if path.is_file()).unlink()
    kept = blocks[2].stat().st_mtime_ns
    found = streamed_heads(capture, **options)
    assert "computed again" in caplog.text
    assert blocks[2].stat().st_mtime_ns == kept
    assert (found.geometry.emd == streamed_heads(capture).geometry.emd).all()


def test_a_share_of_the_terms(capture):
    exact, found = (streamed_heads(capture, share=share, dtype=np.float64) for share in (1.0, 0.3))
    assert exact.sample is None
    assert found.sample.relative_error() < 0.3
    assert np.corrcoef(exact.geometry.emd.ravel(), found.geometry.emd.ravel())[0, 1] > 0.98


def test_memory_that_does_not_suffice(capture):
    with pytest.raises(InputError, match="memory must be at least"):
        streamed_heads(capture, memory=1 << 20)
    with pytest.raises(InputError, match="fewer workers"):
        block_plan(1024, 2048, 2048, 3000, 3000, memory=1 << 29, workers=8)


def test_trees_that_do_not_fit(capture):
    trees = hs.organize(np.ones((5, 6, 7)), n_iter=1).trees
    with pytest.raises(InputError, match="must have 40 points"):
        streamed_head_emd(capture, 0, trees)
    with pytest.raises(InputError, match="none for key"):
        streamed_head_emd(capture, 0, {"query": trees["query"]})
