"""False discovery rates of the online procedures at 10^5 repetitions where bounds are sharp, beside broken twins.

LOND spends alpha gamma_t on hypothesis t, so that its FDR is at most alpha times the sum of gamma_t over the nulls. The
series are scaled to sum to 1 over the stream: nothing is left over that would hide a mistake.
"""

import dataclasses

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import online

T = 20
ALPHA = 0.2


def whole(method, alpha=ALPHA, times=1.0, **options):
    """A state whose gamma_1, ..., gamma_T sum to `times`."""
    state = online.start(method, alpha, horizon=T, **options)
    share = times / online.gamma(T, "power" if method == "saffron" else "log").sum()
    return dataclasses.replace(state, levels=state.levels * share, earned=state.earned * share)


def decide(state):
    return lambda values: jax.lax.scan(online.decide, state, values)[1].reject


# Draws: values in their order of arrival, and which of them are nulls; each is one with chance `share`.


def independent(share):
    def draw(key):
        data, kind = jax.random.split(key)
        p, null = 1 - jax.random.uniform(data, (T,)), jax.random.uniform(kind, (T,)) < share
        return jnp.where(null, p, p**8), null

    return draw


def lattice(share):
    """Fiftieths: super-uniform, with ties."""

    def draw(key):
        p, null = independent(share)(key)
        return jnp.ceil(p * 50) / 50, null

    return draw


def shared_calibration(share):
    """Conservative conformal p-values of tied scores against one sample of 40: PRDS."""

    def draw(key):
        data, kind = jax.random.split(key)
        scores, null = jax.random.randint(data, (40 + T,), 0, 60), jax.random.uniform(kind, (T,)) < share
        own = scores[40:] - jnp.where(null, 0, 40)
        return (1 + jnp.sum(scores[:40] <= own[:, None], axis=1)) / 41, null

    return draw


def comonotone(key):
    return jnp.full(T, 1 - jax.random.uniform(key)), jnp.ones(T, bool)


LEVEL = 0.9  # of the two draws below: their last hypothesis is null and has level c times discoveries + 1
LAST = jnp.arange(T) == T - 1


def betrayed(c):
    """The only null comes last; all before make as many discoveries as are needed for it to be rejected, and no more.

    Each is a discovery for sure or for sure none: as dependent as p-values can be.
    """

    def draw(key):
        p = 1 - jax.random.uniform(key)
        before = jnp.clip(jnp.ceil(p / c) - 1, 0, T - 1)
        return jnp.where(LAST, p, jnp.where(jnp.arange(T) < before, 0.0, 1.0)), LAST

    return draw


def betrayed_e(c, mean=1.0):
    """Likewise for e-values: the null's is 0 or just large enough for the number of discoveries before."""

    def draw(key):
        count, coin = jax.random.split(key)
        before = jax.random.randint(count, (), 0, T)
        chance = mean * T * c / np.sum(1 / np.arange(1, T + 1))
        e = jnp.where(jax.random.uniform(coin) < chance, (1 + 1e-5) / (c * (before + 1)), 0)
        return jnp.where(LAST, e, jnp.where(jnp.arange(T) < before, jnp.inf, 0.0)), LAST

    return draw


def last_level(method):
    return float(whole(method, LEVEL).levels[-1])


SHARP = last_level("lond")  # alpha gamma_T


def fdr(rule, draw, seed=23):
    def one(key):
        values, null = draw(key)
        return guarantees.false_discovery_proportion(rule(values), null)

    return guarantees.simulate(one, seed=seed)


CASES = {
    "lond": (whole("lond"), independent(1), ALPHA),
    "lond, half null": (whole("lond"), independent(0.5), ALPHA / 2),
    "lond, ties": (whole("lond"), lattice(1), ALPHA),
    "lond, one calibration sample": (whole("lond"), shared_calibration(1), ALPHA),
    "lond, one calibration sample, half null": (whole("lond"), shared_calibration(0.5), ALPHA / 2),
    "lond/any, betrayed": (whole("lond/any", LEVEL), betrayed(last_level("lond/any")), SHARP),
    "lond/any, comonotone": (whole("lond/any"), comonotone, ALPHA),
    "e_lond, betrayed": (whole("e_lond", LEVEL), betrayed_e(SHARP), SHARP),
    "lord_plus_plus": (whole("lord_plus_plus", initial_wealth=0.95), independent(1), ALPHA),
    "lord_plus_plus, half null": (whole("lord_plus_plus", initial_wealth=0.5), independent(0.5), ALPHA),
    "lord_plus_plus, ties": (whole("lord_plus_plus", initial_wealth=0.95), lattice(1), ALPHA),
    "saffron": (whole("saffron", initial_wealth=0.95), independent(1), ALPHA),
    "saffron, half null": (whole("saffron"), independent(0.5), ALPHA),
    "saffron, ties": (whole("saffron", initial_wealth=0.95, lambda_=0.3), lattice(1), ALPHA),
    "saffron, past its horizon": (online.start("saffron", ALPHA, horizon=5), independent(0.5), ALPHA),
}


@pytest.mark.guarantee(checks=len(CASES))
@pytest.mark.parametrize("name", CASES)
def test_false_discovery_rate(name, budget):
    state, draw, bound = CASES[name]
    guarantees.assert_at_most(fdr(decide(state), draw), bound, budget)


def counts_the_present(values):
    """LOND whose discoveries include the hypothesis that is decided."""
    steps = whole("lond").levels

    def one(found, item):
        value, step = item
        reject = value <= step * (found + 2)
        return found + reject, reject

    return jax.lax.scan(one, jnp.int32(0), (values, steps))[1]


def after_certain_discoveries(key):
    """Nulls that are all alike, after certain discoveries: positive dependence, but none that SAFFRON allows."""
    p = jnp.full(2 * T, 1 - jax.random.uniform(key)).at[: T // 2].set(0)
    return p, jnp.arange(2 * T) >= T // 2


TWINS = {
    "lond that counts the present": (counts_the_present, independent(1), ALPHA),
    "lond under any dependence": (decide(whole("lond", LEVEL)), betrayed(SHARP), SHARP),
    "e_lond, e-values of mean 2": (decide(whole("e_lond", LEVEL)), betrayed_e(SHARP, mean=2.0), SHARP),
    "lord_plus_plus, weights that sum to 2": (
        decide(whole("lord_plus_plus", times=2.0, initial_wealth=0.95)),
        independent(1),
        ALPHA,
    ),
    "saffron without 1 - lambda": (decide(whole("saffron", times=2.0, initial_wealth=0.95)), independent(1), ALPHA),
    "saffron on dependent p-values": (
        decide(online.start("saffron", ALPHA, horizon=2 * T)),
        after_certain_discoveries,
        ALPHA,
    ),
}


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize("name", TWINS)
def test_broken_twins_are_caught(name, budget):
    rule, draw, bound = TWINS[name]
    guarantees.assert_exceeds(fdr(rule, draw), bound, budget)
