"""A Transformer-XL language model: it trains, evaluates, and reads and writes the published layout.

Modules and parameters are named as in the published ``transfo-xl-wt103``, so that its weights load as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers import initialization
from transformers.utils.generic import ModelOutput

from headscape.errors import InputError
from headscape.models.transformer_xl.adaptive import AdaptiveEmbedding, AdaptiveSoftmax
from headscape.models.transformer_xl.attention import RelativeAttention
from headscape.models.transformer_xl.config import TransfoXLConfig


@dataclass
class TransfoXLOutput(ModelOutput):
    """What a forward pass returns.

    Attributes
    ----------
    loss
        Mean cross-entropy of the labels, if they were given.
    logits : (batch, token, vocabulary)
        Log-probabilities of the next token; None where only the loss was asked for.
    mems : (batch, layer, memory, d_model)
        The memory after this segment, to be passed with the next.
    attentions
        Probabilities (batch, head, query, key) of every layer, if they were asked for; keys of the memory come first.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    mems: torch.Tensor | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class TransfoXLLMHeadModel(transformers.PreTrainedModel):
    """Transformer-XL with its output layer.

    Examples
    --------
    >>> config = TransfoXLConfig(vocab_size=50, cutoffs=[20], d_model=16, d_embed=16, div_val=2, n_layer=2,
    ...     n_head=2, d_head=8, d_inner=32, mem_len=6, clamp_len=0)
    >>> model = TransfoXLLMHeadModel(config).eval()
    >>> first = model(torch.arange(4)[None])
    >>> model(torch.arange(4, 8)[None], mems=first.mems, output_attentions=True).attentions[0].shape
    torch.Size([1, 2, 4, 8])
    """

    config_class = TransfoXLConfig
    base_model_prefix = "transformer"
    main_input_name = "input_ids"
    _supports_sdpa = True
    _supports_attention_backend = True
    # Old checkpoints hold the frequencies of the sinusoids, which are no weights.
    _keys_to_ignore_on_load_unexpected = [r"pos_emb\.inv_freq$"]  # noqa: RUF012  as transformers declares it

    def __init__(self, config: TransfoXLConfig) -> None:
        super().__init__(config)
        self.transformer = _Layers(config)
        self.crit = AdaptiveSoftmax(config)
        self._tied_weights_keys = dict(self._tied())
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        mems: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_attentions: bool = False,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> TransfoXLOutput:
        """Read one segment.

        Parameters
        ----------
        input_ids : (batch, token)
        mems : (batch, layer, memory, d_model)
            The memory that an earlier segment left.
        attention_mask : (batch, token)
            0 for padding.
        labels : (batch, token)
            The tokens to predict, as a rule the input itself: each place is judged by the next label, and -100 asks for
            nothing. No logits are formed then, because only the clusters of the labels are needed.
        output_attentions
            Also return the probabilities.
        logits_to_keep
            Return the logits of so many last tokens; 0 for all.
        """
        hidden, memory, attentions = self.transformer(input_ids, mems, attention_mask, output_attentions)
        if labels is not None:
            loss = self.crit.loss(hidden[:, :-1], labels[:, 1:])
            return TransfoXLOutput(loss=loss, mems=memory, attentions=attentions)
        logits = self.crit(hidden[:, -logits_to_keep:])
        return TransfoXLOutput(logits=logits, mems=memory, attentions=attentions)

    @torch.no_grad()
    def remember(
        self, input_ids: torch.Tensor, mems: torch.Tensor | None = None, segment: int = 128
    ) -> torch.Tensor:
        """Return the memory (batch, layer, memory, d_model) after reading tokens, a segment at a time."""
        if self.config.mem_len == 0:
            raise InputError("the model has no memory (mem_len is 0), so that it cannot remember tokens.")
        for part in torch.split(input_ids, segment, dim=1):
            # A pass of the whole model, so that gates find the layers of every segment.
            mems = self(part, mems=mems, logits_to_keep=1).mems
        assert mems is not None  # there is at least one segment
        return mems

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of the first cluster."""
        return self.transformer.word_emb.emb_layers[0]

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return which parameter is which other one, by name."""
        return dict(self._tied_weights_keys)

    def _tied(self) -> Iterator[tuple[str, str]]:
        config, embedding = self.config, "transformer.word_emb"
        if config.tie_word_embeddings:
            for cluster in range(len(self.crit.out_layers)):
                yield f"crit.out_layers.{cluster}.weight", f"{embedding}.emb_layers.{cluster}.weight"
        for cluster in range(len(self.crit.out_projs)):
            if config.tie_projs[cluster]:
                source = cluster if config.div_val > 1 else 0
                yield f"crit.out_projs.{cluster}", f"{embedding}.emb_projs.{source}"
        if not config.untie_r:
            for layer in range(config.n_layer):
                for name in ("r_w_bias", "r_r_bias"):
                    yield f"transformer.layers.{layer}.dec_attn.{name}", f"transformer.{name}"

    def _init_weights(self, module: nn.Module) -> None:
        """Draw weights from N(0, init_std^2), those of normalizations around 1; biases are 0."""
        std = self.config.init_std
        for name, weight in module.named_parameters(recurse=False):
            if name.endswith("bias") and weight.dim() == 1:
                initialization.zeros_(weight)
            elif isinstance(module, nn.LayerNorm):
                initialization.normal_(weight, 1.0, std)
            else:
                initialization.normal_(weight, 0.0, std)


class _Layers(nn.Module):
    """Everything but the output layer."""

    def __init__(self, config: TransfoXLConfig) -> None:
        super().__init__()
        self.config = config
        self.word_emb = AdaptiveEmbedding(config)
        self.drop = nn.Dropout(config.dropout)
        shared: list[nn.Parameter] = []
        if not config.untie_r:
            shared = [nn.Parameter(torch.zeros(config.n_head, config.d_head)) for _ in range(2)]
            self.r_w_bias, self.r_r_bias = shared
        self.layers = nn.ModuleList(_Layer(config, *shared) for _ in range(config.n_layer))

    def forward(
        self,
        ids: torch.Tensor,
        mems: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, tuple[torch.Tensor, ...] | None]:
        """Return the last hidden states, the new memory, and the probabilities."""
        hidden = self.drop(self.word_emb(ids))
        if mems is None:
            mems = hidden.new_zeros(len(ids), len(self.layers), 0, hidden.shape[-1])
        self._require_memory(mems, hidden)
        visible = self._visible(ids, mems.shape[2], attention_mask)
        distances = self.drop(self._sinusoids(visible.shape[-1], hidden))
        inputs, attentions = [], []
        for number, layer in enumerate(self.layers):
            inputs.append(hidden)
            hidden, weights = layer(hidden, mems[:, number], distances, visible, output_attentions)
            attentions.append(weights)
        return (
            self.drop(hidden),
            self._new_memory(mems, inputs),
            tuple(attentions) if output_attentions else None,
        )

    def _require_memory(self, mems: torch.Tensor, hidden: torch.Tensor) -> None:
        wanted = (len(hidden), len(self.layers), hidden.shape[-1])
        if mems.dim() != 4 or (*mems.shape[:2], mems.shape[3]) != wanted:
            raise InputError(
                f"mems must be (batch, layer, memory, d_model) = ({wanted[0]}, {wanted[1]}, ..., {wanted[2]}), but the "
                f"shape is {tuple(mems.shape)}. Pass the mems of an earlier segment, or model.remember(ids)."
            )

    def _visible(self, ids: torch.Tensor, n_memory: int, mask: torch.Tensor | None) -> torch.Tensor:
        """Return which keys every query sees, (batch or 1, 1, query, key)."""
        n_queries = ids.shape[1]
        places = torch.arange(n_memory + n_queries, device=ids.device)
        distance = places[n_memory:, None] - places
        visible = distance >= 0
        if self.config.same_length and self.config.mem_len:
            visible &= distance < self.config.mem_len
        visible = visible[None, None]
        if mask is None:
            return visible
        remembered = mask.new_ones(len(mask), n_memory)
        return visible & torch.cat([remembered, mask], dim=1).bool()[:, None, None]

    def _sinusoids(self, n_keys: int, like: torch.Tensor) -> torch.Tensor:
        """Return R_n for the distances from the largest to 0, (key, d_model)."""
        width = like.shape[-1]
        n = torch.arange(n_keys - 1, -1, -1.0, device=like.device)
        if self.config.clamp_len > 0:
            n = n.clamp(max=self.config.clamp_len)
        frequencies = 10_000 ** -(torch.arange(0, width, 2, device=like.device) / width)
        angles = n[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1).to(like.dtype)

    def _new_memory(self, mems: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor | None:
        """Return the last states of memory and segment; without a memory None."""
        if self.config.mem_len == 0:
            return None
        with torch.no_grad():
            return torch.cat([mems, torch.stack(inputs, dim=1)], dim=2)[:, :, -self.config.mem_len :].detach()


class _Layer(nn.Module):
    """Relative attention, then a feed-forward layer."""

    def __init__(self, config: TransfoXLConfig, *biases: nn.Parameter) -> None:
        super().__init__()
        self.dec_attn = RelativeAttention(config, *biases)
        self.pos_ff = _FeedForward(config)

    def forward(self, hidden: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the new states, and the probabilities if they are asked for."""
        hidden, weights = self.dec_attn(hidden, *others)
        return self.pos_ff(hidden), weights


class _FeedForward(nn.Module):
    """Two linear layers with a residual connection and a normalization."""

    def __init__(self, config: TransfoXLConfig) -> None:
        super().__init__()
        self.pre_lnorm = config.pre_lnorm
        self.CoreNet = nn.Sequential(
            nn.Linear(config.d_model, config.d_inner),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.d_inner, config.d_model),
            nn.Dropout(config.dropout),
        )
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the new states."""
        if self.pre_lnorm:
            ahead: torch.Tensor = hidden + self.CoreNet(self.layer_norm(hidden))
            return ahead
        behind: torch.Tensor = self.layer_norm(hidden + self.CoreNet(hidden))
        return behind


def register() -> None:
    """Make the auto classes of transformers build this model for ``model_type`` "transfo-xl"."""
    transformers.AutoConfig.register(TransfoXLConfig.model_type, TransfoXLConfig, exist_ok=True)
    for auto in (transformers.AutoModel, transformers.AutoModelForCausalLM):
        auto.register(TransfoXLConfig, TransfoXLLMHeadModel, exist_ok=True)
