"""Combinations of p-values at their edges: extreme values, one p-value, weights, axes, laws."""

import jax
import numpy as np
import pytest
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tdd.kernels import combine, merge
from tdd.kernels.gamma_tails import gamma_tails

MERGES = ("bonferroni", "simes", "hommel", "ruger", "maximum", "twice_mean", "geometric", "harmonic")
CLASSICAL = ("fisher", "pearson", "stouffer", "tippett")
cauchy = jax.jit(combine.cauchy)
cauchy_statistic = jax.jit(combine.cauchy_statistic)
log_cauchy = jax.jit(combine.log_cauchy)
stouffer = jax.jit(combine.stouffer)


@jax.jit
def every_merge(p):
    return {name: getattr(merge, name)(p) for name in MERGES} | {"cauchy": combine.cauchy(p)}


@jax.jit
def every_other(p):
    found = {name: getattr(combine, name)(p).p_value for name in CLASSICAL}
    return found | {"cauchy_statistic": combine.cauchy_statistic(p), "log_cauchy": combine.log_cauchy(p)}


def merged(name, *p):
    both = every_merge if name in (*MERGES, "cauchy") else every_other
    return float(both(np.array(p, np.float32))[name])


COTANGENTS = 2 * 4 + 4
"""A tangent and an arc tangent, a product with pi before and a quotient by pi after, a sum and a quotient."""


def test_small_p_values_in_single_precision():
    """Near 0 the equal-weight combination of p and 1/2 is 2p; the tangent of (1/2 - p)·pi would lose it."""
    for exponent in range(1, 31, 3):
        p = 10.0**-exponent
        exact = np.arctan2(1, (1 / np.tan(np.pi * np.float64(np.float32(p)))) / 2) / np.pi
        rounding.assert_close(merged("cauchy", p, 0.5), exact, roundings=COTANGENTS)
        with np.errstate(all="ignore"):
            naive = np.tan((np.float32(0.5) - np.float32(p)) * np.float32(np.pi)) / 2
        if exponent > 8:
            assert naive < 0  # what the textbook form gives


def test_small_and_large_ends_by_logarithms():
    """What is as small as 1e-25 or as large as 1e5 goes through its own logarithm, of which a unit is one of it."""
    found = log_cauchy(np.array([[-1e5, -1.0], [-1e-25, -1.0], [-1e-25, -1e5], [-3.0, -3.0]], np.float32))
    exact = np.array([-1e5 + np.log(2), -2e-25, -1e5 + np.log(2), -3.0])
    scale = np.abs(exact) * (1 + np.abs(np.log(np.abs(exact))))
    rounding.assert_close(found, exact, roundings=COTANGENTS, scale=scale)


def test_zero_and_one():
    assert merged("cauchy", 0.0, 0.7) == 0
    assert merged("cauchy", 1.0, 0.2) == 1
    assert np.isnan(merged("cauchy", 0.0, 1.0))
    assert np.isnan(merged("stouffer", 0.0, 1.0))
    assert merged("log_cauchy", -np.inf, -1.0) == -np.inf
    assert merged("log_cauchy", 0.0, -1.0) == 0
    for name in ("bonferroni", "simes", "hommel", "geometric", "harmonic", "fisher", "stouffer", "tippett"):
        assert merged(name, 0.0, 0.7) == 0
    for name in (*MERGES, *CLASSICAL, "cauchy"):
        assert merged(name, 1.0, 1.0) == 1


@pytest.mark.parametrize("name", [*MERGES, *CLASSICAL, "cauchy", "cauchy_statistic", "log_cauchy"])
@pytest.mark.parametrize("bad", [np.nan, 1.5, -0.1])
def test_what_is_no_probability_gives_nan(name, bad):
    if name == "log_cauchy":
        bad = abs(bad)
    assert np.isnan(merged(name, 0.0, bad))
    assert np.isnan(merged(name, 0.5 if name != "log_cauchy" else -0.5, bad))


@pytest.mark.parametrize("name", [*MERGES, *CLASSICAL, "cauchy"])
@pytest.mark.parametrize("p", [1e-30, 0.037, 0.5, 0.93])
def test_one_p_value_comes_back(name, p):
    if name in (*MERGES, "cauchy"):
        assert merged(name, p) == np.float32(p)
    else:
        # a tail by its logarithm, of which every unit is a unit of p itself
        rounding.assert_close(merged(name, p), np.float32(p), roundings=6 * 4, scale=p * (1 + abs(np.log(p))))


@pytest.mark.parametrize("size", [30, pytest.param(250, marks=pytest.mark.slow("grid")), 20_000])
def test_tails_of_many_p_values(size):
    """An error of the sum s moves the tail by its density times s: three sums of 64 terms, and a logarithm each."""
    fisher, pearson = (jax.jit(kernel) for kernel in (combine.fisher, combine.pearson))
    for z in (-2, 0, 2):  # standard deviations of the sum
        p = (np.random.default_rng(size).random(size) ** (1 + z / np.sqrt(size))).astype(np.float32)
        law = stats.gamma(size)
        for kernel, values, total, tail in (
            (fisher, p, -np.log(np.float64(p)).sum(), law.sf),
            (pearson, 1 - p, -np.log1p(-np.float64(1 - p)).sum(), law.cdf),
        ):
            exact = tail(total)
            scale = exact + total * law.pdf(total)
            rounding.assert_close(kernel(values).p_value, exact, roundings=3 * 64 + 4, scale=scale)


@pytest.mark.parametrize(("size", "value"), [(5, 80), (100, 278.787872), (129, 324.45), (100, 22), (129, 36)])
def test_tails_down_to_the_smallest_number(size, value):
    """Each of the Poisson probabilities is smaller than their sum, and some than any number of single precision."""
    value = np.float32(value)
    lower, upper = jax.jit(gamma_tails, static_argnums=0)(size, value)
    law, found = stats.gamma(size), lower if value < size else upper
    exact = law.cdf(np.float64(value)) if value < size else law.sf(np.float64(value))
    assert 1e-37 < exact < 1e-25
    rounding.assert_close(found, exact, roundings=150)


@pytest.mark.parametrize("size", [1, 7, 40, 300])
def test_no_tail_is_above_one(size):
    values = np.float32(size) * np.linspace(0, 2, 1001, dtype=np.float32)
    for tail in jax.jit(gamma_tails, static_argnums=0)(size, values):
        assert 0 <= tail.min() <= tail.max() <= 1


def test_a_weight_of_zero_ignores_the_p_value():
    p = np.array([0.3, 0.01, np.nan, 1.0], np.float32)
    weights = np.array([2.0, 1.0, 0.0, 0.0], np.float32)
    assert float(cauchy(p, weights=weights)) == float(cauchy(p[:2], weights=weights[:2]))
    assert float(cauchy(p, weights=np.array([0, 1.0, 0, 0], np.float32))) == np.float32(0.01)
    logarithm = log_cauchy(np.log(p), weights=weights)
    rounding.assert_close(logarithm, np.log(cauchy(p, weights=weights)), roundings=2 * COTANGENTS, scale=1)
    assert float(stouffer(p, weights=weights).p_value) == float(stouffer(p[:2], weights=weights[:2]).p_value)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_that_cannot_be_used_give_nan(weights):
    p, weights = np.array([0.2, 0.3], np.float32), np.array(weights, np.float32)
    for kernel in (cauchy, cauchy_statistic, log_cauchy):
        assert np.isnan(kernel(np.log(p) if kernel is log_cauchy else p, weights=weights))
    assert np.isnan(stouffer(p, weights=weights).p_value)


def test_only_ratios_of_weights_matter():
    p, weights = np.array([0.2, 0.003, 0.6], np.float32), np.array([1.0, 2.0, 4.0], np.float32)
    expected = cauchy(p, weights=weights)
    for scale in (1e-30, 1e30):
        found = cauchy(p, weights=np.float32(scale) * weights)
        rounding.assert_close(found, expected, roundings=2 * COTANGENTS)


AXIS = {
    name: jax.jit(kernel, static_argnames="axis")
    for name, kernel in (("cauchy", combine.cauchy), ("hommel", merge.hommel), ("fisher", combine.fisher))
}


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("name", AXIS)
def test_axis(name, axis):
    p = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    along = jax.tree.map(np.asarray, AXIS[name](p, axis=axis))
    last = jax.tree.map(np.asarray, AXIS[name](np.moveaxis(p, axis, -1)))
    for found, expected in zip(jax.tree.leaves(along), jax.tree.leaves(last), strict=True):
        rounding.assert_close(found, expected, roundings=2 * 6 * 4)


def test_static_mistakes_raise():
    with pytest.raises(ValueError, match="at least one p-value"):
        combine.cauchy(np.zeros((3, 0), np.float32))
    with pytest.raises(ValueError, match="weights must have shape"):
        combine.cauchy(np.ones((2, 3), np.float32), weights=np.ones(2, np.float32))
    with pytest.raises(ValueError, match="tau"):
        combine.truncated_cauchy(np.ones(3, np.float32), tau=0.0)
    with pytest.raises(ValueError, match="k must lie"):
        merge.ruger(np.ones(3, np.float32), k=4)


def test_no_p_value_below_tau():
    found = jax.jit(combine.truncated_cauchy)(np.array([0.7, 0.9], np.float32))
    assert float(found.statistic) == 0
    assert float(found.p_value) == 0.5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(2.0**-99, 1, width=32), min_size=2, max_size=4), st.integers(0, 5), st.floats(0.1, 0.99))
def test_smaller_p_values_give_smaller_results(p, which, factor):
    """Monotone in every p-value, symmetric, and between the bounds that dependence allows."""
    p = np.array(p, np.float32)
    lower = p.copy()
    lower[which % len(p)] *= np.float32(factor)
    found, least, turned = (jax.tree.map(float, every_merge(x)) for x in (p, lower, p[::-1]))
    for name in (*MERGES, "cauchy"):
        units = 2 * COTANGENTS * (1 + abs(np.log(found[name])) * (name == "geometric"))
        slack = rounding.gamma(round(units))
        assert least[name] <= found[name] * (1 + slack)
        assert abs(turned[name] - found[name]) <= found[name] * slack
    assert found["simes"] <= found["hommel"] * (1 + rounding.gamma(4))
    assert found["simes"] <= found["bonferroni"] * (1 + rounding.gamma(4))


def test_large_groups_agree_with_small_ones():
    """Above sixteen p-values Simes sorts; both ways give the same."""
    p = np.random.default_rng(1).integers(1, 9, (50, 16)).astype(np.float32) / 100
    padded = np.concatenate([p, np.ones((50, 4), np.float32)], axis=1)  # 1 never decides, K does
    simes = jax.jit(merge.simes)
    small = np.asarray(simes(p)) * 20 / 16
    rounding.assert_close(simes(padded), np.minimum(small, 1), roundings=4)  # a product and a quotient of either
