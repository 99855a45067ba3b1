"""Short training runs of tiny models, for tests of the monitor."""

import numpy as np
import torch

from tiny_models import VOCAB, tiny_causal_model

WIDTH = 16


def trainable(family="Llama", **changes):
    """Return a tiny language model in training mode; GPT-2 has dropout."""
    return tiny_causal_model(family, **changes).train()


def batch_at(step, rows=3, length=WIDTH):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(4, VOCAB, (rows, length), generator=generator)


def train(model, monitor=None, steps=4, *, rate=1e-3, accumulate=1, before=None, context=None):
    """Train for some steps and return the losses; ``before`` may change the model before a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    first = 0 if monitor is None else monitor.n_steps
    for step in range(first, first + steps):
        if before is not None:
            before(model, step)
        for part in range(accumulate):
            ids = batch_at(step * accumulate + part)
            loss = forward(model, ids, monitor, context)
            loss.backward()
            losses.append(loss.detach().clone())
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.step()
    return torch.stack(losses)


def forward(model, ids, monitor=None, context=None):
    if context is not None:
        with context():
            return forward(model, ids, monitor)
    if monitor is None:
        return model(input_ids=ids, labels=ids).loss
    with monitor:
        return model(input_ids=ids, labels=ids).loss


def peak_bytes(action):
    """Return by how much the tensors of a function grow at its peak."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        action()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]))
