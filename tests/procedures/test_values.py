"""Procedures as values: their options are checked when they are made, and masks count everywhere."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.procedures.procedure import check_no_options

RNG = np.random.default_rng(0)
CALIBRATION, SCORES = RNG.normal(size=60), RNG.normal(size=20) - 3
KNOCKOFFS, CALIBRATION_KNOCKOFFS = RNG.normal(size=(20, 1)), RNG.normal(size=(60, 1))
MASK, CALIBRATION_MASK = np.arange(20) % 4 != 0, np.arange(60) % 3 != 0
MASKED = tdd.Evidence(
    np.where(CALIBRATION_MASK, CALIBRATION, -9.0),
    np.where(MASK, SCORES, -9.0),
    mask=MASK,
    calibration_mask=CALIBRATION_MASK,
    knockoffs=KNOCKOFFS,
    calibration_knockoffs=CALIBRATION_KNOCKOFFS,
)
TAKEN_OUT = tdd.Evidence(
    CALIBRATION[CALIBRATION_MASK],
    SCORES[MASK],
    knockoffs=KNOCKOFFS[MASK],
    calibration_knockoffs=CALIBRATION_KNOCKOFFS[CALIBRATION_MASK],
)
DELTA = 0.05  # drawn 1,899 times


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (tdd.KTD, {"rule": "derandomized", "offset": 0}, "offset=0 is used by"),
        (tdd.KTD, {"offset": 2}, "offset must be 1"),
        (tdd.TD4Eval, {"combine": "cauchy", "rule": "sum"}, "rule is used by"),
        (tdd.TD4Eval, {"combine": "max", "weights": (1.0, 2.0)}, "weights is used by"),
        (tdd.TD4Eval, {"weights": (1.0, -2.0)}, "weights"),
        (tdd.JECS, {"neighbours": 3}, "neighbours must be a function"),
    ],
)
def test_an_option_that_the_procedure_refuses_is_refused_when_it_is_made(cls, options, message):
    with pytest.raises(tdd.InputError, match=message):
        cls(**options)


def test_the_advice_for_an_option_that_is_a_function_can_be_followed():
    with pytest.raises(tdd.InputError) as error:
        check_no_options(tdd.JECS(), {"neighbours": math.isqrt})
    assert "tdd.JECS(neighbours=" in str(error.value)
    assert "method='" not in str(error.value)


@pytest.mark.parametrize("rule", ["simes", "dkwm", "monte_carlo", "asymptotic"])
def test_given_the_calibration_sample_masked_items_do_not_count(rule):
    value, key = tdd.procedures.ConditionalBH(rule, delta=DELTA), jax.random.key(0)
    masked, plain = (jax.device_get(value.select(given, 0.4, key)) for given in (MASKED, TAKEN_OUT))
    assert masked.num_calibration == plain.num_calibration == 40
    if rule != "monte_carlo":  # its draws depend on the sizes
        np.testing.assert_allclose(masked.p_values[MASK], plain.p_values)
        np.testing.assert_array_equal(masked.selected[MASK], plain.selected)
    assert not masked.selected[~MASK].any()


@pytest.mark.parametrize("rule", ["simes", "monte_carlo"])
def test_given_the_calibration_sample_it_can_be_traced(rule):
    value, key = tdd.procedures.ConditionalBH(rule, delta=DELTA), jax.random.key(0)
    traced = jax.jit(lambda calibration, scores: value.select(tdd.Evidence(calibration, scores), 0.3, key))
    plain = value.select(tdd.Evidence(CALIBRATION, SCORES), 0.3, key)
    np.testing.assert_array_equal(traced(CALIBRATION, SCORES).selected, plain.selected)
    assert traced(CALIBRATION, SCORES).min_selections == plain.min_selections


@pytest.mark.parametrize("value", [tdd.PTDI(), tdd.KTD("conformal"), tdd.KTD("multi")], ids=str)
def test_bounds_leave_masked_items_out(value):
    options = {"delta": 0.2, "key": jax.random.key(0), "num_draws": 199}
    masked = value.bounds(MASKED, value.select(MASKED, 0.3), **options)
    plain = value.bounds(TAKEN_OUT, value.select(TAKEN_OUT, 0.3), **options)
    assert masked.min_true == plain.min_true
    if value != tdd.KTD("multi"):
        assert (masked.num_tests, masked.num_calibration) == (plain.num_tests, plain.num_calibration)


def test_a_tie_with_a_knockoff_of_a_masked_candidate_is_no_warning():
    evidence = dataclasses.replace(MASKED, knockoffs=np.where(MASK[:, None], KNOCKOFFS, -9.0))
    assert tdd.KTD().warnings(evidence, tdd.KTD().select(evidence, 0.3)) == []


def test_fewest_selections_of_knockoffs():
    assert tdd.KTD("ktd", offset=0).min_selections(0, 100, 50, 0.1) == 1
    assert tdd.KTD("ktd").min_selections(0, 100, 50, 0.1) == 10
    assert tdd.KTD("conformal", "none").min_selections(19, 100, 50, 0.1) == 50


def randomised_selections():
    """A single detector, with one candidate below all calibration scores and nine above."""
    calibration, scores = np.arange(1.0, 5)[None], np.where(np.arange(10) == 0, 0.0, 9.0)[None]
    for seed in range(15):
        yield tdd.best_score(calibration, scores, alpha=0.3, key=jax.random.key(seed))
        yield tdd.td4eval(-calibration, -scores, alpha=0.3, combine="e_values", key=jax.random.key(seed))


def test_randomised_e_bh_may_select_fewer_than_n_and_m_allow_without():
    selections = list(randomised_selections())
    assert any(selection.num_selected == 1 for selection in selections)
    for selection in selections:
        assert selection.num_selected == 0 or selection.num_selected >= selection.min_selections


def test_closed_e_bh_may_select_fewer_than_e_bh():
    # one candidate is beyond all members for every detector, the other for the first only
    scores = np.array([[9.0, 8.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]])
    selection = tdd.td4eval(np.tile([1.0, 2.0, 3.0], (4, 1)), scores, alpha=0.4, combine="closed_e_values")
    assert selection.selected.tolist() == [True, False]
    assert selection.min_selections == 1


def test_a_template_for_the_items_that_are_not_masked():
    template = tdd.fdp_template(40, 15, key=jax.random.key(0), num_draws=99)
    ranks = jnp.arange(1, 21)
    bounds = tdd.fdp_bounds_of_ranks(ranks, 40, null="nonmember", template=template, mask=MASK)
    assert bounds.num_tests == 15


def test_closed_e_bh_can_select_one_item_and_e_bh_of_knockoffs_the_inverse_level():
    assert tdd.KTD("derandomized").min_selections(0, 525, 10, 1 / 10.5, 40) == 11
    assert tdd.TD4Eval("closed_e_values").min_selections(199, 525, 10, 0.5) == 1


def test_ranks_of_masked_items_may_be_anything():
    bounds = [
        tdd.fdp_bounds_of_ranks([1, outside, 3], 20, null="nonmember", key=jax.random.key(0), mask=[True, False, True])
        for outside in (21, 22, -3)
    ]
    assert len({tuple(np.asarray(one.false_bound).tolist()) for one in bounds}) == 1
    with pytest.raises(tdd.InputError, match="ranks lie in"):
        tdd.fdp_bounds_of_ranks([1, 22], 20, null="nonmember", key=jax.random.key(0))


@pytest.mark.parametrize("proportion", ["storey", "none"])
def test_no_selection_is_smaller_than_the_smallest_that_is_named(proportion):
    """Audits of 99 + 60 items, half of them members, at level .1: the smallest selections reach the bound."""

    def size(key):
        scores = jax.random.normal(key, (159,))
        tests = scores[99:] - 1.5 * (jnp.arange(60) < 40)
        return jnp.sum(tdd.ptdi(scores[:99], tests, alpha=0.1, proportion=proportion).selected)

    sizes = np.asarray(jax.lax.map(size, jax.random.split(jax.random.key(0), 4_000), batch_size=1_000))
    fewest = tdd.PTDI(proportion).min_selections(99, 60, 40, 0.1)
    assert sizes[sizes > 0].min() >= fewest
    assert sizes[sizes > 0].min() <= fewest + 6
