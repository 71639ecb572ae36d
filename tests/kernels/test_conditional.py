"""Boundary tables at their ends, at large n, and the laws of the Monte Carlo table."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.kernels import conditional, lattice

TABLES = {
    "simes": conditional.simes_bounds,
    "dkwm": conditional.dkwm_bounds,
    "asymptotic": conditional.asymptotic_bounds,
    "monte_carlo": lambda n, delta, max_rank: conditional.monte_carlo_bounds(
        n, delta, max_rank=max_rank, key=jax.random.key(0), num_draws=99
    ),
    "hybrid": lambda n, delta, max_rank: conditional.hybrid_bounds(n, delta, 0.02, max_rank=max_rank),
}
COMPILED = {name: jax.jit(table, static_argnames="max_rank") for name, table in TABLES.items()}
FIXED = {name: jax.jit(table, static_argnames=("delta", "max_rank")) for name, table in TABLES.items()}
monte_carlo = jax.jit(conditional.monte_carlo_bounds, static_argnames=("delta", "max_rank", "num_draws"))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_rises_from_0_to_1(name):
    for n in (0, 1, 2, 3, 16, 17, 40, 99):
        table = np.asarray(FIXED[name](n, 0.1, max_rank=100))
        assert table[0] == 0
        assert (table[n + 1 :] == 1).all()
        assert (table[1:] > 0).all()
        assert (np.diff(table) >= 0).all()


@pytest.mark.parametrize("name", TABLES)
def test_a_smaller_delta_widens(name):
    levels = [jax.tree.map(jnp.asarray, lattice.as_level(delta)) for delta in (0.5, 0.2, 0.1, 0.05)]
    tables = [np.asarray(COMPILED[name](99, delta, max_rank=100)) for delta in levels]
    for loose, strict in itertools.pairwise(tables):
        assert (strict >= loose).all()
        assert (strict > loose).any()


@pytest.mark.parametrize("name", TABLES)
def test_traced_levels(name):
    call = functools.partial(COMPILED[name], 30, max_rank=100)
    exact = FIXED[name](30, 0.1, max_rank=100)
    # a level that is off by a rounding, in the logarithm of a bound, and the last increment, continued n/2 times
    rounding.assert_close(call(delta=jnp.float32(0.1)), exact, roundings=2 * (4 * 4 + 30 // 2), scale=1)
    for delta in (0.0, 1.0, -0.5, 2.0, np.nan):
        assert np.isnan(call(delta=jnp.float32(delta))).all()


@pytest.mark.parametrize("name", ["simes", "dkwm"])
def test_bad_static_level(name):
    for delta in (0, 1, -0.1):
        with pytest.raises(ValueError, match=str(delta)):
            TABLES[name](10, delta, max_rank=11)


def test_bad_static_options():
    with pytest.raises(ValueError, match="k must be"):
        conditional.simes_bounds(10, 0.1, max_rank=11, k=0)
    with pytest.raises(ValueError, match="num_draws"):
        conditional.monte_carlo_bounds(10, 0.1, max_rank=11, key=jax.random.key(0), num_draws=0)


def test_simes_in_single_precision_at_a_hundred_thousand():
    """Against the logarithm of the gamma function in double precision."""
    from scipy.special import gammaln

    n, delta = 100_000, 0.1
    k = n // 2
    rank = np.array([1, 2, 3, 10, 100, 1_000, 10_000, 30_000, 49_000, 50_001])
    i = n + 1 - rank
    log = gammaln(i + 1) - gammaln(i - k + 1) - gammaln(n + 1) + gammaln(n - k + 1)
    expected = -np.expm1((math.log(delta) + log) / k)
    got = np.asarray(FIXED["simes"](n, delta, max_rank=n + 1))
    assert got.dtype == np.float32
    # a sum of 50,000 logarithms that all have one sign, added up as a tree, of which the k-th part is the exponent
    rounding.assert_close(got[rank], expected, roundings=16 + 3 * 4)
    assert (got[50_002:] == 1).all()


def test_more_shared_than_items_is_useless_and_valid():
    table = FIXED["simes"](5, 0.1, max_rank=6, k=jnp.int32(9))
    assert table.tolist() == [0, 1, 1, 1, 1, 1, 1]


def test_monte_carlo_needs_enough_draws():
    """floor(delta (B + 1)) = 0 leaves nothing to bound by; at one draw more the table says something."""
    table = lambda draws: monte_carlo(50, 0.1, max_rank=51, key=jax.random.key(1), num_draws=draws)  # noqa: E731
    assert (np.asarray(table(8))[1:] == 1).all()
    assert np.asarray(table(9))[1] < 1


def test_monte_carlo_is_tighter_than_the_distribution_free_tables():
    n = 400
    tables = {name: np.asarray(FIXED[name](n, 0.1, max_rank=n + 1)) for name in ("simes", "dkwm")}
    drawn = np.asarray(monte_carlo(n, 0.1, max_rank=n + 1, key=jax.random.key(2), num_draws=1_999))
    assert drawn[1] < tables["simes"][1] < tables["dkwm"][1]
    assert drawn[n // 4] < tables["simes"][n // 4]


def test_monte_carlo_does_not_depend_on_its_chunks(monkeypatch):
    def traced_anew(key):
        table = jax.jit(lambda key: conditional.monte_carlo_bounds(60, 0.1, max_rank=61, key=key, num_draws=50))
        return np.asarray(table(key))

    key = jax.random.key(3)
    whole = traced_anew(key)
    monkeypatch.setattr(conditional, "_CHUNK_ELEMENTS", 62 * 7)
    np.testing.assert_array_equal(traced_anew(key), whole)


def test_the_share_of_draws_is_exact():
    """0.29 · 100 is 28.999... in floating point."""
    allowed_count = jax.jit(conditional._allowed_count, static_argnames="count")
    level = jax.tree.map(jnp.asarray, lattice.as_level(0.29))
    assert int(allowed_count(level, 100)) == 29
    assert int(jax.jit(lambda: conditional._allowed_count(0.29, 100))()) == 29
    assert int(allowed_count(jnp.float32(0.25), 100)) == 25
