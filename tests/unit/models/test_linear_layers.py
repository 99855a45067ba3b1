"""Linear layers by oneDNN: the same numbers and gradients, and only where they are wanted."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from headscape.models import linear_layers
from headscape.models.forward_pass import forward
from headscape.models.linear_layers import fast_linear_layers, linear
from tiny_models import inputs_of, tiny_causal_model


@pytest.fixture
def on_amd(monkeypatch, tmp_path):
    """Let this processor pass for one of AMD's with long vectors; oneDNN gives the same numbers on all."""
    facts = tmp_path / "cpuinfo"
    facts.write_text("vendor_id\t: AuthenticAMD\n")
    monkeypatch.setattr(linear_layers, "_CPU_FACTS", facts)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    linear_layers._faster.cache_clear()
    if not linear_layers._faster():
        pytest.skip("this build of torch has no oneDNN")
    yield facts
    linear_layers._faster.cache_clear()


def counted(monkeypatch):
    calls, product = [], linear_layers._product
    monkeypatch.setattr(linear_layers, "_product", lambda *args: calls.append(args) or product(*args))
    return calls


@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 7)])
@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16)])
def test_values_and_gradients_of_what_enters_are_those_of_torch(on_amd, monkeypatch, shape, bias):
    calls = counted(monkeypatch)
    weight = torch.randn(7, 16, generator=torch.Generator().manual_seed(0))
    found = []
    for context in (linear_layers._mode_type()(), torch.enable_grad()):
        x = torch.linspace(-2, 3, 16 * torch.Size(shape[:-1]).numel()).sin().reshape(shape).requires_grad_()
        with context:
            y = torch.nn.functional.linear(x, weight, bias)
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    assert len(calls) == 2  # forward and backward
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_weights_that_learn_other_precisions_and_named_arguments_are_left_to_torch(on_amd, monkeypatch):
    calls = counted(monkeypatch)
    x, weight = torch.ones(2, 4), torch.ones(3, 4, requires_grad=True)
    with linear_layers._mode_type()():
        torch.nn.functional.linear(x, weight).sum().backward()
        torch.nn.functional.linear(x.double(), weight.detach().double())
        torch.nn.functional.linear(input=x, weight=weight.detach())
        torch.nn.functional.linear(x[:0], weight.detach())
    assert weight.grad.tolist() == [[2.0] * 4] * 3
    assert not calls
    with linear_layers._mode_type()(), torch.no_grad():
        torch.nn.functional.linear(x, weight)
    assert len(calls) == 1


def test_a_forward_pass_takes_it_and_gives_the_same_logits(on_amd, monkeypatch):
    model, inputs = tiny_causal_model("Llama"), inputs_of("Llama")
    with torch.no_grad():
        expected = model(**inputs).logits
        calls = counted(monkeypatch)
        found = forward(model, inputs, "a test").logits
    assert calls
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_other_processors_plain_modules_and_watched_blocks_are_left_alone(on_amd, monkeypatch):
    model = tiny_causal_model("Llama")

    def taken(one):
        with fast_linear_layers(one):
            return torch._C._len_torch_function_stack()

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    assert taken(model) == 1
    assert taken(torch.nn.Linear(2, 2)) == 0
    with Watching():
        assert taken(model) == 1  # only the watching one
    on_amd.write_text("vendor_id\t: GenuineIntel\n")
    monkeypatch.setattr(linear_layers.platform, "processor", lambda: "")
    linear_layers._faster.cache_clear()
    assert taken(model) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_of_its_own(on_amd, dtype):
    x, weight = (torch.linspace(0, 1, n * 20, dtype=dtype).reshape(n, 20).cos() for n in (4, 6))
    torch.testing.assert_close(linear(x.T.contiguous().T, weight), x @ weight.T, rtol=1e-5, atol=1e-6)
