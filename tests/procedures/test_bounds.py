"""The public calls: messages, NaN and masks, both directions of the null, templates, jit and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_knockoff as ref

from tdd.procedures import bounds as calls
from tdd.procedures.bounds import dkw_fdp_bounds, fdp_bounds, fdp_bounds_of_ranks
from tdd.procedures.fdp_template import fdp_template
from tdd.procedures.knockoff_bounds import knockoff_fdp_bounds
from tdd.procedures.online import e_lond, lond, lord_plus_plus, saffron
from tdd.procedures.p_values import conformal_p_values
from tdd.procedures.testing import hommel, local_fdr
from tdd.validate import InputError

KEY = jax.random.key(0)
N, M = 40, 25


@pytest.fixture(scope="module")
def template():
    return fdp_template(N, M, key=KEY, delta=0.1)


def samples(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=N), rng.normal(size=M) - 3 * (np.arange(M) < 12)


def test_members_and_clean_items_mirror_each_other(template):
    calibration, scores = samples()
    found = fdp_bounds(calibration, scores, null="nonmember", template=template)
    mirrored = fdp_bounds(-calibration, -scores, null="member", template=template)
    np.testing.assert_array_equal(found.false_bound, mirrored.false_bound)
    assert 1 <= found.min_members == mirrored.min_clean <= 14
    with pytest.raises(ValueError, match="min_clean"):
        _ = mirrored.min_members
    with pytest.raises(ValueError, match="min_members"):
        _ = found.min_clean


def test_key_and_template_agree(template):
    calibration, scores = samples()
    one = fdp_bounds(calibration, scores, null="nonmember", template=template)
    other = fdp_bounds(calibration, scores, null="nonmember", key=KEY, delta=0.1)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.delta == pytest.approx(0.1)


def test_cuts(template):
    calibration, scores = samples()
    found = fdp_bounds(calibration, scores, null="nonmember", template=template)
    p = np.asarray(conformal_p_values(calibration, scores, null="nonmember"))
    for rank in (0, 1, 2, 10, N, N + 1, N + 9):
        cut = found.at(rank)
        chosen = np.asarray(found.rank) <= rank
        assert cut.num_selected == chosen.sum()
        assert cut.min_true + cut.false_bound == cut.num_selected
        assert found.fdp_at(rank) == pytest.approx(int(cut.false_bound) / max(1, int(cut.num_selected)))
        assert found.of(chosen).false_bound <= cut.false_bound
    np.testing.assert_allclose(found.rank / (N + 1), p, rtol=1e-6)
    np.testing.assert_array_equal(found.item_fdp_bound, np.asarray(found.fdp_bound)[np.asarray(found.rank) - 1])
    everything = found.at(N + 1)
    assert everything.false_bound == found.max_nulls == M - found.min_members
    worst = np.zeros(M, bool)
    worst[np.argsort(-np.asarray(found.rank))[:5]] = True
    assert found.of(worst).false_bound == 5
    assert found.of(np.zeros(M, bool)).fdp_bound == 0


@pytest.mark.slow("long")
def test_nan_and_masked_items_are_left_out(template):
    calibration, scores = samples()
    plain = fdp_bounds(calibration, scores[:20], null="nonmember", template=template)
    padded = fdp_bounds(
        np.append(calibration, [np.nan, -9.0]),
        np.concatenate([scores[:20], [np.nan, -8.0, -8.0]]),
        null="nonmember",
        template=template,
        calibration_mask=np.arange(N + 2) <= N,
        mask=np.arange(23) <= 20,
    )
    assert (padded.num_calibration, padded.num_tests) == (N, 20)
    np.testing.assert_array_equal(np.asarray(padded.false_bound)[: N + 1], plain.false_bound)
    np.testing.assert_array_equal(np.asarray(padded.item_fdp_bound)[:20], plain.item_fdp_bound)
    assert np.isnan(np.asarray(padded.item_fdp_bound)[20:]).all()
    assert (np.asarray(padded.rank)[20:] == N + 4).all()
    assert padded.max_nulls == plain.max_nulls


def test_ranks(template):
    calibration, scores = samples()
    by_scores = fdp_bounds(calibration, scores, null="nonmember", template=template)
    by_ranks = fdp_bounds_of_ranks(np.asarray(by_scores.rank), N, null="nonmember", template=template)
    for a, b in zip(jax.tree.leaves(by_scores), jax.tree.leaves(by_ranks), strict=True):
        np.testing.assert_array_equal(a, b)


def test_float64_scores_keep_their_order(template):
    calibration, scores = samples()
    close = 1 + 1e-12 * calibration, 1 + 1e-12 * scores
    a = fdp_bounds(calibration, scores, null="nonmember", template=template)
    b = fdp_bounds(*close, null="nonmember", template=template)
    np.testing.assert_array_equal(a.rank, b.rank)


@pytest.mark.slow("long")
def test_jit_and_vmap(template):
    many = [samples(seed) for seed in range(5)]
    calibration, scores = (np.stack(part).astype(np.float32) for part in zip(*many, strict=True))
    one = lambda c, s: fdp_bounds(c, s, null="nonmember", template=template)  # noqa: E731
    batched = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(calibration, scores))
    for i in range(5):
        np.testing.assert_array_equal(batched.false_bound[i], one(calibration[i], scores[i]).false_bound)
    drawn = jax.jit(lambda c, s: fdp_bounds(c, s, null="nonmember", key=KEY, delta=0.1))(calibration[0], scores[0])
    np.testing.assert_array_equal(drawn.false_bound, batched.false_bound[0])
    inside = jax.jit(lambda c, s: one(c, s).of(s < -2).false_bound)(calibration[0], scores[0])
    assert inside == one(calibration[0], scores[0]).of(scores[0] < -2).false_bound


def test_a_traced_mismatch_bounds_nothing(template):
    calibration, scores = samples()
    run = jax.jit(lambda c, s: fdp_bounds(c, s, null="nonmember", template=template))
    calibration[0] = np.nan
    found = run(calibration.astype(np.float32), scores.astype(np.float32))
    assert found.min_members == 0
    np.testing.assert_array_equal(found.false_bound, found.num_selected)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (5, 1), (3, 0)])
def test_smallest_sizes(n, m):
    found = fdp_bounds(np.arange(n) + 1.0, np.zeros(m), null="nonmember", key=KEY, delta=0.3)
    assert (found.false_bound <= found.num_selected).all()
    assert found.num_selected[-1] == m
    assert 0 <= found.min_members <= m


BAD_BOUNDS = [
    ({"null": "members"}, "null must be one of"),
    ({"key": None}, "key is missing"),
    ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
    ({"delta": "5%"}, "delta must be one number"),
    ({"num_draws": 0}, "num_draws must be a whole number from 1"),
    ({"num_draws": 10}, "num_draws=10 is too few for delta=0.05"),
    ({"num_draws": 10, "delta": jnp.float32(0.05)}, "num_draws=10 is too few for delta="),
    ({"calibration": np.zeros((2, 5)), "scores": np.zeros((2, 5))}, "calibration has shape .* one score"),
    ({"scores": [np.inf]}, "scores\\[0\\] is inf"),
    ({"calibration": []}, "calibration is empty"),
    ({"calibration": [np.nan, np.nan]}, "calibration has no real item"),
    ({"mask": [True]}, "mask has shape"),
]


@pytest.mark.parametrize(("change", "message"), BAD_BOUNDS, ids=[message for _, message in BAD_BOUNDS])
def test_messages(change, message):
    given = {"calibration": [1.0, 2.0, 3.0], "scores": [0.5, 4.0], "null": "nonmember", "key": KEY, "delta": 0.05}
    given |= change
    with pytest.raises(InputError, match=message):
        fdp_bounds(given.pop("calibration"), given.pop("scores"), **given)


def test_messages_of_templates(template):
    calibration, scores = samples()
    with pytest.raises(InputError, match="template was made for num_calibration=40, but 39"):
        fdp_bounds(calibration[1:], scores, null="nonmember", template=template)
    with pytest.raises(InputError, match="template was made for at most 25 items, but scores has 26"):
        fdp_bounds(calibration, np.append(scores, 0), null="nonmember", template=template)
    with pytest.raises(InputError, match="template already holds"):
        fdp_bounds(calibration, scores, null="nonmember", template=template, delta=0.1)
    with pytest.raises(InputError, match="num_tests must be a whole number from 1"):
        fdp_template(5, 2.5, key=KEY)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [([0, 1], "ranks\\[0\\] is 0"), ([42], "1..41"), ([0.5], "whole numbers"), ([[1]], "one-dimensional")],
)
def test_messages_of_ranks(ranks, message):
    with pytest.raises(InputError, match=message):
        fdp_bounds_of_ranks(ranks, N, null="nonmember", key=KEY)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dkw_fdp_bounds([0.1, 1.2], num_calibration=9), "p_values\\[1\\] is 1.2"),
        (lambda: dkw_fdp_bounds([0.1], [-0.5], num_calibration=9), "thresholds\\[0\\]"),
        (lambda: dkw_fdp_bounds([0.1], num_calibration=0), "num_calibration must be a whole number from 1"),
        (lambda: dkw_fdp_bounds([0.1], num_calibration=9, delta=1), "delta must lie"),
        (lambda: knockoff_fdp_bounds([np.inf]), "statistic\\[0\\] is inf"),
        (lambda: knockoff_fdp_bounds([1.0], delta=2), "delta must lie"),
        (lambda: knockoff_fdp_bounds(np.zeros((2, 2))), "statistic must be one-dimensional"),
        (lambda: hommel([2.0], 0.1), "p_values\\[0\\] is 2.0"),
        (lambda: hommel([0.2], 0.0), "alpha must lie"),
        (lambda: local_fdr([0.2], null_proportion=0), "null_proportion must be one number in"),
        (lambda: local_fdr([-1.0]), "p_values\\[0\\]"),
        (lambda: lond([0.2], 0.1, dependence="none"), "dependence must be one of"),
        (lambda: lond([[0.2]], 0.1), "one-dimensional"),
        (lambda: lord_plus_plus([0.2], 0.1, initial_wealth=1.0), "initial_wealth must lie"),
        (lambda: saffron([0.2], 0.1, lambda_=1), "lambda_ must be one number"),
        (lambda: e_lond([-1.0], 0.1), "e-values are not negative"),
        (lambda: e_lond([1.0], 7), "alpha must lie"),
    ],
)
def test_messages_of_the_others(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_knockoffs():
    """delta = 1/2: c = log 2/log 1.5 = 1.709..; nothing is negative, so at most one of any cut is null."""
    found = knockoff_fdp_bounds([5.0, 4.0, 3.0, np.nan, 0.0], delta=0.5)
    assert found.num_selected.tolist() == [1, 2, 3, 0, 0]
    assert found.false_bound.tolist() == [1, 1, 1, 0, 0]
    assert found.min_true == 2
    np.testing.assert_allclose(found.fdp_bound, [1, 1 / 2, 1 / 3, np.nan, np.nan], rtol=1e-6)
    masked = knockoff_fdp_bounds([5.0, 4.0, 3.0], delta=0.5, mask=[True, False, True])
    assert masked.num_selected.tolist() == [1, 0, 2]
    assert np.isnan(np.asarray(masked.fdp_bound)[1])


def test_knockoffs_in_both_precisions():
    w = np.random.default_rng(17).normal(size=80) + 1
    expected = ref.fdp_bound(ref.kept(w), 0.1)
    for values in (w, w.astype(np.float32), jnp.asarray(w)):
        found = knockoff_fdp_bounds(values, delta=0.1)
        np.testing.assert_array_equal(found.false_bound, expected["false_bound"])
        assert found.min_true == expected["min_true"] > 0
        assert found.fdp_bound.dtype == jnp.float32
    close = 1 + np.arange(4) * 1e-12  # four cuts in double precision, one in single
    assert knockoff_fdp_bounds(close, delta=0.1).num_selected.tolist() == [4, 3, 2, 1]


def test_knockoffs_under_transformations():
    w = jnp.array([5.0, 4.0, 3.0, -1.0])
    many = jax.jit(jax.vmap(lambda delta: knockoff_fdp_bounds(w, delta=delta).min_true))(jnp.array([0.5, 2.0]))
    assert many.tolist() == [int(knockoff_fdp_bounds(w, delta=0.5).min_true), 0]


@pytest.mark.slow("long")
def test_decisions_take_every_kind_of_number():
    p = [0.001, 0.02, 0.5]
    for values in (p, np.array(p), np.array(p, np.float32), jnp.array(p)):
        assert hommel(values, 0.05).reject.tolist() == [True, True, False]
        assert lond(values, 0.05).reject.tolist() == [True, False, False]
        assert local_fdr(values).local_fdr[0] == pytest.approx(0.003)
    assert lond(np.array([0, 1]), 0.05).reject.tolist() == [True, False]
    assert saffron(p, 0.05, mask=[True, False, True]).num_tests == 2
    assert jax.vmap(lambda x: lord_plus_plus(x, 0.05).reject)(jnp.array([p, p])).shape == (2, 3)
    assert jax.jit(lambda x, a: hommel(x, a).reject)(jnp.array(p), 0.05).tolist() == [True, True, False]


def test_guarantee_rows_are_records():
    assert {row[2].kind for row in calls.GUARANTEE_ROWS} == {"finite-sample"}
    assert all(row[2] in calls.GUARANTEES.values() for row in calls.GUARANTEE_ROWS)
