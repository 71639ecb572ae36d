"""Hommel's procedure against the closed test, and its place among its neighbours."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref
import rounding
from statsmodels.stats.multitest import multipletests

from tdd.kernels import hommel, lattice, stepup

HOMMEL = jax.jit(lambda p: hommel.hommel(p, 0.3))


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7])
def test_is_the_closed_test_of_simes(m):
    """A rounded p-value, a product and a quotient."""
    rng = np.random.default_rng(m)
    for _ in range(30):
        numerators = rng.integers(0, 21, m)
        expected = ref.closed_simes([Fraction(int(x), 20) for x in numerators])
        p = np.full(7, np.nan, np.float32)  # one program for all sizes
        p[:m] = numerators / 20
        rounding.assert_close(HOMMEL(p).adjusted[:m], [float(min(x, 1)) for x in expected], roundings=4)


@pytest.mark.parametrize("m", [40, 300])
def test_larger_samples(m):
    for power in (0.4, 1, 4, 12):
        p = (np.random.default_rng(m).random(m) ** power).astype(np.float32)
        expected = multipletests(p.astype(np.float64), method="hommel")[1]
        rounding.assert_close(HOMMEL(p).adjusted, expected, roundings=4)


def test_rejects_what_hochberg_and_holm_reject():
    p = (np.random.default_rng(0).random((1000, 12)) ** 3).astype(np.float32)
    rules = (hommel.hommel, stepup.hochberg, stepup.holm)
    own, hochberg, holm = map(np.asarray, jax.jit(jax.vmap(lambda p: [rule(p, 0.2).reject for rule in rules]))(p))
    assert (own | ~hochberg).all()
    assert (own | ~holm).all()
    assert (own & ~hochberg).any()


def test_all_zero_and_all_one():
    assert HOMMEL(jnp.zeros(7)).adjusted.tolist() == [0] * 7
    assert HOMMEL(jnp.ones(7)).adjusted.tolist() == [1] * 7


def test_a_traced_level_out_of_range_rejects_nothing():
    p, levels = np.float32([0.0, 0.2]), np.float32([0, 1, np.nan])
    step = jax.tree.map(np.asarray, jax.jit(jax.vmap(hommel.hommel, in_axes=(None, 0)))(p, levels))
    assert not step.reject.any()
    assert np.isnan(step.adjusted).all()


def test_decision_agrees_with_the_adjusted_values():
    rng = np.random.default_rng(1)
    many = (rng.integers(0, 41, (500, 15)) / 40 * rng.choice([0.2, 1], (500, 1))).astype(np.float32)
    decide = jax.jit(jax.vmap(hommel.hommel, in_axes=(0, None)))
    for alpha in (0.05, 0.1, 0.2, 0.5):
        step = jax.tree.map(np.asarray, decide(many, jax.tree.map(jnp.asarray, lattice.as_level(alpha))))
        np.testing.assert_array_equal(step.reject, step.adjusted <= alpha)
        assert step.reject.any()
        assert not step.reject.all()


def bisected(p, alpha):
    """Hommel's decision from all Simes tests: bisection over the number of hypotheses that may be true."""
    m, level = p.size, np.float32(np.float32(alpha) * (1 + 4 * np.finfo(np.float32).eps))
    ordered, low, high = np.sort(p), 0, m
    while low < high:
        middle = (low + high + 1) // 2
        simes = np.float32(middle) * ordered[m - middle :] / np.arange(1, middle + 1, dtype=np.float32)
        low, high = (middle, high) if (simes > level).all() else (low, middle - 1)
    return p * np.float32(low) <= level


@pytest.mark.parametrize("divisions", [0, 1, 16])
def test_bins_and_order_give_one_decision(monkeypatch, divisions):
    monkeypatch.setattr(hommel, "_MAX_DIVISIONS", divisions)
    decide = jax.jit(lambda p: hommel.hommel(p, 0.1).reject)
    m = 5_000
    rng = np.random.default_rng(4)
    uniform = rng.random(m)
    cases = (
        uniform**4,
        np.where(uniform < 0.3, 0.1 * (1 - 1e-4 * uniform), uniform),  # most of them in one bin
        np.arange(1, m + 1) / m * 0.1 * rng.uniform(0.9, 1.1),  # near the line of all Simes tests
        np.round(uniform**3 * 200) / 200,
        0.1 / np.arange(1, m + 1),
    )
    rejected = []
    for p in cases:
        p = p.astype(np.float32)
        np.testing.assert_array_equal(decide(p), bisected(p, 0.1))
        rejected.append(int(bisected(p, 0.1).sum()))
    assert sum(0 < number < m for number in rejected) >= 2, rejected


def test_static_level_out_of_range():
    with pytest.raises(ValueError, match="alpha"):
        hommel.hommel(jnp.array([0.1]), 1.0)
