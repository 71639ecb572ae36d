"""Clusters and groups: draws, degenerate layouts, the plain p-values as a special case."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import clusters, conformal

LABELS = jnp.asarray([0, 0, 1, 1, 1, 3, 0, 1], jnp.int32)


def test_each_real_item_of_a_cluster_is_drawn_equally_often():
    mask = jnp.asarray([True, True, True, False, True, True, True, False])
    draw = jax.jit(jax.vmap(lambda key: clusters.draw_items(LABELS, num_clusters=4, key=key, mask=mask)))
    index, some = draw(jax.random.split(jax.random.key(0), 6_000))
    assert some.tolist() == [[True, True, False, True]] * 6_000
    for cluster, items in ((0, [0, 1, 6]), (1, [2, 4]), (3, [5])):
        found, count = np.unique(np.asarray(index)[:, cluster], return_counts=True)
        assert found.tolist() == items
        share = 1 / len(items)
        assert (np.abs(count / 6_000 - share) <= 4.5 * np.sqrt(share * (1 - share) / 6_000)).all()
    together = np.mean((np.asarray(index)[:, 0] == 0) & (np.asarray(index)[:, 1] == 2))
    assert abs(together - 1 / 6) < 4.5 * np.sqrt(5 / 36 / 6_000)


def test_nothing_to_draw_from():
    index, some = clusters.draw_items(jnp.zeros(0, jnp.int32), num_clusters=2, key=jax.random.key(0))
    assert index.tolist() == [0, 0]
    assert some.tolist() == [False, False]


@pytest.mark.parametrize("null", conformal.NULLS)
def test_clusters_of_one_item_and_one_group_are_plain(null):
    rng = np.random.default_rng(0)
    calibration = jnp.asarray(rng.integers(0, 9, 20), jnp.float32)
    scores = jnp.asarray(rng.integers(-2, 9, 15), jnp.float32)
    plain = conformal.p_values(conformal.rank(calibration, scores, null=null))
    alone = clusters.hierarchical_p_values(
        calibration, scores, jnp.arange(20, dtype=jnp.int32), num_clusters=20, null=null
    )
    np.testing.assert_array_equal(alone, plain)
    one = clusters.group_p_values(
        calibration, scores, jnp.full(20, 7, jnp.int32), jnp.full(15, 7, jnp.int32), null=null
    )
    np.testing.assert_array_equal(one.p_values, plain)


def test_cluster_sizes_weigh_nothing():
    """A cluster written down three times over counts as before."""
    calibration, labels = jnp.asarray([1.0, 5.0, 3.0]), jnp.asarray([0, 0, 1], jnp.int32)
    thrice = jnp.concatenate([jnp.tile(calibration[:2], 3), calibration[2:]])
    its = jnp.concatenate([jnp.tile(labels[:2], 3), labels[2:]])
    scores = jnp.asarray([0.0, 2.0, 4.0, 6.0])
    once = clusters.hierarchical_p_values(calibration, scores, labels, num_clusters=2, null="nonmember")
    again = clusters.hierarchical_p_values(thrice, scores, its, num_clusters=2, null="nonmember")
    np.testing.assert_allclose(once, [1 / 3, 1.5 / 3, 2.5 / 3, 1], rtol=1e-6)
    np.testing.assert_allclose(again, once, rtol=1e-6)


def test_a_group_without_calibration_items_has_p_1():
    found = clusters.group_p_values(
        jnp.asarray([1.0, np.nan]),
        jnp.asarray([0.0, 0.0, 0.0]),
        jnp.asarray([0, 1], jnp.int32),
        jnp.asarray([0, 1, 2], jnp.int32),
        null="nonmember",
    )
    assert found.p_values.tolist() == [0.5, 1.0, 1.0]
    assert found.num_calibration.tolist() == [1, 0, 0]


def test_integer_scores_in_groups():
    """The ends of the integers keep their order under both nulls."""
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    calibration, labels = jnp.asarray([low, 0, high], jnp.int32), jnp.zeros(3, jnp.int32)
    scores = jnp.asarray([low, high], jnp.int32)
    for null, expected in (("nonmember", [2, 4]), ("member", [4, 2])):
        got = clusters.group_p_values(calibration, scores, labels, jnp.zeros(2, jnp.int32), null=null)
        assert got.rank.tolist() == expected


def test_masked_items_of_a_group_have_a_rank_that_nothing_reaches():
    got = clusters.group_p_values(
        jnp.arange(3.0), jnp.asarray([np.nan, 1.0]), jnp.zeros(3, jnp.int32), jnp.zeros(2, jnp.int32), null="member"
    )
    assert got.rank.tolist() == [5, 3]


def test_median_of_an_even_cluster_does_not_overflow():
    big = jnp.asarray([3e38, 3.2e38, 1.0, 2.0, 9.0], jnp.float32)
    got = clusters.cluster_scores(big, jnp.asarray([0, 0, 1, 1, 1], jnp.int32), num_clusters=2, aggregate="median")
    np.testing.assert_allclose(got.scores, [3.1e38, 2.0], rtol=1e-6)


def test_unknown_options():
    with pytest.raises(ValueError, match="aggregate"):
        clusters.cluster_scores(jnp.zeros(8), LABELS, num_clusters=4, aggregate="max")
    with pytest.raises(ValueError, match="null"):
        clusters.group_p_values(jnp.zeros(8), jnp.zeros(8), LABELS, LABELS, null="both")
    with pytest.raises(ValueError, match="null"):
        clusters.hierarchical_p_values(jnp.zeros(8), jnp.zeros(8), LABELS, num_clusters=4, null="both")
