"""The exact law of the rank sum, and how ties are ranked."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_permutation as ref
import rounding

from tdd.kernels import rank_sum


@pytest.mark.parametrize(("r", "k"), [(0, 3), (1, 1), (1, 5), (2, 1), (2, 4), (3, 2), (7, 1), (8, 3), (30, 6)])
def test_exact_law(r, k):
    law = ref.rank_sum_law(r, k)
    found = rank_sum.log_survival(np.arange(r * k + 1), num_shards=r, num_shuffles=k)
    # rounded once from double precision, where log P is a difference of logarithms as large as r log(k + 1)
    exact = np.array([ref.log_fraction(p) for p in law])
    np.testing.assert_allclose(found, exact, rtol=rounding.gamma(1), atol=8 * rounding.gamma(1, float) * (r * k + 1))


def test_tail_far_below_the_smallest_float():
    r, k = 50, 51
    top = r * k
    found = rank_sum.log_survival(np.array([top, top - 1, top - 2]), num_shards=r, num_shuffles=k)
    expected = [math.log(ways) - r * math.log(k + 1) for ways in (1, 1 + r, 1 + r + r * (r + 1) // 2)]
    rounding.assert_close(found, expected, roundings=2)
    assert found[0] < -197
    result = rank_sum.rank_sum(jnp.ones(r), jnp.zeros((r, k)))
    rounding.assert_close(result.log_p_value, expected[0], roundings=2)
    assert result.p_value > 0


def test_middle_by_the_normal_law():
    """r = 2,000 shards: a thousand times more than enumeration could check."""
    r, k = 2000, 20
    s = np.array([r * k // 2, r * k // 2 + 600])
    sd = math.sqrt(r * k * (k + 2) / 12)
    from scipy import stats

    expected = stats.norm.logsf((s - 0.5 - r * k / 2) / sd)
    np.testing.assert_allclose(rank_sum.log_survival(s, num_shards=r, num_shuffles=k), expected, rtol=1e-3)


def test_sums_outside_the_support():
    found = rank_sum.log_survival(jnp.array([-3, 0, 13]), num_shards=4, num_shuffles=3)
    assert found.tolist() == [0, 0, -np.inf]


def test_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="out of reach"):
        rank_sum.log_survival(3, num_shards=10**6, num_shuffles=50)
    with pytest.raises(ValueError, match="leave out the masked shards"):
        rank_sum.rank_sum(jnp.ones(10**4), jnp.zeros((10**4, 2)), mask=jnp.ones(10**4, bool))
    with pytest.raises(ValueError, match="no column"):
        rank_sum.rank_sum(jnp.ones(3), jnp.zeros((3, 0)))


def test_ties_within_the_tolerance_count_against():
    canonical = jnp.array([-100.0, -100.0, -100.0])
    shuffled = jnp.array([[-100.00001, -101.0], [-100.0, -100.0], [-100.1, -100.0002]])
    assert rank_sum.shard_ranks(canonical, shuffled).tolist() == [1, 0, 2]
    assert rank_sum.shard_ranks(canonical, shuffled, tolerance=1e-5).tolist() == [1, 0, 1]
    assert rank_sum.shard_ranks(canonical, shuffled, tolerance=0.0).tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([5.0, 5.0, 5.0, 5.0], {0, 1, 2, 3}),
        ([5.0, 4.0, 5.0, 6.0], {1, 2}),
        ([5.0, 1.0, 2.0, 3.0], {3}),
        ([1.0, 1.0 + 1e-7, 1.0 + 2e-7, 9.0], {0, 1, 2}),
    ],
)
def test_random_ties(row, expected):
    row = np.array(row, np.float32)
    call = jax.jit(lambda key: rank_sum.shard_ranks(row[:1], row[None, 1:], key=key)[0])
    found = [int(call(jax.random.key(seed))) for seed in range(60)]
    assert set(found) == expected


def test_random_ties_are_exact_for_every_member_of_a_shard():
    """Averaged over which of the k + 1 values is the canonical one, the rank is uniform, chains of ties included."""
    row = np.array([1.0, 1.0 + 3e-7, 1.0 + 6e-7, 2.0, 2.0], np.float32)
    counts = np.zeros(5)

    def one(key, first):
        order = jnp.roll(jnp.asarray(row), -first)
        return rank_sum.shard_ranks(order[:1], order[None, 1:], key=key)[0]

    many = jax.jit(jax.vmap(one, (0, None)))
    for first in range(5):
        found = many(jax.random.split(jax.random.key(first), 4000), first)
        counts += np.bincount(np.asarray(found), minlength=5) / 4000 / 5
    assert np.abs(counts - 0.2).max() < 0.012  # 4 standard errors and more


def test_nan_without_a_mask():
    result = rank_sum.rank_sum(jnp.array([1.0, np.nan]), jnp.zeros((2, 3)))
    assert np.isnan(result.log_p_value)
    assert result.ranks.tolist() == [3, -1]
    masked = rank_sum.rank_sum(jnp.array([1.0, np.nan]), jnp.zeros((2, 3)), mask=jnp.array([True, True]))
    assert float(masked.p_value) == pytest.approx(float(Fraction(1, 4)))
    assert masked.num_shards == 1
    empty = rank_sum.rank_sum(jnp.array([1.0, np.nan]), jnp.zeros((2, 3)), mask=jnp.array([False, True]))
    assert empty.p_value == 1


def test_a_nan_among_many_shuffles_takes_the_shard_out():
    """XLA's maximum of more than 1,024 numbers leaves NaN out on a CPU."""
    shuffled = np.zeros((3, 3000), np.float32)
    shuffled[1, 7] = np.nan
    assert list(rank_sum.shard_ranks(jnp.ones(3), jnp.asarray(shuffled))) == [3000, -1, 3000]
