"""The template that the host draws for large sizes: its pieces by brute force, and where `fdp_bounds` uses it."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tdd
from tdd.kernels import lattice
from tdd.procedures import fdp_template

LEVEL = lattice.as_level(0.1)


def drawn(n, m, *, seed=0, level=LEVEL, most=None, num_draws=199):
    sizes = {"max_calibration": most or n, "max_tests": m, "num_draws": num_draws}
    return fdp_template.draw_template(jax.random.key(seed), n, level, **sizes)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (7, 3), (40, 300), (500, 90)])
def test_the_largest_count_is_that_of_a_search(k, n):
    rank, counts = np.arange(1.0, n + 1), np.arange(k + 1)[:, None]
    z = fdp_template._deviation(counts, k, rank, n)
    assert (np.diff(z, axis=0) > 0).all()
    rng = np.random.default_rng(k)
    top = z.max(axis=0)
    for deviation in [z[0].max(), *rng.choice(top, 3), *rng.uniform(z[0].max(), top.max(), 20)]:
        expected = np.where(z <= deviation, counts, 0).max(axis=0)
        np.testing.assert_array_equal(fdp_template._largest(deviation, k, rank, n), expected)


def test_the_counts_of_every_number_of_nulls_are_multinomial():
    """Each vector of counts by its exact probability, for every row of chances; six standard errors."""
    chances, rounds = np.array([[0.1, 0.2, 0.7], [0.9, 1e-9, 0.1 - 1e-9]]), 20_000
    drawn_counts = fdp_template._counts(np.random.default_rng(0), 2, 7, np.repeat(chances, rounds, axis=0))
    for number, reached in enumerate(drawn_counts, 1):
        k, reached = 2 * number, reached.reshape(2, rounds, 2)
        for row, counts in zip(chances, reached, strict=True):
            law = stats.multinomial(k, row / row.sum())
            for first, second in itertools.combinations_with_replacement(range(k + 1), 2):
                chance = law.pmf([first, second - first, k - second])
                share = (counts == [first, second]).all(axis=1).mean()
                assert abs(share - chance) <= 6 * math.sqrt(chance * (1 - chance) / rounds) + 1e-6
    assert number == 7


@pytest.mark.slow("long")
def test_the_template_is_close_to_that_of_the_kernel():
    n = m = 600
    key, level = jax.random.key(0), jax.tree.map(jnp.asarray, LEVEL)
    kernel = fdp_template._template(key, n, level, max_calibration=n, max_tests=m, num_draws=999)
    host = drawn(n, m, num_draws=999)
    np.testing.assert_array_equal(host.rank, kernel.rank)
    np.testing.assert_array_equal(host.num_nulls, kernel.num_nulls)
    far = np.abs(np.asarray(host.bound) - np.asarray(kernel.bound))
    assert (far <= 2 + 0.25 * np.sqrt(np.asarray(kernel.bound))).all()
    assert far.max() > 0  # other draws


def test_ranks_beyond_the_calibration_scores_and_too_few_draws_bound_nothing():
    found = drawn(90, 40, most=128)
    beyond = np.asarray(found.rank) > 90
    assert beyond.any()
    assert (np.asarray(found.bound)[:, beyond] == np.asarray(found.num_nulls)[:, None]).all()
    assert (np.diff(np.asarray(found.bound), axis=0) >= 0).all()
    few = drawn(90, 40, num_draws=5)  # 5 < 1/0.1 - 1
    assert (np.asarray(few.bound) == np.asarray(few.num_nulls)[:, None]).all()


def test_draws_are_kept_by_sizes_level_and_key():
    before = fdp_template._drawn.cache_info().hits
    first, again, other = drawn(300, 50), drawn(300, 50), drawn(300, 50, seed=1)
    assert fdp_template._drawn.cache_info().hits == before + 1
    np.testing.assert_array_equal(first.bound, again.bound)
    assert (np.asarray(first.bound) != np.asarray(other.bound)).any()


def test_up_to_some_sizes_neither_key_nor_draws_move_the_template():
    template = lambda seed=0, n=30, delta=0.1, m=20, num_draws=99: fdp_template.template_for(  # noqa: E731
        jax.random.key(seed), n, delta, num_draws, max_calibration=40, max_tests=m
    )
    first = template()
    for same in ({"seed": 1}, {"num_draws": 9}, {"delta": np.float64(0.1)}):
        assert template(**same) is first
    for other in ({"n": 31}, {"delta": 0.2}, {"m": 19}):
        found = template(**other)
        assert found.bound.shape != first.bound.shape or (found.bound != first.bound).any()
    np.testing.assert_array_equal(template(delta=jnp.float32(0.1)).bound, first.bound)
    assert first.bound.dtype == jnp.int32
    assert first.delta.dtype == jnp.result_type(float)


@pytest.mark.slow("long")
def test_large_samples_are_bounded_by_draws_of_the_host(monkeypatch):
    rng = np.random.default_rng(0)
    calibration, scores = rng.normal(size=3_000), np.append(rng.normal(size=1_500), rng.normal(-4, 1, 1_500))
    calls, draw = [], fdp_template.draw_template
    monkeypatch.setattr(fdp_template, "draw_template", lambda *a, **k: calls.append(k) or draw(*a, **k))
    found = tdd.fdp_bounds(calibration, scores, null="nonmember", key=jax.random.key(0))
    assert len(calls) == 1
    assert 1_300 <= int(found.min_true) <= 1_500
    tdd.fdp_bounds(calibration[:2_000], scores[:2_000], null="nonmember", key=jax.random.key(0), num_draws=19)
    assert len(calls) == 1
