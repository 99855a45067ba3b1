"""How far heads moved on the same windows, and where that begins, in cases worked out by hand."""

import numpy as np
import pytest

from headscape.analysis.comparison.shifts import ROUNDING, Onset, head_shifts, onset
from headscape.errors import InputError


def test_shifts_are_distances_of_partners_in_median_distances_of_each_window():
    emds = np.array([[[0.0, 2.0], [2.0, 4.0]], [[5.0, 10.0], [10.0, 30.0]]])
    np.testing.assert_allclose(head_shifts(emds, [0, 1], [0, 1]), [[0, 2], [0.5, 3]])
    np.testing.assert_allclose(head_shifts(emds, [0, 1], [1, 0]), [[1, 1], [1, 1]])
    np.testing.assert_allclose(head_shifts(3 * emds, [0, 1], [0, 1]), [[0, 2], [0.5, 3]])


def test_windows_without_any_distance_have_no_shift():
    assert head_shifts(np.zeros((2, 3, 3)), [0, 1], [0, 1]).tolist() == [[0, 0], [0, 0]]


def test_a_difference_begins_in_the_first_layer_that_moved_by_more_than_rounding():
    assert onset([0.0, 0.1 * ROUNDING, 0.2, 0.5]) == Onset(2)
    assert onset([0.0, 0.5 * ROUNDING]) == Onset(None)
    assert onset([]) == Onset(None)
    assert onset([0.3]) == Onset(0)


def test_a_layer_that_moved_several_times_as_far_as_all_before_it_stands_out():
    found = onset([0.01, 0.02, 0.1, 0.29, 0.2])
    assert (found.first, found.step) == (0, 2)
    assert found.ratio == pytest.approx(5)
    # A layer that moved little does not make the next one stand out.
    assert onset([0.2, 0.01, 0.3]) == Onset(0)


def test_bad_emds_are_refused():
    with pytest.raises(InputError, match="finite"):
        head_shifts([[[np.nan]]], [0], [0])
    with pytest.raises(InputError, match="window, head, head"):
        head_shifts(np.ones((2, 2)), [0], [0])
