"""torch.compile: sampled steps run uncompiled, the others as compiled."""

import copy

import pytest
import torch

import headscape as hs
from monitor_training import batch_at, trainable


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_is_seen_and_compiled_once(in_place):
    model = trainable("Llama")
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    plain = copy.deepcopy(model)
    if in_place:
        model.compile(backend=backend)
        compiled = model
    else:
        compiled = torch.compile(model, backend=backend)
    monitor, usual = hs.HeadMonitor(compiled, every=2), hs.HeadMonitor(plain, every=2)
    counts = []
    for step in range(4):
        for one, watching in ((compiled, monitor), (plain, usual)):
            with watching:
                loss = one(input_ids=batch_at(step)).logits.square().mean()
            loss.backward()
            watching.step()
        counts.append(len(graphs))
    assert monitor.run.steps.tolist() == [0, 2]
    assert (monitor.table()["mu_K"] == usual.table()["mu_K"]).all()
    assert counts[0] == 0
    assert counts[1] == counts[3] > 0
