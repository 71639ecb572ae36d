"""The Monte Carlo envelope: its tails, its grids, and what it does where it knows nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref
from scipy import stats

from tdd.kernels import fdp_bounds, lattice

COMPILED = jax.jit(fdp_bounds.calibrate, static_argnames=("max_calibration", "max_tests", "num_draws"))
N, M, DRAWS = 30, 20, 999
BOUNDS = jax.jit(fdp_bounds.bounds, static_argnames="max_rank")
TAILS = jax.jit(fdp_bounds.tails_of, static_argnames="width")
DKW = jax.jit(fdp_bounds.dkw)


def bounds(*arguments, **options):
    return jax.tree.map(np.asarray, BOUNDS(*arguments, **options))


def calibrated(n=N, m=M, delta=0.1, draws=DRAWS, **bounds):
    return COMPILED(
        jax.random.key(0),
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


@pytest.mark.parametrize(("n", "k"), [(1, 1), (20, 7), (300, 700)])
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


def test_small_sizes_are_tabulated_in_full():
    for n, m in ((1, 1), (7, 3), (256, 256)):
        ranks, step, steps = fdp_bounds.grids(n, m)
        assert ranks.tolist() == list(range(1, n + 1))
        assert (step, steps) == (1, m)


@pytest.mark.parametrize(("n", "m"), [(257, 257), (1000, 5000), (100_000, 100_000)])
def test_large_sizes_are_thinned(n, m):
    ranks, step, steps = fdp_bounds.grids(n, m)
    assert (ranks[0], ranks[-1]) == (1, n)
    gaps = np.diff(ranks)
    assert (gaps > 0).all()
    assert (gaps <= np.maximum(1, np.minimum(ranks[:-1] // 32, n // 128))).all()
    assert len(ranks) < 512
    assert step * steps >= m > step * (steps - 1)
    assert steps <= 128


def test_the_envelope_is_the_critical_tail():
    """One draw-free check: u_k(i) is a quantile of its law at a level between delta/I and delta, the same for all i."""
    bound = np.asarray(calibrated().bound)
    assert (np.diff(bound, axis=0) >= 0).all()
    last = bound[M - 1]
    exceed = [stats.betabinom.sf(last[i - 1], M, i, N + 1 - i) for i in range(1, N + 1) if last[i - 1] < M]
    assert max(exceed) < 0.1
    assert sum(exceed) > 0.1  # the union bound is loose, the simultaneous one is not


def test_one_calibration_score_and_one_item():
    """N_1(1) is 1 with probability 1/2: no bound at delta = .4, and a certain one at .6."""
    for delta, expected in ((0.4, 1), (0.6, 0)):
        assert calibrated(1, 1, delta).bound.tolist() == [[expected]]


def test_too_few_draws_bound_nothing():
    """999 of them at a level below 1/1000, and a traced level out of range."""
    nothing = np.broadcast_to(np.arange(1, M + 1)[:, None], (M, N))
    for delta in (0.00099, *map(jnp.float32, (0.0, 1.0, jnp.nan))):
        template = calibrated(delta=delta)
        assert bool(np.isnan(template.delta)) == isinstance(delta, jax.Array)
        np.testing.assert_array_equal(template.bound, nothing)
    assert (np.asarray(calibrated(delta=0.00101).bound) < nothing).any()
    np.testing.assert_array_equal(calibrated(delta=jnp.float32(0.05)).bound, calibrated(delta=0.05).bound)


@pytest.mark.slow("long")
def test_padding_of_the_calibration_sample():
    """The ranks beyond n say nothing, those up to n have the law of n."""
    template = calibrated(10, 8, max_calibration=25)
    bound = np.asarray(template.bound)
    assert (bound[:, 10:] == np.arange(1, 9)[:, None]).all()
    assert abs(bound[:, :10] - np.asarray(calibrated(10, 8).bound)).max() <= 1


def test_a_template_for_another_size_bounds_nothing():
    template, rank = calibrated(), np.ones(M + 1, np.int32)
    for n, m in ((N + 1, M), (N, M + 1)):
        other = bounds(template, rank, n, max_rank=N + 2, mask=np.arange(M + 1) < m)
        assert (other.false_bound == other.num_selected).all()
        assert other.max_nulls == m
    assert bounds(template, rank, N, max_rank=N + 2, mask=np.arange(M + 1) < M).max_nulls < M


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
    template, all_of_them = calibrated(), np.ones(M, bool)
    best, worst, nothing = (
        bounds(template, np.full(M, rank, np.int32), N, max_rank=N + 1, mask=mask)
        for rank, mask in ((1, all_of_them), (N + 1, all_of_them), (1, ~all_of_them))
    )
    assert best.false_bound[0] == best.max_nulls < M
    assert worst.max_nulls == M
    assert not nothing.num_selected.any()
    assert nothing.max_nulls == nothing.num_tests == 0


def test_bad_static_options():
    with pytest.raises(ValueError, match="sizes"):
        calibrated(0, 3)
    with pytest.raises(ValueError, match="alpha"):
        calibrated(3, 3, 1.5)


def test_the_closed_form_with_a_traced_level_out_of_range():
    p = np.array([0.1, 0.2, 0.5], np.float32)
    for delta in (0.0, 1.0, jnp.nan):
        assert np.isnan(DKW(p, p, 20, jnp.float32(delta)).offset)
