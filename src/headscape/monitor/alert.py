"""What the monitor says when a head goes wrong: what, where, since when, how sure, and what people do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headscape.errors import FileFormatError

HeadName = tuple[str, int, int]
"""Stack, layer and number of a head in its layer."""

COLLAPSE = "collapse"
CONCENTRATION = "concentration"
EXPLODING_LOGITS = "exploding-logits"
ENTROPY_COLLAPSE = "entropy-collapse"
DEAD_HEAD = "dead-head"
DUPLICATE_HEADS = "duplicate-heads"
MASK_CHANGE = "mask-change"
NOT_FINITE = "not-finite"

TITLES = {
    COLLAPSE: "energy field collapsed to rank 1",
    CONCENTRATION: "keys dominated by one token",
    EXPLODING_LOGITS: "exploding attention logits",
    ENTROPY_COLLAPSE: "attention collapsed onto single keys",
    DEAD_HEAD: "attention no longer depends on the query",
    DUPLICATE_HEADS: "two heads compute the same attention",
    MASK_CHANGE: "mask changed",
    NOT_FINITE: "queries or keys are NaN or infinite",
}
"""The kinds of alerts, most general words."""

ADVICE = {
    COLLAPSE: (
        "Lower the learning rate or lengthen the warm-up, and go back to a checkpoint from before; check that the "
        "normalization in front of the layer is still there."
    ),
    CONCENTRATION: (
        "Look at which token it is (often the first, or a rare one with a large embedding). Weight decay on W_K or "
        "normalized keys (QK-norm) bounds it."
    ),
    EXPLODING_LOGITS: (
        "Lower the learning rate, or bound the logits: QK-norm, a soft cap, or clipping W_Q and W_K (QK-clip, from "
        "100 on). In half precision the loss is the next to go."
    ),
    ENTROPY_COLLAPSE: (
        "Usually the learning rate is too high or the warm-up too short. Go back to a checkpoint from before; QK-norm "
        "or spectral normalization of W_Q and W_K (sigma-Reparam) prevents it."
    ),
    DEAD_HEAD: (
        "Check that W_Q and W_K of the head are not zero or frozen and get gradients. A head that stays dead can be "
        "pruned."
    ),
    DUPLICATE_HEADS: (
        "Check the initialization and any code that copies or shares weights. Identical heads get identical gradients "
        "and stay so; re-initialize one of them."
    ),
    MASK_CHANGE: (
        "Check the attention mask, padding side and packing of the batches since then. If later tokens are visible, "
        "the loss is too good to be true."
    ),
    NOT_FINITE: (
        "Stop: no step after this one helps. Go back to the last checkpoint, skip the batch, lower the learning rate "
        "or use bfloat16 in place of float16."
    ),
}


@dataclass(frozen=True)
class Alert:
    """One event: a kind of fault in some heads, told once.

    Attributes
    ----------
    kind
        One of the keys of :data:`TITLES`.
    heads
        The heads, as (stack, layer, head).
    step
        The step at which it was told.
    since
        The first sampled step at which it was seen.
    metric, value, threshold
        What was measured, on the worst of the heads, and what it crossed.
    reference
        What that head had before; None if nothing is known.
    confidence
        "certain", "very likely" or "likely".
    evidence
        Why: how many samples, and how far from what was usual.
    detail
        What else there is to say, such as the twin of a duplicate.
    """

    kind: str
    heads: tuple[HeadName, ...]
    step: int
    since: int
    metric: str
    value: float
    threshold: float
    reference: float | None
    confidence: str
    evidence: str
    detail: str = ""

    @property
    def title(self) -> str:
        """What happened, in a few words."""
        return TITLES.get(self.kind, self.kind)

    @property
    def advice(self) -> str:
        """What people do about it."""
        return ADVICE.get(self.kind, "")

    @property
    def where(self) -> str:
        """The heads in words.

        Examples
        --------
        >>> alert = Alert("collapse", (("self", 3, 7),), 200, 150, "effective_rank", 1.0, 1.5, 9.0, "certain", "")
        >>> alert.where
        'layer 3 head 7'
        """
        several = len({stack for stack, _, _ in self.heads}) > 1 or any(s != "self" for s, _, _ in self.heads)
        names = [
            f"{stack + ' ' if several else ''}layer {layer} head {head}" for stack, layer, head in self.heads
        ]
        if len(names) <= 4:
            return ", ".join(names)
        layers = sorted({layer for _, layer, _ in self.heads})
        span = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
        return f"{len(names)} heads in {span}, such as {names[0]}"

    def __str__(self) -> str:
        since = f" since step {self.since}" if self.since != self.step else ""
        before = "" if self.reference is None else f", before {self.reference:.3g}"
        detail = f" {self.detail}" if self.detail else ""
        return (
            f"step {self.step}: {self.title}{since}: {self.where} ({self.metric} {self.value:.3g}{before}, threshold "
            f"{self.threshold:.3g}; {self.confidence}: {self.evidence}).{detail}"
        )

    def to_record(self) -> dict[str, Any]:
        """Return the alert as JSON can hold it."""
        return {**asdict(self), "heads": [list(head) for head in self.heads]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Alert:
        """Return the alert that :meth:`to_record` wrote, or raise a :class:`FileFormatError`."""
        try:
            return cls(
                kind=str(record["kind"]),
                heads=tuple((str(stack), int(layer), int(head)) for stack, layer, head in record["heads"]),
                step=int(record["step"]),
                since=int(record["since"]),
                metric=str(record["metric"]),
                value=_number(record["value"]),
                threshold=_number(record["threshold"]),
                reference=None if record["reference"] is None else float(record["reference"]),
                confidence=str(record["confidence"]),
                evidence=str(record["evidence"]),
                detail=str(record.get("detail", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"an alert is damaged ({type(error).__name__}: {error}).") from error


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
