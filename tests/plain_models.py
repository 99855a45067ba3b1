"""Small plain PyTorch models as people write them: nanoGPT's attention, timm's ViT block, an encoder, tutorials' code.

Weights are scaled up, so that probabilities are far from uniform: a wrong mask or scale then shows.
"""

import math

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, VOCAB, LENGTH = 32, 4, 65, 12


def scaled_up(model, seed=0):
    """Give a model random weights that make its attention sharp; evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            spread = 1.5 / math.sqrt(weight.shape[-1]) if weight.dim() > 1 else 0.3
            weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    return model.eval()


def token_ids(rows=3, length=LENGTH, seed=0):
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def states(rows=3, length=LENGTH, width=WIDTH, seed=0):
    return torch.randn(rows, length, width, generator=torch.Generator().manual_seed(seed))


class FusedCausalAttention(nn.Module):
    """As in nanoGPT: one projection for queries, keys and values; the width of the heads from that of the input."""

    def __init__(self, width=WIDTH, n_head=HEADS, dropout=0.1):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(dropout)
        self.n_head, self.n_embd, self.dropout = n_head, width, dropout

    def forward(self, x):
        batch, n, width = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (y.view(batch, n, self.n_head, width // self.n_head).transpose(1, 2) for y in (q, k, v))
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0, is_causal=True
        )
        y = y.transpose(1, 2).contiguous().view(batch, n, width)
        return self.resid_dropout(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, attention, width=WIDTH):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), attention, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class NanoGPT(nn.Module):
    """Returns (logits, loss) as nanoGPT does, and calls its first argument idx."""

    def __init__(self, layers=2, attention=FusedCausalAttention):
        super().__init__()
        self.config = {"n_layer": layers}  # nanoGPT has a config, which is not one of transformers
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(64, WIDTH)
        self.h = nn.ModuleList(Block(attention()) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def next_token_loss(output, inputs):
    logits = output[0]
    each = functional.cross_entropy(logits[:, :-1].transpose(1, 2), inputs["idx"][:, 1:], reduction="none")
    return each.mean(dim=1)


class PatchAttention(nn.Module):
    """As in timm: qkv reshaped to (3, batch, head, token, d)."""

    def __init__(self, width=WIDTH, num_heads=HEADS):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, width // num_heads
        self.qkv, self.proj, self.proj_drop = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.Dropout(0.0),
        )

    def forward(self, x):
        batch, n, width = x.shape
        qkv = self.qkv(x).reshape(batch, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
        return self.proj_drop(self.proj(y.transpose(1, 2).reshape(batch, n, width)))


class PatchEmbed(nn.Module):
    def __init__(self, img_size=16, patch=4):
        super().__init__()
        self.img_size, self.proj = (img_size, img_size), nn.Conv2d(3, WIDTH, patch, patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class VisionTransformer(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.blocks = nn.Sequential(*(Block(PatchAttention()) for _ in range(layers)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.blocks(x)[:, 0])


class TutorialAttention(nn.Module):
    """As tutorials write it: softmax by hand, True where a key is hidden."""

    def __init__(self, width=WIDTH, heads=HEADS, scale=0.5):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.Linear(width, width)

    def attend(self, q, k, v, hidden=None):
        logits = q @ k.transpose(-2, -1) * self.scale
        if hidden is not None:
            logits = logits.masked_fill(hidden, -1e9)
        return logits.softmax(dim=-1) @ v

    def forward(self, x):
        q, k, v = (
            torch.unflatten(f(x), -1, (self.heads, -1)).transpose(1, 2)
            for f in (self.to_q, self.to_k, self.to_v)
        )
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.to_out(self.attend(q, k, v, hidden).transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    """An encoder of torch's own over token ids, with padding."""

    def __init__(self, batch_first=True, layers=2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=batch_first)
        self.batch_first = batch_first
        self.embed, self.encoder = (
            nn.Embedding(VOCAB, WIDTH, padding_idx=0),
            nn.TransformerEncoder(layer, layers),
        )
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, tokens):
        padding, x = tokens == 0, self.embed(tokens)
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding)
        x = x if self.batch_first else x.transpose(0, 1)
        return self.out(x.masked_fill(padding[..., None], 0.0).mean(dim=1))
