"""Published and hand-worked values of conditional, weighted and group-conditional p-values and of the selection.

The cases count large scores as evidence, which is the null of a member under loss-like scores; each is tested under
the other null too, with its scores turned round.
"""

import json
import pathlib

import jax
import numpy as np
import pytest

from tdd.kernels import conditional
from tdd.procedures.conditional import calibration_conditional_p_values
from tdd.procedures.p_values import mondrian_p_values
from tdd.procedures.weighted import weighted_conformal_p_values, weighted_conformal_selection

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "shift.json").read_text())
BY_NAME = {case["name"]: case for case in CASES}
BOTH = [("member", 1.0), ("nonmember", -1.0)]


def arrays_of(case, *names):
    return [np.array(case["inputs"][name]) for name in names]


@pytest.mark.parametrize(("null", "sign"), BOTH)
@pytest.mark.parametrize("name", ["ccv_simes_n20", "ccv_simes_n99"])
def test_simes(name, null, sign):
    """A candidate at every rank, against n distinct calibration scores."""
    case = BY_NAME[name]
    n, expected = case["inputs"]["n_cal"], case["expected"]["b_1_to_n+1"]
    calibration = sign * np.arange(n, dtype=float)
    scores = sign * (n - 0.5 - np.arange(n + 1))
    for k in (None, case["params"]["k"]):
        p = calibration_conditional_p_values(calibration, scores, null=null, delta=case["params"]["delta"], k=k)
        np.testing.assert_allclose(p, expected, rtol=1e-6)


def test_dkwm():
    """The case takes both sides of the band; one side suffices, which is the case at half the level."""
    case = BY_NAME["ccv_dkwm"]
    (p,), n, delta = arrays_of(case, "p"), case["inputs"]["n_cal"], case["params"]["delta"]
    table = np.asarray(jax.jit(lambda: conditional.dkwm_bounds(n, delta / 2, max_rank=n + 1))(), float)
    margin = table[1:50] - np.arange(1, 50) / (n + 1)
    np.testing.assert_allclose(margin, case["expected"]["pvalue"][0] - p[0], rtol=1e-5)
    np.testing.assert_allclose(np.minimum(p + margin[0], 1), case["expected"]["pvalue"], rtol=1e-6)


def test_asymptotic():
    case = BY_NAME["ccv_asymptotic_n100"]
    n, delta = case["inputs"]["n_cal"], case["params"]["delta"]
    table = jax.device_get(jax.jit(lambda: conditional.asymptotic_bounds(n, delta, max_rank=n + 1))())
    np.testing.assert_allclose(table[1:-1], case["expected"]["h_1_to_n"], rtol=1e-6)
    assert table[-1] == 1


@pytest.mark.slow("long")
def test_hybrid():
    case = BY_NAME["ccv_hybrid_fixed_gamma_n100"]
    n, delta, gamma = case["inputs"]["n_cal"], case["params"]["delta"], case["params"]["gamma"]
    table = conditional.hybrid_bounds(n, delta, gamma, max_rank=n + 1)
    np.testing.assert_allclose(table[1:-1], case["expected"]["bound_1_to_n"], rtol=1e-6)


@pytest.mark.parametrize(("null", "sign"), BOTH)
def test_weighted_p_value(null, sign):
    case = BY_NAME["weighted_conformal_known"]
    calibration, scores, own, other = arrays_of(case, "cal", "test", "w_cal", "w_test")
    p = weighted_conformal_p_values(sign * calibration, sign * scores, own, other, null=null)
    assert p.tolist() == case["expected"]["pvalue"]


@pytest.mark.parametrize("null", ["member", "nonmember"])
def test_tied_calibration_mass_counts(null):
    case = BY_NAME["conformal_all_tied"]
    calibration, scores = arrays_of(case, "cal", "test")
    p = weighted_conformal_p_values(calibration, scores, np.ones(4), np.ones(1), null=null)
    assert (
        p.tolist() == [case["expected"]["weighted_unit_weights_must_equal"]] == case["expected"]["pvalue_conservative"]
    )


@pytest.mark.parametrize(("null", "sign"), BOTH)
def test_mondrian(null, sign):
    case = BY_NAME["mondrian_conformal"]
    calibration, own, scores, groups = arrays_of(case, "cal", "cal_bin", "test", "test_bin")
    p = mondrian_p_values(sign * calibration, sign * scores, own, groups, null=null)
    np.testing.assert_allclose(p, case["expected"]["pvalue"], rtol=1e-7)


@pytest.mark.parametrize(("null", "sign"), BOTH)
@pytest.mark.parametrize("name", ["wcs_plain", "wcs_wj_vs_wk"])
def test_weighted_selection(name, null, sign):
    case = BY_NAME[name]
    calibration, scores, own, other = arrays_of(case, "cal", "test", "w_cal", "w_test")
    alpha, expected = case["params"]["alpha"], case["expected"]
    found = weighted_conformal_selection(
        sign * calibration, sign * scores, own, other, alpha=alpha, null=null, prune="deterministic"
    )
    np.testing.assert_allclose(found.p_values, expected["pvalue"], rtol=1e-6)
    assert found.bh_sizes.tolist() == expected["R_j"]
    found = jax.device_get(found)
    first = found.p_values <= np.float32(alpha) * np.float32(found.bh_sizes) / np.float32(scores.size)
    assert np.flatnonzero(first).tolist() == expected["first_step"]
    assert np.flatnonzero(found.selected).tolist() == expected["selected"]
