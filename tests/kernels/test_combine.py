"""Combinations of p-values at their edges: extreme values, one p-value, weights, axes, laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import combine, independent, merge

MERGES = ("bonferroni", "simes", "hommel", "ruger", "maximum", "twice_mean", "geometric", "harmonic")
CLASSICAL = ("fisher", "pearson", "stouffer", "tippett")


def merged(name, *p, **options):
    if name in CLASSICAL:
        return float(getattr(independent, name)(jnp.array(p), **options).p_value)
    return float(getattr(merge if name in MERGES else combine, name)(jnp.array(p), **options))


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
    found = combine.log_cauchy(jnp.array([[-1e5, -1.0], [-1e-25, -1.0], [-1e-25, -1e5], [-3.0, -3.0]]))
    np.testing.assert_allclose(found, [-1e5 + np.log(2), -2e-25, -1e5 + np.log(2), -3.0], rtol=5e-6)


def test_zero_and_one():
    assert merged("cauchy", 0.0, 0.7) == 0
    assert merged("cauchy", 1.0, 0.2) == 1
    assert np.isnan(merged("cauchy", 0.0, 1.0))
    assert np.isnan(merged("stouffer", 0.0, 1.0))
    assert float(combine.log_cauchy(jnp.array([-jnp.inf, -1.0]))) == -np.inf
    assert float(combine.log_cauchy(jnp.array([0.0, -1.0]))) == 0
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
    p = jnp.array([0.3, 0.01, jnp.nan, 1.0])
    weights = jnp.array([2.0, 1.0, 0.0, 0.0])
    assert float(combine.cauchy(p, weights=weights)) == float(combine.cauchy(p[:2], weights=weights[:2]))
    assert float(combine.cauchy(p, weights=jnp.array([0, 1.0, 0, 0]))) == np.float32(0.01)
    assert float(combine.log_cauchy(jnp.log(p), weights=weights)) == pytest.approx(
        np.log(float(combine.cauchy(p, weights=weights))), rel=1e-6
    )
    assert float(independent.stouffer(p, weights=weights).p_value) == pytest.approx(
        float(independent.stouffer(p[:2], weights=weights[:2]).p_value)
    )


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_that_cannot_be_used_give_nan(weights):
    for kernel in (combine.cauchy, combine.cauchy_statistic, combine.log_cauchy):
        p = jnp.array([0.2, 0.3])
        p = jnp.log(p) if kernel is combine.log_cauchy else p
        assert np.isnan(kernel(p, weights=jnp.array(weights)))
    assert np.isnan(independent.stouffer(jnp.array([0.2, 0.3]), weights=jnp.array(weights)).p_value)


def test_only_ratios_of_weights_matter():
    p = jnp.array([0.2, 0.003, 0.6])
    expected = combine.cauchy(p, weights=jnp.array([1.0, 2.0, 4.0]))
    for scale in (1e-30, 1e30):
        np.testing.assert_allclose(combine.cauchy(p, weights=scale * jnp.array([1.0, 2.0, 4.0])), expected, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("name", ["cauchy", "hommel", "fisher"])
def test_axis(name, axis):
    p = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    kernel = getattr(combine, name, None) or getattr(merge, name, None) or getattr(independent, name)
    along = jax.tree.map(np.asarray, kernel(jnp.asarray(p), axis=axis))
    last = jax.tree.map(np.asarray, kernel(jnp.asarray(np.moveaxis(p, axis, -1))))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), along, last)


def test_static_mistakes_raise():
    with pytest.raises(ValueError, match="at least one p-value"):
        combine.cauchy(jnp.zeros((3, 0)))
    with pytest.raises(ValueError, match="weights must have shape"):
        combine.cauchy(jnp.ones((2, 3)), weights=jnp.ones(2))
    with pytest.raises(ValueError, match="tau"):
        combine.truncated_cauchy(jnp.ones(3), tau=0.0)
    with pytest.raises(ValueError, match="k must lie"):
        merge.ruger(jnp.ones(3), k=4)


def test_no_p_value_below_tau():
    found = combine.truncated_cauchy(jnp.array([0.7, 0.9]))
    assert float(found.statistic) == 0
    assert float(found.p_value) == 0.5


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(2.0**-99, 1, width=32), min_size=2, max_size=6), st.integers(0, 5), st.floats(0.1, 0.99))
def test_smaller_p_values_give_smaller_results(p, which, factor):
    """Monotone in every p-value, symmetric, and between the bounds that dependence allows."""
    p = np.array(p, np.float32)
    lower = p.copy()
    lower[which % len(p)] *= np.float32(factor)
    for name in (*MERGES, "cauchy"):
        assert merged(name, *lower) <= merged(name, *p) * (1 + 2e-6)
        assert merged(name, *p[::-1]) == pytest.approx(merged(name, *p), rel=3e-6)
    assert merged("simes", *p) <= merged("hommel", *p) * (1 + 1e-6)
    assert merged("simes", *p) <= merged("bonferroni", *p) * (1 + 1e-6)


def test_large_groups_agree_with_small_ones():
    """Above sixteen p-values Simes sorts; both ways give the same."""
    p = np.random.default_rng(1).integers(1, 9, (50, 16)).astype(np.float32) / 100
    padded = np.concatenate([p, np.ones((50, 4), np.float32)], axis=1)  # 1 never decides, K does
    small = np.asarray(merge.simes(jnp.asarray(p))) * 20 / 16
    np.testing.assert_allclose(merge.simes(jnp.asarray(padded)), np.minimum(small, 1), rtol=1e-6)
