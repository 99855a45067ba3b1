"""Every kind of alert on synthetic samples: found, named, told once, and not told of one odd batch."""

import numpy as np
import pytest

from headscape.errors import InputError
from headscape.monitor import alert as kinds
from headscape.monitor.detection import Detector
from headscape.monitor.metrics import recorded_metrics
from headscape.monitor.sample import ALERT, HEALTHY, WATCH, LayerShape, Sample
from headscape.monitor.thresholds import Thresholds

LAYERS = (LayerShape("self", 0, 4), LayerShape("self", 1, 4))
USUAL = {
    "effective_rank": 10.0,
    "rank1_residual": 0.5,
    "mu_K": 2.0,
    "peak": 4.0,
    "logit_max": 6.0,
    "logit_spread": 1.0,
    "query_effect": 0.8,
    "entropy_share": 0.6,
    "nearest": 0.9,
    "nearest_head": 0.0,
    "future": 0.0,
    "visible": 0.5,
    "nonfinite": 0.0,
}
STRUCK, BEGIN, EVERY = 6, 20, 10
FAULTS = {
    kinds.COLLAPSE: ("effective_rank", 1.05),
    kinds.CONCENTRATION: ("mu_K", 60.0),
    kinds.EXPLODING_LOGITS: ("logit_max", 80.0),
    kinds.ENTROPY_COLLAPSE: ("entropy_share", 0.005),
    kinds.DEAD_HEAD: ("query_effect", 1e-5),
    kinds.DUPLICATE_HEADS: ("nearest", 1e-4),
    kinds.MASK_CHANGE: ("future", 1.0),
    kinds.NOT_FINITE: ("nonfinite", 3.0),
}
AT_ONCE = (kinds.DUPLICATE_HEADS, kinds.MASK_CHANGE, kinds.NOT_FINITE)


def samples(n=60, metric=None, value=None, seed=0, *, lost=True):
    """Yield samples of a healthy run with 10 % noise; ``value`` (index -> number or None) strikes one head."""
    rng = np.random.default_rng(seed)
    exact = ("future", "visible", "nonfinite", "nearest_head")
    for index in range(n):
        values = {
            name: np.float32(USUAL[name] * np.exp(0 if name in exact else 0.1 * rng.standard_normal(8)))
            * np.ones(8, np.float32)
            for name in recorded_metrics(tuple(USUAL))
        }
        given = None if value is None else value(index)
        if given is not None:
            values[metric][STRUCK] = given
            if (
                metric == "effective_rank" and lost
            ):  # what there is beyond the first component goes with the rank
                values["rank1_residual"][STRUCK] = 0.01
        yield Sample(index * EVERY, values)


def judged(found, thresholds=None):
    detector = Detector(LAYERS, thresholds or Thresholds())
    results = [detector.judge(sample) for sample in found]
    return [states for states, _ in results], [alert for _, alerts in results for alert in alerts]


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_healthy_run_raises_no_alert(seed):
    states, alerts = judged(samples(300, seed=seed))
    assert alerts == []
    assert (np.array(states) == HEALTHY).all()


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_is_named_within_two_samples_and_told_once(kind):
    metric, value = FAULTS[kind]
    states, alerts = judged(samples(60, metric, lambda i: value if i >= BEGIN else None))
    assert [alert.kind for alert in alerts] == [kind]
    alert = alerts[0]
    assert alert.heads == (("self", 1, 2),)
    assert alert.since == BEGIN * EVERY
    assert alert.step == (BEGIN + (0 if kind in AT_ONCE else 1)) * EVERY
    assert alert.metric == metric
    assert alert.advice
    assert "layer 1 head 2" in str(alert)
    assert states[-1].tolist() == [HEALTHY] * 6 + [ALERT, HEALTHY]


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in AT_ONCE])
def test_one_odd_batch_is_watched_but_not_told(kind):
    metric, value = FAULTS[kind]
    detector = Detector(LAYERS, Thresholds())
    found = samples(60, metric, lambda i: value if i == BEGIN else None)
    states, alerts, odd = zip(*((*detector.judge(sample), detector.odd) for sample in found), strict=True)
    assert not any(alerts)
    assert states[BEGIN][STRUCK] == WATCH
    assert odd[BEGIN] == {metric: (STRUCK,)}
    assert not any(odd[:BEGIN] + odd[BEGIN + 1 :])
    assert states[BEGIN + 1][STRUCK] == HEALTHY


def test_another_change_of_the_mask_is_told_if_it_lasts():
    _, alerts = judged(samples(60, "visible", lambda i: 0.2 if i >= BEGIN else None))
    assert [(alert.kind, alert.metric) for alert in alerts] == [(kinds.MASK_CHANGE, "visible")]


def test_an_event_that_comes_back_after_it_was_over_is_a_new_alert():
    _, alerts = judged(
        samples(60, "logit_max", lambda i: 200.0 if BEGIN <= i < BEGIN + 5 or i >= BEGIN + 20 else None)
    )
    assert [alert.since // EVERY for alert in alerts] == [BEGIN, BEGIN + 20]


def test_a_flickering_event_is_one_alert():
    _, alerts = judged(samples(60, "logit_max", lambda i: 200.0 if i >= BEGIN and i % 3 else None))
    assert len(alerts) == 1


def test_slow_drift_is_found_although_the_window_follows_it():
    _, alerts = judged(samples(400, "mu_K", lambda i: 2.0 * 1.01**i))
    assert [alert.kind for alert in alerts] == [kinds.CONCENTRATION]
    crossed = np.log(Thresholds().incoherence / 2.0) / np.log(1.01)
    assert crossed <= alerts[0].step / EVERY <= crossed + 3


def test_steady_growth_is_found_although_the_early_reference_is_wide():
    """Logits that rise fast in the warm-up and then 10 % a sample, with as much noise."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, 60)
    curve = np.exp(np.minimum(np.arange(60), 12) * 0.3 + np.maximum(0, np.arange(60) - 20) * 0.1 + noise) / 5
    _, alerts = judged(samples(60, "logit_max", lambda i: curve[i]))
    crossed = np.flatnonzero(curve > Thresholds().logit_max)
    assert [alert.kind for alert in alerts] == [kinds.EXPLODING_LOGITS]
    assert alerts[0].step / EVERY <= crossed[0] + 3


def test_a_head_that_learns_one_strong_component_has_not_collapsed():
    """Its rank falls to 1 because the first component grows; the others stay."""
    _, alerts = judged(samples(60, "effective_rank", lambda i: 1.05 if i >= BEGIN else None, lost=False))
    assert alerts == []


def test_noisy_growth_is_found_within_two_samples_of_the_first_batch_beyond_the_level():
    """Logits of many heads that grow by 1 % a step with 10 % noise; a sample sees every tenth step."""
    rng, n = np.random.default_rng(0), 200
    steps = np.arange(600)[:, None]
    begin = 250 + rng.integers(0, EVERY, n)
    curves = 12.0 * np.exp(0.01 * np.maximum(0, steps - begin) + rng.normal(0.0, 0.1, (len(steps), n)))
    crossed = np.argmax(curves > Thresholds().logit_max, axis=0)
    detector = Detector((LayerShape("self", 0, n),), Thresholds())
    told = {}
    for step in range(0, len(steps), EVERY):
        values = {name: np.full(n, USUAL[name], np.float32) for name in recorded_metrics(tuple(USUAL))}
        values |= {"logit_max": curves[step].astype(np.float32)}
        for alert in detector.judge(Sample(step, values))[1]:
            told |= {head: step for _, _, head in alert.heads}
    delays = np.array([told[head] - crossed[head] for head in range(n)]) / EVERY
    assert np.mean(delays <= 2) > 0.95
    assert np.mean(delays > -4) > 0.95


def test_logits_beyond_twice_the_limit_need_no_second_sample():
    _, alerts = judged(samples(5, "logit_max", lambda i: 250.0 if i == 2 else None))
    assert [(alert.kind, alert.step) for alert in alerts] == [(kinds.EXPLODING_LOGITS, 2 * EVERY)]


def test_a_weak_head_of_an_untrained_model_is_not_dead():
    """Its query effect falls by less than half, from a value that was small to begin with."""
    _, alerts = judged(samples(60, "query_effect", lambda i: 0.0055 if i < BEGIN else 0.004))
    assert alerts == []


def test_a_head_that_was_always_so_is_left_alone():
    _, alerts = judged(samples(60, "mu_K", lambda i: 60.0))
    assert alerts == []


def test_heads_that_see_later_keys_from_the_start_are_not_causal():
    _, alerts = judged(samples(60, "future", lambda i: 1.0))
    assert alerts == []


def test_twins_are_named():
    def pair():
        for sample in samples(40):
            if sample.step >= BEGIN * EVERY:
                sample.values["nearest"][[5, 6]] = 1e-4
                sample.values["nearest_head"][[5, 6]] = 2, 1
            yield sample

    _, alerts = judged(pair())
    assert alerts[0].detail == "Pairs: layer 1 heads 1 and 2."


def test_nan_is_told_of_where_it_begins():
    def broken():
        for sample in samples(40):
            if sample.step >= BEGIN * EVERY:
                sample.values["nonfinite"][2:] = 5
            yield sample

    _, alerts = judged(broken())
    assert [alert.heads for alert in alerts] == [(("self", 0, 2), ("self", 0, 3))]
    assert "4 heads" in alerts[0].detail


def test_nan_everywhere_says_that_its_origin_is_unknown():
    def broken():
        for sample in samples(40):
            if sample.step >= BEGIN * EVERY:
                sample.values["nonfinite"][:] = 5
            yield sample

    _, alerts = judged(broken())
    assert [len(alert.heads) for alert in alerts] == [8]
    assert f"after step {(BEGIN - 1) * EVERY}" in alerts[0].detail


def test_thresholds_decide():
    struck = list(samples(60, "logit_max", lambda i: 80.0 if i >= BEGIN else None))
    assert judged(struck, Thresholds(logit_max=150.0))[1] == []
    assert judged(struck, Thresholds(persistence=3))[1][0].step == (BEGIN + 2) * EVERY
    with pytest.raises(InputError, match="persistence must lie between 1 and memory"):
        Thresholds(persistence=4)
    with pytest.raises(InputError, match="factor must be at least 1"):
        Thresholds(factor=0.5)
    with pytest.raises(InputError, match="z must be a number"):
        Thresholds(z=-1)
