"""Where queries, keys or masks are computed for the monitor, they are those of the sampled rows alone."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import headscape as hs
from headscape.models.adapters.protocol import rows_wanted
from headscape.models.anatomy import observed, watched
from headscape.monitor import workspace
from headscape.monitor.metrics import head_metrics
from monitor_training import batch_at, peak_bytes, trainable
from tiny_models import INLINE, tiny_model

HEADS, WIDTH, BATCH = 4, 32, 6


class Kept:
    """Keeps the metrics of every call, and how many rows it showed."""

    def __init__(self, first_rows=None):
        if first_rows is not None:
            self.first_rows = first_rows
        self.rows, self.found = [], []

    def see(self, call):
        self.rows.append((call.queries.shape[0], call.keys.shape[0]))
        self.found.append(head_metrics(call, rows=2))


def masks(case, length):
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    if case == "mask of every head":
        bias = torch.randn(BATCH * HEADS, length, length, generator=torch.Generator().manual_seed(1))
        return {"attn_mask": bias.masked_fill(hidden, -torch.inf)}
    padding = torch.zeros(BATCH, length, dtype=torch.bool)
    padding[0, -3:] = padding[1, -1:] = True
    return {"nothing": {}, "causal": {"attn_mask": hidden}, "padding": {"key_padding_mask": padding}}[case]


@pytest.mark.parametrize("case", ["nothing", "causal", "padding", "mask of every head"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_figures_are_those_of_a_look_at_the_whole_batch(case, batch_first):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
    x = torch.randn(BATCH, 12, WIDTH)
    x = x if batch_first else x.transpose(0, 1)
    few, all_rows = Kept(2), Kept()
    for observer in (few, all_rows):
        with watched(model, observer):
            model(x, x, x, **masks(case, 12))
    assert (few.rows, all_rows.rows) == ([(2, 2)], [(BATCH, BATCH)])
    for name, values in few.found[0].items():
        np.testing.assert_allclose(values, all_rows.found[0][name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_one_observer_of_all_rows_is_enough_to_compute_them():
    assert rows_wanted([Kept(2), Kept(3)]) == 3
    assert rows_wanted([Kept(2), Kept()]) is None
    assert rows_wanted([]) is None


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_gives_the_figures_of_other_kernels():
    """Its mask is a function of places, asked about those of the sampled rows."""
    tables = []
    for kernel in ("flex_attention", "sdpa"):
        model = trainable("Llama", attn_implementation=kernel)
        monitor = hs.HeadMonitor(model, every=1)
        with torch.no_grad(), monitor:  # without gradients: on a CPU they need compiled kernels
            model(input_ids=batch_at(0))
        monitor.step()
        tables.append(monitor.table())
    np.testing.assert_allclose(*tables, rtol=1e-4, atol=1e-5)
    assert (tables[0]["future"] == 0).all()


class Flexible(nn.Module):
    def forward(self, x):
        return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score - 0.1 * b * (q - k).abs())


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_of_own_code_shows_the_sampled_rows():
    x = torch.randn(BATCH, HEADS, 12, 8, generator=torch.Generator().manual_seed(0))
    model, few, all_rows = Flexible(), Kept(2), Kept()
    for observer in (few, all_rows):
        with watched(model, observer), torch.no_grad(), torch.compiler.set_stance("force_eager"):
            model(x)
    assert (few.rows, all_rows.rows) == ([(2, 2)], [(BATCH, BATCH)])
    for name, values in few.found[0].items():
        np.testing.assert_allclose(values, all_rows.found[0][name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("family", INLINE)
def test_attention_read_at_its_softmax_shows_the_sampled_rows(family):
    model, ids = tiny_model(family), batch_at(0, rows=BATCH)
    padding = torch.ones_like(ids)
    padding[0, :3] = 0
    few, all_rows = Kept(2), Kept()
    for observer in (few, all_rows):
        with observed(model, observer), torch.no_grad():  # in eager code; a model that trains keeps its own
            model(input_ids=ids, attention_mask=padding)
    assert {rows for rows, _ in few.rows} == {2}
    assert {rows for rows, _ in all_rows.rows} == {BATCH}
    for found, wanted in zip(few.found, all_rows.found, strict=True):
        for name, values in found.items():
            np.testing.assert_allclose(values, wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


class Done(Exception):
    """Ends a forward pass before torch computes anything itself."""


class Only(Kept):
    def see(self, call):
        super().see(call)
        raise Done


def test_memory_does_not_grow_with_the_batch(monkeypatch):
    """The queries and keys of the sampled rows, their input and their copy, and the workspace."""
    monkeypatch.setattr(workspace, "WORKSPACE", bound := 1 << 18)
    model, length = nn.MultiheadAttention(64, HEADS, batch_first=True).train(), 256
    peaks = []
    for batch in (2, 32):
        x = torch.randn(batch, length, 64)
        peaks.append(peak_bytes(lambda x=x: measured(model, x)))
    assert max(peaks) <= 5 * (4 * 2 * length * 64) + bound
    assert peaks[1] <= 1.3 * peaks[0]


def measured(model, x):
    with watched(model, Only(2)), pytest.raises(Done):
        model(x, x, x, need_weights=False)
