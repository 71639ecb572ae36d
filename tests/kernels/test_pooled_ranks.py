"""Pooled ranks: symmetry in calibration and test, ties to the bit, weights, keys, masks."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_combine as ref

from tdd.kernels import conformal, pooled_ranks

rank = jax.jit(pooled_ranks.rank, static_argnames=("null", "rule"))
pool = jax.jit(pooled_ranks.pool, static_argnames="null")
conformal_rank = jax.jit(conformal.rank, static_argnames="null")
RULES = pytest.mark.parametrize("rule", pooled_ranks.RULES)


def integers(seed, shape, values=4):
    return np.random.default_rng(seed).integers(0, values, shape).astype(np.float32)


def ranked(calibration, scores, rule, null="member", weights=None):
    """One program for all weights; equal ones are the default."""
    weights = np.array([1] * len(scores) if weights is None else weights, np.float32)
    return jax.tree.map(np.asarray, rank(calibration, scores, null=null, rule=rule, weights=weights))


SIZES = 20, 10
WEIGHTS = 0.3, 1.7, 0.011


@RULES
def test_relabelling_items_permutes_the_evidence_to_the_bit(rule):
    """Where an item stands, and on which side, must not show in its evidence: rounding would decide ties."""
    items = np.concatenate([np.random.default_rng(0).normal(size=(3, 20)).astype(np.float32)] * 2, axis=1)[:, :30]

    def evidence(items, cut):
        found = ranked(items[:, :cut], items[:, cut:], rule, weights=WEIGHTS)
        return np.concatenate([found.calibration, found.scores])

    whole = evidence(items, SIZES[0])
    for cut in (7, SIZES[0]):
        order = np.random.default_rng(cut).permutation(30)
        np.testing.assert_array_equal(evidence(items[:, order], cut), whole[order])


@RULES
def test_equal_items_have_equal_evidence_under_vmap(rule):
    rows = integers(1, (3, 3, 10))
    calibration = np.concatenate([rows, rows], axis=2)
    run = jax.jit(jax.vmap(lambda c, s: pooled_ranks.rank(c, s, null="member", rule=rule)))
    found = jax.tree.map(np.asarray, run(calibration, rows))
    np.testing.assert_array_equal(found.calibration[:, :10], found.scores)
    np.testing.assert_array_equal(found.calibration[:, 10:], found.scores)
    for i in range(3):
        np.testing.assert_array_equal(ranked(calibration[i], rows[i], rule).combined.rank, found.combined.rank[i])


@RULES
@pytest.mark.parametrize("null", conformal.NULLS)
def test_one_detector_is_its_own_conformal_rank(rule, null):
    calibration, scores = integers(2, (1, 30), 9), integers(3, (1, 21), 9)
    found = ranked(calibration, scores, rule, null)
    direct = conformal_rank(calibration[0], scores[0], null=null)
    np.testing.assert_array_equal(found.combined.rank, direct.rank)
    np.testing.assert_array_equal(found.alone[0], direct.rank)


@RULES
def test_a_detector_of_weight_zero_does_not_matter(rule):
    calibration, scores = integers(4, (3, SIZES[0])), integers(5, (3, SIZES[1]))
    found = ranked(calibration, scores, rule, weights=[1, 0, 2])
    without = ranked(calibration[::2], scores[::2], rule, weights=[1, 2])
    np.testing.assert_array_equal(found.combined.rank, without.combined.rank)


@jax.jit
def pools(own, other):
    return [pooled_ranks.pool(own, other, null=null) for null in conformal.NULLS]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_mid_ranks_of_both_samples(dtype):
    rng = np.random.default_rng(6)
    own, other = rng.integers(0, 9, 25).astype(dtype), rng.integers(0, 9, 14).astype(dtype)
    both = np.concatenate([own, other])
    for null, found in zip(conformal.NULLS, jax.tree.map(np.asarray, pools(own, other)), strict=True):
        assert found.calibration.tolist() == ref.doubled_mid_ranks(own.astype(int), both.astype(int), null)
        assert found.scores.tolist() == ref.doubled_mid_ranks(other.astype(int), both.astype(int), null)
        assert int(found.calibration.sum() + found.scores.sum()) == 39 * 40  # twice 1 + ... + 39


def test_samples_of_different_types_are_compared_as_numbers():
    """The keys of integers are the integers, those of floats their bits: as they are, 3 would lie below 0.5."""
    calibration, scores = np.array([3, 1, 2, 7]), np.array([0.5, 2.0, 9.0])
    mixed = pooled_ranks.pool(jnp.asarray(calibration, jnp.int32), jnp.asarray(scores, jnp.float32), null="nonmember")
    alike = pooled_ranks.pool(*(jnp.asarray(x, jnp.float32) for x in (calibration, scores)), null="nonmember")
    chex.assert_trees_all_equal(mixed, alike)
    assert list(mixed.alone) == [1, 3, 5]
    weak = pooled_ranks.pool(jnp.full(3, 1.001), jnp.array([1.0], jnp.bfloat16), null="nonmember")
    assert list(weak.alone) == [1]  # a weak type is not rounded to a strong one


def test_the_ends_of_the_number_line():
    scores = np.array([-np.inf, -3e38, -1.0, -0.0, 0.0, 1e-30, 3e38, np.inf], np.float32)
    found = pool(scores, scores[:0], null="nonmember")
    assert found.calibration.tolist() == [2, 4, 6, 9, 9, 12, 14, 16]


@pytest.mark.slow("long")
def test_a_key_breaks_ties_both_ways_and_nothing_else():
    calibration, scores = np.zeros((2, 9), np.float32), np.zeros((2, 1), np.float32)
    draw = jax.jit(jax.vmap(lambda key: rank(calibration, scores, null="member", rule="sum", key=key).combined.rank[0]))
    ranks = np.asarray(draw(jax.random.split(jax.random.key(0), 400)))
    assert set(ranks.tolist()) == set(range(1, 11))
    assert rank(calibration, scores, null="member", rule="sum").combined.rank.tolist() == [10]
    distinct = np.stack([np.arange(9, dtype=np.float32)] * 2)
    tested = np.array([[3.5], [3.5]], np.float32)
    keyed = rank(distinct, tested, null="member", rule="sum", key=jax.random.key(1))
    assert keyed.combined.rank.tolist() == [1 + 5]


@RULES
def test_nan_from_one_detector_takes_the_item_out(rule):
    calibration, scores = integers(7, (3, SIZES[0])), integers(8, (3, SIZES[1]))
    without = ranked(np.delete(calibration, 4, axis=1), scores[:, 1:], rule)
    calibration[1, 4] = scores[2, 0] = np.nan
    holed = ranked(calibration, scores, rule)
    assert holed.combined.num_calibration == 19
    assert holed.combined.num_tests == 9
    np.testing.assert_array_equal(holed.combined.rank[1:], without.combined.rank)
    np.testing.assert_array_equal(holed.alone[:, 1:], without.alone)
    assert holed.combined.rank[0] == 22


def test_weights_that_cannot_be_used_rank_nothing():
    panels = integers(9, (3, SIZES[0])), integers(10, (3, SIZES[1]))
    for weights in ([0, 0, 0], [1, -1, 1], [np.nan, 1, 1], [np.inf, 1, 1]):
        found = ranked(*panels, "cauchy", weights=weights)
        assert found.combined.num_tests == 0
        assert (found.combined.rank == 22).all()


def test_static_mistakes_raise():
    panel = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match="rule"):
        pooled_ranks.rank(panel, panel, null="member", rule="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        rank(panel, panel, null="clean", rule="sum")
    with pytest.raises(ValueError, match="weights"):
        rank(panel, panel, null="member", rule="sum", weights=np.ones(3, np.float32))
    with pytest.raises(ValueError, match="detector"):
        rank(panel[:0], panel[:0], null="member", rule="sum")
