"""What one constant key in every audit promises: randomised rules draw from the key and a hash of the evidence."""

import functools

import guarantees
import jax
import jax.numpy as jnp
import pytest

import tdd
from tdd.kernels import conformal, evalues, martingale, online_conformal, rank_sum
from tdd.procedures.evalues import drawn_uniform
from tdd.procedures.several_scores import choose
from tdd.study.claims.combination import detector_scores

ALPHA = 0.2
KEY = jax.random.key(0)  # its uniform is .0523
N, M, K = 99, 20, 5
TEN_SCORES = 39, jnp.zeros((10, 8))
"""Calibration items, and shifts of ten scores of eight candidates."""


def averaged_e_values(key):
    """Of 20 members by five independent detectors."""
    calibration, scores = detector_scores(key, N, jnp.zeros((K, M)), 0.0)
    e_values = jax.vmap(lambda own, test: tdd.conformal_e_values(own, test, alpha=ALPHA / 2, null="member"))
    return jnp.mean(e_values(calibration, scores), axis=0)


@functools.cache
def any_of_e_bh():
    """Whether e-BH rejects a member, with uniforms that know the evidence, and with the key's alone."""

    def one(key):
        e_values = averaged_e_values(key)
        steps = tdd.e_bh(e_values, ALPHA, key=KEY), evalues.e_bh(e_values, ALPHA, uniform=drawn_uniform(KEY))
        return [step.reject.any().astype(jnp.float32) for step in steps]

    return guarantees.simulate(one, seed=0)


@pytest.mark.guarantee(checks=1)
def test_randomised_e_bh(budget):
    guarantees.assert_at_most(any_of_e_bh()[0], ALPHA, budget)


@pytest.mark.guarantee(checks=0)
def test_randomised_e_bh_with_the_key_alone_is_caught(budget):
    guarantees.assert_exceeds(any_of_e_bh()[1], ALPHA, budget)


@functools.cache
def any_of_the_best_score():
    def one(key):
        calibration, scores = detector_scores(key, *TEN_SCORES, 0.0)
        selected = tdd.best_score(calibration, scores, alpha=ALPHA, null="member", key=KEY).selected
        real = jnp.ones(calibration.shape[1], bool), jnp.ones(scores.shape[1], bool)
        e_values, _ = choose(calibration, scores, *real, ALPHA, null="member")
        alone = evalues.e_bh(e_values, ALPHA, uniform=drawn_uniform(KEY)).reject
        return [reject.any().astype(jnp.float32) for reject in (selected, alone)]

    return guarantees.simulate(one, seed=1)


@pytest.mark.guarantee(checks=1)
def test_the_best_of_several_scores(budget):
    guarantees.assert_at_most(any_of_the_best_score()[0], ALPHA, budget)


@pytest.mark.guarantee(checks=0)
def test_the_best_of_several_scores_with_the_key_alone_is_caught(budget):
    guarantees.assert_exceeds(any_of_the_best_score()[1], ALPHA, budget)


LEVEL = 0.35


@functools.cache
def smoothed_reach_the_level():
    def one(key):
        values = jax.random.normal(key, (10,))
        found = tdd.conformal_p_values(values[:9], values[9:], null="nonmember", tie_break="randomized", key=KEY)
        alone = conformal.randomized_p_values(values[:9], values[9:], null="nonmember", key=KEY)
        return [(p[0] <= LEVEL).astype(jnp.float32) for p in (found, alone)]

    return guarantees.simulate(one, seed=3)


@pytest.mark.guarantee(checks=2)
def test_smoothed_p_values(budget):
    guarantees.assert_equals(smoothed_reach_the_level()[0], LEVEL, budget)


@pytest.mark.guarantee(checks=0)
def test_smoothed_p_values_with_the_key_alone_are_caught(budget):
    guarantees.assert_differs(smoothed_reach_the_level()[1], LEVEL, budget)


@functools.cache
def tied_orders_reach_the_level():
    """20 shards of no memory, in three values."""

    def one(key):
        values = jax.random.randint(key, (20, 4), 0, 3).astype(jnp.float32)
        orders = values[:, 0], values[:, 1:]
        found = tdd.exchangeability(*orders, test="rank_sum", tie_break="randomized", key=KEY)
        alone = rank_sum.rank_sum(*orders, key=jax.random.split(KEY)[0])
        return [(test.p_value <= 0.05).astype(jnp.float32) for test in (found, alone)]

    return guarantees.simulate(one, seed=4)


@pytest.mark.guarantee(checks=1)
def test_randomised_ties_of_the_order_of_a_data_set(budget):
    guarantees.assert_at_most(tied_orders_reach_the_level()[0], 0.05, budget)


@pytest.mark.guarantee(checks=0)
def test_randomised_ties_of_the_order_with_the_key_alone_are_caught(budget):
    guarantees.assert_exceeds(tied_orders_reach_the_level()[1], 0.05, budget)


STREAM_KEY = jax.random.key(14)
"""Its uniforms lie on one side of 1/2 for a while."""


def alarm(p_values):
    found = martingale.conformal_martingale(jnp.log(p_values), bet="simple_jumper")
    return (found.anytime_p_value[-1] <= ALPHA).astype(jnp.float32)


def mostly_zeros(key):
    return jax.random.bernoulli(key, 0.1, (30,)).astype(jnp.float32)


@functools.cache
def alarms():
    def one(key):
        stream = mostly_zeros(key)
        found = tdd.online_conformal_p_values(stream, null="nonmember", key=STREAM_KEY)
        keys = jax.vmap(lambda t: jax.random.fold_in(STREAM_KEY, t))(jnp.arange(30))
        uniforms = jax.vmap(lambda key: online_conformal.draw(key, 30)[0])(keys)
        alone = online_conformal.p_values(stream, null="nonmember", uniforms=uniforms)
        both = jax.vmap(alarm)(jnp.stack([found, alone]))
        return both[0], both[1]

    return guarantees.simulate(one, seed=5)


@pytest.mark.guarantee(checks=1)
def test_a_martingale_on_a_stream_with_ties(budget):
    guarantees.assert_at_most(alarms()[0], ALPHA, budget)


@pytest.mark.guarantee(checks=0)
def test_a_martingale_with_the_key_alone_is_caught(budget):
    guarantees.assert_exceeds(alarms()[1], ALPHA, budget)
