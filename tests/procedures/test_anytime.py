"""Evidence over many looks: the reference, planted sets, invariances, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_trajectories as ref

import tdd
from tdd.kernels import trajectories
from tdd.kernels.set_statistics import labellings
from tdd.procedures.procedure import all_guarantees

SUSPECT = np.arange(40) % 3 == 0
DRAWS = 199

spending = jax.jit(trajectories.spending, static_argnames="horizon")


def paths(drift=0.0, looks=5, seed=0):
    rng = np.random.default_rng(seed)
    scores = 3 + rng.normal(size=40) + 0.1 * rng.normal(size=(looks, 40)).cumsum(axis=0)
    return scores - drift * SUSPECT * np.arange(looks)[:, None]


def call(scores, **options):
    options = {"alpha": 0.05, "num_draws": DRAWS, "horizon": 5} | options
    return tdd.trajectory_test(scores, SUSPECT, **options)


@pytest.mark.parametrize(
    ("baseline", "statistic", "horizon"), [("first", "combined", 5), ("none", "tail", 5), ("first", "rank_sum", None)]
)
def test_reference(baseline, statistic, horizon):
    """Every labelling and every level in a loop; an item without a first score has its second as baseline."""
    scores = paths(0.03)
    scores[0, 3], scores[3, 4] = np.nan, np.nan
    order = np.argsort(~SUSPECT, kind="stable")
    labels = np.asarray(labellings(SUSPECT.sum(), (~SUSPECT).sum(), DRAWS, 0))
    first, statistics = np.full(40, np.nan), []
    for t, row in enumerate(scores[:, order]):
        known = None if t == 0 or baseline == "none" else first
        statistics.append(ref.set_statistics(row, labels, known, None, statistic).tolist())
        first = np.where(np.isnan(first), row, first)
    shares = [float(spending(t + 1, horizon)) for t in range(5)]
    expected = [float(levels[0]) for levels in ref.crossings(statistics, shares, None)]
    found = call(scores, baseline=baseline, statistic=statistic, horizon=horizon)
    np.testing.assert_allclose(found.anytime_p_value, expected, rtol=1.2e-7)
    alone = [np.mean([s >= row[0] for s in row]) for row in statistics]
    np.testing.assert_allclose(found.p_value, alone, rtol=1e-6)
    missing = [1, 1, 0, 1, 0] if baseline == "first" else [1, 0, 0, 1, 0]
    assert found.num_masked.tolist() == missing


def test_a_set_that_is_learned_raises_an_alarm_that_stays():
    found = jax.device_get(call(paths(0.3)))
    first = int(found.first_alarm)
    assert 1 <= first <= 3
    assert found.alarm.tolist() == [t >= first for t in range(5)]
    np.testing.assert_array_equal(found.alarm, found.anytime_p_value <= 0.05)
    assert (np.diff(found.anytime_p_value) <= 0).all()
    assert (np.diff(found.log_e_value) >= 0).all()
    assert np.asarray(found.log_e_value)[-1] > np.log(20)


def test_a_set_that_is_not_learned_raises_none():
    found = call(paths())
    assert not found.alarm.any()
    assert int(found.first_alarm) == -1
    assert found.first_alarm.dtype == jnp.int32
    assert found.guarantee.kind == "finite-sample"


@pytest.mark.slow("long")
def test_a_level_is_reached_exactly_wherever_it_lies():
    """One look at the whole level: an alarm at alpha = p = r/K, and none just below."""
    scores = paths(looks=1, seed=3)
    reached = round(float(np.asarray(call(scores, horizon=1).p_value)[0]) * (DRAWS + 1))
    assert reached == 35
    for alpha, alarm in ((0.175, True), (0.1749, False)):
        found = call(scores, horizon=1, alpha=alpha)
        assert found.alarm.tolist() == [alarm]
        assert float(np.asarray(found.anytime_p_value)[0]) == pytest.approx(0.175 if alarm else 0.2)


def test_only_the_order_within_each_set_counts():
    """Suspects anywhere among the items; scores of any type."""
    scores, order = paths(0.1), np.argsort(~SUSPECT, kind="stable")
    moved = tdd.trajectory_test(scores[:, order], SUSPECT[order], alpha=0.05, num_draws=DRAWS, horizon=5)
    for a, b in zip(jax.tree.leaves(call(scores)), jax.tree.leaves(moved), strict=True):
        np.testing.assert_array_equal(a, b)
    whole = np.round(100 * scores).astype(int)
    for a, b in zip(jax.tree.leaves(call(whole)), jax.tree.leaves(call(whole.astype(np.float32))), strict=True):
        np.testing.assert_array_equal(a, b)


def test_later_looks_change_no_earlier_one():
    scores = paths(0.1)
    for a, b in zip(jax.tree.leaves(call(scores))[:4], jax.tree.leaves(call(scores[:3]))[:4], strict=True):
        np.testing.assert_array_equal(np.asarray(a)[:3], b)


def test_inside_a_compiled_function():
    scores = paths(0.1).astype(np.float32)
    inside = jax.jit(lambda scores: call(scores))(scores)
    outside = call(scores)
    np.testing.assert_array_equal(inside.anytime_p_value, outside.anytime_p_value)
    np.testing.assert_allclose(inside.log_e_value, outside.log_e_value, rtol=1e-4)
    assert inside.method == outside.method == "trajectories/combined/baseline=first"


def test_its_guarantee_is_listed():
    assert "tdd.trajectory_test" in {row.call for row in all_guarantees()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.zeros(40)}, r"scores must be .*\[looks, items\]"),
        ({"scores": np.zeros((0, 40))}, "scores has no look"),
        ({"scores": np.full((2, 40), np.nan)}, r"scores\[0\] has no item to rank: all 40 are NaN"),
        ({"scores": np.full((2, 40), np.inf)}, r"scores\[0, 0\] is inf"),
        ({"scores": np.zeros((2, 2**18))}, "262,144 items; ranks are exact up to 262,143"),
        ({"is_suspect": SUSPECT.astype(int)}, "is_suspect must be boolean .* got dtype int64"),
        ({"is_suspect": SUSPECT[:7]}, r"is_suspect has shape \(7,\), but scores has 40 items"),
        ({"is_suspect": np.zeros(40, bool)}, "names 0 of 40 items: at least one suspect"),
        ({"is_suspect": np.ones(40, bool)}, "names 40 of 40 items: at least one reference"),
        ({"alpha": 5}, "alpha must lie strictly between 0 and 1"),
        ({"alpha": 0.001}, "num_draws=199 random labellings cannot give .* at least 999 are needed"),
        ({"num_draws": 0}, "num_draws must be a whole number from 1"),
        ({"num_draws": 10**9}, "labellings of 40 items take .* GiB; at most 107,374,181 draws"),
        ({"horizon": 4}, "scores has 5 looks, more than horizon=4"),
        ({"horizon": 0.5}, "horizon must be a whole number"),
        ({"baseline": "last"}, "baseline must be one of 'first', 'none'"),
        ({"statistic": "mean"}, "statistic must be one of 'combined', 'rank_sum', 'tail'"),
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\^32 - 1, got -1"),
    ],
)
def test_messages(changes, message):
    options = {"scores": paths(), "is_suspect": SUSPECT, "alpha": 0.05, "num_draws": DRAWS} | changes
    with pytest.raises(tdd.InputError, match=message):
        tdd.trajectory_test(options.pop("scores"), options.pop("is_suspect"), **options)
