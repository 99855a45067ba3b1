"""Which heads can go when query heads share keys."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from headscape.pruning.plan import removable


def allowed(going, n_heads, n_kv_heads):
    """The definition: every group that stays keeps the same number."""
    size = n_heads // n_kv_heads
    left = [size - sum(head // size == group for head in going) for group in range(n_kv_heads)]
    return len({n for n in left if n}) <= 1


@st.composite
def requests(draw):
    n_kv_heads = draw(st.integers(1, 4))
    n_heads = n_kv_heads * draw(st.integers(1, 8 // n_kv_heads))
    asked = draw(st.lists(st.integers(0, n_heads - 1), unique=True, max_size=n_heads))
    return asked, n_heads, n_kv_heads


@given(requests())
def test_the_largest_allowed_part_of_what_was_asked_for_goes(request):
    asked, n_heads, n_kv_heads = request
    going = removable(asked, n_heads, n_kv_heads)
    assert set(going) <= set(asked)
    assert list(going) == [head for head in asked if head in going]
    assert allowed(going, n_heads, n_kv_heads)
    larger = (c for n in range(len(going) + 1, len(asked) + 1) for c in combinations(asked, n))
    assert not any(allowed(candidate, n_heads, n_kv_heads) for candidate in larger)


def test_without_shared_keys_everything_goes():
    assert removable([3, 0], 4, 4) == (3, 0)


def test_one_key_for_all_heads():
    assert removable([2, 0, 3], 4, 1) == (2, 0, 3)


def test_whole_groups_go_and_the_others_lose_equally_many():
    assert removable([0, 1, 4], 6, 3) == (0, 1)
    assert removable([0, 1, 4, 2], 6, 3) == (0, 1, 4, 2)


def test_of_a_group_the_first_asked_for_go():
    assert removable([5, 4, 0], 6, 2) == (5, 0)


def test_nothing_can_go_if_a_group_that_stays_loses_none():
    assert removable([0], 4, 2) == ()
