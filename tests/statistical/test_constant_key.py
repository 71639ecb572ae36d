"""What one constant key in every audit promises: randomised rules draw from the key and a hash of the evidence."""

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


@pytest.mark.guarantee(checks=1)
def test_randomised_e_bh(budget):
    def fdp(key):
        return tdd.e_bh(averaged_e_values(key), ALPHA, key=KEY).reject.any().astype(jnp.float32)

    guarantees.assert_at_most(guarantees.simulate(fdp, seed=0), ALPHA, budget)


@pytest.mark.guarantee(checks=0)
def test_randomised_e_bh_with_the_key_alone_is_caught(budget):
    def fdp(key):
        step = evalues.e_bh(averaged_e_values(key), ALPHA, uniform=drawn_uniform(KEY))
        return step.reject.any().astype(jnp.float32)

    guarantees.assert_exceeds(guarantees.simulate(fdp, seed=0), ALPHA, budget)


@pytest.mark.guarantee(checks=1)
def test_the_best_of_several_scores(budget):
    def fdp(key):
        calibration, scores = detector_scores(key, *TEN_SCORES, 0.0)
        found = tdd.best_score(calibration, scores, alpha=ALPHA, null="member", key=KEY)
        return found.selected.any().astype(jnp.float32)

    guarantees.assert_at_most(guarantees.simulate(fdp, seed=1), ALPHA, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize("level", [0.35])
def test_smoothed_p_values(level, budget):
    def reached(key):
        values = jax.random.normal(key, (10,))
        p = tdd.conformal_p_values(values[:9], values[9:], null="nonmember", tie_break="randomized", key=KEY)
        return (p[0] <= level).astype(jnp.float32)

    guarantees.assert_equals(guarantees.simulate(reached, seed=3), level, budget)


@pytest.mark.guarantee(checks=0)
def test_smoothed_p_values_with_the_key_alone_are_caught(budget):
    def reached(key):
        values = jax.random.normal(key, (10,))
        p = conformal.randomized_p_values(values[:9], values[9:], null="nonmember", key=KEY)
        return (p[0] <= 0.35).astype(jnp.float32)

    guarantees.assert_differs(guarantees.simulate(reached, seed=3), 0.35, budget)


@pytest.mark.guarantee(checks=0)
def test_the_best_of_several_scores_with_the_key_alone_is_caught(budget):
    def fdp(key):
        calibration, scores = detector_scores(key, *TEN_SCORES, 0.0)
        real = jnp.ones(calibration.shape[1], bool), jnp.ones(scores.shape[1], bool)
        e_values, _ = choose(calibration, scores, *real, ALPHA, null="member")
        return evalues.e_bh(e_values, ALPHA, uniform=drawn_uniform(KEY)).reject.any().astype(jnp.float32)

    guarantees.assert_exceeds(guarantees.simulate(fdp, seed=1), ALPHA, budget)


def tied_orders(key):
    """20 shards of no memory, in three values."""
    values = jax.random.randint(key, (20, 4), 0, 3).astype(jnp.float32)
    return values[:, 0], values[:, 1:]


@pytest.mark.guarantee(checks=1)
def test_randomised_ties_of_the_order_of_a_data_set(budget):
    def reached(key):
        found = tdd.exchangeability(*tied_orders(key), test="rank_sum", tie_break="randomized", key=KEY)
        return (found.p_value <= 0.05).astype(jnp.float32)

    guarantees.assert_at_most(guarantees.simulate(reached, seed=4), 0.05, budget)


@pytest.mark.guarantee(checks=0)
def test_randomised_ties_of_the_order_with_the_key_alone_are_caught(budget):
    def reached(key):
        found = rank_sum.rank_sum(*tied_orders(key), key=jax.random.split(KEY)[0])
        return (found.p_value <= 0.05).astype(jnp.float32)

    guarantees.assert_exceeds(guarantees.simulate(reached, seed=4), 0.05, budget)


STREAM_KEY = jax.random.key(14)
"""Its uniforms lie on one side of 1/2 for a while."""


def alarm(p_values):
    found = martingale.conformal_martingale(jnp.log(p_values), bet="simple_jumper")
    return (found.anytime_p_value[-1] <= ALPHA).astype(jnp.float32)


def mostly_zeros(key):
    return jax.random.bernoulli(key, 0.1, (30,)).astype(jnp.float32)


@pytest.mark.guarantee(checks=1)
def test_a_martingale_on_a_stream_with_ties(budget):
    def one(key):
        return alarm(tdd.online_conformal_p_values(mostly_zeros(key), null="nonmember", key=STREAM_KEY))

    guarantees.assert_at_most(guarantees.simulate(one, seed=5), ALPHA, budget)


@pytest.mark.guarantee(checks=0)
def test_a_martingale_with_the_key_alone_is_caught(budget):
    def one(key):
        keys = jax.vmap(lambda t: jax.random.fold_in(STREAM_KEY, t))(jnp.arange(30))
        uniforms = jax.vmap(lambda key: online_conformal.draw(key, 30)[0])(keys)
        return alarm(online_conformal.p_values(mostly_zeros(key), null="nonmember", uniforms=uniforms))

    guarantees.assert_exceeds(guarantees.simulate(one, seed=5), ALPHA, budget)
