"""The garbage collector rests while a model is loaded, and is as it was afterwards."""

import gc

import pytest

from headscape.models.collection import without_collection


def test_the_collector_rests_and_comes_back():
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="damaged"), without_collection():
        raise ValueError("damaged")
    assert gc.isenabled()
