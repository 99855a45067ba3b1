"""The sizes and switches of a Transformer-XL, under the names of the published ``transfo-xl-wt103``."""

from dataclasses import field
from itertools import pairwise
from typing import Any

import transformers
from huggingface_hub.dataclasses import strict

from headscape.errors import InputError


@strict
class TransfoXLConfig(transformers.PreTrainedConfig):
    """Config of a Transformer-XL; the defaults are those of the published model.

    Parameters
    ----------
    vocab_size, cutoffs
        Tokens, in the order of their frequency, and where their clusters end: frequent tokens have wide embeddings.
        Without cutoffs all tokens are one cluster, which is the plain embedding and softmax.
    d_model, d_embed, div_val
        Width of the layers, of the embeddings of the first cluster, and by how much each next cluster is narrower.
    n_layer, n_head, d_head, d_inner
        Layers, heads per layer, width of a head and of the feed-forward layers.
    mem_len
        How many hidden states of earlier tokens every layer remembers.
    clamp_len
        Larger distances count as this one; not if it is 0 or less.
    same_length
        Whether a query sees the last ``mem_len`` tokens at most, however many are there.
    untie_r
        Whether each layer has biases u and v of its own.
    tie_projs
        For each cluster, whether its output projection is its embedding's; by default for all but the first.
    tie_word_embeddings
        Whether the output layers are the embeddings.
    pre_lnorm
        Whether layers normalize their inputs instead of their sums.
    """

    model_type = "transfo-xl"
    keys_to_ignore_at_inference = ("mems",)
    attribute_map = {  # noqa: RUF012  as transformers declares it
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "head_dim": "d_head",
    }

    vocab_size: int = 267_735
    cutoffs: list[int] = field(default_factory=lambda: [20_000, 40_000, 200_000])
    d_model: int = 1024
    d_embed: int = 1024
    div_val: int = 4
    n_layer: int = 18
    n_head: int = 16
    d_head: int = 64
    d_inner: int = 4096
    mem_len: int = 1600
    clamp_len: int = 1000
    same_length: bool = True
    untie_r: bool = True
    tie_projs: list[bool] | None = None
    tie_word_embeddings: bool = True
    pre_lnorm: bool = False
    attn_type: int = 0
    dropout: float | int = 0.1
    dropatt: float | int = 0.0
    init_std: float = 0.02
    layer_norm_epsilon: float = 1e-5
    eos_token_id: int | list[int] | None = 0

    def __post_init__(self, **others: Any) -> None:
        """Fill in which projections are tied, and refuse what the published code does not have either."""
        if self.tie_projs is None:
            share = others.pop("proj_share_all_but_first", True)
            self.tie_projs = [False, *([share] * len(self.cutoffs))]
        if self.attn_type != 0:
            raise InputError(
                f"attn_type must be 0, the relative attention of Transformer-XL, but is {self.attn_type}."
            )
        ends = [0, *self.cutoffs, self.vocab_size]
        if any(end <= start for start, end in pairwise(ends)):
            raise InputError(
                f"cutoffs must grow from 1 to below vocab_size ({self.vocab_size}), but are {self.cutoffs}."
            )
        if self.d_embed // self.div_val ** len(self.cutoffs) < 1:
            raise InputError(
                f"d_embed ({self.d_embed}) leaves no width for {len(ends) - 1} clusters with div_val {self.div_val}: "
                "pass fewer cutoffs or a smaller div_val."
            )
        super().__post_init__(**others)
