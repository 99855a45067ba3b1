import base64
import html as html_module
import io
import json
import re
import zlib
from dataclasses import replace
from importlib import util

import numpy as np
import pytest
from matplotlib.image import imread

from headscape.errors import MissingDependencyError
from headscape.report.html_page import _without_module_wrapper
from headscape.report.page import PageData, page_html
from headscape.report.pictures import float_text, gray_png, root_bytes, signed_bytes
from headscape.report.section import Chart, Section
from headscape.study.display import page_data
from studies import ODD_NAME, ODD_TOKENS, small_study


@pytest.fixture(scope="module")
def study():
    return small_study(name=ODD_NAME)


@pytest.fixture(scope="module")
def data(study):
    return page_data(study)


def section(data, key):
    return next(section.data for section in data.sections if section.key == key)


def embedded(html):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL).group(1)
    return json.loads(text)


def test_a_png_holds_exactly_the_bytes():
    values = np.arange(35, dtype=np.uint8).reshape(5, 7) * 7
    shown = imread(io.BytesIO(base64.b64decode(gray_png(values))), format="png")
    np.testing.assert_array_equal(np.round(shown * 255), values)


def test_root_bytes_keep_small_values_apart():
    values = np.array([[0.0, 0.0004, 0.01, 1.0]])
    pixels, high = root_bytes(values)
    back = (pixels / 255.0) ** 2 * high
    np.testing.assert_allclose(back, values, atol=0.002)
    assert root_bytes(np.zeros((2, 2)))[1] == 0


def test_signed_bytes_keep_sign_and_mask():
    rng = np.random.default_rng(0)
    values, visible = rng.normal(size=(20, 20)), np.tri(20, dtype=bool)
    pixels, limit = signed_bytes(values, visible)
    back = (pixels.astype(float) - 128) / 126 * limit
    assert (pixels[~visible] == 0).all()
    assert (pixels[visible] > 0).all()
    clipped = np.clip(values, -limit, limit)
    np.testing.assert_allclose(back[visible], clipped[visible], atol=limit / 80)


def test_the_page_has_no_way_out_and_no_open_text(data):
    html = page_html(data)
    assert html.count("<script") == 3
    assert "default-src 'none'" in html
    ours = html[: html.index('<script type="application/json"')]
    assert "http://" not in ours.replace("http-equiv", "")
    assert "https://" not in ours
    assert "<script>alert" not in html
    assert "<img src" not in html
    assert "{{" not in ours


def test_what_is_embedded_equals_the_study(study, data):
    page = page_html(data)
    found = embedded(page)
    assert found["heads"]["names"] == [f"{layer}.{head}" for layer, head in study.heads.index]
    columns = {measure["key"]: measure["values"] for measure in found["measures"]}
    assert list(columns["mu_K"]) == study.heads["mu_K"].tolist()
    assert list(columns["haar_entropy"]) == study.heads["haar_entropy"].tolist()
    assert all(html_module.escape(sentence) in page for sentence in study.findings)
    assert all(html_module.escape(warning.message) in page for warning in study.warnings)
    assert tuple(found["window"]["windows"][0]["tokens"]["query"][: len(ODD_TOKENS)]) == ODD_TOKENS
    assert f'<h1 id="title">{html_module.escape(ODD_NAME)}</h1>' in page


def test_without_room_for_queries_and_keys_pictures_hold_the_attention(study, monkeypatch):
    monkeypatch.setattr("headscape.study.stages.pictures.PACKED_BYTES", 1)
    other = small_study(name=ODD_NAME, stages=["geometry"])
    window = section(page_data(other), "window")["windows"][0]
    png = base64.b64decode(window["attention"]["png"][5])
    pixels = np.round(imread(io.BytesIO(png), format="png") * 255)
    attention = other.attention(*other.capture.heads[5])
    np.testing.assert_allclose((pixels / 255) ** 2 * window["attention"]["limit"][5], attention, atol=0.02)
    assert sorted(window["order"]["query"]) == list(range(24))
    assert "queries" not in window


def test_the_tree_and_the_nearest_heads_are_those_of_the_mean_geometry(study, data):
    geometry = section(data, "geometry")
    heads = study["folders"].geometry
    emd = heads.emd
    for head, near in enumerate(geometry["nearest"]["index"]):
        assert head not in near
        np.testing.assert_allclose(geometry["nearest"]["emd"][head], emd[head][near])
        assert geometry["nearest"]["emd"][head] == sorted(geometry["nearest"]["emd"][head])
    assert geometry["order"] == heads.tree.order.tolist()
    assert geometry["folder_names"] == list(study["folders"].names)
    for key in ("support", "folder_names"):
        assert len(geometry[key]) == len(geometry["folders"]["start"])
    assert len(geometry["coordinates_follow"]) == 3
    assert geometry["folders"]["stop"][0] == len(study.heads)


def test_sections_of_missing_stages_are_left_out():
    data = page_data(small_study(stages=["geometry"], windows=1))
    assert {section.key for section in data.sections} == {"window", "geometry"}
    assert "geometry" in embedded(page_html(data))


def test_about_names_license_command_seed_and_versions(data):
    labels = {label for label, _, _ in data.about}
    assert {"License of the weights", "Command", "Parameters", "Seed", "Time"} <= labels


def test_about_prints_no_python_values():
    study = small_study(windows=1, stages=["entropy"])
    about = {label: value for label, value, _ in page_data(study).about}
    assert None in {**study.parameters, **study.options["entropy"]}.values()
    assert not re.search(r"None|[\[\]{}]", " ".join(about.values()))


def test_one_of_a_kind_is_singular():
    facts = dict(page_data(small_study(windows=1, layers=1, stages=[])).facts)
    assert facts["window"] == facts["layer"] == "1"
    assert facts["heads"] == "4"


def test_the_first_finding_opens_the_page(study, data):
    words = page_html(data).partition("<script")[0]
    opening = html_module.escape(study.findings[0])
    assert re.search(rf'<p id="opening" class="opening( long)?">{re.escape(opening)}</p>', words)
    assert words.count(opening) == 1


def test_headings_of_ready_made_charts_can_have_help(data):
    chart = Chart("Title", ({"type": "bar"},), help='What a "bar" is.', docs="docs/glossary.md")
    page = page_html(replace(data, sections=(Section("x", charts=(chart,)),)))
    assert 'data-help="What a &quot;bar&quot; is." data-docs="docs/glossary.md">Title</h2>' in page


def test_values_that_are_no_numbers_become_null():
    data = PageData("x", {"names": ["0.0"]}, [{"values": [None]}], [], [], [], [])
    assert '"values":[null]' in data.to_json()
    with pytest.raises(ValueError, match="JSON"):
        PageData("x", {"names": [float("nan")]}, [], [], [], [], []).to_json()


def test_without_plotly_the_report_says_what_to_install(data, monkeypatch):
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "plotly" else find(name))
    with pytest.raises(MissingDependencyError, match=r"headscape\[report\]"):
        page_html(data)


def test_plotly_starts_without_its_module_wrapper(data):
    packed = re.search(
        r'<script type="text/plain" id="plotly">(.*?)</script>', page_html(data), re.DOTALL
    ).group(1)
    script = zlib.decompress(base64.b64decode(packed)).decode()
    license_, _, code = script.partition("*/\n")
    assert "MIT license" in license_
    assert code.startswith('"use strict";var Plotly=')
    assert "return Plotly;" not in code[-100:]


def test_a_library_in_another_form_stays_as_it_is():
    for script in ("var Plotly = {};", "/* x */\n(() => {\nreturn Plotly;\n}));"):
        assert _without_module_wrapper(script) == script


def test_many_cells_become_means_over_blocks(monkeypatch):
    monkeypatch.setattr("headscape.study.stages.pictures.PACKED_BYTES", 1)
    monkeypatch.setattr("headscape.study.stages.pictures.CELLS", 12 * 3 * 20**2)
    window = section(page_data(small_study(windows=1, length=80, stages=["geometry"])), "window")["windows"][
        0
    ]
    assert (window["rows"], window["columns"], window["cells"]) == (80, 80, [20, 20])
    assert "block of about 4 x 4 tokens" in window["note"]
    assert len(window["organized"]["png"]) == 12


def test_floats_travel_as_little_endian_singles():
    values = np.array([[1.5, -2.0]])
    assert np.frombuffer(base64.b64decode(float_text(values)), dtype="<f4").tolist() == [1.5, -2.0]


def test_every_column_has_a_meaning(study):
    assert all(column.meaning for column in study.columns.values())
    assert study.columns["mu_K_q25"].meaning.startswith("Lower quartile.")


def test_the_report_reads_no_queries_and_keys(study, monkeypatch):
    monkeypatch.setattr("headscape.tensor.capture.Capture.record", None)
    monkeypatch.setattr("headscape.tensor.capture.Capture.tensor", None)
    assert page_data(study).sections
