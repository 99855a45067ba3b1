"""Our Transformer-XL against transformers' own: recorded by ``tests/oracle/record_transfo_xl.py``."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from headscape.models.transformer_xl.model import TransfoXLConfig, TransfoXLLMHeadModel

RECORDED = np.load(Path(__file__).parents[2] / "data" / "transfo_xl.npz", allow_pickle=False)
CASES = sorted({name.partition("/")[0] for name in RECORDED.files})


def values(case, prefix):
    """The recorded values of a case under a prefix, by the rest of their names."""
    start = f"{case}/{prefix}"
    return {name.removeprefix(start): RECORDED[name] for name in RECORDED.files if name.startswith(start)}


def model_of(case, implementation="sdpa"):
    config = TransfoXLConfig(**json.loads(str(RECORDED[f"{case}/config"])))
    model = TransfoXLLMHeadModel._from_config(config, attn_implementation=implementation).eval()
    weights = {name: torch.from_numpy(x) for name, x in values(case, "weight/").items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == []
    assert unexpected == ["transformer.pos_emb.inv_freq"]
    return model


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("case", CASES)
def test_logits_and_attentions_agree_over_segments_with_memory(case, implementation):
    model = model_of(case, implementation)
    ids = torch.from_numpy(RECORDED[f"{case}/ids"])
    config = model.config
    mems = (
        torch.zeros(len(ids), config.n_layer, config.mem_len, config.d_model)
        if case == "zero_memory"
        else None
    )
    segments = values(case, "logits/")
    for number, segment in enumerate(ids.chunk(len(segments), dim=1)):
        with torch.no_grad():
            logits = model(segment, mems=mems).logits
            output = model(segment, mems=mems, output_attentions=True)
        np.testing.assert_allclose(logits, segments[str(number)], rtol=1e-6, atol=1e-5)
        wanted = RECORDED[f"{case}/attentions/{number}"]
        np.testing.assert_allclose(torch.stack(output.attentions), wanted, atol=1e-5)
        mems = output.mems


def test_memory_is_seen_and_forgotten():
    attentions = [RECORDED[f"published_switches/attentions/{number}"] for number in range(3)]
    assert [x.shape[-1] for x in attentions] == [5, 10, 12]
