"""Pooled ranks: symmetry in calibration and test, ties to the bit, weights, keys, masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_combine as ref

from tdd.kernels import conformal, pooled_ranks

RULES = pytest.mark.parametrize("rule", pooled_ranks.RULES)


def integers(seed, shape, values=4):
    return jnp.asarray(np.random.default_rng(seed).integers(0, values, shape).astype(np.float32))


def evidence(calibration, scores, rule, **options):
    run = jax.jit(lambda c, s: pooled_ranks.rank(c, s, null="member", rule=rule, **options))
    found = run(calibration, scores)
    return np.concatenate([found.calibration, found.scores])


@RULES
@pytest.mark.parametrize("cut", [1, 7, 40, 63])
def test_relabelling_items_permutes_the_evidence_to_the_bit(rule, cut):
    """Where an item stands, and on which side, must not show in its evidence: rounding would decide ties."""
    items = jnp.concatenate([jnp.asarray(np.random.default_rng(0).normal(size=(5, 40)), jnp.float32)] * 2, axis=1)[
        :, :64
    ]
    weights = jnp.array([0.3, 1.7, 0.011, 1.0, 2.2])
    whole = evidence(items[:, :32], items[:, 32:], rule, weights=weights)
    order = np.random.default_rng(cut).permutation(64)
    moved = items[:, order]
    np.testing.assert_array_equal(evidence(moved[:, :cut], moved[:, cut:], rule, weights=weights), whole[order])


@RULES
def test_equal_items_have_equal_evidence_under_vmap(rule):
    rows = integers(1, (6, 4, 9))
    calibration = jnp.concatenate([rows, rows], axis=2)
    run = jax.jit(jax.vmap(lambda c, s: pooled_ranks.rank(c, s, null="nonmember", rule=rule)))
    found = run(calibration, rows)
    np.testing.assert_array_equal(found.calibration[:, :9], found.scores)
    np.testing.assert_array_equal(found.calibration[:, 9:], found.scores)
    for i in range(6):
        alone = jax.jit(lambda c, s: pooled_ranks.rank(c, s, null="nonmember", rule=rule))(calibration[i], rows[i])
        np.testing.assert_array_equal(alone.combined.rank, found.combined.rank[i])


@RULES
@pytest.mark.parametrize("null", conformal.NULLS)
def test_one_detector_is_its_own_conformal_rank(rule, null):
    calibration, scores = integers(2, (1, 30), 9), integers(3, (1, 21), 9)
    found = pooled_ranks.rank(calibration, scores, null=null, rule=rule)
    direct = conformal.rank(calibration[0], scores[0], null=null)
    np.testing.assert_array_equal(found.combined.rank, direct.rank)
    np.testing.assert_array_equal(found.alone[0], direct.rank)


@RULES
def test_a_detector_of_weight_zero_does_not_matter(rule):
    calibration, scores = integers(4, (3, 30)), integers(5, (3, 21))
    found = pooled_ranks.rank(calibration, scores, null="member", rule=rule, weights=jnp.array([1.0, 0.0, 2.0]))
    without = pooled_ranks.rank(calibration[::2], scores[::2], null="member", rule=rule, weights=jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(found.combined.rank, without.combined.rank)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_mid_ranks_of_both_samples(dtype):
    rng = np.random.default_rng(6)
    own, other = rng.integers(0, 9, 25).astype(dtype), rng.integers(0, 9, 14).astype(dtype)
    both = np.concatenate([own, other])
    for null in conformal.NULLS:
        found = pooled_ranks.pool(jnp.asarray(own), jnp.asarray(other), null=null)
        assert found.calibration.tolist() == ref.doubled_mid_ranks(own.astype(int), both.astype(int), null)
        assert found.scores.tolist() == ref.doubled_mid_ranks(other.astype(int), both.astype(int), null)
        assert int(found.calibration.sum() + found.scores.sum()) == 39 * 40  # twice 1 + ... + 39


def test_the_ends_of_the_number_line():
    scores = jnp.array([-jnp.inf, -3e38, -1.0, -0.0, 0.0, 1e-30, 3e38, jnp.inf])
    found = pooled_ranks.pool(scores, scores[:0], null="nonmember")
    assert found.calibration.tolist() == [2, 4, 6, 9, 9, 12, 14, 16]


def test_a_key_breaks_ties_both_ways_and_nothing_else():
    calibration, scores = jnp.zeros((2, 9)), jnp.zeros((2, 1))
    draw = jax.jit(
        jax.vmap(
            lambda key: pooled_ranks.rank(calibration, scores, null="member", rule="sum", key=key).combined.rank[0]
        )
    )
    ranks = np.asarray(draw(jax.random.split(jax.random.key(0), 400)))
    assert set(ranks.tolist()) == set(range(1, 11))
    assert pooled_ranks.rank(calibration, scores, null="member", rule="sum").combined.rank[0] == 10
    distinct = jnp.stack([jnp.arange(9.0)] * 2)
    tested = jnp.array([[3.5], [3.5]])
    keyed = pooled_ranks.rank(distinct, tested, null="member", rule="sum", key=jax.random.key(1))
    assert keyed.combined.rank[0] == 1 + 5


@RULES
def test_nan_from_one_detector_takes_the_item_out(rule):
    calibration, scores = integers(7, (3, 20)), integers(8, (3, 10))
    holed = pooled_ranks.rank(calibration.at[1, 4].set(jnp.nan), scores.at[2, 0].set(jnp.nan), null="member", rule=rule)
    without = pooled_ranks.rank(jnp.delete(calibration, 4, axis=1), scores[:, 1:], null="member", rule=rule)
    assert holed.combined.num_calibration == 19
    assert holed.combined.num_tests == 9
    np.testing.assert_array_equal(holed.combined.rank[1:], without.combined.rank)
    np.testing.assert_array_equal(holed.alone[:, 1:], without.alone)
    assert holed.combined.rank[0] == 22


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [jnp.nan, 1.0], [jnp.inf, 1.0]])
def test_weights_that_cannot_be_used_rank_nothing(weights):
    found = pooled_ranks.rank(
        integers(9, (2, 8)), integers(10, (2, 5)), null="member", rule="cauchy", weights=jnp.array(weights)
    )
    assert found.combined.num_tests == 0
    assert (found.combined.rank == 10).all()


def test_static_mistakes_raise():
    panel = jnp.ones((2, 3))
    with pytest.raises(ValueError, match="rule"):
        pooled_ranks.rank(panel, panel, null="member", rule="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        pooled_ranks.rank(panel, panel, null="clean", rule="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weights"):
        pooled_ranks.rank(panel, panel, null="member", rule="sum", weights=jnp.ones(3))
    with pytest.raises(ValueError, match="detector"):
        pooled_ranks.rank(jnp.ones((0, 3)), jnp.ones((0, 3)), null="member", rule="sum")
