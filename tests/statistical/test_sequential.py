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


def p_values(laws, r, *rules, draws=12):
    """[rules][laws] smallest p-values met on the way: what counts for whoever stops as soon as p <= alpha."""

    def one(key):
        data, own = jax.random.split(key)
        values = jnp.stack([law(data, (r, draws + 1)) for law in laws])
        found = jax.vmap(lambda each: [jnp.min(rule(each[:, 0], each[:, 1:], own)) for rule in rules])(values)
        return [list(p) for p in found]

    return guarantees.simulate(one, seed=0)


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


@pytest.mark.guarantee(checks=4 * 3 + 3)
@pytest.mark.parametrize(("laws", "r"), [((normal, integers), 1), ((normal, left_skewed, integers, unlike), 6)])
def test_bets_may_be_stopped_at_any_draw(laws, r, budget):
    twins = {normal: best_shard, left_skewed: fair_coins, integers: strict_ties} if r == 6 else {}
    found, *broken = p_values(laws, r, bets_at_every_draw, *twins.values())
    for p in found:
        guarantees.assert_super_uniform(p, LEVELS, budget)
    for law, p in zip(twins, broken, strict=True):
        guarantees.assert_not_super_uniform(p[laws.index(law)], LEVELS, budget)


@pytest.mark.guarantee(checks=2 * 2)
def test_the_e_value_has_mean_at_most_one_at_a_draw_fixed_beforehand(budget):
    """Its logarithm is cut at log 50 to bound the mean; without ties and cut it would be 1 for one shard."""

    def cut(log_e):
        return jnp.exp(jnp.minimum(log_e, jnp.log(50.0))) / 50

    def of(values):
        right = betting.e_process(sequential.exceedances(values[:, 0], values[:, 1:])).log_e[-1]
        counts = sequential.exceedances(values[:, 0], values[:, 1:], tolerance=-1e-6)
        broken = betting.log_urn_bet(counts.shards[:, -1], counts.shard_draws[:, -1], 0.3, 4.0, horizon=8)
        return cut(right), cut(jnp.max(broken))

    def one(key):
        right, broken = jax.vmap(of)(jnp.stack([law(key, (4, 9)) for law in (normal, integers)]))
        return list(right), list(broken)

    for right, broken in zip(*guarantees.simulate(one, seed=0), strict=True):
        guarantees.assert_at_most(right, 1 / 50, budget)
        guarantees.assert_exceeds(broken, 1 / 50, budget)


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
    twins = [at_every_look] if law is normal else []
    (p,), *broken = p_values((law,), 6, rule, *twins)
    guarantees.assert_super_uniform(p, LEVELS, budget)
    for (twin,) in broken:
        guarantees.assert_not_super_uniform(twin, LEVELS, budget)


def whole_level_to_every_look(canonical, shuffled, key):
    """Spending without its shares, for the permutation test of one shard."""
    counts = sequential.exceedances(canonical, shuffled)
    return (1 + counts.total) / (1 + counts.total_draws)


@pytest.mark.guarantee(checks=3 * 3 + 3)
def test_besag_clifford_at_a_horizon_fixed_beforehand(budget):
    rule = by_call("besag_clifford", looks=(19,), num_exceedances=4)
    found = p_values((normal, integers, unlike), 3, rule, whole_level_to_every_look, draws=19)
    for p, broken in zip(*found, strict=True):
        guarantees.assert_super_uniform(p, LEVELS, budget)
        guarantees.assert_not_super_uniform(broken, LEVELS, budget)


@pytest.mark.guarantee(checks=2 * 3)
def test_besag_clifford_is_exact_without_ties(budget):
    """P(p <= h/l) = h/l where it stops at h exceedances, and (1 + x)/(1 + b) at the horizon."""
    ((p,),) = p_values((normal,), 2, by_call("besag_clifford", looks=(19,), num_exceedances=4), draws=19)
    for t in (1 / 20, 4 / 16, 4 / 5):
        guarantees.assert_equals((p <= t * (1 + 1e-6)), t, budget)


def test_stopping_costs_no_power_on_clear_cases():
    """Every rule but Besag and Clifford's finds shards planted two standard deviations high with one shuffle."""

    rules = by_call("e_process", horizon=50), by_call("spending", test="rank_sum", horizon=50)

    def one(key):
        values = jax.random.normal(key, (50, 2))
        return [jnp.min(rule(values[:, 0] + 2, values[:, 1:], key)) for rule in rules]

    for p in runner.simulate(one, seed=0, repetitions=500, batch=500):
        assert np.mean(p <= 1e-3) == 1
