"""Cuts from histograms select what the procedures on items select."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_envelope as ref
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.throughput import joint_peer
from tdd.kernels import envelope, envelope_anchor, joint_cuts, lattice, proportion, stepup

POINTS = 20
LEVELS = (0.05, 0.1, 0.2, 0.5, 0.9)


def stacked(levels):
    return jax.tree.map(lambda *fields: jnp.asarray(np.stack(fields)), *map(lattice.as_level, levels))


def histogram(rank, points):
    return np.bincount(rank, minlength=points + 1).cumsum().astype(np.int32)


@jax.jit
def cuts(at_most):
    tail = proportion.tail_size(POINTS - 1, 0.5, POINTS)
    scales = {
        "bh": ((at_most[-1],), (jnp.int32(POINTS),)),
        "storey": joint_cuts.storey_scale(at_most, POINTS - 1, tail),
    }
    bh = jax.vmap(lambda level, scale: joint_cuts.bh_cut(at_most, level, scale=scale), in_axes=(0, None))
    found = {rule: bh(stacked(LEVELS), scale) for rule, scale in scales.items()}
    return found | {"jecs": joint_cuts.jecs_cuts(at_most, POINTS - 1, stacked(LEVELS), ref.GRID)}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.lists(st.integers(1, POINTS), min_size=12, max_size=12),
)
@pytest.mark.slow("long")
def test_any_ranks(pure, contaminated):
    """Lattice ties everywhere: the definitions in rational arithmetic, item by item."""
    rank = np.array(pure + contaminated, np.int32)
    found = cuts(histogram(rank, POINTS))
    p = [Fraction(int(r), POINTS) for r in rank]
    for i, alpha in enumerate(LEVELS):
        assert (rank <= found["jecs"][i]).tolist() == ref.jecs(p, alpha)[0]
        assert (rank <= found["bh"][i]).tolist() == ref.jmcs(p, alpha, POINTS - 1)[0]
        assert (rank <= found["storey"][i]).tolist() == ref.jmcs(p, alpha, POINTS - 1, "storey")[0]


@pytest.mark.slow("long")
def test_the_cuts_of_a_study_are_those_of_the_kernels_and_of_the_loop():
    """Paper sizes, many pure items: 120 samples against the kernels on items and the NumPy loop."""
    draws, n, m, levels = np.random.default_rng(0), 600, 1400, (0.1, 0.2, 0.3)
    weak = draws.beta(*draws.choice([1, 3, 6], (2, 120, 1)), (120, m))
    rank = np.where(draws.random((120, m)) < draws.random((120, 1)), draws.integers(1, 30, (120, m)), 1 + weak * n)
    rank = rank.astype(np.int32)
    at_most = np.stack([histogram(row, n + 1) for row in rank])
    exact = stacked(levels)

    @jax.jit
    @jax.vmap
    def both(rank, at_most):
        fitted = envelope.fit(rank, n, max_rank=n + 1, grid=ref.GRID)
        jecs = jax.vmap(lambda level: envelope.adaptive_bh(rank, n, level, fitted, max_rank=n + 1).reject)(exact)
        jmcs = jax.vmap(lambda level: stepup.bh_ranks(rank, n, level, max_rank=n + 1).reject)(exact)
        scale = ((jnp.int32(m),), (jnp.int32(n + 1),))
        ours = joint_cuts.jecs_cuts(at_most, n, exact, ref.GRID)
        return jecs, ours, jmcs, jax.vmap(lambda level: joint_cuts.bh_cut(at_most, level, scale=scale))(exact)

    jecs, ours, jmcs, bh = map(np.asarray, both(rank, at_most))
    np.testing.assert_array_equal(rank[:, None] <= ours[..., None], jecs)
    np.testing.assert_array_equal(rank[:, None] <= bh[..., None], jmcs)
    fractions = [Fraction(str(level)) for level in levels]
    for i in range(len(rank)):
        for found, loop in ((ours, joint_peer.jecs_cuts), (bh, joint_peer.jmcs_cuts)):
            slow = loop(rank[i], n, fractions)
            np.testing.assert_array_equal(at_most[i][slow], at_most[i][found[i]])
    sizes = jecs.sum(-1)
    assert 0 < np.mean(sizes == 0) < 0.7
    in_tail = np.mean(ours > 0.9 * n)
    assert in_tail > 0.02, "no decision reaches into the tail: the samples do not test it"


def test_the_largest_count_of_a_tail_among_any_integers():
    """Counts up to 2^30, where single precision is off by many: the same inequality in Python's integers."""
    draws, levels = np.random.default_rng(0), (0.001, 0.1, 0.5, 0.999999)
    rows = []
    for most in (2**8, 2**30):
        tests = (2 ** draws.uniform(0, np.log2(most), 300)).astype(int)
        points = (2 ** draws.uniform(1, 20, 300)).astype(int)
        start = draws.integers(1, 10, 300)
        near, distance, on_line = draws.integers(1, tests + 1), draws.integers(1, 10 * points + 1), tests[::-1] // 2
        rows += zip(*(part.tolist() for part in (tests, near, distance, start, points, on_line)), strict=True)
    above, near, distance, start, points, on_line = (jnp.asarray(part, jnp.int32) for part in zip(*rows, strict=True))
    anchors = envelope_anchor.Anchor(above, above, near, distance, start, jnp.full_like(start, 10))
    largest = jax.vmap(envelope_anchor.largest_tail_count, in_axes=(0, None, None, None))
    found = jax.jit(jax.vmap(largest, in_axes=(None, 0, 0, 0)))(stacked(levels), anchors, points - 1, on_line)
    for row, ours in zip(rows, np.asarray(found).tolist(), strict=True):
        n_above, n_near, gap, s, p, line = row
        for level, count in zip(levels, ours, strict=True):
            alpha = Fraction(str(level))
            room = alpha * line * n_above * gap - (1 + n_above) * s * n_near * p  # both sides are linear in the count
            exact = min(n_above, room // ((1 + n_above) * gap - alpha * n_above * gap))
            assert count == max(0, exact), (row, level)


@pytest.mark.slow("long")
def test_a_level_near_one_takes_the_long_search():
    """1 - alpha = 1e-6: single precision cannot bracket the tail, the bisection must."""
    draws = np.random.default_rng(1)
    rank = np.r_[draws.integers(1, 9, 6_000), draws.integers(1, 1_000, 30_000)].astype(np.int32)
    at_most = histogram(rank, 1_000)
    levels = [0.5, 0.999, 0.999999]
    jecs_cuts = jax.jit(lambda at_most, levels: joint_cuts.jecs_cuts(at_most, 999, levels, ref.GRID))
    found = jecs_cuts(at_most, stacked(levels))
    slow = joint_peer.jecs_cuts(rank.astype(object).astype(int), 999, [Fraction(str(level)) for level in levels])
    assert at_most[np.asarray(found)].tolist() == at_most[slow].tolist()


def test_a_level_that_is_only_a_float_is_refused():
    level = lattice.as_level(jnp.float32(0.1))
    with pytest.raises(ValueError, match="level must be exact"):
        joint_cuts.bh_cut(jnp.zeros(5, jnp.int32), level, scale=((jnp.int32(1),), (jnp.int32(4),)))
