"""Pictures and matrices of a study in Python, and how trees and organizations show themselves."""

import matplotlib as mpl
import numpy as np
import pytest

import headscape as hs
from headscape.errors import InputError
from studies import small_study

mpl.use("Agg")


@pytest.fixture(scope="module")
def study():
    return small_study(stages=["entropy"])


@pytest.fixture
def ax():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def test_attention_is_the_field_of_a_head(study):
    exact = study.capture.tensor(1).head(2, 1)
    np.testing.assert_array_equal(study.attention(2, 1, window=1), exact)
    order = study.organizations[1].order
    organized = study.attention(2, 1, window=1, organized=True)
    np.testing.assert_array_equal(organized, exact[np.ix_(order["query"], order["key"])])
    energy = study.attention(2, 1, field="energy")
    np.testing.assert_array_equal(energy, study.capture.tensor(0, "energy").head(2, 1))


def test_attention_says_what_is_not_there(study):
    with pytest.raises(InputError, match=r"there is no head 9\.9"):
        study.attention(9, 9)
    with pytest.raises(InputError, match="window must be from 0 to 2"):
        study.attention(0, 0, window=3)
    with pytest.raises(InputError, match="field must be one of"):
        study.attention(0, 0, field="values")


def test_tensors_have_their_own_field_only():
    x = hs.NetworkTensor(
        np.random.default_rng(0).random((8, 8, 4)), heads=[(0, i) for i in range(4)], field="probs"
    )
    study = hs.analyze(x, n_iter=1, stages=["geometry"])
    np.testing.assert_allclose(study.attention(0, 2), np.asarray(x)[:, :, 2])
    with pytest.raises(InputError, match="hold 'probs'"):
        study.attention(0, 2, field="energy")


def test_the_map_has_one_point_a_head(study, ax):
    assert study.plot.map(ax=ax) is ax
    drawn = ax.collections[0]
    np.testing.assert_allclose(drawn.get_offsets(), study["folders"].geometry.diffusion_map(2))
    np.testing.assert_array_equal(drawn.get_array(), [layer for layer, _ in study.capture.heads])


def test_the_map_is_colored_by_any_column(study, ax):
    study.plot.map(color="haar_entropy", ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_array(), study.heads["haar_entropy"])
    study.plot.map(color="nearest", ax=ax)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert set(words[:2]) <= set(study.heads["nearest"])
    with pytest.raises(InputError, match=r"color must be layer, head or a column of study\.heads"):
        study.plot.map(color="beauty", ax=ax)


def test_the_tree_has_one_point_a_folder(study, ax):
    assert study.plot.tree(ax=ax) is ax
    assert len(ax.collections[1].get_offsets()) == study["folders"].geometry.tree.n_folders
    with pytest.raises(InputError, match="colored by numbers"):
        study.plot.tree(color="nearest", ax=ax)


@pytest.mark.parametrize("field", [None, "energy"])
def test_a_head_is_drawn_in_either_order(study, ax, field):
    from matplotlib import pyplot

    study.plot.head(2, 1, organized=True, field=field, ax=ax)
    np.testing.assert_array_equal(
        ax.images[0].get_array(), study.attention(2, 1, organized=True, field=field)
    )
    new = study.plot.head(2, 1)
    assert new is not ax
    assert "Head 2.1" in new.get_title(loc="left")
    pyplot.close(new.figure)


def test_entropies_are_drawn_by_layer(study, ax):
    study.plot.entropy(ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], study.heads["haar_entropy"])
    with pytest.raises(InputError, match='stage "entropy"'):
        small_study(stages=["geometry"]).plot.entropy(ax=ax)


def test_a_study_without_geometry_says_so(study):
    from headscape.study.study import Study

    bare = Study(study.data, {"pictures": study.results["pictures"]}, study.parameters)
    for draw in (bare.plot.map, bare.plot.tree):
        with pytest.raises(InputError, match=r"no (head )?geometry"):
            draw()
    with pytest.raises(InputError, match=r"no (head )?geometry"):
        bare.attention(0, 0, organized=True)


def test_printing_a_tree_draws_it():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[0], [1], [2], [3]]])
    assert str(tree).splitlines() == ["4 points", "├─ 0", "└─ 3 points", "   ├─ 1", "   ├─ 2", "   └─ 3"]
    named = tree.draw(names=["a", "b", "c", "d"], folder_names=["all", "", "first token", "", "", ""])
    assert "4 points (all)" in named
    assert "3 points (first token)" in named
    assert "─ c" in named


@pytest.mark.parametrize("max_lines", [3, 10, 40])
@pytest.mark.parametrize("n", [1, 2, 300])
def test_a_drawn_tree_keeps_to_its_lines(n, max_lines):
    for tree in (hs.PartitionTree.trivial(n), hs.dyadic_trees((n, n))["query"]):
        lines = tree.draw(max_lines=max_lines).splitlines()
        assert 1 <= len(lines) <= max_lines
    counted = hs.PartitionTree.trivial(300).draw(max_lines=10).splitlines()
    assert counted[-1] == "└─ ... 292 more"


def test_every_head_is_in_a_line_or_summed_up(study):
    tree = study.organization.trees["head"]
    names = study.organization.labels("head")
    text = tree.draw(names=names, max_lines=1000)
    assert all(f"─ {name}" in text for name in names)
    assert tree.draw(names=names.__getitem__, max_lines=1000) == text


def test_notebooks_show_trees_and_organizations_as_escaped_html(study):
    html = study.organization._repr_html_()
    assert html.count("<tr>") == 4
    tree = hs.PartitionTree.from_levels([[[0, 1]], [[0], [1]]])
    assert "<pre>2 points" in tree._repr_html_()
    odd = hs.organize(np.random.default_rng(0).random((6, 6, 4)), n_iter=1)
    object.__setattr__(odd, "field", "<img>")
    assert "<img>" not in odd._repr_html_()
