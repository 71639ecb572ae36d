"""The paths of null ranks: chances by listing every sequence, and the envelope by its definition."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tdd.kernels import fdp_bounds, null_paths

under = jax.jit(null_paths.probability_under, static_argnames="max_tests")
calibrated = jax.jit(null_paths.calibrate, static_argnames=("max_calibration", "max_tests"))


@functools.cache
def counts(n, k):
    """[C(n + k, n), n] null items before each calibration item, in every sequence of both."""
    places = np.array(list(itertools.combinations(range(n + k), n)))
    return places - np.arange(n)


def chances(limits, k):
    """P(N_k(i) <= u(i) for all i) from whole numbers of paths; `limits` [J, n]."""
    found = []
    for limit in limits.tolist():
        paths = [1] + [0] * k  # by the count so far
        for most in limit:
            paths = [number if c <= most else 0 for c, number in enumerate(itertools.accumulate(paths))]
        found.append(sum(paths) / math.comb(len(limit) + k, k))
    return np.array(found)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 6), (6, 1), (5, 4), (7, 6)])
def test_every_sequence_is_as_likely(n, k):
    limits = np.random.default_rng(n).integers(0, k + 1, (30, n))
    expected = [(counts(n, k) <= limit).all(axis=1).mean() for limit in limits]
    padded = np.pad(limits, ((0, 0), (0, 2)))  # what stands beyond n does not count
    for limit in (limits, padded):
        found = under(limit, np.full(30, k, np.int32), n, max_tests=k + 3)
        np.testing.assert_allclose(found, expected, rtol=4 * (n + k) * np.finfo(np.float32).eps, atol=0)
    np.testing.assert_allclose(chances(limits, k), expected, rtol=1e-12, atol=1e-15)


def test_counts_far_from_their_mean_add_nothing():
    """With double the items nine deviations hold everything; so do envelopes that are barely met."""
    n, k = 150, np.array([60, 200], np.int32)
    limits = np.stack([stats.betabinom.isf(1e-3, one, np.arange(1, n + 1), n - np.arange(n)) for one in k])
    with jax.enable_x64(True):
        found = np.asarray(under(limits.astype(np.int32), k, n, max_tests=200))
    expected = [chances(row[None], int(one))[0] for row, one in zip(limits, k, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=4 * (n + 200) * np.finfo(np.float64).eps)
    assert (found < 0.995).all()


@pytest.mark.parametrize("delta", [0.07, 0.33])
def test_the_envelope_is_the_tightest_of_its_kind(delta):
    """u_k(i) = max{c: P(N_k(i) >= c) >= g} for the largest of all g at which no more than delta fail."""
    n, m = 9, 6
    found, widest = calibrated(n, jnp.float32(delta), max_calibration=n + 2, max_tests=m), np.zeros(n, int)
    assert found.num_nulls.tolist() == list(range(1, m + 1))
    for k in range(1, m + 1):
        ranks = np.arange(1, n + 1)
        tails = np.stack([stats.betabinom.sf(np.arange(k + 1) - 1, k, i, n + 1 - i) for i in ranks])
        g = np.unique(tails)[:, None, None] * (1 - 1e-4)
        envelopes = (tails >= g).sum(axis=2) - 1
        failing = 1 - chances(envelopes, k)
        assert np.abs(failing / delta - 1).min() > 1e-3  # no case that rounding could decide
        widest = np.maximum(widest, envelopes[failing <= delta][-1])
        np.testing.assert_array_equal(found.bound[k - 1, :n], widest, err_msg=str(k))
    assert (np.asarray(found.bound)[:, n:] >= found.num_nulls[:, None]).all()


@pytest.mark.parametrize(("n", "m", "delta"), [(60, 100, 0.05), (150, 40, 0.01)])
def test_no_more_than_delta_fail_and_hardly_less(n, m, delta):
    with jax.enable_x64(True):
        found = calibrated(n, jnp.float64(delta), max_calibration=n, max_tests=m)
        limit = np.full((len(found.num_nulls), n), m, np.int32)
        limit[:, np.asarray(found.rank) - 1] = found.bound
        failing = 1 - np.asarray(under(limit, found.num_nulls, n, max_tests=m + 2))
    assert failing.max() <= delta
    assert failing.mean() > 0.9 * delta
    with jax.enable_x64(True):  # one more null item at the middle rank is one too many for some k
        limit[:, n // 2] = np.minimum(limit[:, n // 2], found.num_nulls // 2)
        assert (1 - np.asarray(under(limit, found.num_nulls, n, max_tests=m + 2))).max() > delta


def test_levels_out_of_range_and_sizes():
    found = calibrated(5, jnp.float32(1.5), max_calibration=6, max_tests=4)
    assert (np.asarray(found.bound) == found.num_nulls[:, None]).all()
    assert np.isnan(found.delta)
    for sizes in ({"max_calibration": 0, "max_tests": 3}, {"max_calibration": 2, "max_tests": -1}):
        with pytest.raises(ValueError, match="sizes must be positive"):
            null_paths.calibrate(2, 0.1, **sizes)
    assert null_paths.calibrate(2, 0.1, max_calibration=2, max_tests=0).bound.shape == (0, 2)
    assert fdp_bounds.grids(2, 0)[2] == 0
