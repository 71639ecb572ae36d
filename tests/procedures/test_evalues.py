"""`tdd.e_bh`, `tdd.conformal_e_values`, `tdd.procedures.average_e_values`: input, precision, transformations."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_knockoff as ref

from tdd.kernels import evalues
from tdd.procedures.evalues import GUARANTEE_ROWS, average_e_values, conformal_e_values, e_bh
from tdd.validate import InputError


def data(seed=0, rows=4, n=40, m=25):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, n)), rng.normal(size=(rows, m)) - 2 * (np.arange(m) < 10)


def test_e_bh_in_both_precisions():
    e = np.random.default_rng(0).choice([0, 1, 2.5, 5, 10, 20, 50], 20)
    for alpha in (0.1, 0.2, 0.4):
        expected = ref.e_bh(ref.kept(e), alpha)
        for values in (e, e.astype(np.float32), jnp.asarray(e), e.tolist()):
            step = e_bh(values, alpha)
            np.testing.assert_array_equal(step.reject, expected["reject"])
            np.testing.assert_array_equal(step.reject, step.adjusted <= alpha)
            np.testing.assert_allclose(step.adjusted, expected["adjusted"], rtol=1e-6)
            assert step.adjusted.dtype == jnp.float32


def test_e_values_beyond_single_precision():
    e = np.array([1e60, 1e45, 0.0, 3.0])
    assert e_bh(e, 0.1).reject.tolist() == [True, True, False, False]
    assert e_bh(np.array([np.inf, np.nan]), 0.1).reject.tolist() == [True, False]


def test_e_bh_inside_jit_and_vmap():
    e = jnp.array([[40.0, 20, 10, 0], [1, 1, 1, 1]])
    many = jax.jit(jax.vmap(lambda row, level: e_bh(row, level), in_axes=(0, None)))(e, jnp.float32(0.1))
    assert many.reject.tolist() == [[True, True, False, False], [False] * 4]
    masked = e_bh(e[0], 0.1, mask=jnp.array([True, False, True, True]))
    assert masked.num_tests == 3
    assert masked.reject.tolist() == [True, False, False, False]


@pytest.mark.parametrize("null", ["nonmember", "member"])
@pytest.mark.slow("long")
def test_a_row_is_a_split_or_a_detector(null):
    calibration, scores = data()
    sign = 1 if null == "nonmember" else -1
    calibration, scores = sign * calibration, sign * scores
    each = [conformal_e_values(c, s, alpha=0.2, null=null) for c, s in zip(calibration, scores, strict=True)]
    for c, s, e in zip(calibration, scores, each, strict=True):
        np.testing.assert_allclose(e, ref.conformal_e_values(c, s, 0.2, null), rtol=1e-6)
    together = conformal_e_values(calibration, scores, alpha=0.2, null=null)
    np.testing.assert_allclose(together, np.mean(each, axis=0), rtol=1e-6)
    np.testing.assert_allclose(average_e_values(np.array(each)), together, rtol=1e-6)
    assert (together > 0).any()


def test_splits_of_different_sizes_share_the_scores():
    calibration, scores = data(1)
    calibration[1, 30:] = np.nan
    given = np.ones(calibration.shape, bool)
    given[2, :10] = False
    found = conformal_e_values(calibration, scores[0], alpha=0.2, null="nonmember", calibration_mask=given)
    parts = [calibration[0], calibration[1, :30], calibration[2, 10:], calibration[3]]
    expected = np.mean([ref.conformal_e_values(own, scores[0], 0.2, "nonmember") for own in parts], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_item_needs_a_score_in_every_row():
    calibration, scores = data(2)
    scores[1, 3] = np.nan
    found = conformal_e_values(calibration, scores, alpha=0.2, null="nonmember", mask=np.arange(25) != 5)
    assert np.flatnonzero(np.isnan(found)).tolist() == [3, 5]


@pytest.mark.slow("long")
def test_conformal_e_values_inside_jit_and_vmap():
    calibration, scores = (jnp.asarray(x) for x in data(3))
    alone = conformal_e_values(calibration, scores, alpha=0.2, null="nonmember")
    call = jax.jit(lambda c, s, level: conformal_e_values(c, s, alpha=level, null="nonmember"))
    np.testing.assert_allclose(call(calibration, scores, jnp.float32(0.2)), alone, rtol=1e-6)
    many = jax.vmap(call, in_axes=(0, 0, None))(calibration, scores, jnp.float32(0.2))
    np.testing.assert_allclose(many.mean(axis=0), alone, rtol=1e-6)
    assert jnp.isnan(call(calibration, scores, jnp.float32(2.0))).all()


def test_an_average():
    assert average_e_values([[1.0, math.inf, math.nan], [3.0, 0.0, 1.0]]).tolist()[:2] == [2.0, math.inf]
    assert average_e_values(np.array([[1, 2], [2, 2]])).tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: e_bh([1.0, -2.0], 0.1), r"e_values\[1\] is -2.0; e-values are not negative"),
        (lambda: e_bh([[1.0]], 0.1), "e_values must be one-dimensional"),
        (lambda: e_bh([1.0], 2), "alpha must lie strictly between 0 and 1"),
        (lambda: e_bh([1.0], 0.1, mask=[True, False]), r"mask has shape \(2,\)"),
        (lambda: average_e_values(np.zeros((0, 3))), "e_values has no row"),
        (lambda: average_e_values([1.0]), "e_values must be two-dimensional"),
        (lambda: average_e_values([[1.0, -1.0]]), r"e_values\[0, 1\] is -1.0"),
        (lambda: conformal_e_values([], [1.0], alpha=0.1, null="member"), "calibration is empty"),
        (lambda: conformal_e_values([[1.0], [np.nan]], [1.0], alpha=0.1, null="member"), "has no real item"),
        (lambda: conformal_e_values([1.0], [[1.0]], alpha=0.1, null="member"), "one row of calibration scores a split"),
        (lambda: conformal_e_values(np.ones((2, 3)), np.ones((3, 2)), alpha=0.1, null="member"), "as many rows"),
        (lambda: conformal_e_values([1.0], [np.inf], alpha=0.1, null="member"), r"scores\[0\] is inf"),
        (lambda: conformal_e_values([1.0], [1.0], alpha=0.1, null="clean"), "null must be one of"),
        (lambda: conformal_e_values([1.0], [1.0], alpha=-1, null="member"), "alpha must lie strictly"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_guarantees_are_listed():
    assert [row[0] for row in GUARANTEE_ROWS] == ["tdd.e_bh", "tdd.closed_e_bh", "tdd.conformal_e_values"]
    assert all(row[2].kind == "finite-sample" for row in GUARANTEE_ROWS)


@pytest.mark.parametrize(
    ("of_nulls", "others"),
    [
        ((30.0, 5.0, 2.5, 0.0), (12.5, 12.5)),
        ((50.0, *(10 / 3,) * 7), (50 / 3, 50 / 3)),
    ],
)
def test_closed_e_bh_keeps_its_level_where_others_tie(of_nulls, others):
    """Nulls that are a random order of `of_nulls` with the probability that gives each a mean of 1, else 0."""
    num_nulls = len(of_nulls)
    orders = np.array([*{*itertools.permutations(of_nulls)}])
    rows = np.concatenate([orders, np.broadcast_to(others, (len(orders), len(others)))], axis=1).astype(np.float32)
    found = jax.vmap(lambda row: evalues.closed_e_bh(row, 0.1).reject)(jnp.asarray(rows))
    false = np.sum(found[:, :num_nulls], axis=1) / np.maximum(np.sum(found, axis=1), 1)
    assert np.mean(false) * num_nulls / sum(of_nulls) <= 0.1
