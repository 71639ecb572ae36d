"""Clusters and groups: draws, degenerate layouts, the plain p-values as a special case."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.kernels import clusters, conformal

LABELS = np.array([0, 0, 1, 1, 1, 3, 0, 1], np.int32)
draw_items = jax.jit(clusters.draw_items, static_argnames="num_clusters")
hierarchical_p_values = jax.jit(clusters.hierarchical_p_values, static_argnames=("num_clusters", "null"))
group_p_values = jax.jit(clusters.group_p_values, static_argnames="null")
cluster_scores = jax.jit(clusters.cluster_scores, static_argnames=("num_clusters", "aggregate"))


@functools.partial(jax.jit, static_argnames="null")
def plain_p_values(calibration, scores, null):
    return conformal.p_values(conformal.rank(calibration, scores, null=null))


def test_each_real_item_of_a_cluster_is_drawn_equally_often():
    mask = np.array([True, True, True, False, True, True, True, False])
    draw = jax.jit(jax.vmap(lambda key: draw_items(LABELS, num_clusters=4, key=key, mask=mask)))
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
    index, some = draw_items(np.zeros(0, np.int32), num_clusters=2, key=jax.random.key(0))
    assert index.tolist() == [0, 0]
    assert some.tolist() == [False, False]


@pytest.mark.parametrize("null", conformal.NULLS)
def test_clusters_of_one_item_and_one_group_are_plain(null):
    rng = np.random.default_rng(0)
    calibration = rng.integers(0, 9, 20).astype(np.float32)
    scores = rng.integers(-2, 9, 15).astype(np.float32)
    plain = plain_p_values(calibration, scores, null)
    alone = hierarchical_p_values(calibration, scores, np.arange(20, dtype=np.int32), num_clusters=20, null=null)
    np.testing.assert_array_equal(alone, plain)
    one = group_p_values(calibration, scores, np.full(20, 7, np.int32), np.full(15, 7, np.int32), null=null)
    np.testing.assert_array_equal(one.p_values, plain)


def test_cluster_sizes_weigh_nothing():
    """A cluster written down three times over counts as before."""
    calibration, labels = np.array([1.0, 5.0, 3.0], np.float32), np.array([0, 0, 1], np.int32)
    thrice = np.concatenate([np.tile(calibration[:2], 3), calibration[2:]])
    its = np.concatenate([np.tile(labels[:2], 3), labels[2:]])
    scores = np.array([0.0, 2.0, 4.0, 6.0], np.float32)
    once = hierarchical_p_values(calibration, scores, labels, num_clusters=2, null="nonmember")
    again = hierarchical_p_values(thrice, scores, its, num_clusters=2, null="nonmember")
    exact = [1 / 3, 1.5 / 3, 2.5 / 3, 1]
    for found in (once, again):
        rounding.assert_close(found, exact, roundings=4)  # a share of each of two clusters, their sum, a quotient


def test_a_group_without_calibration_items_has_p_1():
    found = group_p_values(
        np.array([1.0, np.nan], np.float32),
        np.array([0.0, 0.0, 0.0], np.float32),
        np.array([0, 1], np.int32),
        np.array([0, 1, 2], np.int32),
        null="nonmember",
    )
    assert found.p_values.tolist() == [0.5, 1.0, 1.0]
    assert found.num_calibration.tolist() == [1, 0, 0]


def test_integer_scores_in_groups():
    """The ends of the integers keep their order under both nulls."""
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    calibration, labels = np.array([low, 0, high], np.int32), np.zeros(3, np.int32)
    scores = np.array([low, high], np.int32)
    for null, expected in (("nonmember", [2, 4]), ("member", [4, 2])):
        got = group_p_values(calibration, scores, labels, np.zeros(2, np.int32), null=null)
        assert got.rank.tolist() == expected


def test_masked_items_of_a_group_have_a_rank_that_nothing_reaches():
    calibration, scores = np.arange(3, dtype=np.float32), np.array([np.nan, 1.0], np.float32)
    got = group_p_values(calibration, scores, np.zeros(3, np.int32), np.zeros(2, np.int32), null="member")
    assert got.rank.tolist() == [5, 3]


def test_median_of_an_even_cluster_does_not_overflow():
    big = np.array([3e38, 3.2e38, 1.0, 2.0, 9.0], np.float32)
    got = cluster_scores(big, np.array([0, 0, 1, 1, 1], np.int32), num_clusters=2, aggregate="median")
    rounding.assert_close(got.scores, [3.1e38, 2.0], roundings=4)  # two numbers, their halves and a sum


def test_unknown_options():
    zeros = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="aggregate"):
        cluster_scores(zeros, LABELS, num_clusters=4, aggregate="max")
    with pytest.raises(ValueError, match="null"):
        group_p_values(zeros, zeros, LABELS, LABELS, null="both")
    with pytest.raises(ValueError, match="null"):
        hierarchical_p_values(zeros, zeros, LABELS, num_clusters=4, null="both")


@pytest.mark.parametrize(
    "kinds", [("uint8", "float32"), ("uint8", "int32"), ("float32", "int32"), ("int32", "float32")]
)
def test_scores_of_two_dtypes_are_turned_round_together(kinds):
    """-x wraps in unsigned integers, and is not comparable with ~x."""
    values, groups = jnp.array([0, 1, 2]), jnp.zeros(3, jnp.int32)
    first, second = (values.astype(kind) for kind in kinds)
    p = clusters.group_p_values(first, second, groups, groups, null="member").p_values
    assert p.tolist() == [1, 0.75, 0.5]
