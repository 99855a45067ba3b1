import json
from dataclasses import replace

import numpy as np
import pytest

from headscape.report.comparison_page import comparison_page_html
from headscape.study.compare import compare
from headscape.study.comparison_display import comparison_page_data
from headscape.study.measure_words import noise_words
from headscape.tensor.capture import Capture

SMALL = {"n_iter": 1, "k": 50}


def planted(noise=0.0, layer=1, layers=3, heads=4, length=16, windows=6, seed=0, order=None):
    rng = np.random.default_rng(seed)
    keys, queries = rng.normal(size=(2, windows, layers, heads, length, 4))
    queries[:, layer] += noise * np.random.default_rng(9).normal(size=queries[:, layer].shape)
    if order is not None:
        keys, queries = (
            x.reshape(windows, -1, length, 4)[:, order].reshape(x.shape) for x in (keys, queries)
        )
    tokens = [f"token{i}" for i in range(length)]
    provenance = {"model": {"name": "planted"}, "input_hash": f"{noise}-{seed}-{order is None}"}
    return Capture.from_arrays(queries, keys, tokens=tokens, provenance=provenance)


@pytest.fixture(scope="module")
def changed():
    return compare([planted(), planted(noise=3.0)], names=["before", "after"], **SMALL)


def column(pair, key):
    return next(column["values"] for column in pair.columns if column["key"] == key)


def test_layers_show_how_far_they_moved_on_the_same_windows(changed):
    rows = changed.shifts[changed.shifts["level"] == "layer"]
    layers = next(g for g in comparison_page_data(changed).pairs[0].groups if g["kind"] == "layer")
    series = next(s for s in layers["series"] if s["key"] == "moved")
    assert series["times"] == rows["moved"].tolist()
    assert series["changed"] == [False, True, False]
    assert (rows["moved"] == 0).tolist() == [True, False, True]


def test_every_change_of_a_head_is_a_row_of_the_page(changed):
    pair, page = changed.pairs[0], comparison_page_data(changed).pairs[0]
    heads = pair.at("head")
    largest = heads.groupby(["layer", "head"], sort=False)["times_noise"].max()
    assert column(page, "times") == pytest.approx(np.minimum(largest, 999).tolist())
    found = heads[heads["verdict"] == "changed"].groupby(["layer", "head"]).size().index
    verdicts = dict(zip(changed.sources[0].heads, column(page, "verdict"), strict=True))
    assert {head for head, verdict in verdicts.items() if verdict == "changed"} == set(found)
    assert page.exact
    assert column(page, "partner") == [
        "0.0",
        "0.1",
        "0.2",
        "0.3",
        "1.0",
        "1.1",
        "1.2",
        "1.3",
        "2.0",
        "2.1",
        "2.2",
        "2.3",
    ]


def test_layers_and_folders_have_every_measure_beside_the_noise(changed):
    layers, folders = comparison_page_data(changed).pairs[0].groups
    assert (layers["kind"], layers["labels"], layers["heads"]) == ("layer", ["0", "1", "2"], [4, 4, 4])
    assert sum(folders["heads"]) == 12
    tested = changed.pairs[0].at("layer", "geometry")
    series = {one["key"]: one for one in layers["series"]}
    assert series["geometry"]["times"] == pytest.approx(tested["times_noise"].tolist())
    assert series["any"]["times"] == [
        max(t) for t in zip(*(s["times"] for s in layers["series"]), strict=True)
    ]


def test_different_shapes_show_the_transport_and_say_what_is_missing():
    comparison = compare(
        [planted(), planted(layers=2, heads=3, length=20, seed=5)], names=["a", "b"], **SMALL
    )
    pair = comparison_page_data(comparison).pairs[0]
    plan = comparison.pairs[0].plan
    assert not pair.exact
    assert pair.groups == []
    for head, partners in enumerate(pair.partners[0]):
        best, share = partners[0]
        assert best == plan[head].argmax()
        assert share == pytest.approx(plan[head].max() / plan[head].sum(), abs=1e-4)
        assert [s for _, s in partners] == sorted((s for _, s in partners), reverse=True)
    np.testing.assert_allclose(np.sum(pair.matrices[0]["values"], axis=1), 1, atol=1e-3)
    assert pair.not_compared == list(comparison.pairs[0].not_compared)
    assert pair.not_compared


def test_permuted_heads_lead_to_where_they_went():
    order = np.random.default_rng(2).permutation(12)
    comparison = compare([planted(), planted(order=order)], names=["a", "b"], **SMALL)
    pair = comparison_page_data(comparison).pairs[0]
    assert [partners[0][0] for partners in pair.partners[0]] == np.argsort(order).tolist()
    assert [partners[0][0] for partners in pair.partners[1]] == order.tolist()


def test_heads_that_one_side_lacks_say_so(changed):
    pair, (first, second) = changed.pairs[0], changed.sources
    gone = replace(
        second, heads=second.heads[1:], originals=second.originals[1:], table=second.table.iloc[1:]
    )
    rest = pair.changes[(pair.changes["layer"] != 0) | (pair.changes["head"] != 0)]
    fewer = replace(pair, matched="original number", plan=pair.plan[:, 1:], emd=pair.emd[:, 1:], changes=rest)
    page = comparison_page_data(replace(changed, sources=(first, gone), pairs=(fewer,))).pairs[0]
    assert page.partners[0][:2] == [[], [[0, 1.0]]]
    assert column(page, "verdict")[0] == "only in before"
    assert column(page, "times")[0] is None


def test_several_networks_have_places_and_a_path_only_if_their_heads_match(changed):
    sources = [planted(noise=noise) for noise in (0.0, 1.0, 3.0)]
    data = comparison_page_data(compare(sources, names=["0", "100", "200"], **SMALL))
    assert data.path == [0, 1, 2]
    assert np.shape(data.places) == (3, 2)
    assert comparison_page_data(changed).places == []


def test_the_report_is_the_page_of_the_comparison(changed, tmp_path):
    path = changed.report(tmp_path / "report.html")
    data = comparison_page_data(changed)
    assert path.read_text(encoding="utf-8") == comparison_page_html(data)
    assert data.answers[0].sentence == changed.headline
    assert json.loads(data.to_json().replace("\\u003c", "<"))["sources"][0]["entropies"] == pytest.approx(
        changed.sources[0].networks["network_entropy"].tolist()
    )


@pytest.mark.parametrize(
    ("times", "words"), [(1.0, "inside the noise"), (12.3, "12 times the noise"), (0.0, "identical")]
)
def test_a_distance_stands_beside_the_noise(times, words):
    assert noise_words(times) == words
