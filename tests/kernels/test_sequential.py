"""Sequential kernels: exact laws by listing every order of small shards, what ties and NaN do, schedules."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from scipy.special import betaln

from tdd.kernels import betting, sequential

EVERY_BET = [*((a, c) for a, c, _ in betting._SHARD_BETS), *betting._SUM_BETS]


bets = jax.jit(betting.e_process)
count = jax.jit(sequential.exceedances)
log_urn_bet = jax.jit(betting.log_urn_bet, static_argnames=("a", "c", "horizon"))


def counted(canonical, shuffled, **options):
    return count(np.asarray(canonical, np.float32), np.asarray(shuffled, np.float32), **options)


def every_null_table(values):
    """[N, r, B + 1]: all arrangements of the orders of each shard, equally likely under the null."""
    rows = [list(itertools.permutations(row)) for row in values]
    return np.array(list(itertools.product(*rows)), float)


def urn_paths(draws):
    """Every path of a Polya urn of exceedances with its probability."""
    for path in itertools.product((0, 1), repeat=draws):
        x, probability = 0, 1.0
        for b, one in enumerate(path):
            share = (x + 1) / (b + 2)
            probability *= share if one else 1 - share
            x += one
        yield path, probability


@pytest.mark.parametrize(("a", "c"), EVERY_BET)
def test_every_bet_is_a_martingale_of_the_urn_and_falls_with_every_exceedance(a, c):
    """E(b + 1) averages to E(b) whatever came before; that it falls is what makes ties, counted, safe."""
    horizon = 40
    x, b = np.tril_indices(horizon + 1)[::-1]
    table = np.full((horizon + 1, horizon + 1), np.nan)  # [b, x]
    table[b, x] = np.exp(np.asarray(log_urn_bet(x.astype(np.int32), b.astype(np.int32), a=a, c=c, horizon=horizon)))
    for b in range(horizon):
        share = (np.arange(b + 1) + 1) / (b + 2)
        # exp of a sum of up to 40 logarithms of ratios, which add up to |log E| at most
        mean = share * table[b + 1, 1 : b + 2] + (1 - share) * table[b + 1, : b + 1]
        scale = table[b, : b + 1] * (1 + np.abs(np.log(table[b + 1])).max())
        rounding.assert_close(mean, table[b, : b + 1], roundings=2 * (horizon + 3 * 4), scale=scale)
        assert (np.diff(table[b + 1, : b + 2]) < 0).all()


def test_bets_keep_their_digits_over_many_draws():
    x, b = np.array([0, 3, 500, 90_000]), np.array([100_000, 100_000, 1_000, 100_000])
    with jax.enable_x64(True):
        found = np.asarray(log_urn_bet(x, b, a=0.05, c=8.0, horizon=100_000))
    expected = betaln(0.05 + x, 8 + b - x) - betaln(0.05, 8) - betaln(1 + x, 1 + b - x)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_mean_e_value_of_one_shard_is_one_at_every_draw():
    paths, probabilities = (np.array(each) for each in zip(*urn_paths(4), strict=True))
    found = jax.jit(jax.vmap(lambda path: betting.e_process(sequential.exceedances(np.full(1, 0.5), path)).log_e))
    np.testing.assert_allclose(probabilities @ np.exp(found(paths[:, None].astype(np.float32))), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [[[0, 1, 2, 3], [0, 10, 20, 31]], [[0, 0, 1, 1], [0, 1, 1, 3]], [[1, 1, 1, 1], [1, 2, 3, 4]], [[4, 3, 2, 1, 0]]],
    ids=["distinct", "ties", "all equal", "one shard"],
)
def test_all_orders_of_small_shards(values):
    """Over every arrangement: the smallest p-value ever is super-uniform, and the e-value has mean at most 1."""
    tables = every_null_table(values)

    def both(table):
        counts = sequential.exceedances(table[:, 0], table[:, 1:])
        bets = betting.e_process(counts)
        return bets.p_value, jnp.exp(bets.log_e), sequential.besag_clifford(counts, 2)[0]

    p, e, stopped = (np.asarray(x, float) for x in jax.jit(jax.vmap(both))(jnp.asarray(tables)))
    assert (np.diff(p, axis=1) <= 0).all()
    for level in np.unique(p):
        assert (p[:, -1] <= level).mean() <= level * (1 + 1e-5)
    assert (e.mean(axis=0) <= 1 + 1e-5).all()
    for each in stopped.T:
        for level in np.unique(each):
            assert (each <= level).mean() <= level * (1 + 1e-5)
            if values[0] == [4, 3, 2, 1, 0]:
                assert (each <= level).mean() == pytest.approx(level)


def test_breaking_ties_for_the_canonical_order_is_no_e_process():
    tables = every_null_table([[0, 0, 0, 1], [0, 0, 0, 1]])
    call = jax.jit(
        jax.vmap(lambda t: betting.e_process(sequential.exceedances(t[:, 0], t[:, 1:], tolerance=-0.01)).log_e)
    )
    p = np.exp(-np.maximum(np.asarray(call(jnp.asarray(tables + 5))).max(axis=1), 0))
    assert max((p <= level).mean() - level for level in np.unique(p)) > 0.05


@pytest.mark.parametrize("r", [1, 7, 50])
def test_the_best_case_is_the_largest(r):
    draws = 50
    found = bets(counted(np.ones(r), np.zeros((r, draws)))).log_e
    for b in (1, 3, 50):
        assert float(found[b - 1]) == pytest.approx(betting.largest_log_e(r, b), rel=1e-5)


def test_shuffles_that_are_nan_do_not_count():
    rng = np.random.default_rng(0)
    canonical, shuffled = rng.normal(size=4), rng.normal(size=(4, 6))
    shuffled[2, 3] = np.nan
    counts = counted(canonical, shuffled)
    assert counts.shard_draws[:, -1].tolist() == [6, 6, 5, 6]
    assert counts.total_draws.tolist() == [1, 2, 3, 3, 4, 5]
    without = counted(np.delete(canonical, 2), np.delete(shuffled, 2, axis=0))
    np.testing.assert_array_equal(np.delete(counts.shards, 2, axis=0), without.shards)
    canonical[2] = np.nan
    left = counted(canonical, shuffled)
    np.testing.assert_array_equal(left.total, without.total)
    assert int(left.num_shards) == 3


def test_what_is_counted_does_not_depend_on_later_draws():
    rng = np.random.default_rng(1)
    canonical, shuffled = rng.normal(size=5), rng.normal(size=(5, 9))
    shuffled[:, 7] = 1e30  # would widen a tolerance taken over all draws
    whole, part = counted(canonical, shuffled), counted(canonical, shuffled[:, :6])
    for a, b in zip(whole[:4], part[:4]):
        np.testing.assert_array_equal(a[..., :6], b)
    np.testing.assert_array_equal(bets(whole).p_value[:6], bets(part).p_value)


def test_no_shard_is_no_evidence():
    counts = counted([np.nan, 1.0], np.zeros((2, 3)), mask=jnp.array([True, False]))
    np.testing.assert_allclose(bets(counts).p_value, 1, rtol=1e-6)
    assert np.asarray(sequential.besag_clifford(counts, 1)[0]).tolist() == [1, 1, 1]


def test_besag_clifford_on_one_path():
    counts = counted([0.5], [[0, 1, 0, 0, 1, 1, 0]])
    p, log_p = sequential.besag_clifford(counts, 2)
    rounding.assert_close(p, [1 / 2, 2 / 3, 2 / 4, 2 / 5, 2 / 5, 2 / 5, 2 / 5], roundings=1)
    rounding.assert_close(log_p, np.log(p), roundings=2 * 4)


def test_spending():
    p, log_p = sequential.spend(jnp.log(jnp.array([0.02, 0.5, 0.003, 0.9])), [0.1, 0.2, 0.3, 0.4])
    rounding.assert_close(p, [0.2, 0.2, 0.01, 0.01], roundings=2 * 4 + 2, scale=np.float32([1, 1, 0.06, 0.06]))
    rounding.assert_close(log_p, np.log(p), roundings=2 * 4, scale=5)
    p, _ = sequential.spend(jnp.array([0.0, np.nan, -9.0]), [0.2, 0.2, 0.6])
    assert np.isnan(p).tolist() == [False, True, True]
    assert float(p[0]) == 1


def test_schedules():
    assert sequential.default_looks(1) == (1,)
    assert sequential.default_looks(5) == (1, 2, 5)
    assert sequential.default_looks(60) == (1, 2, 5, 10, 20, 50, 60)
    assert sequential.default_looks(1_000) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
    assert sequential.look_weights((1, 3, 6)).tolist() == [0.1, 0.3, 0.6]
    assert sequential.look_weights(sequential.default_looks(50)).sum() == pytest.approx(1)


def test_wrong_calls():
    with pytest.raises(ValueError, match="no column"):
        sequential.exceedances(jnp.zeros(2), jnp.zeros((2, 0)))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        sequential.besag_clifford(counted([1.0], [[0.0]]), 0)
