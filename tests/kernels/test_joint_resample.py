"""Subsets of a pool: uniform, of fixed size, and ranked as a sort would rank them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tdd.kernels import joint_resample

LANES = 40_000
drawn = jax.jit(joint_resample.drawn, static_argnums=(1, 2, 3))


def words(lanes, seed=0):
    return jax.random.bits(jax.random.key(seed), (2, lanes), jnp.uint32)


def test_every_subset_is_equally_likely():
    """All 210 subsets of 4 among 10, and their independence of the second draw, at 40,000 repetitions."""
    sets = {chosen: i for i, chosen in enumerate(itertools.combinations(range(10), 4))}
    first = np.asarray(drawn(words(LANES), 10, 4, 0)).T
    assert (first.sum(1) == 4).all()
    which = np.array([sets[tuple(np.flatnonzero(row))] for row in first])
    counts = np.bincount(which, minlength=len(sets))
    assert stats.chisquare(counts).pvalue > 1e-4
    second = np.asarray(drawn(words(LANES), 6, 2, 10)).T
    pairs = {chosen: i for i, chosen in enumerate(itertools.combinations(range(6), 2))}
    other = np.array([pairs[tuple(np.flatnonzero(row))] for row in second])
    table = np.zeros((10, len(pairs)))
    np.add.at(table, (which % 10, other), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_the_check_sees_a_draw_that_is_not_uniform():
    """The broken twin: two draws from the same random numbers are not independent."""
    first = np.asarray(drawn(words(LANES), 6, 2, 0)).T
    second = np.asarray(drawn(words(LANES), 6, 3, 0)).T
    table = np.histogram2d(first[:, 0], second[:, 0], bins=2)[0]
    assert stats.chi2_contingency(table).pvalue < 1e-8


def test_inclusion_of_items_and_of_neighbours_in_a_large_pool():
    """1,200 of 2,800: how often each item is drawn, and each pair of neighbours, over 8,192 repetitions."""
    taken = np.asarray(drawn(words(8_192, seed=3), 2_800, 1_200, 77))
    assert (taken.sum(0) == 1_200).all()
    share, lanes = 1_200 / 2_800, taken.shape[1]
    z = (taken.mean(1) - share) / np.sqrt(share * (1 - share) / lanes)
    together = share * 1_199 / 2_799
    pairs = ((taken[1:] & taken[:-1]).mean(1) - together) / np.sqrt(together * (1 - together) / lanes)
    for found in (z, pairs):
        assert np.abs(found).max() < 5.3  # 2,800 normal numbers exceed it once in 3,000 runs
        assert abs(found.std() - 1) < 0.07


@pytest.mark.parametrize(("unroll", "size"), [(4, 15), (8, 6)])
def test_several_items_in_one_step_change_nothing(unroll, size):
    """The step at the end is shorter than the others, or the only one."""
    draws = np.random.default_rng(1)
    pool = joint_resample.pool(draws.normal(size=(3, 9)), draws.normal(size=(3, size)), draws.random(size) < 0.5)
    count = jax.jit(joint_resample.count_ranks, static_argnames=("num_calibration", "num_tests", "unroll"))
    usual, stepped = (count(pool, words(50), num_calibration=5, num_tests=4, unroll=steps) for steps in (1, unroll))
    for a, b in zip(usual, stepped, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow("long")
def test_counts_are_those_of_sorting_each_subset():
    """Ties within and between the two parts, one to four models, subsets from one item to all of them."""
    draws = np.random.default_rng(0)
    for kinds, size, tests, n, m in ((1, 9, 7, 4, 3), (3, 20, 31, 12, 20), (4, 8, 6, 8, 6), (2, 5, 5, 1, 1)):
        own, tested = draws.integers(0, 6, (kinds, size)), draws.integers(0, 7, (kinds, tests))
        contaminated = draws.random(tests) < 0.5
        seeds = words(32, seed=kinds)
        pool = joint_resample.pool(own, tested, contaminated)
        found = joint_resample.count_ranks(pool, seeds, num_calibration=n, num_tests=m)
        first = np.asarray(drawn(seeds, size, n, 0))
        second = np.asarray(drawn(seeds, tests, m, size))
        for lane in range(32):
            kept, chosen = own[:, first[:, lane]], tested[:, second[:, lane]]
            rank = 1 + (kept[:, :, None] >= chosen[:, None, :]).sum(1).max(0)
            bad = contaminated[second[:, lane]]
            for counts, ranks in ((found.at_most, rank), (found.contaminated, rank[bad])):
                assert np.asarray(counts)[:, lane].tolist() == [(ranks <= r).sum() for r in range(n + 2)]
