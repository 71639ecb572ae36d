"""What the simultaneous bounds and Hommel's procedure promise, beside broken twins."""

import functools
import math

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import conformal, fdp_bounds, hommel, lattice
from tdd.procedures.fdp_template import draw_template, fdp_template

DELTA = 0.1
POOL = 64


def normal_scores(key, n, nulls, alternatives, shift=2.0):
    draw = jax.random.normal(key, (n + nulls + alternatives,))
    return draw[:n], draw[n:].at[nulls:].add(-shift)


def integer_scores(key, n, nulls, alternatives):
    draw = jax.random.randint(key, (n + nulls + alternatives,), 0, 12)
    return draw[:n], draw[n:].at[nulls:].add(-6)


@functools.cache
def templates(n, m, delta=DELTA):
    """Templates from independent draws: the guarantee is over the draws too."""
    make = functools.partial(fdp_bounds.calibrate, max_calibration=n, max_tests=m, num_draws=999)
    level = jax.tree.map(jnp.asarray, lattice.as_level(delta))
    return jax.jit(jax.vmap(make, in_axes=(0, None, None)))(jax.random.split(jax.random.key(5), POOL), n, level)


@functools.cache
def host_templates(n, m, delta=DELTA):
    """The same, drawn on the host."""
    sizes = {"max_calibration": n, "max_tests": m, "num_draws": 999}
    keys = jax.random.split(jax.random.key(6), POOL)
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(draw_template(key, n, lattice.as_level(delta), **sizes) for key in keys)
    )


def fails(rank, found, nulls):
    """Whether some cut holds more nulls than its bound, or all items do."""
    cuts = jnp.arange(1, found.false_bound.size + 1)
    false = jnp.sum(rank[None, :nulls] <= cuts[:, None], axis=1)
    return jnp.any(false > found.false_bound) | (nulls > found.max_nulls)


def failure_rate(scores, n, nulls, alternatives, null="nonmember", broken=None, made=templates):
    """Repetitions in which the bounds fail, with a template of the pool drawn for each."""
    pool = made(n, nulls + alternatives)
    if broken == "pointwise":
        pool = pool._replace(bound=pointwise_bound(n, nulls + alternatives)[None].repeat(POOL, 0))

    def one(key):
        data, own = jax.random.split(key)
        calibration, test = scores(data, n, nulls, alternatives)
        if null == "member":
            calibration, test = -calibration, -test
        rank = conformal.rank(calibration, test, null=null).rank
        if broken == "without the one":
            rank = jnp.maximum(rank - 1, 1)
        if broken == "ties in favour":
            rank = n + 2 - conformal.rank(calibration, test, null="member").rank
        template = jax.tree.map(lambda x: x[jax.random.randint(own, (), 0, POOL)], pool)
        return fails(rank, fdp_bounds.bounds(template, rank, n, max_rank=n + 1), nulls)

    return guarantees.simulate(one, seed=11)


def pointwise_bound(n, m):
    """max{c: P(N_k(i) >= c) >= delta}: each cut alone fails with probability < delta."""
    tails = jax.jit(jax.vmap(lambda k: fdp_bounds.tails_of(k, jnp.arange(1, n + 1), jnp.int32(n), m)[1]))
    return (jnp.sum(tails(jnp.arange(1, m + 1)) >= DELTA, axis=2) - 1).astype(jnp.int32)


@pytest.mark.guarantee(checks=7)
@pytest.mark.parametrize(
    ("scores", "n", "nulls", "alternatives", "null"),
    [
        (normal_scores, 30, 20, 0, "nonmember"),
        (normal_scores, 30, 12, 8, "nonmember"),
        (normal_scores, 30, 12, 8, "member"),
        (integer_scores, 30, 20, 0, "nonmember"),
        (integer_scores, 30, 12, 8, "nonmember"),
        (normal_scores, 1, 6, 0, "nonmember"),
        (normal_scores, 30, 1, 0, "nonmember"),
    ],
)
@pytest.mark.slow("long")
def test_bounds_hold_for_all_cuts_together(scores, n, nulls, alternatives, null, budget):
    guarantees.assert_at_most(failure_rate(scores, n, nulls, alternatives, null), DELTA, budget)


@pytest.mark.guarantee(checks=2)
def test_bounds_hold_with_the_computed_template(budget):
    """One template of each delta, which depends on no draw; the twin takes that of 2 delta."""
    n, m = 30, 20
    right, larger = (fdp_template(n, m, key=jax.random.key(0), delta=delta) for delta in (DELTA, 2 * DELTA))

    def one(key):
        found = []
        for nulls, alternatives, template in ((20, 0, right), (12, 8, right), (20, 0, larger)):
            rank = conformal.rank(*normal_scores(key, n, nulls, alternatives), null="nonmember").rank
            found.append(fails(rank, fdp_bounds.bounds(template, rank, n, max_rank=n + 1), nulls))
        return found

    *held, broken = guarantees.simulate(one, seed=11)
    for failures in held:
        guarantees.assert_at_most(failures, DELTA, budget)
    guarantees.assert_exceeds(broken, DELTA, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(("nulls", "alternatives"), [(20, 0), (12, 8)])
@pytest.mark.slow("long")
def test_bounds_hold_with_templates_of_the_host(nulls, alternatives, budget):
    guarantees.assert_at_most(failure_rate(normal_scores, 30, nulls, alternatives, made=host_templates), DELTA, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.slow("long")
def test_a_template_of_the_host_for_a_larger_delta_is_caught(budget):
    larger = functools.partial(host_templates, delta=2 * DELTA)
    guarantees.assert_exceeds(failure_rate(normal_scores, 30, 20, 0, made=larger), DELTA, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(
    ("scores", "broken"),
    [(normal_scores, "pointwise"), (normal_scores, "without the one"), (integer_scores, "ties in favour")],
)
@pytest.mark.slow("long")
def test_broken_bounds_are_caught(scores, broken, budget):
    guarantees.assert_exceeds(failure_rate(scores, 30, 20, 0, broken=broken), DELTA, budget)


def fresh_draws(draws, place=None):
    """Fails with a template from few draws of its own; `place` overrides which L_b is critical."""
    n, m = 8, 5
    level = lattice.as_level(DELTA if place is None else place / (draws + 1))

    def one(key):
        data, own = jax.random.split(key)
        template = fdp_bounds.calibrate(own, n, level, max_calibration=n, max_tests=m, num_draws=draws)
        rank = conformal.rank(*normal_scores(data, n, m, 0), null="nonmember").rank
        return fails(rank, fdp_bounds.bounds(template, rank, n, max_rank=n + 1), m)

    return guarantees.simulate(one, seed=12)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_few_draws_are_enough(budget):
    """floor(delta (B + 1)) is valid for any B; the empirical quantile, ceil(delta B), is not."""
    guarantees.assert_at_most(fresh_draws(9), DELTA, budget)
    guarantees.assert_exceeds(fresh_draws(5, place=math.ceil(DELTA * 5)), DELTA, budget)


def sets_chosen_after_looking(trust_fdp):
    """The worst set for the bound: the items that look null, and some top ones, chosen on the data."""
    n, nulls, alternatives = 30, 15, 5
    pool = templates(n, nulls + alternatives)

    def one(key):
        data, own = jax.random.split(key)
        rank = conformal.rank(*normal_scores(data, n, nulls, alternatives), null="nonmember").rank
        template = jax.tree.map(lambda x: x[jax.random.randint(own, (), 0, POOL)], pool)
        found = fdp_bounds.bounds(template, rank, n, max_rank=n + 1)
        chosen = (rank <= jnp.sort(rank)[3]) | (rank >= jnp.sort(rank)[-6])
        bound = fdp_bounds.of_set(found, chosen)
        if trust_fdp:  # the share of false ones at the largest rank of the set, as if it were a cut
            share = found.false_bound[-1] / jnp.maximum(found.num_selected[-1], 1)
            bound = share * jnp.sum(chosen) * 0.5
        return jnp.sum(chosen[:nulls]) > bound

    return guarantees.simulate(one, seed=13)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_bounds_of_a_set_chosen_after_looking(budget):
    guarantees.assert_at_most(sets_chosen_after_looking(False), DELTA, budget)
    guarantees.assert_exceeds(sets_chosen_after_looking(True), DELTA, budget)


def dkw_failures(scores, n, nulls, alternatives, delta=0.4):
    """Of the bound, and of half of it."""

    def one(key):
        ranked = conformal.rank(*scores(key, n, nulls, alternatives), null="nonmember")
        p = conformal.p_values(ranked)
        found = fdp_bounds.dkw(p, p, n, delta)
        false = jnp.sum(p[None, :nulls] <= p[:, None], axis=1)
        return [jnp.any(false > found.false_bound * share + 1e-4) for share in (1, 0.5)]

    return guarantees.simulate(one, seed=14)


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(
    ("scores", "n", "nulls", "alternatives"),
    [(normal_scores, 30, 20, 0), (integer_scores, 30, 12, 8), (normal_scores, 1, 3, 0)],
)
def test_closed_form_bound(scores, n, nulls, alternatives, budget):
    right, broken = dkw_failures(scores, n, nulls, alternatives)
    guarantees.assert_at_most(right, 0.4, budget)
    guarantees.assert_exceeds(broken, 0.4, budget)


# --- Hommel -----------------------------------------------------------------------------------------------------------


def independent_p(key, nulls, alternatives):
    p = jax.random.uniform(key, (nulls + alternatives,))
    return p.at[nulls:].power(8.0)


def conformal_p(key, nulls, alternatives):
    ranked = conformal.rank(*integer_scores(key, 40, nulls, alternatives), null="nonmember")
    return conformal.p_values(ranked)


def comonotone_p(key, nulls, alternatives):
    return jnp.full(nulls + alternatives, jax.random.uniform(key))


def family_wise(select, draw, nulls, alternatives):
    return guarantees.simulate(lambda key: jnp.any(select(draw(key, nulls, alternatives))[:nulls]), seed=16)


def one_null_too_few(p):
    """Hommel with h - 1 for h."""
    order = jnp.sort(p)
    m = p.size
    simes = [jnp.min(i * order[m - i :] / jnp.arange(1, i + 1)) for i in range(1, m + 1)]
    free = jnp.max(jnp.where(jnp.stack(simes) > 0.1, jnp.arange(1, m + 1), 0))
    return p * jnp.maximum(free - 1, 0) <= 0.1


@pytest.mark.guarantee(checks=5)
@pytest.mark.parametrize(
    ("draw", "nulls", "alternatives"),
    [(independent_p, 4, 0), (independent_p, 4, 4), (conformal_p, 6, 4), (comonotone_p, 4, 0), (independent_p, 1, 0)],
)
def test_hommel_controls_the_family_wise_error(draw, nulls, alternatives, budget):
    select = lambda p: hommel.hommel(p, 0.1).reject  # noqa: E731
    guarantees.assert_at_most(family_wise(select, draw, nulls, alternatives), 0.1, budget)


@pytest.mark.guarantee(checks=0)
def test_broken_hommel_is_caught(budget):
    guarantees.assert_exceeds(family_wise(one_null_too_few, independent_p, 4, 0), 0.1, budget)


@pytest.mark.slow("long")
def test_the_pool_is_no_copy_of_one_template():
    assert len({np.asarray(bound).tobytes() for bound in templates(30, 20).bound}) > POOL // 2
