"""Analyze on models of several kinds: images, encoders, encoder-decoders, and a model by name."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

import headscape as hs
from headscape.study.display import page_data
from tiny_models import inputs_of, tiny_model, token_ids

OPTIONS = {"n_iter": 1, "k": 20}


@pytest.mark.parametrize("family", ["Bert", "ViT", "T5"])
def test_every_kind_of_model_ends_in_a_table_and_a_page(family):
    study = hs.analyze(tiny_model(family), inputs_of(family, rows=2), **OPTIONS)
    assert study.windows == 2
    assert len(study.heads) == 8
    assert study.heads[["haar_entropy", "mu_K", "k90"]].notna().all(axis=None)
    window = next(s.data for s in page_data(study).sections if s.key == "window")["windows"][0]
    assert len(window["queries"]) == 8
    assert len(window["order"]["query"]) == window["rows"]


def test_another_stack_can_be_chosen():
    study = hs.analyze(tiny_model("T5"), inputs_of("T5"), stack="cross", stages=["entropy"], **OPTIONS)
    tensor = study.capture.tensor(0)
    assert study.capture.stack == "cross"
    assert tensor.shape[:2] == (7, 12)
    window = next(s.data for s in page_data(study).sections if s.key == "window")["windows"][0]
    assert (window["rows"], window["columns"]) == (7, 12)


def test_a_stack_is_kept_on_disk(tmp_path):
    study = hs.analyze(
        tiny_model("T5"), inputs_of("T5"), stack="cross", out=tmp_path, stages=["entropy"], **OPTIONS
    )
    assert hs.Study.load(tmp_path).capture.stack == "cross"
    np.testing.assert_array_equal(hs.Study.load(tmp_path)["entropy"].entropies, study["entropy"].entropies)


def test_another_text_does_not_go_into_the_same_folder(tmp_path):
    model = tiny_model("Llama")
    hs.analyze(model, token_ids(2).numpy(), out=tmp_path, stages=["geometry"], **OPTIONS)
    with pytest.raises(hs.HeadscapeError, match="started with other inputs"):
        hs.analyze(model, token_ids(2, seed=5).numpy(), out=tmp_path, stages=["geometry"], **OPTIONS)


def test_the_default_text_needs_no_input():
    model = Path(__file__).parents[3] / "examples" / "tiny_model"
    study = hs.analyze(model, quick=True, length=32, stages=["entropy"], k=20)
    assert study.windows == 2
    assert study.options["geometry"]["n_iter"] == 3
    assert "Assignment" in "".join(study.capture.tokens(0))


def test_the_license_of_a_model_card_is_read(tmp_path):
    from headscape.models.packaged import NOT_STATED, license_of

    assert license_of(tmp_path) == NOT_STATED
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A model\n")
    assert license_of(tmp_path) == "mit"
