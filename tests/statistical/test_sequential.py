"""Sizes of the sequential tests under optional stopping, at 10^5 repetitions, each beside a broken twin."""

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import betting, sequential
from tdd.procedures.exchangeability import exchangeability
from tdd.procedures.sequential import exchangeability_sequence
from tdd.study import runner

LEVELS = (0.05, 0.2, 0.5)
EVERY_DRAW = tuple(range(1, 13))
LOOKS = (2, 5, 12)


def normal(key, shape):
    return jax.random.normal(key, shape)


def left_skewed(key, shape):
    return -jnp.exp(jax.random.normal(key, shape))


def integers(key, shape):
    """Tie-heavy log-probabilities."""
    return jax.random.randint(key, shape, -3, 0).astype(jnp.float32)


def unlike(key, shape):
    """Shards with laws of their own: exchangeable within, neither alike nor independent across; one of them tied."""
    shard, common, own = jax.random.split(key, 3)
    scale = jnp.exp(2 * jax.random.normal(shard, (shape[0], 1)) + jax.random.normal(common))
    values = jax.random.normal(own, shape)
    return scale * jnp.where(jnp.arange(shape[0])[:, None] == 0, jnp.round(values), values) - 50 * scale


def p_values(decide, law, r, draws=12, seed=0):
    """The smallest p-value that one meets on the way: what counts for whoever stops as soon as p <= alpha."""

    def one(key):
        data, own = jax.random.split(key)
        values = law(data, (r, draws + 1))
        return jnp.min(decide(values[:, 0], values[:, 1:], own))

    return guarantees.simulate(one, seed=seed)


def by_call(rule, **options):
    return lambda c, s, key: exchangeability_sequence(c, s, rule=rule, key=key, **options).p_value


bets_at_every_draw = by_call("e_process", looks=EVERY_DRAW)


def strict_ties(canonical, shuffled, key):
    """A tie is no exceedance."""
    return betting.e_process(sequential.exceedances(canonical, shuffled, tolerance=-1e-6)).p_value


def best_shard(canonical, shuffled, key):
    """The shard with most evidence, as if it had been the only one."""
    counts = sequential.exceedances(canonical, shuffled)
    log_e = betting.log_urn_bet(counts.shards, counts.shard_draws, 0.3, 4.0, horizon=shuffled.shape[1])
    return jnp.exp(-jnp.max(log_e))


def fair_coins(canonical, shuffled, key):
    """As if the shuffles of a shard reached its canonical order independently, with probability 1/2 each."""
    counts = sequential.exceedances(canonical, shuffled)
    draws = counts.shard_draws
    to_urn = betting.log_urn_bet(counts.shards, draws, 0.5, 1.5, horizon=shuffled.shape[1])
    x, rest = counts.shards.astype(float), (draws - counts.shards).astype(float)
    urn = jax.scipy.special.betaln(1 + x, 1 + rest)
    return jnp.exp(-jnp.max(jnp.sum(to_urn + urn + draws * jnp.log(2.0), axis=0)))


@pytest.mark.guarantee(checks=6 * 3 + 3)
@pytest.mark.parametrize(
    ("law", "r"), [(normal, 1), (integers, 1), (normal, 6), (left_skewed, 6), (integers, 6), (unlike, 6)]
)
def test_bets_may_be_stopped_at_any_draw(law, r, budget):
    guarantees.assert_super_uniform(p_values(bets_at_every_draw, law, r), LEVELS, budget)
    if law is integers and r == 6:
        guarantees.assert_not_super_uniform(p_values(strict_ties, law, r), LEVELS, budget)
    elif r == 6 and law is not unlike:
        guarantees.assert_not_super_uniform(
            p_values(best_shard if law is normal else fair_coins, law, r), LEVELS, budget
        )


@pytest.mark.guarantee(checks=2 * 2)
@pytest.mark.parametrize("law", [normal, integers])
def test_the_e_value_has_mean_at_most_one_at_a_draw_fixed_beforehand(law, budget):
    """Its logarithm is cut at log 50 to bound the mean; without ties and cut it would be 1 for one shard."""

    def one(key, *, tolerance=None):
        values = law(key, (4, 9))
        log_e = betting.e_process(sequential.exceedances(values[:, 0], values[:, 1:], tolerance=tolerance)).log_e[-1]
        return jnp.exp(jnp.minimum(log_e, jnp.log(50.0))) / 50

    guarantees.assert_at_most(guarantees.simulate(one, seed=0), 1 / 50, budget)

    def broken(key):
        values = law(key, (4, 9))
        counts = sequential.exceedances(values[:, 0], values[:, 1:], tolerance=-1e-6)
        log_e = betting.log_urn_bet(counts.shards[:, -1], counts.shard_draws[:, -1], 0.3, 4.0, horizon=8)
        return jnp.exp(jnp.minimum(jnp.max(log_e), jnp.log(50.0))) / 50

    guarantees.assert_exceeds(guarantees.simulate(broken, seed=0), 1 / 50, budget)


def at_every_look(canonical, shuffled, key):
    """The fixed test read at every look, at the whole level each time."""
    looks = (2, 3, 5, 8, 12)
    return jnp.stack([exchangeability(canonical, shuffled[:, :look], test="rank_sum").p_value for look in looks])


@pytest.mark.guarantee(checks=5 * 3 + 1)
@pytest.mark.parametrize(
    ("law", "test"),
    [
        (normal, "rank_sum"),
        (left_skewed, "rank_sum"),
        (unlike, "rank_sum"),
        (integers, "rank_sum"),
        (unlike, "combined"),
    ],
)
@pytest.mark.slow("long")
def test_spending_may_be_stopped_at_any_look(law, test, budget):
    rule = by_call("spending", test=test, looks=LOOKS, num_draws=59)
    guarantees.assert_super_uniform(p_values(rule, law, 6), LEVELS, budget)
    if law is normal:
        guarantees.assert_not_super_uniform(p_values(at_every_look, law, 6), LEVELS, budget)


def whole_level_to_every_look(canonical, shuffled, key):
    """Spending without its shares, for the permutation test of one shard."""
    counts = sequential.exceedances(canonical, shuffled)
    return (1 + counts.total) / (1 + counts.total_draws)


@pytest.mark.guarantee(checks=3 * 3 + 3)
@pytest.mark.parametrize("law", [normal, integers, unlike])
def test_besag_clifford_at_a_horizon_fixed_beforehand(law, budget):
    rule = by_call("besag_clifford", looks=(19,), num_exceedances=4)
    guarantees.assert_super_uniform(p_values(rule, law, 3, draws=19), LEVELS, budget)
    guarantees.assert_not_super_uniform(p_values(whole_level_to_every_look, law, 3, draws=19), LEVELS, budget)


@pytest.mark.guarantee(checks=2 * 3)
def test_besag_clifford_is_exact_without_ties(budget):
    """P(p <= h/l) = h/l where it stops at h exceedances, and (1 + x)/(1 + b) at the horizon."""
    p = p_values(by_call("besag_clifford", looks=(19,), num_exceedances=4), normal, 2, draws=19)
    for t in (1 / 20, 4 / 16, 4 / 5):
        guarantees.assert_equals((p <= t * (1 + 1e-6)), t, budget)


def test_stopping_costs_no_power_on_clear_cases():
    """Every rule but Besag and Clifford's finds shards planted two standard deviations high with one shuffle."""

    def one(key, rule):
        values = jax.random.normal(key, (50, 2))
        return jnp.min(rule(values[:, 0] + 2, values[:, 1:], key))

    for rule in (by_call("e_process", horizon=50), by_call("spending", test="rank_sum", horizon=50)):
        p = runner.simulate(lambda key, rule=rule: one(key, rule), seed=0, repetitions=500, batch=500)
        assert np.mean(p <= 1e-3) == 1
