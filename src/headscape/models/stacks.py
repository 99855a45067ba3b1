"""Which stack of a model an attention module belongs to, and its number there, read off its name.

``layer_idx`` is missing in vision models and repeats between self- and cross-attention, so modules are told
apart by name, in the order in which the model calls them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_CROSS = re.compile(r"cross|enc_?dec|encoder_attn", re.IGNORECASE)
_WORDS = ("vision", "audio", "text", "language", "decoder", "encoder")


def attention_kind(name: str) -> str:
    """Return "cross" for cross-attention and "self" for everything else.

    Examples
    --------
    >>> attention_kind("decoder.layers.0.encoder_attn"), attention_kind("encoder.layers.0.self_attn")
    ('cross', 'self')
    """
    return "cross" if _CROSS.search(split_name(name)[2]) else "self"


def split_name(name: str) -> tuple[str, int | None, str]:
    """Split a module's name into what is before its first number, the number, and the rest."""
    words = name.split(".")
    for index, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[:index]), int(word), ".".join(words[index + 1 :])
    return name, None, words[-1]


@dataclass
class LayerNumbers:
    """Numbers the attention modules of one forward pass within their groups, as they are called.

    A group is a prefix of names with one kind of attention. The number is the one in the name while it is
    new; a module that is called again (shared layers) or shares its number gets the next free one.

    Examples
    --------
    >>> numbers = LayerNumbers()
    >>> [numbers.of(name) for name in ("h.0.attn", "h.1.attn", "h.1.attn")]
    [(('h', 'self'), 0), (('h', 'self'), 1), (('h', 'self'), 2)]
    """

    _used: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def of(self, name: str, kind: str | None = None) -> tuple[tuple[str, str], int]:
        """Return the group of a module and its number there; its kind is read off the name unless it is known."""
        prefix, number, _ = split_name(name)
        group = (prefix, kind or attention_kind(name))
        used = self._used.setdefault(group, set())
        layer = number if number is not None and number not in used else max(used, default=-1) + 1
        used.add(layer)
        return group, layer

    def restart(self) -> None:
        """Begin a new forward pass."""
        self._used.clear()


def stack_names(groups: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name the stacks: "self" for a single one, else by a telling word of the prefix, else by the prefix.

    Examples
    --------
    >>> stack_names([("encoder.block", "self"), ("decoder.block", "self"), ("decoder.block", "cross")])
    {('encoder.block', 'self'): 'encoder', ('decoder.block', 'self'): 'decoder', ('decoder.block', 'cross'): 'cross'}
    """
    if len(groups) == 1:
        return {groups[0]: groups[0][1]}
    wish = {group: _telling_word(*group) for group in groups}
    return {
        group: word if list(wish.values()).count(word) == 1 else ":".join(group)
        for group, word in wish.items()
    }


def _telling_word(prefix: str, kind: str) -> str:
    if kind == "cross":
        return "cross"
    return next((word for word in _WORDS if word in prefix.lower()), prefix)
