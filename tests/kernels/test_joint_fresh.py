"""Ranks drawn from their law have the law of ranks of drawn scores."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from scipy import stats

from tdd.kernels import joint_fresh
from tdd.study import JointLabels

LANES, MODELS, CALIBRATION, TESTS, SIGNAL, SHARE = 20_000, 3, 19, 12, 1.5, 0.25

sizes = ("num_models", "num_calibration", "num_tests")
count_ranks = jax.jit(joint_fresh.count_ranks, static_argnames=sizes)
cell_probabilities = jax.jit(joint_fresh.cell_probabilities, static_argnames=sizes[:2])


@functools.cache
def drawn(num_models=MODELS, n=CALIBRATION, m=TESTS, signal=SIGNAL, share=SHARE, lanes=LANES):
    words = jax.random.bits(jax.random.key(7), (2, lanes), jnp.uint32)
    sizes = {"num_models": num_models, "num_calibration": n, "num_tests": m}
    return jax.tree.map(np.asarray, count_ranks(words, signal, share, **sizes))


@functools.cache
def plain_ranks():
    """[L, m] largest ranks and contamination by drawing scores and comparing them."""

    design = JointLabels(MODELS, CALIBRATION, TESTS, SIGNAL, SHARE)

    def one(key):
        sample = design.draw(key)
        above = sample.calibration[:, :, None] >= sample.scores[:, None, :]
        return 1 + above.sum(1).max(0), ~sample.target

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), LANES)))


def cells(at_most, contaminated):
    """One number a repetition: the counts at three ranks, in coarse classes, and the contaminated ones at two."""
    parts = [(at_most[3], (1, 3)), (at_most[10], (3, 6, 8)), (contaminated[10], (1, 3)), (contaminated[19], (6, 8))]
    code = np.zeros(at_most.shape[1], int)
    for counts, edges in parts:
        code = code * (len(edges) + 1) + np.digitize(counts, edges)
    return code


def same_law(one, other):
    size = max(one.max(), other.max()) + 1
    table = np.stack([np.bincount(code, minlength=size) for code in (one, other)])
    return stats.chi2_contingency(table[:, table.sum(0) >= 20]).pvalue


def counted(rank, contaminated):
    ranks = np.arange(CALIBRATION + 2)[:, None, None]
    return (rank <= ranks).sum(-1), ((rank <= ranks) & contaminated).sum(-1)


def test_the_joint_law_of_the_counts():
    """Candidates of one repetition together, 108 classes: two samples of 20,000 repetitions."""
    found = drawn()
    assert same_law(cells(*found), cells(*counted(*plain_ranks()))) > 1e-4
    for ours, theirs in zip(found, counted(*plain_ranks())):
        for rank in (2, 10, 20):
            assert abs(ours[rank].mean() - theirs[rank].mean()) < 5 * np.sqrt(
                (ours[rank].var() + theirs[rank].var() + 1e-12) / LANES
            )


def test_the_check_sees_candidates_that_do_not_share_their_calibration():
    """The broken twin: the same candidates, each from another repetition."""
    draws = np.random.default_rng(0)
    rank, contaminated = (table.copy() for table in plain_ranks())
    for j in range(TESTS):
        order = draws.permutation(LANES)
        rank[:, j], contaminated[:, j] = rank[order, j], contaminated[order, j]
    assert same_law(cells(*drawn()), cells(*counted(rank, contaminated))) < 1e-8


@pytest.mark.slow("long")
def test_the_check_sees_a_wrong_signal():
    assert same_law(cells(*drawn(signal=SIGNAL + 0.1)), cells(*counted(*plain_ranks()))) < 1e-6


@pytest.mark.parametrize(("n", "m"), [(1, 4), (7, 5)])
def test_members_alone_are_exchangeable_with_the_calibration(n, m):
    """P(k of m candidates above all n calibration scores) = C(n + m - k - 1, m - k)/C(n + m, m)."""
    found = drawn(num_models=1, n=n, m=m, share=1.0)
    np.testing.assert_array_equal(found.at_most, found.contaminated)
    law = np.array([math.comb(n + m - k - 1, m - k) for k in range(m + 1)]) / math.comb(n + m, m)
    assert stats.chisquare(np.bincount(found.at_most[1], minlength=m + 1), law * LANES).pvalue > 1e-4
    assert (found.at_most[0] == 0).all()
    assert (found.at_most[-1] == m).all()


def test_probabilities_rise_to_one():
    words = jax.random.bits(jax.random.key(0), (2, 50), jnp.uint32)
    for signal, share in ((0.0, 0.5), (6.0, 0.25), (-1.0, 0.9), (3.0, 0.0), (3.0, 1.0)):
        ends = np.asarray(cell_probabilities(words, signal, share, num_models=5, num_calibration=300))
        assert ends.shape == (602, 50)
        assert (ends >= 0).all()
        assert (np.diff(ends, axis=0) >= 0).all()
        assert (ends[-1] == 1).all()
        # the fifth power of 1 - pi, and up to 300 parts of it that are added up
        rounding.assert_close(ends[300], np.full(50, (1 - float(np.float32(share))) ** 5), roundings=300 + 6)


def test_look_ups_of_all_repetitions_together_change_nothing():
    words = jax.random.bits(jax.random.key(7), (2, 200), jnp.uint32)
    options = {"num_models": 3, "num_calibration": 19, "num_tests": 24}
    together = jax.jit(functools.partial(joint_fresh.count_ranks, unroll=2, **options))(words, SIGNAL, SHARE)
    for a, b in zip(count_ranks(words, SIGNAL, SHARE, **options), together, strict=True):
        np.testing.assert_array_equal(a, b)
