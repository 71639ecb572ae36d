"""Conformal test martingales: definitions, the law of a martingale by integration, long streams, steps beside scans."""

import jax
import numpy as np
import pytest
import references_martingale as ref
import rounding

from tdd.kernels import martingale

compiled = jax.jit(martingale.conformal_martingale, static_argnames="bet")
step = jax.jit(martingale.advance)
control_p_value = jax.jit(martingale.control_p_value)
wealth_after = jax.jit(jax.vmap(lambda state, x: martingale.advance(state, -x)[1].log_martingale, in_axes=(None, 0)))
every_bet = pytest.mark.parametrize("bet", martingale.BETS)


STEPS = 40


def p_values(seed=0, size=STEPS, power=1.5):
    return np.random.default_rng(seed).random(size) ** power


def padded(log_p):
    """NaN behind it: one program for all lengths."""
    return np.append(log_p, np.full(STEPS - len(log_p), np.nan)).astype(np.float32)


REFERENCES = {
    "mixture": lambda p: ref.log_mixture(np.log(p)),
    "any_start": ref.any_start,
    "simple_jumper": ref.simple_jumper,
}


def step_roundings(steps):
    """A logarithm of p, an exponent, a logarithm and a sum in each step, of terms as large as the sum of log p."""
    return steps * (3 * 4 + 1)


@every_bet
def test_definition(bet):
    for power in (0.7, 1.0, 3.0):
        p = p_values(power=power, size=STEPS)
        found = compiled(np.log(p.astype(np.float32)), bet=bet)
        expected = REFERENCES[bet](p)
        terms = {"roundings": step_roundings(1), "scale": np.cumsum(1 + np.abs(np.log(p)))}
        rounding.assert_close(found.log_martingale, expected, **terms)
        largest = np.maximum.accumulate(np.maximum(expected, 0))
        rounding.assert_close(found.log_running_max, largest, **terms)
        rounding.assert_close(found.anytime_p_value, np.exp(-largest), **terms)
        assert found.num_tests.tolist() == list(range(1, STEPS + 1))


@every_bet
@pytest.mark.parametrize("length", [0, 1, 6])
def test_the_mean_over_a_uniform_p_is_the_wealth_before(bet, length):
    """Integrated over x = -log p, whose law has density exp(-x)."""
    with jax.enable_x64(True):
        state = martingale.start(bet)
        for p in p_values(seed=4, size=length):
            state, _ = step(state, np.log(p))
        x = np.concatenate([[0], np.geomspace(1e-8, 2e5, 60_001)])
        mean = np.trapezoid(np.exp(np.asarray(wealth_after(state, x)) - x), x)
    np.testing.assert_allclose(mean, np.exp(float(state.log_martingale)), rtol=1e-5)


@pytest.mark.parametrize("bet", ["mixture", "any_start"])
def test_larger_p_values_give_less(bet):
    p = p_values(seed=5)
    few, many = (np.asarray(compiled(np.log(x).astype(np.float32), bet=bet).log_martingale) for x in (p, p * 1.3))
    real = np.maximum.accumulate(p * 1.3) <= 1  # up to the first that is no p-value
    assert real.sum() > 3
    assert (many < few)[real].all()


@every_bet
def test_the_step_gives_the_scan(bet):
    """And the state has the same shapes for ever; masked and NaN steps leave it as it is."""
    log_p, mask = np.log(p_values(1)).astype(np.float32), np.random.default_rng(1).random(40) < 0.8
    log_p[[0, 9]] = np.nan
    expected = jax.tree.map(np.asarray, compiled(log_p, bet=bet, mask=mask))
    state = martingale.start(bet)
    shapes = [leaf.shape for leaf in jax.tree.leaves(state)]
    for t in range(40):
        state, now = step(state, log_p[t], mask[t])
        for got, whole in zip(now, expected):
            rounding.assert_close(got, whole[t], roundings=step_roundings(STEPS), scale=1 + np.abs(whole[t]))
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == shapes
    kept = np.flatnonzero(mask & ~np.isnan(log_p))
    alone = np.asarray(compiled(padded(log_p[kept]), bet=bet).log_martingale)[: len(kept)]
    scale = 1 + np.abs(alone)
    rounding.assert_close(expected.log_martingale[kept], alone, roundings=step_roundings(STEPS), scale=scale)
    assert expected.num_tests[-1] == len(kept)
    assert set(compiled(padded([]), bet=bet).anytime_p_value.tolist()) == {1}


@every_bet
def test_long_streams_keep_their_digits(bet):
    """10^5 steps in single precision beside double precision; a p of 0.8 or of 2 as of 1 by powers of a uniform one.

    A rounding of log M in each step, and errors of either sign: the root of their number, six times.
    """
    log_p = np.log(np.random.default_rng(0).random(50_000))
    many = np.stack([power * log_p for power in (0.8, 1.0, 2.0)])
    rows = jax.jit(jax.vmap(lambda p: martingale.conformal_martingale(p, bet=bet).log_martingale))
    single = np.asarray(rows(many.astype(np.float32)), float)
    with jax.enable_x64(True):
        double = np.asarray(rows(many))
    largest = np.maximum.accumulate(abs(double), axis=1)
    assert (abs(single - double) <= 2e-3 + 3e-5 * largest).all()


def test_the_mixture_is_the_integral():
    log_p = np.log(p_values(2, 4_000, power=1.05)).astype(np.float32)
    expected = ref.log_mixture(log_p.astype(float))
    found = compiled(log_p, bet="mixture").log_martingale
    np.testing.assert_allclose(found, expected, atol=1e-3)  # 4,000 terms of about 1 that cancel: 4e3·u = 2e-4, and more


@pytest.mark.parametrize("bet", ["mixture", "any_start"])
def test_tiny_p_values(bet):
    """p = 1e-300 thrice, below every float32: log M by the integral, and by any_start within its log weights."""
    log_p = np.full(3, -300 * np.log(10))
    found = jax.tree.map(lambda leaf: np.asarray(leaf)[:3], compiled(padded(log_p), bet=bet))
    assert float(found.log_martingale[-1]) == pytest.approx(3 * 300 * np.log(10), rel=0.03)
    if bet == "mixture":
        scale = np.cumsum(np.abs(log_p))
        rounding.assert_close(found.log_martingale, ref.log_mixture(log_p), roundings=step_roundings(3), scale=scale)
    assert float(found.anytime_p_value[-1]) == pytest.approx(np.finfo(np.float32).tiny)
    assert float(found.log_running_max[-1]) == float(found.log_martingale[-1])


@every_bet
def test_a_p_value_of_zero_and_of_one(bet):
    log_p = np.array([0.0, -np.inf, -1.0, -np.inf, 0.0], np.float32)
    found = np.asarray(compiled(padded(log_p), bet=bet).log_martingale)[:5]
    assert not np.isnan(found).any()
    if bet != "simple_jumper":  # its bets are bounded
        assert np.isposinf(found[1:]).all()
    assert compiled(log_p[:0], bet=bet).log_martingale.shape == (0,)


@every_bet
def test_batches(bet):
    many = np.log(p_values(7, 4 * STEPS)).reshape(4, STEPS).astype(np.float32)
    batched = jax.jit(jax.vmap(lambda p: martingale.conformal_martingale(p, bet=bet)))(many)
    batched = jax.tree.map(np.asarray, batched)
    for row, found in zip(many, batched.log_martingale, strict=True):
        alone = np.asarray(compiled(row, bet=bet).log_martingale)
        rounding.assert_close(found, alone, roundings=step_roundings(STEPS), scale=1 + np.abs(alone))


def test_weights_of_the_bets():
    for size in (8, 96):
        e, weights = martingale.power_bets(size)
        assert (weights > 0).all()
        assert weights.sum() == pytest.approx(1, abs=1e-14)
        assert (e > 0).all()
        assert (e < 1).all()


def test_canaries_of_one_key():
    """Leading axes, a draw of their own each, and p never 0."""
    score, controls = np.zeros((3, 500), np.float32), np.zeros((3, 500, 9), np.float32)
    p = np.asarray(control_p_value(score, controls, key=jax.random.key(0)))
    assert p.min() > 0
    assert p.max() <= 1
    assert len(np.unique(p)) > 1_400
    assert float(control_p_value(0.0, np.ones(19, np.float32))) == pytest.approx(1 / 20)
    assert float(control_p_value(0.0, np.zeros(0, np.float32))) == 1


def test_wrong_calls():
    with pytest.raises(ValueError, match="bet must be one of"):
        martingale.start("kelly")
    with pytest.raises(ValueError, match="not both"):
        martingale.control_p_value(0.0, np.ones(2, np.float32), key=jax.random.key(0), uniform=1.0)
