"""Ville's inequality and the time between false alarms at 10^5 repetitions, each beside broken twins."""

import functools

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import change_detection, martingale, online_conformal

T = 40
LONG = 5_000
LEVELS = (0.05, 0.2)
EVERY_BET = ("mixture", "any_start", "simple_jumper")
TWO = ("any_start", "simple_jumper")
MEAN_TIME = 10.0


# Streams of clean p-values.


def uniform(key, length=T):
    return 1 - jax.random.uniform(key, (length,))


def lattice(key):
    """Fifths: super-uniform."""
    return jnp.ceil(uniform(key) * 5) / 5


def online(window, key):
    """Of tied scores."""
    data, chance = jax.random.split(key)
    scores = jax.random.randint(data, (T,), 0, 9)
    return online_conformal.p_values(scores, null="nonmember", key=chance, window=window)


def canaries(key):
    """Canaries of unlike laws, each with four fresh controls; ties."""
    data, law, chance = jax.random.split(key, 3)
    scores = jax.random.randint(data, (T, 5), 0, 9) // jax.random.randint(law, (T, 1), 1, 5)
    return martingale.control_p_value(scores[:, 0], scores[:, 1:], key=chance)


# Broken ones.


def one_calibration_sample(key):
    """Smoothed conformal p-values, each exactly uniform, but all against the same twenty scores."""
    data, chance = jax.random.split(key)
    scores = jax.random.normal(data, (20 + T,))
    return (jnp.sum(scores[:20] < scores[20:, None], axis=1) + 1 - jax.random.uniform(chance, (T,))) / 21


def without_the_one(key):
    """Conservative p-values of canaries that leave the canary out of the count."""
    scores = jax.random.uniform(key, (T, 5))
    return jnp.mean(scores[:, 1:] <= scores[:, :1], axis=1)


# --- Ville's inequality -----------------------------------------------------------------------------------------------


def smallest(draw, bets, **size):
    """Smallest anytime p-value of each bet: what counts for whoever stops as soon as p <= a."""

    def one(key):
        log_p = jnp.log(draw(key))
        return [martingale.conformal_martingale(log_p, bet=bet).anytime_p_value[-1] for bet in bets]

    return guarantees.simulate(one, seed=31, **size)


CLEAN = {
    "uniform": (uniform, EVERY_BET),
    "online conformal": (functools.partial(online, None), TWO),
    "online conformal with a window": (functools.partial(online, 6), TWO),
    "canaries": (canaries, TWO),
    "super-uniform": (lattice, ("any_start",)),
}


@pytest.mark.guarantee(checks=len(LEVELS) * sum(len(bets) for _, bets in CLEAN.values()))
@pytest.mark.parametrize("name", CLEAN)
def test_ville(name, budget):
    for p in smallest(*CLEAN[name]):
        guarantees.assert_super_uniform(p, LEVELS, budget)


@pytest.mark.guarantee(checks=len(LEVELS) * len(TWO))
@pytest.mark.slow("long")
def test_ville_over_a_long_stream(budget):
    for p in smallest(functools.partial(uniform, length=LONG), TWO, most=4_000):
        guarantees.assert_super_uniform(p, LEVELS, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(
    ("draw", "bets"),
    [
        (one_calibration_sample, ("simple_jumper",)),
        (without_the_one, ("any_start",)),
        (lattice, ("simple_jumper",)),  # bets on large p-values too
    ],
    ids=["one calibration sample", "without the one", "jumper on conservative p-values"],
)
def test_broken_twins_are_caught(draw, bets, budget):
    for p in smallest(draw, bets):
        guarantees.assert_not_super_uniform(p, LEVELS, budget)


# --- Time between false alarms ----------------------------------------------------------------------------------------


def alarms(draw, too_low=1.0):
    """Share of steps with an alarm, and of the first: steps up to it over the whole, and whether it came."""

    def one(key):
        state = change_detection.start(MEAN_TIME)
        state = state._replace(log_threshold=state.log_threshold - np.log(too_low))
        alarm = jax.lax.scan(change_detection.advance, state, jnp.log(draw(key)))[1].alarm
        return jnp.mean(alarm), jnp.where(jnp.any(alarm), jnp.argmax(alarm) + 1, T) / T, jnp.any(alarm)

    return guarantees.simulate(one, seed=32)


def promises(found):
    """At most n / A alarms among n; and E min(time to the first, n) >= A P(it comes by n), the law that is summed."""
    share, time, came = found
    scale = MEAN_TIME / T
    return [(share, 1 / MEAN_TIME), ((1 - time + scale * came) / (1 + scale), 1 / (1 + scale))]


@pytest.mark.guarantee(checks=2 * 3)
@pytest.mark.parametrize("draw", [uniform, functools.partial(online, 6), lattice])
def test_false_alarms_are_rare(draw, budget):
    for values, bound in promises(alarms(draw)):
        guarantees.assert_at_most(values, bound, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(
    ("draw", "too_low"),
    [(uniform, 8.0), (without_the_one, 1.0)],
    ids=["the sum of the eight bets", "without the one"],
)
def test_broken_detectors_are_caught(draw, too_low, budget):
    guarantees.assert_exceeds_somewhere(promises(alarms(draw, too_low)), budget)
