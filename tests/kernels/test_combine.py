"""Combinations of p-values at their edges: extreme values, one p-value, weights, axes, laws."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import combine, merge

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


@pytest.mark.parametrize("exponent", range(1, 31, 3))
def test_small_p_values_in_single_precision(exponent):
    """Near 0 the equal-weight combination of p and 1/2 is 2p; the tangent of (1/2 - p)·pi would lose it."""
    p = 10.0**-exponent
    exact = np.arctan2(1, (1 / np.tan(np.pi * np.float64(np.float32(p)))) / 2) / np.pi
    assert merged("cauchy", p, 0.5) == pytest.approx(exact, rel=3e-7, abs=0)
    with np.errstate(all="ignore"):
        naive = np.tan((np.float32(0.5) - np.float32(p)) * np.float32(np.pi)) / 2
    if exponent > 8:
        assert naive < 0  # what the textbook form gives


def test_small_and_large_ends_by_logarithms():
    found = log_cauchy(np.array([[-1e5, -1.0], [-1e-25, -1.0], [-1e-25, -1e5], [-3.0, -3.0]], np.float32))
    np.testing.assert_allclose(found, [-1e5 + np.log(2), -2e-25, -1e5 + np.log(2), -3.0], rtol=5e-6)


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
        assert merged(name, p) == pytest.approx(p, rel=1e-5)


def test_a_weight_of_zero_ignores_the_p_value():
    p = np.array([0.3, 0.01, np.nan, 1.0], np.float32)
    weights = np.array([2.0, 1.0, 0.0, 0.0], np.float32)
    assert float(cauchy(p, weights=weights)) == float(cauchy(p[:2], weights=weights[:2]))
    assert float(cauchy(p, weights=np.array([0, 1.0, 0, 0], np.float32))) == np.float32(0.01)
    assert float(log_cauchy(np.log(p), weights=weights)) == pytest.approx(
        np.log(float(cauchy(p, weights=weights))), rel=1e-6
    )
    assert float(stouffer(p, weights=weights).p_value) == pytest.approx(
        float(stouffer(p[:2], weights=weights[:2]).p_value)
    )


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
        np.testing.assert_allclose(cauchy(p, weights=np.float32(scale) * weights), expected, rtol=1e-6)


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
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), along, last)


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


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(2.0**-99, 1, width=32), min_size=2, max_size=6), st.integers(0, 5), st.floats(0.1, 0.99))
def test_smaller_p_values_give_smaller_results(p, which, factor):
    """Monotone in every p-value, symmetric, and between the bounds that dependence allows."""
    p = np.array(p, np.float32)
    lower = p.copy()
    lower[which % len(p)] *= np.float32(factor)
    found, least, turned = (jax.tree.map(float, every_merge(x)) for x in (p, lower, p[::-1]))
    for name in (*MERGES, "cauchy"):
        assert least[name] <= found[name] * (1 + 2e-6)
        assert turned[name] == pytest.approx(found[name], rel=3e-6)
    assert found["simes"] <= found["hommel"] * (1 + 1e-6)
    assert found["simes"] <= found["bonferroni"] * (1 + 1e-6)


def test_large_groups_agree_with_small_ones():
    """Above sixteen p-values Simes sorts; both ways give the same."""
    p = np.random.default_rng(1).integers(1, 9, (50, 16)).astype(np.float32) / 100
    padded = np.concatenate([p, np.ones((50, 4), np.float32)], axis=1)  # 1 never decides, K does
    simes = jax.jit(merge.simes)
    small = np.asarray(simes(p)) * 20 / 16
    np.testing.assert_allclose(simes(padded), np.minimum(small, 1), rtol=1e-6)
