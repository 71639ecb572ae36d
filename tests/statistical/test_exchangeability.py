"""Sizes of the exchangeability tests under the null, at 10^5 repetitions, each beside a broken twin that is caught."""

import functools

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.audit.owner_versions import blind_p_value
from tdd.kernels import randomization, rank_sum, student
from tdd.procedures.exchangeability import exchangeability
from tdd.procedures.owner import version_test

LEVELS = (0.05, 0.2, 0.5)


def normal(key, shape):
    return jax.random.normal(key, shape)


def left_skewed(key, shape):
    return -jnp.exp(jax.random.normal(key, shape))


def integers(key, shape):
    """Tie-heavy log-probabilities."""
    return jax.random.randint(key, shape, -2, 1).astype(jnp.float32)


def unlike(key, shape):
    """Shards with laws of their own: exchangeable within, neither alike nor independent across."""
    shard, common, own = jax.random.split(key, 3)
    scale = jnp.exp(2 * jax.random.normal(shard, (shape[0], 1)) + jax.random.normal(common))
    return scale * jax.random.normal(own, shape) - 50 * scale


laws = pytest.mark.parametrize("law", [left_skewed, integers, unlike])


def p_values(decide, law, r, k, seed=0):
    """`decide(canonical, shuffled, key) -> p` where all k + 1 orders of every shard are exchangeable."""

    def one(key):
        data, own = jax.random.split(key)
        values = law(data, (r, k + 1))
        return decide(values[:, 0], values[:, 1:], own)

    return guarantees.simulate(one, seed=seed)


def by_call(test, **options):
    return lambda c, s, key: exchangeability(c, s, test=test, key=key, **options).p_value


def in_favour(canonical, shuffled, key):
    """Ties of the ranks counted for the canonical order."""
    total = jnp.sum(canonical[:, None] >= shuffled)
    r, k = shuffled.shape
    return jnp.exp(rank_sum.log_survival(total, num_shards=r, num_shuffles=k))


def beyond_the_sum(canonical, shuffled, key):
    """P(S > sum of ranks) in place of >=."""
    r, k = shuffled.shape
    total = rank_sum.rank_sum(canonical, shuffled).statistic
    return jnp.exp(rank_sum.log_survival(total + 1, num_shards=r, num_shuffles=k))


sizes = pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 19), (20, 5)])


@pytest.mark.guarantee(checks=9 * 4)
@sizes
@laws
def test_rank_sum(law, r, k, budget):
    guarantees.assert_super_uniform(p_values(by_call("rank_sum"), law, r, k), LEVELS, budget)
    broken = in_favour if law is integers else beyond_the_sum
    guarantees.assert_not_super_uniform(p_values(broken, law, r, k), LEVELS, budget)


@pytest.mark.guarantee(checks=2 * 3 + 2)
@pytest.mark.parametrize("law", [normal, integers])
def test_random_ties_make_the_rank_sum_exact(law, budget):
    """P(p <= t) is the share of the null law itself, at three points of its support."""
    r, k = 6, 3
    p = p_values(by_call("rank_sum", tie_break="randomized"), law, r, k)
    table = np.exp(rank_sum.log_survival(np.arange(r * k + 1), num_shards=r, num_shuffles=k).astype(float))
    for s in (9, 12, 15):
        guarantees.assert_equals((p <= table[s] * (1 + 1e-5)), float(table[s]), budget)
    guarantees.assert_not_super_uniform(
        p_values(in_favour if law is integers else beyond_the_sum, law, r, k), LEVELS, budget
    )


def documents(key, n, k, drawn):
    """Scores [n, k + 1] of versions under a model that saw none; the first is the human original, which models like.

    Which version was published is `drawn`, or else the original is.
    """
    data, draw = jax.random.split(key)
    scores = jax.random.normal(data, (n, k + 1)).at[:, 0].add(-1.0) + jnp.arange(n)[:, None]
    place = jax.random.randint(draw, (n,), 0, k + 1) if drawn else jnp.zeros(n, jnp.int32)
    rows = jnp.arange(n)
    others = (place[:, None] + jnp.arange(1, k + 1)) % (k + 1)
    return scores[rows, place], scores[rows[:, None], others]


@pytest.mark.guarantee(checks=2 * 4)
@pytest.mark.parametrize("test", ["rank_sum", "exact"])
def test_versions(test, budget):
    """Versions need not be alike, if the published one was drawn; publishing the originals is the broken twin."""

    def one(key, drawn):
        data, own = jax.random.split(key)
        return version_test(*documents(data, 6, 4, drawn), test=test, key=own).p_value

    sound, broken = (guarantees.simulate(functools.partial(one, drawn=drawn), seed=0) for drawn in (True, False))
    guarantees.assert_super_uniform(sound, LEVELS, budget)
    guarantees.assert_not_super_uniform(broken, LEVELS, budget)


@pytest.mark.guarantee(checks=2)
def test_the_check_of_the_draw(budget):
    """P(a verdict is withheld) <= 1% for versions that were drawn; the longest version published is the twin."""

    def one(key, drawn):
        parts = (documents(own, 8, 4, drawn) for own in jax.random.split(key, 3))
        features = jnp.stack([jnp.column_stack([published, private]) for published, private in parts])
        return blind_p_value(features) <= 0.01

    sound, broken = (guarantees.simulate(functools.partial(one, drawn=drawn), seed=1) for drawn in (True, False))
    guarantees.assert_at_most(sound, 0.01, budget)
    guarantees.assert_exceeds(broken, 0.01, budget)


def exact(num_draws):
    return lambda c, s, key: randomization.shard_randomization(c, s, num_draws=num_draws, key=key).p_value


def without_the_one(canonical, shuffled, key):
    found = randomization.shard_randomization(canonical, shuffled, num_draws=39, key=key)
    return found.num_at_least / 39


def strictly_above(canonical, shuffled, key):
    """Only T_b > T counts: a negative tolerance."""
    return randomization.shard_randomization(canonical, shuffled, num_draws=39, key=key, tolerance=-1e-6).p_value


@pytest.mark.guarantee(checks=3 * 4)
@laws
def test_exact_by_draws(law, budget):
    guarantees.assert_super_uniform(p_values(exact(39), law, 8, 3), LEVELS, budget)
    guarantees.assert_not_super_uniform(
        p_values(strictly_above if law is integers else without_the_one, law, 8, 3), (0.0, 0.2), budget
    )


@pytest.mark.guarantee(checks=4 * 4)
@pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 9), (5, 1), (2, 3)])
def test_exact_by_listing(r, k, budget):
    """All relabellings; ties or not."""
    law = integers if r == 2 else left_skewed
    guarantees.assert_super_uniform(p_values(exact(100), law, r, k), LEVELS, budget)

    def all_but_the_identity(canonical, shuffled, key):
        found = randomization.shard_randomization(canonical, shuffled, num_draws=100)
        return (found.num_at_least - 1) / (found.num_draws - 1)

    guarantees.assert_not_super_uniform(p_values(all_but_the_identity, law, r, k), (0.0,), budget)


@pytest.mark.guarantee(checks=2 * 4)
@pytest.mark.parametrize("law", [left_skewed, integers])
@pytest.mark.slow("long")
def test_combined(law, budget):
    guarantees.assert_super_uniform(p_values(by_call("combined", num_draws=79), law, 10, 3), LEVELS, budget)

    def uncorrected(canonical, shuffled, key):
        """The smaller of the two p-values as it is."""
        ranks = in_favour if law is integers else by_call("rank_sum")
        return jnp.minimum(ranks(canonical, shuffled, key), exact(79)(canonical, shuffled, key))

    guarantees.assert_not_super_uniform(p_values(uncorrected, law, 10, 3), LEVELS, budget)


@pytest.mark.guarantee(checks=4 * 4)
@pytest.mark.parametrize(("law", "r"), [(normal, 1), (integers, 1), (left_skewed, 6), (integers, 2)])
def test_permutation(law, r, budget):
    guarantees.assert_super_uniform(p_values(by_call("permutation"), law, r, 19), LEVELS, budget)

    def strict(canonical, shuffled, key):
        above = jnp.sum(shuffled.sum(axis=0) > canonical.sum() + 1e-4)
        return (1 + above) / 20 if law is integers else above / 20

    guarantees.assert_not_super_uniform(p_values(strict, law, r, 19), LEVELS, budget)


@pytest.mark.slow("long")
@pytest.mark.guarantee(checks=3 * 2 + 2)
@pytest.mark.parametrize("r", [2, 5])
def test_t_is_exact_for_normal_values(r, budget):
    p = p_values(by_call("t"), normal, r, 3)
    for t in (0.01, 0.05, 0.5):
        guarantees.assert_equals(p <= t, t, budget)

    def ddof_0(canonical, shuffled, key):
        s = canonical - shuffled.mean(axis=1)
        return student.sf(s.mean() / (s.std() / jnp.sqrt(r)), r - 1)

    guarantees.assert_not_super_uniform(p_values(ddof_0, normal, r, 3), (0.01, 0.05), budget)


@pytest.mark.guarantee(checks=2)
def test_no_t_test_without_spread(budget):
    """Shard statistics of +-1: all equal with probability 2^(1-r), where t is infinite."""
    signs = lambda key, shape: jnp.sign(jax.random.normal(key, shape)).at[:, 1:].set(0)  # noqa: E731
    guarantees.assert_super_uniform(p_values(by_call("t"), signs, 3, 1), (0.05,), budget)
    infinite = lambda c, s, key: jnp.where(jnp.ptp(c) == 0, jnp.where(c[0] > 0, 0.0, 1.0), by_call("t")(c, s, key))  # noqa: E731
    guarantees.assert_not_super_uniform(p_values(infinite, signs, 3, 1), (0.05,), budget)
