"""Faults that break attention in training, planted on purpose to see whether a monitor finds and names them.

``train_with_monitor_pytorch.py`` and ``train_with_monitor_trainer.py`` take one by name (``--fault``). A fault
begins at a step and strikes one head, or all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

LAYER, HEAD, TWIN = 1, 2, 3
"""The head that is struck, and the one beside it that becomes its copy."""
GROWTH = 1.01
LARGE_INIT = 40.0


@dataclass(frozen=True)
class Fault:
    """One way to break a run.

    Parameters
    ----------
    name, words
        For the command line, and for people.
    alerts
        Kinds of alerts that name it rightly.
    head
        The head that an alert must name; None if it strikes all.
    rate, warm_up, init
        Factors of the learning rate, the warm-up and the initial weights of queries and keys.
    each_step
        Changes the model before a step from the step on where the fault begins.
    """

    name: str
    words: str
    alerts: tuple[str, ...] = ()
    head: tuple[int, int] | None = None
    rate: float = 1.0
    warm_up: float = 1.0
    init: float = 1.0
    each_step: Callable[[torch.nn.Module, bool], None] | None = None

    def strike(self, model: torch.nn.Module, step: int, begin: int) -> None:
        """Do before a step what the fault does to the model then."""
        if self.each_step is not None and step >= begin:
            with torch.no_grad():
                self.each_step(model, step == begin)

    def prepare(self, model: torch.nn.Module) -> None:
        """Change the initial weights of all queries and keys, if the fault does."""
        if self.init == 1.0:
            return
        for layer in range(model.config.num_hidden_layers):
            for head in range(model.config.num_attention_heads):
                found = head_weights(model, layer, head)
                for weights in (*found["query"], *found["key"]):
                    weights.mul_(self.init)


def attention_of(model: torch.nn.Module, layer: int) -> Any:
    """Return the attention module of a layer of a GPT-2 or Llama."""
    inner: Any = model
    return (
        inner.transformer.h[layer].attn
        if hasattr(inner, "transformer")
        else inner.model.layers[layer].self_attn
    )


def head_weights(model: torch.nn.Module, layer: int, head: int) -> dict[str, list[torch.Tensor]]:
    """Return the weights of one head that can be changed in place: query, key, value (with biases) and output."""
    module = attention_of(model, layer)
    if hasattr(module, "c_attn"):  # one matrix (model, 3 x model) for queries, keys and values
        size, width = module.head_dim, module.embed_dim
        at = [slice(part * width + head * size, part * width + (head + 1) * size) for part in range(3)]
        found = {
            name: [module.c_attn.weight.data[:, place], module.c_attn.bias.data[place]]
            for name, place in zip(("query", "key", "value"), at, strict=True)
        }
        return found | {"output": [module.c_proj.weight.data[head * size : (head + 1) * size]]}
    rows = slice(head * module.head_dim, (head + 1) * module.head_dim)
    projections = {"query": module.q_proj, "key": module.k_proj, "value": module.v_proj}
    found = {name: [projection.weight.data[rows]] for name, projection in projections.items()}
    return found | {"output": [module.o_proj.weight.data[:, rows]]}


# Adam undoes a head that is zeroed, flattened or copied once in less than ten steps, so these three last.


def _zero_queries(model: torch.nn.Module, first: bool) -> None:
    for weights in head_weights(model, LAYER, HEAD)["query"]:
        weights.zero_()


def _make_rank_one(model: torch.nn.Module, first: bool) -> None:
    weights, *bias = head_weights(model, LAYER, HEAD)["query"]
    rows = (
        weights if bias else weights.T
    )  # (model, head size): a GPT-2 multiplies from the right, and has a bias
    strongest = torch.linalg.svd(rows, full_matrices=False)[2][0]
    rows.copy_((rows @ strongest)[:, None] * strongest)
    for each in bias:
        each.copy_((each @ strongest) * strongest)


def _make_equal(model: torch.nn.Module, first: bool) -> None:
    source, target = head_weights(model, LAYER, HEAD), head_weights(model, LAYER, TWIN)
    for name, weights in target.items():
        for into, taken in zip(weights, source[name], strict=True):
            into.copy_(taken)


def _grow_keys(model: torch.nn.Module, first: bool) -> None:
    for weights in head_weights(model, LAYER, HEAD)["key"]:
        weights.mul_(GROWTH)


def _show_the_future(model: torch.nn.Module, first: bool) -> None:
    def without_mask(module: torch.nn.Module, arguments: Any, named: dict[str, Any]) -> Any:
        rows, length = named["input_ids"].shape
        return arguments, {**named, "attention_mask": torch.zeros(rows, 1, length, length)}

    if first:
        model.register_forward_pre_hook(without_mask, with_kwargs=True)


def _put_nan(model: torch.nn.Module, first: bool) -> None:
    if first:
        head_weights(model, LAYER, HEAD)["query"][0][0, 0] = float("nan")


DIVERGED = ("exploding-logits", "entropy-collapse", "collapse", "dead-head", "not-finite")
SHARPENED = ("exploding-logits", "entropy-collapse")

HEALTHY = Fault("healthy", "nothing is wrong")
FAULTS = {
    fault.name: fault
    for fault in (
        Fault("high-rate", "learning rate 100x", DIVERGED, rate=100.0),
        Fault("large-init", "no warm-up with large init", SHARPENED, warm_up=0.0, init=LARGE_INIT),
        Fault(
            "zero-queries",
            "query weights of one head zeroed",
            ("dead-head",),
            (LAYER, HEAD),
            each_step=_zero_queries,
        ),
        Fault(
            "rank-one",
            "queries of one head made rank 1",
            ("collapse",),
            (LAYER, HEAD),
            each_step=_make_rank_one,
        ),
        Fault(
            "equal-heads",
            "two heads of a layer made equal",
            ("duplicate-heads",),
            (LAYER, HEAD),
            each_step=_make_equal,
        ),
        Fault(
            "growing-keys",
            "key norm of one head grows 1 % a step",
            SHARPENED,
            (LAYER, HEAD),
            each_step=_grow_keys,
        ),
        Fault("no-mask", "the future is visible", ("mask-change",), each_step=_show_the_future),
        Fault("nan", "a NaN in the queries of one head", ("not-finite",), (LAYER, HEAD), each_step=_put_nan),
    )
}
