"""The envelope beyond the contract: ties, edges, sizes beyond 32 bits, messages."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_envelope as ref
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import envelope, envelope_anchor, lattice, stepup

POINTS, TESTS = 20, 24

fit = jax.jit(envelope.fit, static_argnames=("num_calibration", "max_rank", "grid"))


def exact(alpha):
    return jax.tree.map(jnp.asarray, lattice.as_level(alpha))


@jax.jit
def decide(rank, level):
    fitted = envelope.fit(rank, POINTS - 1, max_rank=POINTS, grid=ref.GRID)
    return fitted, envelope.adaptive_bh(rank, POINTS - 1, level, fitted, max_rank=POINTS)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.lists(st.integers(1, POINTS), min_size=12, max_size=12),
    st.sampled_from([0.05, 0.1, 0.2, 0.5, 0.9]),
)
@pytest.mark.slow("long")
def test_any_ranks(pure, contaminated, alpha):
    """Lattice ties everywhere: the decision is that of the rational definition, traced level or not."""
    rank = np.array(pure + contaminated, np.int32)
    reject, adjusted, found, values = ref.jecs([Fraction(int(r), POINTS) for r in rank], alpha)
    fitted, step = decide(rank, exact(alpha))
    assert step.reject.tolist() == reject
    rounding.assert_close(step.adjusted, adjusted, roundings=8)
    rounding.assert_close(fitted.value, [float(x) for x in values], roundings=8)
    assert float(fitted.tau) == pytest.approx(float(found["tau"]))


def test_the_whole_tie_group_is_counted():
    """Sixteen p-values above tau, k = 4, but seven of them share the fourth place: the density counts seven."""
    rank = np.array([1] * 8 + [12] * 7 + [20] * 9, np.int32)
    fitted = jax.tree.map(np.asarray, fit(rank, 19, max_rank=20, grid=(0.5,)))
    density = (7 / 16) / (0.6 - 0.5)
    assert int(fitted.anchor.near) == 7
    assert float(fitted.slope) == pytest.approx(density / (1 + 0.5 * density))
    anchor = 0.5 * density / (1 + 0.5 * density)
    rounding.assert_close(fitted.value[8], anchor + (1 - anchor) * 7 / 16, roundings=8)


def test_neighbours_of_the_smallest_tails():
    """Ten p-values above tau, the fewest of a candidate, three of them at the first place: k = 0 counts as 1, k = 11 as
    10, and a tie group counts whole."""
    at_most = jnp.cumsum(jnp.zeros(21, jnp.int32).at[jnp.array([1] * 8 + [12, 12, 12, *range(13, 20)])].add(1))
    candidates = jax.jit(lambda k: envelope_anchor.candidates(at_most, 19, (0.5,), jnp.full(19, k)).anchors)
    for k, near, edge in ((0, 3, 12), (1, 3, 12), (3, 3, 12), (4, 4, 13), (10, 10, 19), (11, 10, 19)):
        found = candidates(k)
        assert found.above.tolist() == [10]
        assert found.near.tolist() == [near]
        assert found.distance.tolist() == [2 * edge - 20]


def test_a_p_value_at_tau_is_not_above_it():
    """0.1·30 and 0.7·10 are not exact in floating point; P = tau lies on the line."""
    for points, tau in ((30, 0.1), (10, 0.7)):
        at = round(points * tau)
        rank = np.array([at] * 5 + [at + 1] * 12, np.int32)
        fitted = fit(rank, points - 1, max_rank=points, grid=(tau,))
        assert fitted.num_above.tolist() == [12]
        assert int(fitted.anchor.limit) == at


def test_ten_p_values_above_a_point_make_it_a_candidate():
    """And nine do not: then BH decides."""

    @jax.jit
    def all_three(rank):
        found = envelope.fit(rank, 39, max_rank=40, grid=(0.5,))
        step = envelope.adaptive_bh(rank, 39, 0.2, found, max_rank=40)
        return found, step, stepup.bh_ranks(rank, 39, 0.2, max_rank=40)

    for above in (9, 10):
        rank = np.array([1] * (29 - above) + list(range(25, 25 + above)), np.int32)
        found, step, plain = jax.tree.map(np.asarray, all_three(rank))
        assert bool(found.fitted) is (above == 10)
        if above < 10:
            np.testing.assert_array_equal(found.value, found.x)
            assert np.isinf(found.slopes).all()
            for got, want in zip(step, plain, strict=True):
                rounding.assert_close(got, want, roundings=8)


@pytest.mark.slow("long")
def test_the_first_of_equal_slopes_is_chosen():
    """A tail on one value gives every point below it the same slope, 1/.9, though not the same floats."""
    rank = np.array([1] * 10 + [90] * 20, np.int32)
    for grid in ((0.3, 0.2, 0.7), (0.2, 0.7, 0.3), (0.7, 0.3, 0.2)):
        found = fit(rank, 99, max_rank=100, grid=grid)
        assert float(found.tau) == pytest.approx(grid[0])
        rounding.assert_close(found.slopes, [1 / 0.9] * 3, roundings=8)


def test_the_envelope_is_a_distribution_function():
    """Non-decreasing, from 0 to 1, continuous at tau from the left."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        rank = np.r_[rng.integers(1, 30, 60), rng.integers(1, 201, 60)].astype(np.int32)
        found = fit(rank, 199, max_rank=200, grid=ref.GRID)
        order = np.argsort(rank)
        value = np.asarray(found.value)[order]
        assert (np.diff(value) >= -2 * rounding.gamma(8)).all()
        assert value[0] > 0
        rounding.assert_close(value[-1], 1, roundings=8)


@pytest.mark.slow("long")
def test_the_adaptive_part_of_the_tail_is_exact_beyond_32_bits():
    """Products reach 1e15: a tail whose first items pass, against the same decision in rational arithmetic."""
    n, on_line, in_tail = 99_999, 60_000, 40_000
    rng = np.random.default_rng(0)
    tail = np.sort(rng.choice(np.arange(50_001, n + 2), in_tail, replace=True)).astype(np.int32)
    rank = np.r_[np.full(on_line, 3, np.int32), tail]
    found = fit(rank, n, max_rank=n + 1, grid=(0.5,))
    s, q = 1, 2
    above, near, distance = (int(field) for field in found.anchor[1:4])
    assert above == in_tail
    assert near == (tail <= tail[199]).sum()
    assert distance == q * int(tail[199]) - s * (n + 1)
    counts = np.searchsorted(tail, tail, side="right")
    start = Fraction(s * near * (n + 1), distance)
    found_cuts = []
    select = jax.jit(lambda level: envelope.adaptive_bh(rank, n, level, found, max_rank=n + 1))
    for alpha in (Fraction(2, 3), Fraction(3, 4), Fraction(99, 100)):
        passing = [c for c in set(counts.tolist()) if (1 + above) * (start + c) <= alpha * above * (on_line + c)]
        step = select(exact(alpha))
        assert int(step.num_rejected) == on_line + max(passing, default=0)
        assert ((np.asarray(step.adjusted) <= np.float32(alpha)) == np.asarray(step.reject)).all()
        found_cuts.append(max(passing, default=0))
    assert 0 < found_cuts[1] < in_tail, found_cuts


def test_traced_level_out_of_range_selects_nothing_and_says_nan():
    rank = np.array([1] * 12 + list(range(9, 21)), np.int32)
    for level in (0.0, 1.0, -1.0, np.nan):
        _, step = decide(rank, jnp.float32(level))
        assert not np.asarray(step.reject).any()
        assert np.isnan(step.adjusted).all()


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((), "empty"),
        ((0.5, 1.0), "1.0"),
        ((0.0,), "0.0"),
        (("a",), "'a'"),
        ((jnp.float32(0.5),), "static"),
        ((1 / 999_983,), "999983"),
    ],
)
def test_bad_grids(grid, words):
    with pytest.raises(ValueError, match="grid") as error:
        jax.jit(lambda rank: envelope.fit(rank, 9, max_rank=10_000, grid=grid))(np.arange(1, 10, dtype=np.int32))
    assert words in str(error.value)


def test_ceil_sqrt_is_exact():
    count = np.r_[np.arange(2000), np.arange(46_000, 46_341) ** 2, np.arange(46_000, 46_340) ** 2 + 1].astype(np.int32)
    root = np.asarray(jax.jit(envelope_anchor._ceil_sqrt)(count), np.int64)
    assert (root**2 >= count).all()
    assert ((np.maximum(root - 1, 0) ** 2 < count) | (count == 0)).all()


def test_an_envelope_decides_on_more_items_than_it_was_fitted_on():
    """Not fitted, it is BH on P, whatever the number of items was."""
    adaptive, plain = (jax.jit(call, static_argnames="max_rank") for call in (envelope.adaptive_bh, stepup.bh_ranks))
    for fitted_on, items in ((8, 700), (200, 300)):
        found = fit(np.ones(fitted_on, np.int32), 9, max_rank=10, grid=(0.5,))
        assert not found.fitted
        for rank in (np.full(items, 10, np.int32), np.arange(items, dtype=np.int32) % 10 + 1):
            step = adaptive(rank, 9, exact(0.5), found, max_rank=10)
            np.testing.assert_array_equal(step.reject, plain(rank, 9, exact(0.5), max_rank=10).reject)


def test_an_envelope_has_the_types_of_any_other():
    small, large = (fit(np.ones(m, np.int32), 9, max_rank=10, grid=(0.5,)) for m in (8, 700))
    assert {leaf.dtype for leaf in small.anchor} == {leaf.dtype for leaf in large.anchor} == {np.dtype(np.int32)}
