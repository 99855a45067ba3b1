"""Records logits and attentions of transformers' own Transformer-XL, which transformers 5 no longer has.

Not a test. Run it in an environment with transformers 4.57.6 and any torch (the recorded file is committed):

    python tests/oracle/record_transfo_xl.py tests/data/transfo_xl.npz

Every case is a small random model that reads three segments in turn, each with the memory of those before it. The
first has an empty memory, as in the paper; "zero_memory" is what that code does by itself, a memory full of zeros.
"""

import json
import sys

import numpy as np
import torch

SMALL = {
    "vocab_size": 30,
    "cutoffs": [10, 20],
    "d_model": 16,
    "d_embed": 16,
    "n_head": 2,
    "d_head": 6,
    "d_inner": 20,
}
SMALL |= {"n_layer": 2, "mem_len": 7, "clamp_len": 9, "same_length": True, "div_val": 2}
CASES = {
    "published_switches": {},
    "long_memory": {"mem_len": 40, "clamp_len": -1, "same_length": False},
    "one_width": {"div_val": 1},
    "one_narrow_width": {"div_val": 1, "d_embed": 8},
    "shared_biases": {"untie_r": False, "d_embed": 8},
    "normalized_first": {"pre_lnorm": True, "proj_share_all_but_first": False},
    "no_memory": {"mem_len": 0, "same_length": False},
    "zero_memory": {},
}
SEGMENTS, LENGTH, BATCH = 3, 5, 2


_type_as = torch.Tensor.type_as


def type_as(self, other=None, dtype=None):
    """Also take a dtype, which the model passes though torch never took one."""
    return self.to(dtype) if other is None else _type_as(self, other)


def recorded(name: str, changes: dict) -> dict[str, np.ndarray]:
    """Return the weights of one case, its token ids, and what the model makes of them."""
    from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel

    torch.manual_seed(0)
    config = TransfoXLConfig(**SMALL | changes)
    model = TransfoXLLMHeadModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.4)
    ids = torch.randint(0, config.vocab_size, (BATCH, SEGMENTS * LENGTH))
    weights = {f"weight/{name}": weight.numpy() for name, weight in model.state_dict().items()}
    found = {"config": np.array(json.dumps(SMALL | changes)), "ids": ids.numpy(), **weights}
    empty = [torch.zeros(0, BATCH, config.d_model)] * config.n_layer
    mems = empty if config.mem_len and name != "zero_memory" else None
    for number, segment in enumerate(ids.split(LENGTH, dim=1)):
        with torch.no_grad():
            output = model(segment, mems=mems, output_attentions=True)
        mems = output.mems if config.mem_len else None
        found[f"logits/{number}"] = output.prediction_scores.numpy()
        found[f"attentions/{number}"] = torch.stack(output.attentions).numpy()
    return found


if __name__ == "__main__":
    torch.Tensor.type_as = type_as
    values = {
        f"{name}/{key}": x for name, changes in CASES.items() for key, x in recorded(name, changes).items()
    }
    np.savez_compressed(sys.argv[1], **values)
