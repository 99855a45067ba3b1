"""Capturing plain PyTorch modules: time beside their plain forward pass."""

from typing import Any

from benchmarks.harness import Row, compare

LENGTH, LAYERS, HEADS, WIDTH = 1024, 4, 8, 512


def rows() -> list[Row]:
    import torch

    import headscape as hs

    torch.manual_seed(0)
    x = torch.randn(1, LENGTH, WIDTH)
    found = []
    for name, model in (("nn.TransformerEncoder", _encoder()), ("fused projections, causal", _fused())):

        def plain(model: Any = model) -> None:
            with torch.no_grad():
                model(x)

        what = f"capture of {name}, {LENGTH} tokens, {LAYERS} layers x {HEADS} heads"
        found.append(compare(what, lambda model=model: hs.capture(model, x), plain, "plain forward"))
    return found


def _encoder() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS).eval()


def _fused() -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.c_proj(y.transpose(1, 2).flatten(2))

    mlp = [
        nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        for _ in range(LAYERS)
    ]
    return nn.Sequential(*(part for other in mlp for part in (Attention(), other))).eval()
