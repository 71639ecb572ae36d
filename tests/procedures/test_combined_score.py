"""One score learned from several: laws, invariance to the bit, members, messages."""

import jax
import numpy as np
import pytest

import tdd
from tdd import InputError, combined_score
from tdd.kernels import discriminant as kernel

RNG = np.random.default_rng(0)
CALIBRATION, SCORES = RNG.normal(size=(5, 200)), RNG.normal(size=(5, 100))
SCORES[:, :30] -= 1.5
discriminant = jax.jit(kernel.discriminant, static_argnames=("null", "sparse"))
MEMBERS = RNG.normal(size=(5, 60)) - 1.5


def found_of(selection):
    return int(np.asarray(selection.selected)[:30].sum())


def test_weak_scores_find_together_what_none_finds_alone():
    found = combined_score(CALIBRATION, SCORES, alpha=0.1)
    assert found_of(found) > 1.5 * int(np.asarray(found.num_rejected_alone).max())
    assert found.method == "combined_score/split"
    assert int(found.num_calibration) == 100
    np.testing.assert_allclose(np.abs(found.weights).sum(), 1, rtol=1e-6)
    np.testing.assert_array_equal(found.selected, found.adjusted <= 0.1)
    clean = combined_score(-CALIBRATION, -SCORES, alpha=0.1, null="member")
    np.testing.assert_array_equal(clean.selected, found.selected)


@pytest.mark.slow("long")
def test_a_score_that_shares_the_noise_of_another_has_a_negative_weight():
    rng = np.random.default_rng(1)
    difficulty = 3 * rng.normal(size=500)
    scores = np.stack([difficulty + rng.normal(size=500), difficulty + rng.normal(size=500)])
    scores[0, 300:380] -= 4
    found = combined_score(scores[:, :300], scores[:, 300:], alpha=0.2)
    assert found.weights[0] > 0.3
    assert found.weights[1] < -0.3
    assert int(found.num_selected) > 4 * int(np.asarray(found.num_rejected_alone).max())


def test_the_conformal_p_values_are_those_of_the_learned_score():
    """From the kernel, by hand: every second item calibrates, and ties count against the candidate."""
    label = np.concatenate([np.tile([1, 0], 100), np.ones(100, int)]).astype(np.int32)
    pooled = np.concatenate([CALIBRATION, SCORES], axis=1).astype(np.float32)
    g = np.asarray(discriminant(pooled, label, null="nonmember", sparse=True).statistic)
    own, test = g[:200:2], g[200:]
    p = (1 + (own >= test[:, None]).sum(axis=1)) / 101
    np.testing.assert_allclose(combined_score(CALIBRATION, SCORES, alpha=0.2).p_values, p, rtol=1e-6)


def test_the_learned_score_is_the_same_to_the_bit_under_every_order():
    """Calibration items that are compared may change places with candidates: nothing learned sees which is which."""
    rng = np.random.default_rng(2)
    scores = np.round(rng.normal(size=(3, 90)), 1).astype(np.float32)  # with ties
    label = (np.arange(90) >= 30).astype(np.int32)
    program = lambda x: jax.device_get(discriminant(x, label, null="nonmember", sparse=True))  # noqa: E731
    plain = program(scores)
    for seed in range(20):
        order = np.concatenate([np.arange(30), 30 + np.random.default_rng(seed).permutation(60)])
        moved = program(scores[:, order])
        np.testing.assert_array_equal(moved.coefficients, plain.coefficients)
        np.testing.assert_array_equal(moved.statistic, plain.statistic[order])


def test_items_with_equal_scores_have_equal_values():
    scores = np.repeat(np.random.default_rng(3).normal(size=(4, 11)), 13, axis=1).astype(np.float32)
    label = (np.arange(143) % 3 > 0).astype(np.int32)
    g = np.asarray(discriminant(scores, label, null="member", sparse=True).statistic)
    for kind in (0, 1):
        for group in range(11):
            inside = (np.arange(143) // 13 == group) & ((label == 1) == kind)
            assert len(np.unique(g[inside])) == 1


@pytest.mark.parametrize("rule", ["split", pytest.param("cross_fit", marks=pytest.mark.slow("grid"))])
def test_masks_and_gaps_count_alike(rule):
    gaps = SCORES.copy()
    gaps[2, 3] = np.nan
    left_out = combined_score(CALIBRATION, gaps, alpha=0.3, rule=rule)
    masked = combined_score(CALIBRATION, SCORES, alpha=0.3, rule=rule, mask=np.arange(100) != 3)
    np.testing.assert_array_equal(left_out.selected, masked.selected)
    assert int(left_out.num_tests) == 99
    assert np.isnan(left_out.adjusted[3])


@pytest.mark.slow("long")
def test_cross_fitting_selects_by_averaged_e_values():
    strong = SCORES - 2 * (np.arange(100) < 30)
    found = combined_score(CALIBRATION, strong, alpha=0.2, rule="cross_fit")
    assert found_of(found) >= 27
    assert int(found.num_calibration) == 200
    e_values = np.nan_to_num(1 / np.asarray(found.p_values))
    np.testing.assert_array_equal(tdd.e_bh(np.where(e_values > 1, e_values, 0), 0.2).reject, found.selected)
    value = tdd.procedures.CombinedScore("cross_fit")
    assert int(found.min_selections) == value.min_selections(200, 100, 30, 0.2) == 5
    assert tdd.procedures.CombinedScore().min_selections(201, 100, 30, 0.2) == 5


@pytest.mark.slow("long")
def test_known_members_help_and_are_not_tested():
    scores = SCORES + 0.5 * (np.arange(100) < 30)
    alone, helped = (combined_score(CALIBRATION, scores, alpha=0.3, members=known) for known in (None, MEMBERS))
    assert helped.selected.shape == (100,)
    assert int(helped.num_tests) == 100
    assert found_of(helped) >= found_of(alone)
    value = tdd.procedures.CombinedScore(learn_from="members")
    assert value.needs == ("calibration", "members")
    evidence = tdd.Evidence(CALIBRATION, scores, members=MEMBERS)
    np.testing.assert_array_equal(value.select(evidence, 0.3).selected, helped.selected)


@pytest.mark.slow("long")
def test_a_key_divides_at_random_and_everything_can_be_traced():
    keys = [jax.random.key(seed) for seed in range(3)]
    found = [combined_score(CALIBRATION, SCORES, alpha=0.2, key=key) for key in keys]
    assert len({tuple(np.asarray(one.p_values).tolist()) for one in found}) == 3
    assert all(int(one.num_calibration) == 100 for one in found)
    traced = jax.jit(lambda c, s, alpha: combined_score(c, s, alpha=alpha).selected)(CALIBRATION, SCORES, 0.2)
    np.testing.assert_array_equal(traced, combined_score(CALIBRATION, SCORES, alpha=0.2).selected)


@pytest.mark.slow("long")
def test_as_a_value_in_a_selection_with_bounds(tmp_path):
    rows = [
        {"id": f"{role}{i}", "role": role, **{f"s{k}": panel[k, i] for k in range(5)}}
        for role, panel in (("calibration", CALIBRATION), ("candidate", SCORES), ("member", MEMBERS))
        for i in range(panel.shape[1])
    ]
    names = [f"s{k}" for k in range(5)]
    audit = tdd.select(
        rows, score=names, alpha=0.2, method="combined_score", member_role="member", out=tmp_path / "run"
    )
    plain = combined_score(CALIBRATION, SCORES, alpha=0.2)
    np.testing.assert_array_equal(audit.items["selected"], plain.selected)
    assert audit.run["options"]["rule"] == "split"
    assert audit.run["certificate"]["applies"]
    helped = tdd.select(rows, score=names, alpha=0.2, method="combined_score:learn_from=members", member_role="member")
    expected = combined_score(CALIBRATION, SCORES, alpha=0.2, members=MEMBERS)
    np.testing.assert_array_equal(helped.items["selected"], expected.selected)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((CALIBRATION[:2], SCORES), {}, "detectors"),
        ((CALIBRATION[0], SCORES[0]), {}, "two-dimensional"),
        ((CALIBRATION, SCORES), {"alpha": 1.5}, "alpha must lie"),
        ((CALIBRATION, SCORES), {"null": "clean"}, "null must be one of"),
        ((CALIBRATION, SCORES), {"rule": "folds"}, "rule must be one of"),
        ((CALIBRATION, SCORES), {"key": 7}, "key must be a PRNG key"),
        ((CALIBRATION, SCORES), {"members": MEMBERS[:3]}, "members has 3 detectors and scores has 5"),
        ((CALIBRATION, SCORES), {"members": MEMBERS, "null": "member"}, 'members is used with null="nonmember" only'),
    ],
)
def test_messages(arguments, options, words):
    with pytest.raises(InputError, match=words):
        combined_score(*arguments, **{"alpha": 0.1, **options})
