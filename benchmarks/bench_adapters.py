"""What a capture costs beside the plain forward pass, for every way in which attention is seen."""

from collections.abc import Callable
from typing import Any

from benchmarks.harness import Measure, Row, compare

LENGTH, LAYERS, HEADS, WIDTH, VOCABULARY = 512, 4, 8, 512, 256


def rows() -> list[Row | Measure]:
    return [_row(name, against, make) for name, (against, make) in KINDS.items()]


def _row(name: str, against: str, make: Callable[[], Any]) -> Row:
    import numpy as np
    import torch

    import headscape as hs

    torch.manual_seed(0)
    model = make().eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, size=(1, LENGTH)))

    def plain() -> None:
        with torch.no_grad():
            model(input_ids=ids)

    hs.capture(model, ids)
    what = f"{name}, {LENGTH} tokens, {LAYERS} layers x {HEADS} heads"
    return compare(what, lambda: hs.capture(model, ids), plain, against)


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
        )
    )


def _gpt_j() -> Any:
    from transformers import GPTJConfig, GPTJModel

    sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": WIDTH // HEADS}
    return GPTJModel(GPTJConfig(vocab_size=VOCABULARY, **sizes))


def _bloom() -> Any:
    from transformers import BloomConfig, BloomModel

    return BloomModel(BloomConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS))


def _transformer_xl() -> Any:
    from headscape.models.transformer_xl.config import TransfoXLConfig
    from headscape.models.transformer_xl.model import TransfoXLLMHeadModel

    sizes = {"d_model": WIDTH, "d_embed": WIDTH, "d_inner": 4 * WIDTH, "d_head": WIDTH // HEADS}
    return TransfoXLLMHeadModel(
        TransfoXLConfig(
            vocab_size=VOCABULARY,
            cutoffs=[],
            div_val=1,
            n_layer=LAYERS,
            n_head=HEADS,
            mem_len=LENGTH,
            **sizes,
        )
    )


def _encoder() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
    return _on_ids(nn.TransformerEncoder(layer, LAYERS))


def _fused() -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = _heads(self.c_attn(x))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.c_proj(y.transpose(1, 2).flatten(2))

    return _blocks(Attention)


def _registered() -> Any:
    import torch
    from torch import nn

    import headscape as hs

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def attend(self, q: Any, k: Any, v: Any, hidden: Any) -> torch.Tensor:
            logits = (q @ k.mT) * (WIDTH // HEADS) ** -0.5
            return logits.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v  # type: ignore[no-any-return]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return x + self.out(self.attend(*_heads(self.qkv(x)), hidden).transpose(1, 2).flatten(2))

    names = {"queries": "q", "keys": "k", "values": "v", "mask": "hidden"}
    hs.register_attention(Attention, "attend", **names, mask_hides=True)
    return _blocks(Attention)


def _heads(joined: Any) -> list[Any]:
    return [x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in joined.chunk(3, dim=-1)]


def _blocks(attention: Callable[[], Any]) -> Any:
    from torch import nn

    def feed_forward() -> Any:
        return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    return _on_ids(nn.Sequential(*(part() for _ in range(LAYERS) for part in (attention, feed_forward))))


def _on_ids(stack: Any) -> Any:
    import torch
    from torch import nn

    class OnIds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.stack = nn.Embedding(VOCABULARY, WIDTH), stack

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.stack(self.embedding(input_ids))  # type: ignore[no-any-return]

    return OnIds()


KINDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "attention interface (Llama)": ("plain forward, sdpa", _llama),
    "softmax reader (GPT-J)": ("plain forward, eager", _gpt_j),
    "softmax reader with a bias (BLOOM)": ("plain forward, eager", _bloom),
    "Transformer-XL": ("plain forward, sdpa", _transformer_xl),
    "PyTorch (nn.TransformerEncoder)": ("plain forward, fast path", _encoder),
    "PyTorch (fused projections, causal)": ("plain forward, sdpa", _fused),
    "PyTorch (registered, softmax by hand)": ("plain forward, eager", _registered),
}
