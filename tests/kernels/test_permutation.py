"""Tolerance of ties, counts of draws, full lists, and random relabellings of shards."""

import math

import jax
import numpy as np
import pytest
import references_permutation as ref

from tdd.kernels import permutation, randomization

p_value = jax.jit(permutation.p_value)
complete_p_value = jax.jit(permutation.complete_p_value)
randomized = jax.jit(randomization.shard_randomization, static_argnames=("num_draws", "tolerance"))
permuted = jax.jit(randomization.shard_permutation, static_argnames="tolerance")


def test_tolerance_is_told_by_the_type():
    assert permutation.tie_tolerance(np.float64) == pytest.approx(2.2e-14, rel=0.02)
    assert permutation.tie_tolerance(np.float32) == pytest.approx(4.8e-7, rel=0.02)
    with pytest.raises(TypeError, match="statistics must be floats, or `tolerance` given, got int32"):
        permutation.tie_tolerance(np.int32)
    draws = np.array([-100.00003, -100.1, -101.0], np.float32)
    assert int(p_value(-100.0, draws).num_at_least) == 1
    assert int(p_value(-100.0, draws, tolerance=0.0).num_at_least) == 0
    assert int(p_value(-100.0, draws, tolerance=0.01).num_at_least) == 3
    assert int(p_value(-100.0, draws, tolerance=0.01, scale=20.0).num_at_least) == 2


def test_every_chunk_of_draws_is_another(monkeypatch):
    """Ten chunks of 64 draws: with one key for all of them every count would be a multiple of ten."""
    monkeypatch.setattr(randomization, "_CHUNK", 64)
    choices = np.random.default_rng(0).normal(size=(1, 900)).astype(np.float32)
    count = jax.jit(lambda key: randomization._count_draws(choices, np.float32(0), key, 640))
    assert any(int(count(jax.random.key(seed))) % 10 for seed in range(5))


def test_sums_of_tenths_tie_in_double_precision():
    with jax.enable_x64(True):
        found = p_value(0.3, np.array([0.1 + 0.2, 0.3, 0.29999999]))
        assert int(found.num_at_least) == 2
        below = p_value(0.1 + 0.2, np.array([0.3, 0.2]))
        assert int(below.num_at_least) == 1


def test_no_draws_and_nan():
    assert float(p_value(1.0, np.zeros(0, np.float32)).p_value) == 1
    assert np.isnan(p_value(np.nan, np.zeros(3, np.float32)).p_value)
    assert float(p_value(1.0, np.array([np.nan, 0.0], np.float32)).p_value) == 0.5
    assert float(complete_p_value(1.0, np.array([np.nan], np.float32)).p_value) == 1
    # rounding may not make the list forget the identity
    assert float(complete_p_value(1.0, np.array([0.5, 0.9], np.float32), tolerance=0.0).p_value) == 0.5


def shards(seed, r, k, ties):
    rng = np.random.default_rng(seed)
    draw = (lambda *s: rng.integers(0, 3, s)) if ties else (lambda *s: rng.normal(size=s))
    return draw(r).astype(np.float32), draw(r, k).astype(np.float32)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 6), (4, 1), (3, 4), (5, 2)])
def test_all_relabellings(r, k, ties):
    for seed in range(3):
        canonical, shuffled = shards(seed, r, k, ties)
        reached, total = ref.shard_randomization(canonical, shuffled)
        found = randomized(canonical, shuffled, num_draws=10_000)
        assert (int(found.num_at_least), int(found.num_draws)) == (reached, total) == (reached, (k + 1) ** r)
        assert float(found.p_value) == pytest.approx(reached / total)
        mask = np.random.default_rng(seed).random(r) < 0.7
        reached, total = ref.shard_randomization(canonical, shuffled, mask)
        found = randomized(canonical, shuffled, num_draws=10_000, mask=mask)
        assert float(found.p_value) == pytest.approx(reached / total)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("r", "k", "joined"), [(12, 1, 12), (9, 2, 7), (5, 8, 3), (3, 70, 1)])
def test_draws_estimate_the_share_of_relabellings(r, k, joined, ties):
    """Whatever number of shards share one table."""
    assert (k + 1) ** joined <= randomization._TABLE < (k + 1) ** (joined + 1) or joined == r
    canonical, shuffled = shards(4, r, k, ties)
    canonical += 0.3
    listed = randomized(canonical, shuffled, num_draws=(k + 1) ** r)
    assert int(listed.num_draws) == (k + 1) ** r
    draws = min(100_000, (k + 1) ** r - 2)
    drawn = randomized(canonical, shuffled, num_draws=draws, key=jax.random.key(1))
    assert int(drawn.num_draws) == draws
    p = float(listed.p_value)
    assert abs(float(drawn.p_value) - p) < 4.5 * math.sqrt(p * (1 - p) / draws) + 1 / draws


def test_masked_shards_add_nothing_and_draws_are_reproducible():
    canonical, shuffled = shards(0, 20, 7, False)
    mask = np.arange(20) < 12

    def reached(key):
        return int(randomized(canonical, shuffled, num_draws=5000, key=key, mask=mask).num_at_least)

    key = jax.random.key(3)
    first = reached(key)
    canonical[12:], shuffled[13:] = 1e6, np.nan
    assert reached(key) == first
    assert reached(jax.random.key(4)) != first
    assert np.isnan(randomized(canonical, shuffled, num_draws=500, key=key).p_value)  # NaN, no mask


def test_number_of_draws_is_met_whatever_the_chunks(monkeypatch):
    """Equal values: every draw reaches the observed sum."""
    flat, key = (np.zeros(30, np.float32), np.zeros((30, 50), np.float32)), jax.random.key(0)
    for chunk in (1, 7, 1000, 2**15):
        monkeypatch.setattr(randomization, "_CHUNK", chunk * 15)
        traced_anew = jax.jit(lambda *sums: randomization.shard_randomization(*sums, num_draws=331, key=key))
        found = traced_anew(*flat)
        assert (int(found.num_at_least), int(found.num_draws)) == (331, 331)


def test_small_differences_of_large_log_probabilities():
    """-1e5 in float32 has steps of 1/128; differences are taken before anything is summed."""
    canonical = np.full(40, -100_000.0, np.float32)
    shuffled = np.full((40, 3), -100_000.0, np.float32) - np.array([0.125, 0.25, 0.0], np.float32)
    found = randomized(canonical, shuffled, num_draws=20_000, key=jax.random.key(0), tolerance=1e-8)
    assert int(found.num_at_least) == 0
    assert int(permuted(canonical, shuffled, tolerance=1e-8).num_at_least) == 1


def test_what_cannot_be_drawn():
    one = np.zeros(30, np.float32), np.zeros((30, 2), np.float32)
    assert randomization.is_enumerable(3, 2, 26)
    assert not randomization.is_enumerable(3, 2, 25)
    with pytest.raises(ValueError, match="key"):
        randomized(*one, num_draws=100)
    with pytest.raises(ValueError, match="num_draws"):
        randomized(*one, num_draws=0, key=jax.random.key(0))
    for call in (permuted, lambda *a: randomized(*a, num_draws=9)):
        with pytest.raises(ValueError, match="no column"):
            call(np.zeros(3, np.float32), np.zeros((3, 0), np.float32))
