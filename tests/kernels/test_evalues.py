"""E-values beyond the laws that every kernel obeys."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_knockoff as ref
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import conformal, evalues, stepup
from tdd.procedures.calls import level_operand

NULLS = ("nonmember", "member")
e_bh = jax.jit(evalues.e_bh)
fixed_e_bh = jax.jit(evalues.e_bh, static_argnames="alpha")
average = jax.jit(evalues.average)
conformal_e_values = jax.jit(evalues.conformal_e_values, static_argnames="null")


@jax.jit
def bh(calibration, scores, alpha):
    ranked = conformal.rank(calibration, scores, null="nonmember")
    return stepup.bh_ranks(ranked.rank, ranked.num_calibration, alpha, max_rank=calibration.shape[0] + 1).reject


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-4, 9), min_size=20, max_size=20), st.lists(st.integers(-6, 5), min_size=11, max_size=11),
       st.integers(1, 99), st.sampled_from(NULLS))  # fmt: skip
@pytest.mark.slow("long")
def test_conformal_e_values_by_definition(calibration, scores, percent, null):
    alpha, sign = percent / 100, 1 if null == "nonmember" else -1
    own, test = (sign * np.array(x, np.float32) for x in (calibration, scores))
    expected = ref.conformal_e_values(own, test, alpha, null)
    for level in (level_operand(alpha), jnp.float32(alpha)):
        e = conformal_e_values(own, test, level, null=null)
        rounding.assert_close(e, expected, roundings=2)
    # e-BH at the same level is BH
    again = e_bh(e, level_operand(alpha)).reject
    np.testing.assert_array_equal(again, bh(sign * own, sign * test, level_operand(alpha)))


def test_a_traced_level_out_of_range():
    scores = np.arange(5, dtype=np.float32)
    for alpha in (-1.0, 0.0, 1.0, math.nan):
        assert np.isnan(conformal_e_values(scores, scores[:3], jnp.float32(alpha), null="member")).all()
        step = e_bh(np.full(4, 1e9, np.float32), jnp.float32(alpha))
        assert not np.asarray(step.reject).any()
        assert np.isnan(step.adjusted).all()


def test_infinite_missing_and_negative_e_values():
    step = jax.tree.map(np.asarray, fixed_e_bh(np.array([np.inf, 14.0, -10.0, np.nan, 0.0], np.float32), 0.1))
    assert step.reject.tolist() == [True, False, False, False, False]
    assert step.num_tests == 3
    assert np.isnan(step.adjusted).tolist() == [False, False, True, True, False]
    assert step.adjusted[0] == 0
    assert step.adjusted[4] == 1


def test_no_rejection_is_forced():
    step = e_bh(np.ones(100, np.float32), 0.1)
    assert not np.asarray(step.reject).any()
    assert float(step.threshold) == math.inf


@pytest.mark.slow("long")
def test_equality_survives_an_average():
    """Averages on the very edge of e-BH: the compensated sum loses less than the tolerance of the decision."""
    for k in (3, 7, 40, 300):
        for m, rank in ((21, 3), (35, 9), (77, 11)):
            edge = np.float32(m / (0.1 * rank))  # rank items at exactly m/(alpha rank)
            e = np.zeros((k, m), np.float32)
            e[:, :rank] = edge
            mean = np.asarray(average(e))
            np.testing.assert_allclose(mean[:rank], edge, rtol=2.4e-7)
            assert int(e_bh(mean, level_operand(0.1)).num_rejected) == rank
            e[0, 0] *= 0.99
            assert int(e_bh(average(e), level_operand(0.1)).num_rejected) == 0


def test_an_average_keeps_what_is_infinite_or_missing():
    e = [[1.0, np.inf, np.nan, 1e8], [3.0, 1.0, 1.0, 1.0], [2.0, 0.0, 1.0, -0.0]]
    mean = np.asarray(average(np.array(e, np.float32)))
    assert mean[0] == 2
    assert mean[1] == math.inf
    assert np.isnan(mean[2])
    with pytest.raises(ValueError, match="no row to average"):
        average(np.zeros((0, 3), np.float32))


def test_unknown_null_and_level():
    with pytest.raises(ValueError, match="null must be"):
        conformal_e_values(np.ones(3, np.float32), np.ones(2, np.float32), 0.1, null="neither")
    with pytest.raises(ValueError, match="alpha must lie strictly between"):
        fixed_e_bh(np.ones(3, np.float32), 1.0)


def units_of(seed):
    """Integer scores with ties and gaps, units of any size, some empty."""
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(1, 12), rng.integers(1, 12), rng.integers(1, 4)
    calibration, scores = (rng.integers(-4, 5, (k, size)).astype(float) for size in (n, m))
    scores[rng.integers(k)] -= 3
    calibration[rng.random(calibration.shape) < 0.05] = np.nan
    scores[rng.random(scores.shape) < 0.05] = np.nan
    return calibration, scores, rng.integers(0, 6, n), rng.integers(0, 6, m)


@functools.partial(jax.jit, static_argnames="null")
def unit_e_values(calibration, scores, own, units, alpha, real, tested, *, null):
    return evalues.unit_e_values(
        calibration, scores, own, units, alpha, num_units=(6, 6), null=null, calibration_mask=real, mask=tested
    )


@pytest.mark.parametrize("null", ["nonmember", "member"])
def test_unit_e_values_are_those_of_the_definition(null):
    sign = 1 if null == "nonmember" else -1
    for seed in range(40):
        calibration, scores, own, units = units_of(seed)
        expected, chosen = ref.unit_e_values(sign * calibration, sign * scores, own, units, 0.3, (6, 6), null)
        wide = [np.full((3, 12), np.inf), np.full((3, 12), np.inf)]  # one program: rows and places that mean nothing
        for place, part in zip(wide, (calibration, scores), strict=True):
            place[: len(part), : part.shape[1]] = sign * part
            place[len(part) :] = place[0]
        labels = [np.resize(each, 12) for each in (own, units)]
        real = [np.arange(12) < part.shape[1] for part in (calibration, scores)]
        got = unit_e_values(*wide, *labels, 0.3, *real, null=null)
        rounding.assert_close(got.e_values[: len(units)], expected, roundings=4)
        there = np.unique(units[~np.isnan(scores).any(axis=0)])
        np.testing.assert_array_equal(np.asarray(got.score)[there], chosen[there])


def test_units_of_one_item_and_one_score_are_bh():
    rng = np.random.default_rng(1)
    n, m = 30, 15

    @jax.jit
    def both(calibration, scores):
        got = evalues.unit_e_values(
            calibration[None], scores[None], jnp.arange(n), jnp.arange(m), 0.3, num_units=(n, m), null="nonmember"
        )
        return evalues.e_bh(got.e_values, 0.3).reject, bh(calibration, scores, 0.3)

    for _ in range(40):
        calibration, scores = (rng.integers(0, 40, size).astype(np.float32) for size in (n, m))
        scores[:6] -= 30
        np.testing.assert_array_equal(*both(calibration, scores))
