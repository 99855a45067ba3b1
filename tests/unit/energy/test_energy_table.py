"""The energy table and the statements drawn from it."""

import numpy as np
import pytest

from headscape.energy.incoherence import key_incoherence
from headscape.energy.spectrum import energy_spectrum
from headscape.energy.statements import energy_statements
from headscape.energy.table import energy_table, energy_tables
from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.capture import Capture


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 3, 6, 96, 16)), rng.normal(size=(4, 3, 2, 96, 16)) + 0.5


@pytest.fixture
def capture(arrays):
    return Capture.from_arrays(*arrays)


def test_a_row_is_the_median_over_windows_of_its_prefixes(arrays, capture):
    queries, keys = (x.astype(np.float32) for x in arrays)
    table = energy_table(capture, [64, 96]).set_index(["length", "layer", "head"])
    values = [energy_spectrum(queries[w, 1, 5, :64], keys[w, 1, 1, :64], 0.25).k90 for w in range(4)]
    mu = [key_incoherence(keys[w, 1, 1, :64]).raw for w in range(4)]
    row = table.loc[(64, 1, 5)]
    assert row["k90"] == np.median(values)
    assert [row["mu_K_q25"], row["mu_K"], row["mu_K_q75"]] == pytest.approx(
        np.quantile(mu, [0.25, 0.5, 0.75])
    )
    assert row["n_windows"] == 4
    assert row["centering"] == "full"


def test_shared_keys_count_once(capture):
    tables = energy_tables(capture, [96])
    assert len(tables.heads) == 18
    assert len(tables.kv_heads) == 6
    repeated = tables.heads.groupby(["layer", "kv_head"])["mu_K"].unique()
    assert [x.tolist() for x in repeated] == [[value] for value in tables.kv_heads["mu_K"]]


def test_lengths_are_powers_of_two_and_the_whole_window(capture):
    assert energy_tables(capture).lengths == (64, 96)


def test_a_bidirectional_window_is_measured_whole(arrays):
    capture = Capture.from_arrays(*arrays, causal=False)
    assert energy_tables(capture).lengths == (96,)
    with pytest.warns(UserWarning, match="a prefix of a window is not what the model would give"):
        energy_tables(capture, [32])


def test_texts_are_summed_up_one_by_one(capture):
    table = energy_table(capture, [96], view="kv_head", texts=["prose", "prose", "code", "code"])
    assert table.groupby("text")["n_windows"].unique().map(list).to_dict() == {"code": [2], "prose": [2]}
    assert len(table) == 12


def test_signatures_are_added_when_asked_for(capture):
    table = energy_table(capture.select(heads=[(0, 0), (2, 5)]), [96], signatures=True)
    assert len(table) == 2
    assert (table["zero_sum"] < 1e-6).all()
    assert (table["low_band"] < 0.5).all()
    assert table["probs_participation"].between(0, 1).all()


def test_equal_keys_are_noted_and_do_not_break_the_table(arrays):
    queries, keys = arrays
    keys = keys.copy()
    keys[:, 2, 1] = 0.25
    table = energy_table(Capture.from_arrays(queries, keys), [96])
    flat = table[(table["layer"] == 2) & (table["kv_head"] == 1)]
    assert flat["mu_K"].tolist() == pytest.approx([1.0] * 3)
    assert flat["mu_K_centered"].isna().all()
    assert flat["note"].str.contains("all keys are equal").all()
    assert (flat["k90"] == 0).all()


def test_what_goes_beyond_the_products_is_named():
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(2, 32, 4)).astype(np.float32)
    plain = AttentionRecord(0, queries, queries, 0.5, causal_visibility(32))
    capped = plain.replace(layer=1, softcap=30.0, bias=np.zeros((2, 32, 32), np.float32))
    sunk = plain.replace(layer=2, sinks=np.zeros(2, np.float32))
    tables = energy_tables(Capture.from_records([[plain, capped, sunk]]))
    by_layer = tables.heads.groupby("layer")["beyond_products"].first().tolist()
    assert by_layer == ["", "soft-cap 30, position bias", "sinks"]
    rank = next(s for s in energy_statements(tables) if s.name == "rank bound")
    assert "in 4 heads the attention also holds sinks / soft-cap 30, position bias" in rank.text
    assert "no rank bound holds" in rank.text


def test_nan_in_a_capture_is_named_by_its_layer(arrays):
    queries, keys = arrays
    keys = keys.copy()
    keys[0, 1, 0, 3, 2] = np.nan
    with pytest.raises(InputError, match="keys of layer 1"):
        energy_table(Capture.from_arrays(queries, keys), [96])


@pytest.mark.parametrize("lengths", [[], [1, 64], [64, 128]])
def test_lengths_outside_the_window_are_refused(capture, lengths):
    with pytest.raises(InputError, match=r"between 2 and the shortest window \(96 keys\)"):
        energy_table(capture, lengths)


def test_other_bad_arguments_are_refused(capture):
    with pytest.raises(InputError, match="texts must name every window"):
        energy_table(capture, texts=["one"])
    with pytest.raises(InputError, match="view must be"):
        energy_table(capture, view="layer")
    with pytest.raises(InputError, match="length must be one of"):
        energy_statements(energy_tables(capture, [96]), length=5)


def test_a_scaled_key_stands_out_by_name(arrays):
    queries, keys = arrays
    keys = keys.copy()
    keys[:, 1, 0, 40] *= 100
    found = {s.name: s for s in energy_statements(energy_tables(Capture.from_arrays(queries, keys), [96]))}
    assert found["key incoherence"].exceptions == ((1, 0),)
    assert "1.0 (95)" in found["key incoherence"].text
    assert set(found["delocalization"].exceptions) == {(1, 0), (1, 1), (1, 2)}
    # Their mu_K is not ordinary, so they are no counter-examples.
    assert found["counter-examples"].exceptions == ()


def test_a_counter_example_has_ordinary_keys_and_concentrated_variance(arrays):
    queries, keys = (x.copy() for x in arrays)
    queries[:, 0, 4] = 0
    queries[:, 0, 4, :, 0] = 1
    keys[:, 0, 1, :, 0] = 0
    keys[:, 0, 1, 10, 0] = 3
    statements = energy_statements(energy_tables(Capture.from_arrays(queries, keys), [96]))
    found = next(s for s in statements if s.name == "counter-examples")
    assert found.exceptions == ((0, 4),)
    assert "1 of 18 heads have an ordinary mu_K" in found.text


def test_components_are_set_beside_the_learned_interaction(arrays):
    capture = Capture.from_arrays(*arrays)
    learned = {pair: energy_spectrum(np.eye(16), np.eye(16) * (1 + pair[1]), 1.0) for pair in capture.heads}
    tables = energy_tables(capture, [64, 96], interaction=learned)
    found = {s.name: s for s in energy_statements(tables)}
    assert found["components"].values["interaction"] == learned[0, 0].k90
    assert "W_Q^T W_K needs" in found["components"].text
    assert set(found["lengths"].values) == {"L=64", "L=96"}
