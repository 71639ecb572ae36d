"""The Monte Carlo envelope: its tails, its grids, and what it does where it knows nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref
from scipy import stats

from tdd.kernels import fdp_bounds, lattice

COMPILED = jax.jit(fdp_bounds.calibrate, static_argnames=("max_calibration", "max_tests", "num_draws"))
BOUNDS = jax.jit(fdp_bounds.bounds, static_argnames="max_rank")
TAILS = jax.jit(fdp_bounds._tails, static_argnames="width")
DKW = jax.jit(fdp_bounds.dkw)


def bounds(*arguments, **options):
    return jax.tree.map(np.asarray, BOUNDS(*arguments, **options))


def calibrated(n, m, delta=0.1, seed=0, draws=999, **bounds):
    return COMPILED(
        jax.random.key(seed),
        n,
        delta if isinstance(delta, jax.Array) else jax.tree.map(jnp.asarray, lattice.as_level(delta)),
        max_calibration=bounds.get("max_calibration", n),
        max_tests=m,
        num_draws=draws,
    )


def exact_tails(n, k, ranks):
    """P(BetaBinomial(k, i, n+1-i) >= c) from sums of probabilities, smallest first."""
    mass = np.array([stats.betabinom.pmf(np.arange(k + 1), k, i, n + 1 - i) for i in ranks])
    return np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]


@pytest.mark.parametrize(("n", "k"), [(1, 1), (20, 7), (50, 50), (300, 700)])
def test_tails(n, k):
    ranks = np.arange(1, n + 1, max(1, n // 20))
    start, tails = TAILS(jnp.int32(k), ranks, jnp.int32(n), k)
    assert not np.asarray(start).any()
    exact = exact_tails(n, k, ranks)
    seen = exact > 1e-30
    np.testing.assert_allclose(np.asarray(tails)[seen], exact[seen], rtol=1e-3)


def test_tails_in_a_window():
    n, k, width = 2000, 3000, 1024
    ranks = np.array([1, 40, 700, 1999])
    start, tails = TAILS(jnp.int32(k), ranks, jnp.int32(n), width)
    exact = exact_tails(n, k, ranks)
    for row, first, whole in zip(np.asarray(tails), np.asarray(start), exact):
        assert 0 <= first <= k - width
        part = whole[first : first + width + 1]
        seen = part > 1e-12
        np.testing.assert_allclose(row[seen], part[seen], rtol=3e-3)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 3), (256, 256)])
def test_small_sizes_are_tabulated_in_full(n, m):
    ranks, step, steps = fdp_bounds.grids(n, m)
    assert ranks.tolist() == list(range(1, n + 1))
    assert (step, steps) == (1, m)


@pytest.mark.parametrize(("n", "m"), [(257, 257), (1000, 5000), (100_000, 100_000)])
def test_large_sizes_are_thinned(n, m):
    ranks, step, steps = fdp_bounds.grids(n, m)
    assert ranks[0] == 1
    assert ranks[-1] == n
    gaps = np.diff(ranks)
    assert (gaps > 0).all()
    assert (gaps <= np.maximum(1, np.minimum(ranks[:-1] // 32, n // 128))).all()
    assert len(ranks) < 512
    assert step * steps >= m > step * (steps - 1)
    assert steps <= 128


def test_the_envelope_is_the_critical_tail():
    """One draw-free check: u_k(i) is a quantile of its law at a level between delta/I and delta, the same for all i."""
    n, m = 30, 20
    template = calibrated(n, m, draws=4999)
    bound = np.asarray(template.bound)
    assert (np.diff(bound, axis=0) >= 0).all()
    exceed = [
        stats.betabinom.sf(bound[m - 1][i - 1], m, i, n + 1 - i) for i in range(1, n + 1) if bound[m - 1][i - 1] < m
    ]
    assert max(exceed) < 0.1
    assert sum(exceed) > 0.1  # the union bound is loose, the simultaneous one is not


def test_one_calibration_score_and_one_item():
    """N_1(1) is 1 with probability 1/2: no bound at delta = .4, and a certain one at .6."""
    for delta, expected in ((0.4, 1), (0.6, 0)):
        assert calibrated(1, 1, delta).bound.tolist() == [[expected]]


def test_too_few_draws_bound_nothing():
    template = calibrated(20, 5, 0.1, draws=8)
    assert (np.asarray(template.bound) == np.arange(1, 6)[:, None]).all()
    enough = calibrated(20, 5, 0.1, draws=9)
    assert (np.asarray(enough.bound) < np.arange(1, 6)[:, None]).any()


def test_a_traced_level_out_of_range_bounds_nothing():
    for delta in (0.0, 1.0, jnp.nan):
        template = calibrated(20, 5, jnp.float32(delta))
        assert np.isnan(template.delta)
        assert (np.asarray(template.bound) == np.arange(1, 6)[:, None]).all()


def test_a_traced_level_agrees_with_the_static_one():
    np.testing.assert_array_equal(calibrated(20, 5, jnp.float32(0.05)).bound, calibrated(20, 5, 0.05).bound)


@pytest.mark.slow("long")
def test_padding_of_the_calibration_sample():
    """The ranks beyond n say nothing, those up to n have the law of n."""
    template = calibrated(10, 8, max_calibration=25)
    bound = np.asarray(template.bound)
    assert (bound[:, 10:] == np.arange(1, 9)[:, None]).all()
    assert abs(bound[:, :10] - np.asarray(calibrated(10, 8).bound)).max() <= 1


@pytest.mark.parametrize(("n", "m"), [(31, 8), (30, 41)])
def test_a_template_for_another_size_bounds_nothing(n, m):
    template = calibrated(30, 40)
    rank = np.ones(m, np.int32)
    known = bounds(template, rank, 30, max_rank=32)
    other = bounds(template, rank, n, max_rank=32)
    assert (other.false_bound == other.num_selected).all()
    assert other.max_nulls == m
    if m <= 40:
        assert known.max_nulls < m


@pytest.mark.slow("long")
def test_thinned_bounds_equal_the_reference():
    """Between tabulated ranks and numbers of nulls."""
    n, m = 300, 330
    template = calibrated(n, m)
    rng = np.random.default_rng(3)
    rank = np.where(rng.random(m) < 0.4, rng.integers(1, 12, m), rng.integers(1, n + 2, m)).astype(np.int32)
    got = bounds(template, rank, n, max_rank=n + 1)
    want = ref.fdp_bounds(*(np.asarray(x) for x in template[:3]), rank, n + 1)
    for name, value in want.items():
        np.testing.assert_array_equal(getattr(got, name), value, err_msg=name)


def test_extreme_data():
    n, m = 40, 30
    template = calibrated(n, m)
    best = bounds(template, np.ones(m, np.int32), n, max_rank=n + 1)
    assert best.false_bound[0] == best.max_nulls < m
    worst = bounds(template, np.full(m, n + 1, np.int32), n, max_rank=n + 1)
    assert worst.max_nulls == m
    nothing = bounds(template, np.ones(m, np.int32), n, max_rank=n + 1, mask=np.zeros(m, bool))
    assert not nothing.num_selected.any()
    assert nothing.max_nulls == nothing.num_tests == 0


def test_bad_static_options():
    with pytest.raises(ValueError, match="sizes"):
        calibrated(0, 3)
    with pytest.raises(ValueError, match="alpha"):
        calibrated(3, 3, 1.5)


@pytest.mark.parametrize("delta", [0.0, 1.0, jnp.nan])
def test_the_closed_form_with_a_traced_level_out_of_range(delta):
    p = np.array([0.1, 0.2, 0.5], np.float32)
    assert np.isnan(DKW(p, p, 20, jnp.float32(delta)).offset)
