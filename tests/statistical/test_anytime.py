"""Sizes of the rule of slots and of its e-value over many looks, at 10^5 repetitions, each beside a broken twin."""

import functools

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import trajectories
from tdd.kernels.set_statistics import set_statistics

LEVELS = (0.05, 0.1, 0.2, 0.5)
ROWS, LOOKS = 20, 4


def rows(memory, steps=None):
    """Independent rows, looks that follow an autoregression: 0 independent, 1 the same at every look."""

    def draw(key):
        noise = jax.random.normal(key, (LOOKS, ROWS))
        paths = [noise[0]]
        for t in range(1, LOOKS):
            paths.append(memory * paths[-1] + (1 - memory**2) ** 0.5 * noise[t])
        paths = jnp.stack(paths)
        return paths if steps is None else jnp.round(paths * steps)

    return draw


def labelled(statistic, baseline):
    """Items of very unlike paths, some without a score; the true labelling and the others drawn at random."""

    def draw(key):
        data, lost, label = jax.random.split(key, 3)
        count = 12
        scale = jnp.exp(2 * jax.random.normal(data, (count,)))
        scores = scale * jax.random.normal(jax.random.fold_in(data, 1), (LOOKS, count)).cumsum(axis=0)
        scores = jnp.where(jax.random.uniform(lost, (LOOKS, count)) < 0.1, jnp.nan, jnp.round(scores))
        places = jax.random.uniform(label, (ROWS, count))
        labels = jnp.sum(places[:, :, None] < places[:, None, :], axis=1) < 5
        first = scores[0] if baseline else None
        return jax.vmap(lambda row: set_statistics(row, labels, baseline=first, statistic=statistic))(scores)

    return draw


def follow(paths, horizon):
    """Evidence of every look."""
    shares = jax.vmap(trajectories.spending, in_axes=(0, None))(jnp.arange(1, LOOKS + 1), horizon)

    def look(state, step):
        return trajectories.advance(state, *step)

    return jax.lax.scan(look, trajectories.start(ROWS - 1), (paths, shares))[1]


LAWS = {
    "independent": (rows(0.0), LOOKS),
    "the same": (rows(1.0), LOOKS),
    "following, unknown horizon": (rows(0.8), None),
    "tied": (rows(0.5, steps=1), LOOKS),
    "labelled items": (labelled("combined", False), LOOKS),
    "labelled items, baseline": (labelled("tail", True), LOOKS),
}
WITH_TIES = ("tied", "labelled items")
DEPENDENT = ("the same", "following, unknown horizon")


@functools.cache
def simulated(name):
    """The promised values, and those of three broken rules, in one run."""
    draw, horizon = LAWS[name]

    def one(key):
        paths = draw(key)
        evidence = follow(paths, horizon)
        found = {
            "rule": jnp.min(evidence.anytime_p_value),
            "e_value": jnp.exp(jnp.max(evidence.log_e_value)) / ROWS,  # no e-value exceeds the number of rows
            "every look alone": jnp.min(evidence.p_value),
        }
        if name in DEPENDENT:
            alone = jax.vmap(lambda row: trajectories.advance(trajectories.start(ROWS - 1), row, 1.0)[1].log_e_value)
            found["product over looks"] = jnp.exp(jnp.minimum(jnp.sum(alone(paths)), jnp.log(1.0 * ROWS))) / ROWS
        if name in WITH_TIES:
            favoured = paths.astype(jnp.float32).at[:, 0].add(0.5)
            found["ties for row 0"] = jnp.min(follow(favoured, horizon).anytime_p_value)
        return found

    return guarantees.simulate(one, seed=0)


@pytest.mark.guarantee(checks=6 * (4 + 1) + 2)
@pytest.mark.parametrize("name", LAWS)
def test_no_level_is_crossed_too_often_at_any_look(name, budget):
    found = simulated(name)
    guarantees.assert_super_uniform(found["rule"], LEVELS, budget)
    if name != "the same":
        guarantees.assert_not_super_uniform(found["every look alone"], LEVELS, budget)
    if name in WITH_TIES:
        guarantees.assert_not_super_uniform(found["ties for row 0"], LEVELS, budget)


@pytest.mark.guarantee(checks=2 * 2 * 4)
@pytest.mark.parametrize("name", ["independent", "the same"])
def test_the_level_is_reached_where_nothing_ties(name, budget):
    """What a union bound over the looks gives away is used: all floor(a K) slots are taken by the last look."""
    for t in LEVELS:
        crossed = simulated(name)["rule"] <= t * (1 + 1e-6)
        guarantees.assert_equals(crossed, t, budget)


@pytest.mark.guarantee(checks=6 + 5)
@pytest.mark.parametrize("name", LAWS)
def test_the_e_value_has_mean_at_most_one_at_its_largest(name, budget):
    found = simulated(name)
    guarantees.assert_at_most(np.minimum(found["e_value"], 1), 1 / ROWS, budget)
    if name in DEPENDENT:
        guarantees.assert_exceeds(np.clip(found["product over looks"], 0, 1), 1 / ROWS, budget)
