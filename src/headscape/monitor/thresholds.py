"""When the monitor speaks up: the levels of every kind of alert, and how often they must be crossed."""

from dataclasses import dataclass, fields

from headscape.errors import InputError


@dataclass(frozen=True)
class Thresholds:
    """Levels and memory of the alerts.

    Every metric has a *level*, which is crossed only with a change (the head was different before), and most have a
    *limit*, which is always too much. A change is a distance of ``z`` robust deviations from the head's own past, which
    was within the level: from a reference that is fixed early in the run, or from the older half of a trailing window
    with deviations around its trend, so that a slow drift is not followed.

    Attributes
    ----------
    z
        Robust deviations (1.4826 MAD, on a log scale) that make a change.
    factor
        The least ratio to its past that makes a change, however small the deviations.
    persistence, memory
        A crossing is told once it is seen in ``persistence`` of the last ``memory`` samples. NaN, visible later keys,
        identical heads and logits beyond ``factor`` times their limit need no second sample.
    window
        Samples of the trailing window.
    settle, reference
        The fixed reference is made of ``reference`` samples after the first ``settle``.
    clear
        Samples without a crossing after which an event is over; if it comes back, that is a new alert.
    margin
        Of a head that keeps changing, a level counts as reached when some batches are beyond it by the next sample:
        within so many robust deviations of single samples and the trend of one, but never further off than the square
        root of ``factor``.
    effective_rank
        Collapse: the energy field has hardly more than one component (1 is rank one), and what there is beyond the
        strongest one (``rank1_residual``) is what became less.
    incoherence, peak
        Concentration: one key has this many times the mean squared norm (mu_K), or the mean share of the energy field.
    logit_max, logit_limit
        Exploding logits. Probabilities of half precision are one-hot from about 30 on; QK-clip acts at 100.
    entropy_share, entropy_limit
        Entropy collapse: entropy of attention over its maximum.
    query_effect, query_effect_limit
        Dead head: root mean square by which queries change the logits. Below 0.005 they change no probability by more
        than about half a percent.
    nearest, nearest_limit
        Duplicate heads: relative distance of their energy fields.
    """

    z: float = 6.0
    factor: float = 2.0
    persistence: int = 2
    memory: int = 3
    window: int = 20
    settle: int = 2
    reference: int = 8
    clear: int = 5
    margin: float = 2.0
    effective_rank: float = 1.2
    incoherence: float = 16.0
    peak: float = 48.0
    logit_max: float = 50.0
    logit_limit: float = 100.0
    entropy_share: float = 0.02
    entropy_limit: float = 0.002
    query_effect: float = 0.005
    query_effect_limit: float = 1e-3
    nearest: float = 0.1
    nearest_limit: float = 0.01

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InputError(f"thresholds: {item.name} must be a number of at least 0, but is {value!r}.")
        if self.factor < 1:
            raise InputError(f"thresholds: factor must be at least 1, but is {self.factor}.")
        if not 1 <= self.persistence <= self.memory:
            raise InputError(
                f"thresholds: persistence must lie between 1 and memory={self.memory}, but is {self.persistence}."
            )
