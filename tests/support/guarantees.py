"""Tests of guarantees: many repetitions, a finite-sample bound on the mean, one false-alarm budget for the suite.

A check fails where a confidence bound, valid at any sample size, says that the guarantee does not hold. Its level is
the suite's budget divided by the number of checks collected, so that a correct project fails a run with probability
at most `SUITE_FALSE_ALARM`. Every check is run on a broken twin too, and must fail there.
"""

import jax.numpy as jnp

from tdd.study import monte_carlo

SUITE_FALSE_ALARM = 1e-3
REPETITIONS = 100_000


class GuaranteeViolated(AssertionError):
    """A confidence bound excludes what was promised."""


def simulate(one, *, seed, repetitions=REPETITIONS, batch=2_000):
    """Run `one(key) -> pytree of scalars` many times in one compiled call; leaves [repetitions] in NumPy."""
    return monte_carlo.simulate(one, seed=seed, repetitions=repetitions, batch=batch)


def assert_at_most(values, bound, level):
    """Mean of values in [0, 1] <= bound, or GuaranteeViolated."""
    assert values.min() >= 0
    assert values.max() <= 1
    low = values.mean() - monte_carlo.mean_radius(values, level)
    if low > bound:
        raise GuaranteeViolated(
            f"mean {values.mean():.5f} > {bound:.5f}: at level {level:.1e} it is at least {low:.5f}"
        )


def assert_equals(values, target, level):
    """Mean of values in [0, 1] equals target within the confidence bounds of both sides."""
    assert_at_most(values, target, level / 2)
    assert_at_most(1 - values, 1 - target, level / 2)


def false_discovery_proportion(selected, null):
    """FDP of one repetition."""
    return jnp.sum(selected & null) / jnp.maximum(jnp.sum(selected), 1)
