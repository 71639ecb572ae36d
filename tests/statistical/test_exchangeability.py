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


LAWS = left_skewed, integers, unlike


def p_values(laws, r, k, *rules):
    """[rules][laws] p-values `rule(canonical, shuffled, key)` where all k + 1 orders of a shard are exchangeable."""

    def one(key):
        data, own = jax.random.split(key)
        values = jnp.stack([law(data, (r, k + 1)) for law in laws])
        found = jax.vmap(lambda each: [rule(each[:, 0], each[:, 1:], own) for rule in rules])(values)
        return [list(p) for p in found]

    return guarantees.simulate(one, seed=0)


def assert_only_one_holds(laws, r, k, rule, twins, budget, *, levels=LEVELS, broken=LEVELS):
    """A rule is super-uniform at the levels under all laws; its twin, the last of them where values tie, is not."""
    p, *others = p_values(laws, r, k, rule, *twins)
    for i, law in enumerate(laws):
        guarantees.assert_super_uniform(p[i], levels, budget)
        guarantees.assert_not_super_uniform(others[-(law is integers)][i], broken, budget)


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


RANK_TWINS = beyond_the_sum, in_favour


@pytest.mark.guarantee(checks=3 * 4)
@sizes
def test_rank_sum(r, k, budget):
    assert_only_one_holds(LAWS, r, k, by_call("rank_sum"), RANK_TWINS, budget)


@pytest.mark.guarantee(checks=2 * 3 + 2)
def test_random_ties_make_the_rank_sum_exact(budget):
    """P(p <= t) is the share of the null law itself, at three points of its support."""
    r, k = 6, 3
    p, *twins = p_values((normal, integers), r, k, by_call("rank_sum", tie_break="randomized"), *RANK_TWINS)
    law = jax.jit(lambda total: rank_sum.log_survival(total, num_shards=r, num_shuffles=k))
    table = np.exp(np.asarray(law(np.arange(r * k + 1)), np.float64))
    for exact, broken in ((p[0], twins[0][0]), (p[1], twins[1][1])):
        for s in (9, 12, 15):
            guarantees.assert_equals(exact <= table[s] * (1 + 1e-5), float(table[s]), budget)
        guarantees.assert_not_super_uniform(broken, LEVELS, budget)


def documents(key, n, k, drawn):
    """Scores [n, k + 1] of versions under a model that saw none; the first is the human original, which models like.

    Which version was published is `drawn`, or else the original is.
    """
    data, draw = jax.random.split(key)
    scores = jax.random.normal(data, (n, k + 1)).at[:, 0].add(-1.0) + jnp.arange(n)[:, None]
    place = jnp.where(drawn, jax.random.randint(draw, (n,), 0, k + 1), 0)
    rows = jnp.arange(n)
    others = (place[:, None] + jnp.arange(1, k + 1)) % (k + 1)
    return scores[rows, place], scores[rows[:, None], others]


def drawn_or_not(one, seed):
    """Draws of `one(key, drawn)` where the published version was drawn, and where it is the original."""

    def both(key):
        found = jax.vmap(functools.partial(one, key))(jnp.array([True, False]))
        return found[0], found[1]

    return guarantees.simulate(both, seed=seed)


@pytest.mark.guarantee(checks=2 * 4)
@pytest.mark.parametrize("test", ["rank_sum", "exact"])
def test_versions(test, budget):
    """Versions need not be alike, if the published one was drawn; publishing the originals is the broken twin."""

    def one(key, drawn):
        data, own = jax.random.split(key)
        return version_test(*documents(data, 6, 4, drawn), test=test, key=own).p_value

    sound, broken = drawn_or_not(one, seed=0)
    guarantees.assert_super_uniform(sound, LEVELS, budget)
    guarantees.assert_not_super_uniform(broken, LEVELS, budget)


@pytest.mark.guarantee(checks=2)
def test_the_check_of_the_draw(budget):
    """P(a verdict is withheld) <= 1% for versions that were drawn; the longest version published is the twin."""

    def one(key, drawn):
        parts = jax.vmap(lambda own: jnp.column_stack(documents(own, 8, 4, drawn)))(jax.random.split(key, 3))
        return blind_p_value(parts) <= 0.01

    sound, broken = drawn_or_not(one, seed=1)
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
def test_exact_by_draws(budget):
    assert_only_one_holds(LAWS, 8, 3, exact(39), (without_the_one, strictly_above), budget, broken=(0.0, 0.2))


@pytest.mark.guarantee(checks=4 * 4)
@pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 9), (5, 1), (2, 3)])
def test_exact_by_listing(r, k, budget):
    """All relabellings; ties or not."""

    def all_but_the_identity(canonical, shuffled, key):
        found = randomization.shard_randomization(canonical, shuffled, num_draws=100, key=key)
        return (found.num_at_least - 1) / (found.num_draws - 1)

    laws = (integers,) if r == 2 else (left_skewed,)
    assert_only_one_holds(laws, r, k, exact(100), (all_but_the_identity,), budget, broken=(0.0,))


@pytest.mark.guarantee(checks=2 * 4)
@pytest.mark.slow("long")
def test_combined(budget):
    def smaller_of(ranks):
        """The smaller of the two p-values as it is."""
        return lambda *given: jnp.minimum(ranks(*given), exact(79)(*given))

    twins = smaller_of(by_call("rank_sum")), smaller_of(in_favour)
    assert_only_one_holds((left_skewed, integers), 10, 3, by_call("combined", num_draws=79), twins, budget)


@pytest.mark.guarantee(checks=4 * 4)
@pytest.mark.parametrize(("laws", "r"), [((normal, integers), 1), ((left_skewed,), 6), ((integers,), 2)])
def test_permutation(laws, r, budget):
    def strict(canonical, shuffled, key):
        return jnp.sum(shuffled.sum(axis=0) > canonical.sum() + 1e-4) / 20

    twins = strict, lambda *given: strict(*given) + 1 / 20
    assert_only_one_holds(laws, r, 19, by_call("permutation"), twins, budget)


@pytest.mark.slow("long")
@pytest.mark.guarantee(checks=3 * 2 + 2)
@pytest.mark.parametrize("r", [2, 5])
def test_t_is_exact_for_normal_values(r, budget):
    def ddof_0(canonical, shuffled, key):
        s = canonical - shuffled.mean(axis=1)
        return student.sf(s.mean() / (s.std() / jnp.sqrt(r)), r - 1)

    (p,), (broken,) = p_values((normal,), r, 3, by_call("t"), ddof_0)
    for t in (0.01, 0.05, 0.5):
        guarantees.assert_equals(p <= t, t, budget)
    guarantees.assert_not_super_uniform(broken, (0.01, 0.05), budget)


@pytest.mark.guarantee(checks=2)
def test_no_t_test_without_spread(budget):
    """Shard statistics of +-1: all equal with probability 2^(1-r), where t is infinite."""
    signs = lambda key, shape: jnp.sign(jax.random.normal(key, shape)).at[:, 1:].set(0)  # noqa: E731
    infinite = lambda c, s, key: jnp.where(jnp.ptp(c) == 0, jnp.where(c[0] > 0, 0.0, 1.0), by_call("t")(c, s, key))  # noqa: E731
    assert_only_one_holds((signs,), 3, 1, by_call("t"), (infinite,), budget, levels=(0.05,), broken=(0.05,))
