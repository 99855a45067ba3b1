import html as html_module
import json
import re
from dataclasses import replace

import pytest

from comparison_pages import KINDS, made_up_comparison
from headscape.report.comparison_page import comparison_page_html, write_comparison_page


def embedded(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1)
    return json.loads(text)


def test_the_page_holds_what_it_was_given():
    data = made_up_comparison()
    found = embedded(comparison_page_html(data))
    assert [source["label"] for source in found["sources"]] == ["intact", "pruned"]
    assert found["pairs"][0]["partners"][0] == data.pairs[0].partners[0]
    assert found["pairs"][0]["distance"] == data.pairs[0].distance
    assert set(found) == {"sources", "pairs", "measures", "places", "path"}


def test_it_opens_with_the_first_finding_and_keeps_the_order_of_questions():
    data = made_up_comparison()
    words = comparison_page_html(data).partition("<script")[0]
    assert f'<p id="opening" class="opening">{data.answers[0].sentence}</p>' in words
    places = [words.index(html_module.escape(answer.sentence)) for answer in data.answers]
    assert places == sorted(places)
    assert all(html_module.escape(a.statistics) in words for a in data.answers)


def test_names_are_escaped_and_nothing_leads_out():
    page = comparison_page_html(made_up_comparison(('<img src="x" onerror="document.title=1">', "</script>")))
    ours = page[: page.index('<script type="application/json"')]
    assert page.count("<script") == 3
    assert "<img src" not in page
    assert KINDS[-1] not in page
    assert "https://" not in ours
    assert "{{" not in ours


def test_what_json_cannot_hold_is_refused():
    data = made_up_comparison()
    with pytest.raises(ValueError, match="JSON"):
        comparison_page_html(replace(data, pairs=[replace(data.pairs[0], distance=float("nan"))]))


def test_it_is_one_file_of_a_few_megabytes(tmp_path):
    path = write_comparison_page(made_up_comparison(("a", "b", "c")), tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
