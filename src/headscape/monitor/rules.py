"""The rules behind the alerts: which metric, in which direction, from which level on."""

from dataclasses import dataclass

from headscape.monitor import alert
from headscape.monitor.thresholds import Thresholds


@dataclass(frozen=True)
class Rule:
    """One way in which a head goes wrong.

    Attributes
    ----------
    kind, metric
        The alert, and what it is judged by.
    high
        Whether large values are bad; else small ones.
    level, limit
        Bad beyond ``level`` if the head was different before, and beyond ``limit`` in any case (None: never).
    change
        The metric whose change makes a crossing of ``level`` count; the same by default.
    at_once
        A value beyond it is told without a second sample (None: never).
    after_learning
        Whether heads may be beyond ``limit`` before they have learned anything, as those of small initial weights are:
        it counts only after the samples of the fixed reference.
    """

    kind: str
    metric: str
    high: bool
    level: float
    limit: float | None = None
    change: str | None = None
    at_once: float | None = None
    after_learning: bool = False


def rules(t: Thresholds) -> tuple[Rule, ...]:
    """Return the rules that compare a head with its own past."""
    return (
        # The rank also falls in healthy training, as heads learn a first strong component; in a collapse the others go.
        Rule(alert.COLLAPSE, "effective_rank", False, t.effective_rank, change="rank1_residual"),
        Rule(alert.CONCENTRATION, "mu_K", True, t.incoherence),
        Rule(alert.CONCENTRATION, "peak", True, t.peak),
        Rule(
            alert.EXPLODING_LOGITS,
            "logit_max",
            True,
            t.logit_max,
            t.logit_limit,
            at_once=t.factor * t.logit_limit,
        ),
        Rule(alert.ENTROPY_COLLAPSE, "entropy_share", False, t.entropy_share, t.entropy_limit),
        Rule(
            alert.DEAD_HEAD,
            "query_effect",
            False,
            t.query_effect,
            t.query_effect_limit,
            after_learning=True,
        ),
        Rule(alert.DUPLICATE_HEADS, "nearest", False, t.nearest, t.nearest_limit, at_once=t.nearest_limit),
    )
