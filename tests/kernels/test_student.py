"""Student's tail over its whole range, and the degenerate cases of the t-test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from scipy import stats

from tdd.kernels import student

DF = np.array([1, 2, 3, 7.5, 49, 199, 4231, 1e6, 1e9, np.inf])
T = np.concatenate([-np.geomspace(30, 0.01, 12), [0], np.geomspace(0.001, 36, 60), [1 - 1e-6, 1, 1 + 1e-6]])


def reference(wide):
    dtype = np.float64 if wide else np.float32
    t, df = (x.astype(dtype).astype(float) for x in np.meshgrid(T, DF))
    normal = np.isinf(df)
    with np.errstate(invalid="ignore"):
        log = np.where(normal, stats.norm.logsf(t), stats.t.logsf(t, np.where(normal, 1, df)))
        tail = np.where(normal, stats.norm.sf(t), stats.t.sf(t, np.where(normal, 1, df)))
    ok = tail > 1e-290  # below, scipy's logarithm is -inf
    return t.astype(dtype), df.astype(dtype), np.where(tail < 0.5, np.log(np.maximum(tail, 1e-300)), log), tail, ok


log_sf, sf = jax.jit(student.log_sf), jax.jit(student.sf)
one_sample = jax.jit(student.one_sample)


@pytest.mark.parametrize(("wide", "rtol"), [(False, rounding.gamma(4 * 4)), (True, 1e-12)])
def test_logarithm_of_the_tail(wide, rtol):
    """Four elementary functions in single precision; in double SciPy's own are off by 1e-13 or so."""
    t, df, log, _, ok = reference(wide)
    with jax.enable_x64(wide):
        found = np.asarray(log_sf(t, df), float)
    upper = ok & (t >= 0)
    np.testing.assert_allclose(found[upper], log[upper], rtol=rtol)
    # -log1p of the other tail, with the relative error of that tail: |log| roundings
    lower = (t < 0) & (log < -1e-37)  # below, single precision has no normal number
    error = np.abs(found[lower] / log[lower] - 1) / (1 - np.log(-log[lower]))
    assert error.max() < rtol
    assert np.isfinite(found).all()
    assert (np.diff(found[:, np.argsort(T)], axis=1) <= 1e-6 * np.abs(found[:, np.argsort(T)][:, 1:])).all()


@pytest.mark.parametrize(("wide", "eps"), [(False, 1.2e-7), (True, 2.3e-16)])
def test_tail(wide, eps):
    t, df, _, tail, ok = reference(wide)
    with jax.enable_x64(wide):
        found = np.asarray(sf(t, df), float)
    ok = ok & (tail > (1e-290 if wide else 1e-37))
    error = np.abs(found / tail - 1) / (1 + t.astype(float) ** 2 * (t > 0))
    # 4 epsilons of the conditioning; scipy's own tail is good to 1e-13
    assert error[ok].max() < max(4 * eps, 1e-13)


def test_both_sides_add_up():
    t, df, *_ = reference(False)
    rounding.assert_close(sf(t, df) + sf(-t, df), np.ones(t.shape), roundings=4)  # two tails of at most 1/2, or 1


def test_far_tails_follow_the_power_law():
    """P(T >= t) ~ c(df) t^-df: halving log t halves what the logarithm gains, and squares may overflow."""
    for df in (1.0, 3.0, 40.0):
        far, further = float(log_sf(1e10, df)), float(log_sf(1e30, df))
        exact = -df * 20 * np.log(10)
        rounding.assert_close(further - far, exact, roundings=4 * 4, scale=abs(further) + abs(far))
    rounding.assert_close(log_sf(1e30, 1.0), -np.log(np.pi) - 30 * np.log(10), roundings=4 * 4)
    assert float(log_sf(1e4, np.inf)) == pytest.approx(-5e7, rel=1e-5)  # but for log(t sqrt(2 pi))


def test_outside_the_domain():
    assert np.isnan(log_sf(np.nan, 3.0))
    assert np.isnan(sf(1.0, 0.0))
    assert np.isnan(sf(1.0, -2.0))
    assert np.isnan(log_sf(0.5, np.nan))
    assert log_sf(np.inf, 3.0) == -np.inf
    assert sf(-np.inf, 3.0) == 1
    assert sf(0.0, 3.0) == 0.5


def test_degrees_of_freedom_may_be_traced():
    found = jax.jit(jax.vmap(student.sf, (None, 0)))(2.0, jnp.array([4.0, 10.0]))
    rounding.assert_close(found, stats.t.sf(2, [4, 10]), roundings=4 * 4)


@pytest.mark.parametrize("values", [[], [1.3], [2.0, 2.0, 2.0], [0.0, 0.0], [-1.0, -1.0], [np.nan, 4.0]])
def test_no_test_without_spread(values):
    """An infinite t would reject with probability 2^-r where values are +-1."""
    found = one_sample(np.array(values, np.float32))
    assert found.p_value == 1
    assert found.log_p_value == 0
    assert np.isnan(found.statistic)


@pytest.mark.slow("long")
def test_spread_of_rounding_alone_is_none():
    values = np.array([0.1 + 0.2, 0.3, 0.6 / 2, 0.3])
    with jax.enable_x64(True):
        assert np.ptp(values) > 0
        assert student.one_sample(values).p_value == 1
        wiggle = 0.3 + np.array([1e-9, 0, 2e-9, 1e-9])
        assert student.one_sample(wiggle).p_value < 1e-20
        assert student.one_sample(wiggle, noise=1e-8).p_value == 1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_unit_of_the_values_does_not_matter(scale):
    values = np.random.default_rng(0).exponential(size=30) - 0.8
    expected = stats.ttest_1samp(values, 0, alternative="greater")
    found = one_sample((values * scale).astype(np.float32))
    # two sums of 30, the second of cubes of differences; a tail is off by t² times as much, or |log p|
    conditioned = expected.pvalue * (1 + 2 * abs(np.log(expected.pvalue)))
    rounding.assert_close(found.p_value, expected.pvalue, roundings=2 * 30 + 4 * 4, scale=conditioned)
    rounding.assert_close(found.skewness, stats.skew(values), roundings=2 * 30 + 4 * 4, scale=1 + stats.skew(values))
