"""Shiryaev and Roberts' procedure: the definition, the law of its compensator by integration, steps beside scans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_martingale as ref
import rounding

from tdd.kernels import change_detection

compiled = jax.jit(change_detection.shiryaev_roberts)
step = jax.jit(change_detection.advance)


def p_values(seed, size=60):
    rng = np.random.default_rng(seed)
    return rng.random(size) ** np.where(np.arange(size) < 30, 1, 3)


@pytest.mark.parametrize("mean_time", [3.0, 20.0, 1e15])
def test_definition(mean_time):
    p = p_values(0)
    statistic, alarm = ref.shiryaev_roberts(p, mean_time)
    found = compiled(np.log(p).astype(np.float32), mean_time)
    np.testing.assert_array_equal(found.alarm, alarm)
    # a logarithm of p, eight exponents, their sum and its logarithm in each step, whose errors add up
    roundings = 60 * (3 * 4 + 8)
    rounding.assert_close(found.log_statistic, statistic, roundings=roundings, scale=np.maximum(abs(statistic), 1))
    assert alarm.any() == (mean_time < 1e15)


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_uniform_p_adds_one_on_average(length):
    """E R_t = 1 + R_(t-1): what bounds the number of false alarms."""
    with jax.enable_x64(True):
        state, before = change_detection.start(1e300), 0.0
        for p in p_values(4)[:length]:
            state, now = step(state, np.log(p))
            before = np.exp(float(now.log_statistic))
        x = np.concatenate([[0], np.geomspace(1e-8, 3e3, 60_001)])
        after = jax.jit(jax.vmap(lambda y: change_detection.advance(state, -y)[1].log_statistic))(jnp.asarray(x))
        mean = np.trapezoid(np.exp(np.asarray(after) - x), x)
    np.testing.assert_allclose(mean, 1 + before, rtol=1e-5)


def test_the_step_gives_the_scan_and_masked_steps_nothing():
    log_p, mask = np.log(p_values(1)).astype(np.float32), np.random.default_rng(1).random(60) < 0.8
    log_p[5] = np.nan
    expected = compiled(log_p, 15.0, mask=mask)
    state = change_detection.start(15.0)
    for t in range(60):
        state, now = step(state, log_p[t], mask[t])
        np.testing.assert_array_equal(now.alarm, expected.alarm[t])
        whole = np.asarray(expected.log_statistic[t])
        rounding.assert_close(now.log_statistic, whole, roundings=2 * 60 * (3 * 4 + 8), scale=np.maximum(abs(whole), 1))
    kept = np.flatnonzero(mask & ~np.isnan(log_p))
    alone = compiled(log_p[kept], 15.0)
    np.testing.assert_array_equal(expected.alarm[kept], alone.alarm)
    assert not np.asarray(expected.alarm)[~mask].any()
    assert alone.alarm.sum() > 1


def test_long_clean_streams_and_extreme_p_values():
    log_p = np.log(np.random.default_rng(0).random(100_000)).astype(np.float32)
    statistic = np.asarray(compiled(log_p, 1e6).log_statistic)
    assert np.isfinite(statistic).all()
    found = compiled(jnp.array([-jnp.inf, 0.0, 0.0, -690.0]), 50.0)
    assert found.alarm.tolist() == [True, False, False, True]
    assert compiled(jnp.zeros(0), 5.0).alarm.shape == (0,)
    assert not compiled(jnp.full(3, -jnp.inf), jnp.float32(0.5)).alarm.any()


def test_wrong_calls():
    with pytest.raises(ValueError, match="mean_time must be at least 1"):
        change_detection.start(0.5)
