"""Hommel's procedure against the closed test, and its place among its neighbours."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref
from statsmodels.stats.multitest import multipletests

from tdd.kernels import hommel, lattice, stepup

HOMMEL = jax.jit(lambda p: hommel.hommel(p, 0.3))


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7])
def test_is_the_closed_test_of_simes(m):
    rng = np.random.default_rng(m)
    for _ in range(30):
        numerators = rng.integers(0, 21, m)
        expected = ref.closed_simes([Fraction(int(x), 20) for x in numerators])
        found = HOMMEL(jnp.asarray(numerators / 20, jnp.float32)).adjusted
        np.testing.assert_allclose(found, [float(min(x, 1)) for x in expected], rtol=3e-7, atol=1e-9)


@pytest.mark.parametrize("power", [0.4, 1, 4, 12])
@pytest.mark.parametrize("m", [40, 300])
def test_larger_samples(m, power):
    p = (np.random.default_rng(m).random(m) ** power).astype(np.float32)
    expected = multipletests(p.astype(np.float64), method="hommel")[1]
    np.testing.assert_allclose(HOMMEL(jnp.asarray(p)).adjusted, expected, rtol=1e-6)


def test_rejects_what_hochberg_and_holm_reject():
    p = jnp.asarray(np.random.default_rng(0).random((2000, 12)) ** 3, jnp.float32)
    own, hochberg, holm = (
        jax.jit(jax.vmap(lambda p, rule=rule: rule(p, 0.2).reject))(p)
        for rule in (hommel.hommel, stepup.hochberg, stepup.holm)
    )
    assert (own | ~hochberg).all()
    assert (own | ~holm).all()
    assert (own & ~hochberg).any()


def test_all_zero_and_all_one():
    assert HOMMEL(jnp.zeros(5)).adjusted.tolist() == [0] * 5
    assert HOMMEL(jnp.ones(5)).adjusted.tolist() == [1] * 5


@pytest.mark.parametrize("alpha", [0.0, 1.0, jnp.nan])
def test_a_traced_level_out_of_range_rejects_nothing(alpha):
    step = jax.jit(hommel.hommel)(jnp.array([0.0, 0.2]), jnp.float32(alpha))
    assert not step.reject.any()
    assert jnp.isnan(step.adjusted).all()


def test_decision_agrees_with_the_adjusted_values():
    rng = np.random.default_rng(1)
    many = jnp.asarray(rng.integers(0, 41, (500, 15)) / 40 * rng.choice([0.2, 1], (500, 1)), jnp.float32)
    decide = jax.jit(jax.vmap(hommel.hommel, in_axes=(0, None)))
    for alpha in (0.05, 0.1, 0.2, 0.5):
        step = decide(many, jax.tree.map(jnp.asarray, lattice.as_level(alpha)))
        np.testing.assert_array_equal(step.reject, step.adjusted <= alpha)
        assert step.reject.any()
        assert not step.reject.all()


def test_static_level_out_of_range():
    with pytest.raises(ValueError, match="alpha"):
        hommel.hommel(jnp.array([0.1]), 1.0)
