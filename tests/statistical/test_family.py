"""What Šidák's and the two-stage procedures promise, at 10^5 repetitions, each beside broken twins."""

import guarantees
import jax
import jax.numpy as jnp
import pytest

from tdd.kernels import conformal, stepup


def independent_p(key, nulls, alternatives):
    return jax.random.uniform(key, (nulls + alternatives,)).at[nulls:].power(60.0)


def tied_p(key, nulls, alternatives):
    """Thirty values only, super-uniform."""
    return jnp.ceil(30 * independent_p(key, nulls, alternatives)) / 30


def conformal_p(key, nulls, alternatives):
    """Integer scores with ties on one calibration sample."""
    draw = jax.random.randint(key, (150 + nulls + alternatives,), 0, 200)
    scores = draw[150:].at[nulls:].add(-180)
    return conformal.p_values(conformal.rank(draw[:150], scores, null="nonmember"))


def exclusive_p(key, nulls, alternatives):
    """Uniform each, and at most one of m below 1/m: the dependence that Šidák's inequality excludes."""
    m = nulls + alternatives
    return (jax.random.uniform(key) + jnp.arange(m) / m) % 1


def family_wise(draw, nulls, alternatives, *selects):
    def one(key):
        p = draw(key, nulls, alternatives)
        return [jnp.any(select(p)[:nulls]) for select in selects]

    return guarantees.simulate(one, seed=41)


def false_discovery(draw, nulls, alternatives, *selects):
    null = jnp.arange(nulls + alternatives) < nulls

    def one(key):
        p = draw(key, nulls, alternatives)
        return [guarantees.false_discovery_proportion(select(p), null) for select in selects]

    return guarantees.simulate(one, seed=42)


def one_test_too_few(p):
    """1 - (1 - p)^(m - 1)."""
    return 1 - (1 - p) ** (p.size - 1) <= 0.1


def down_one_step_too_far(p):
    """Stepping down with m - i for m - i + 1."""
    left = jnp.maximum(p.size - 1 - jnp.arange(p.size), 1)
    order = jnp.argsort(p)
    adjusted = jax.lax.cummax(1 - (1 - p[order]) ** left)
    return jnp.zeros(p.size, bool).at[order].set(adjusted <= 0.1)


def one_step(p):
    return stepup.sidak(p, 0.1).reject


def down(p):
    return stepup.holm_sidak(p, 0.1).reject


def bky(p):
    return stepup.two_stage_bh(p, 0.3).reject


def bh(p):
    return stepup.two_stage_bh(p, 0.3, variant="bh").reject


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(("nulls", "alternatives"), [(6, 0), (4, 4), (1, 0)])
def test_sidak_is_exact_for_independent_uniforms(nulls, alternatives, budget):
    share = nulls / (nulls + alternatives)
    (errors,) = family_wise(independent_p, nulls, alternatives, one_step)
    guarantees.assert_equals(errors, 1 - 0.9**share, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(
    ("draw", "nulls", "alternatives"), [(independent_p, 4, 4), (tied_p, 2, 1), (conformal_p, 3, 2)]
)
def test_family_wise_error(draw, nulls, alternatives, budget):
    for errors in family_wise(draw, nulls, alternatives, one_step, down):
        guarantees.assert_at_most(errors, 0.1, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(
    ("select", "draw", "nulls", "alternatives", "alpha"),
    [
        (one_test_too_few, independent_p, 6, 0, 0.1),
        (down_one_step_too_far, independent_p, 3, 3, 0.1),
        (lambda p: stepup.sidak(p, 0.3).reject, exclusive_p, 6, 0, 0.3),
    ],
    ids=["m - 1", "one step too far", "exclusive"],
)
def test_broken_family_wise_error_is_caught(select, draw, nulls, alternatives, alpha, budget):
    guarantees.assert_exceeds(family_wise(draw, nulls, alternatives, select)[0], alpha, budget)


@pytest.mark.guarantee(checks=2)
def test_all_null_two_stage_is_exact(budget):
    """No discovery is true, and the second stage runs only after a rejection: FDR is the first stage's level."""
    for fdp, level in zip(false_discovery(independent_p, 6, 0, bky, bh), (0.3 / 1.3, 0.3), strict=True):
        guarantees.assert_equals(fdp, level, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(
    ("draw", "nulls", "alternatives"),
    [(independent_p, 10, 10), (independent_p, 16, 4), (tied_p, 6, 14), (independent_p, 1, 0)],
)
def test_two_stage_false_discovery_rate(draw, nulls, alternatives, budget):
    """Both stages at alpha, as in "bh", do not keep FDR at alpha."""
    staged, both_at_alpha = false_discovery(draw, nulls, alternatives, bky, bh)
    guarantees.assert_at_most(staged, 0.3, budget)
    guarantees.assert_at_most(both_at_alpha, 0.3 / 0.7, budget)
    if alternatives == 10:
        guarantees.assert_exceeds(both_at_alpha, 0.3, budget)
