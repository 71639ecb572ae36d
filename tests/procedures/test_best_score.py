"""The best of several scores: laws, what one score gives, messages."""

import jax
import numpy as np
import pytest

from tdd import Evidence, InputError, best_score, bh, conformal_p_values, e_bh, procedure, td4eval

RNG = np.random.default_rng(0)
CALIBRATION, SCORES = RNG.normal(size=(3, 80)), RNG.normal(size=(3, 40))
SCORES[1, :15] -= 4
KEY = jax.random.key(0)


@pytest.mark.slow("long")
def test_the_one_good_score_is_found():
    found = best_score(CALIBRATION, SCORES, alpha=0.2)
    assert found.weights.tolist() == [0, 1, 0]
    alone = bh(conformal_p_values(CALIBRATION[1], SCORES[1], null="nonmember"), 0.2)
    np.testing.assert_array_equal(found.selected, alone.reject)
    assert int(found.num_selected) >= 14
    assert found.num_rejected_alone.tolist()[1] == int(alone.num_rejected)
    assert found.method == "best_score"
    np.testing.assert_array_equal(found.selected, found.adjusted <= 0.2)
    np.testing.assert_array_equal(best_score(-CALIBRATION, -SCORES, alpha=0.2, null="member").selected, found.selected)
    clean = td4eval(-CALIBRATION, -SCORES, alpha=0.2, combine="best_score")
    np.testing.assert_array_equal(clean.selected, found.selected)


def test_one_score_is_bh():
    for row in range(3):
        found = best_score(CALIBRATION[row : row + 1], SCORES[row : row + 1], alpha=0.3)
        alone = bh(conformal_p_values(CALIBRATION[row], SCORES[row], null="nonmember"), 0.3)
        np.testing.assert_array_equal(found.selected, alone.reject)


@pytest.mark.slow("long")
def test_a_threshold_missed_by_less_than_single_precision_is_no_threshold():
    """10·700·reached = 2487·below + 1: BH at .1 stops before that score, by a relative difference of 1e-6."""
    n, m = 2486, 700
    reached = pow(10 * m, -1, n + 1)
    below = (10 * m * reached - 1) // (n + 1)
    assert 300 < below < m
    own = np.concatenate([np.linspace(2, 3, reached - 1), np.linspace(10, 11, n + 1 - reached)])
    test = np.concatenate([np.linspace(0, 1, below - 5), np.linspace(3.1, 3.2, 5), np.linspace(20, 21, m - below)])
    alone = bh(conformal_p_values(own, test, null="nonmember"), 0.1).reject
    assert alone.sum() == below - 5
    np.testing.assert_array_equal(best_score(own[None], test[None], alpha=0.1).selected, alone)


@pytest.mark.slow("long")
def test_integers_that_no_float_holds():
    own = 2**26 + np.arange(1, 40, dtype=np.int32) * 2
    test = np.concatenate([2**26 + np.zeros(8, np.int32), own[:2] + 1, 2**27 + np.arange(4, dtype=np.int32)])
    for null, sign in (("nonmember", 1), ("member", -1)):
        found = best_score(sign * own[None], sign * test[None], alpha=0.5, null=null).selected
        expected = bh(conformal_p_values(sign * own, sign * test, null=null), 0.5).reject
        np.testing.assert_array_equal(found, expected)


def test_order_and_masks_change_nothing():
    found = best_score(CALIBRATION, SCORES, alpha=0.2)
    rows, items, known = RNG.permutation(3), RNG.permutation(40), RNG.permutation(80)
    other = best_score(CALIBRATION[rows][:, known], SCORES[rows][:, items], alpha=0.2)
    np.testing.assert_array_equal(other.selected, np.asarray(found.selected)[items])
    np.testing.assert_allclose(other.weights, np.asarray(found.weights)[rows])
    gaps = SCORES.copy()
    gaps[0, 3] = np.nan
    left_out = best_score(CALIBRATION, gaps, alpha=0.2)
    masked = best_score(CALIBRATION, SCORES, alpha=0.2, mask=np.arange(40) != 3)
    assert int(left_out.num_tests) == 39
    assert np.isnan(left_out.adjusted[3])
    np.testing.assert_array_equal(left_out.selected, masked.selected)


@pytest.mark.slow("long")
def test_randomised_selects_at_least_as_much_and_its_key_decides():
    rng = np.random.default_rng(5)
    own, test = rng.normal(size=(3, 60)), rng.normal(size=(3, 40))
    test[:2, :15] -= 2
    plain = best_score(own, test, alpha=0.2).selected
    found = [np.asarray(best_score(own, test, alpha=0.2, key=jax.random.key(i)).selected) for i in range(10)]
    assert all((some >= plain).all() for some in found)
    assert len({some.sum() for some in found}) > 1
    clean = td4eval(-own, -test, alpha=0.2, combine="best_score", key=jax.random.key(3)).selected
    np.testing.assert_array_equal(clean, found[3])
    uniform = 1 - float(jax.random.uniform(jax.random.key(3)))
    e_values = 1 / best_score(own, test, alpha=0.2).p_values  # none is below 1 but 0
    np.testing.assert_array_equal(e_bh(np.where(e_values > 1, e_values, 0) / uniform, 0.2).reject, found[3])
    averaged = [td4eval(-own, -test, alpha=0.2, combine="e_values", key=key).selected.sum() for key in (None, KEY)]
    assert averaged[0] <= averaged[1]
    with pytest.raises(InputError, match="key must be a PRNG key"):
        best_score(own, test, alpha=0.2, key=7)


def test_a_randomised_rule_asks_for_a_key():
    evidence = Evidence(calibration=np.arange(18.0).reshape(2, 9), scores=np.arange(6.0).reshape(2, 3))
    with pytest.raises(InputError, match='key is missing: rule="randomized" draws random numbers'):
        procedure("best_score:rule=randomized").select(evidence, 0.1)


def test_inside_jit():
    traced = jax.jit(lambda c, s, alpha: best_score(c, s, alpha=alpha).selected)(CALIBRATION, SCORES, 0.2)
    np.testing.assert_array_equal(traced, best_score(CALIBRATION, SCORES, alpha=0.2).selected)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((CALIBRATION[:2], SCORES), {}, "rows|detectors"),
        ((CALIBRATION[0], SCORES[0]), {}, "two-dimensional"),
        ((CALIBRATION, SCORES), {"alpha": 1.5}, "alpha must lie"),
        ((CALIBRATION, SCORES), {"null": "clean"}, "null must be one of"),
    ],
)
def test_messages(arguments, options, words):
    with pytest.raises(InputError, match=words):
        best_score(*arguments, **{"alpha": 0.1, **options})
