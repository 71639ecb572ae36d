"""Published and hand-worked values of knockoff thresholds, several knockoffs, and e-values."""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import evalues, knockoff
from tdd.procedures.calls import level_operand
from tdd.procedures.evalues import conformal_e_values, e_bh
from tdd.procedures.ktd import ktd

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "knockoff.json").read_text("utf-8"))
BY_NAME = {case["name"]: case for case in CASES}


def of(procedure):
    return pytest.mark.parametrize(
        "case", [case for case in CASES if case["procedure"] == procedure], ids=lambda case: case["name"]
    )


select = jax.jit(knockoff.select, static_argnames=("offset", "num_knockoffs"))


def chosen(mask):
    return np.flatnonzero(mask).tolist()


@of("knockoff_threshold")
@pytest.mark.parametrize(("offset", "which"), [(1, "plus"), (0, "offset0")])
def test_threshold(case, offset, which):
    w, alpha = np.array(case["inputs"]["W"], np.float64), case["params"]["q"]
    tau, expected = float(case["expected"][f"threshold_{which}"]), case["expected"][f"selected_{which}"]
    w = np.append(w, np.full(20 - len(w), np.nan))  # one shape for all cases; NaN is left out
    found = select(w.astype(np.float32), level_operand(alpha), offset=offset)
    assert float(found.threshold) == np.float32(tau)
    assert chosen(found.reject) == expected
    selection = ktd(np.zeros(len(w)), w[:, None], alpha=alpha, rule="ktd", offset=offset)  # W = knockoff - original
    assert float(selection.cut) == np.float32(tau)
    assert chosen(selection.selected) == expected


@of("multi_knockoff_threshold")
def test_multi_threshold(case):
    inputs, params = case["inputs"], case["params"]
    tau = np.array(inputs["tau"], np.float32)
    signed = np.where(inputs["kappa_is_original"], tau, -tau)
    found = select(signed, level_operand(params["q"]), num_knockoffs=params["M"])
    assert float(found.threshold) == case["expected"]["threshold"]
    assert chosen(found.reject) == case["expected"]["selected"]


def test_multi_statistics():
    """There a large |T| is important; here the smallest score wins. Ties have no winner and drop out."""
    case = BY_NAME["multi_knockoff_stats"]
    original, copies = (-np.abs(np.array(case["inputs"][name])) for name in ("T0", "Tk"))
    found = jax.jit(knockoff.multi_statistics)(original, copies.T)
    expected, found = case["expected"], jax.device_get(found)
    np.testing.assert_allclose(found.tau, expected["tau_max_gimenez_zou"], atol=1e-7)
    assert (found.kappa == 0).tolist() == expected["kappa_is_original_strict"]
    untied = np.array(expected["tau_max_gimenez_zou"]) > 0
    np.testing.assert_array_equal(found.kappa[untied], np.array(expected["kappa_jl"])[untied])
    np.testing.assert_array_equal(found.statistic > 0, np.array(expected["kappa_is_original_strict"]) & untied)


@pytest.mark.slow("long")
def test_derandomized():
    case = BY_NAME["derandomised_knockoffs"]
    w = jnp.array(case["inputs"]["W"])
    level, alpha = case["params"]["alpha_kn"], case["params"]["alpha"]
    assert [float(knockoff.threshold(draw, level)) for draw in w] == case["expected"]["thresholds"]
    e = knockoff.derandomized_e_values(w.T, level)
    np.testing.assert_allclose(e, case["expected"]["evalues"], rtol=1e-7)
    assert chosen(e_bh(e, alpha).reject) == case["expected"]["selected"]


@of("e_bh")
def test_e_bh(case):
    e, alpha = case["inputs"]["e"], case["params"]["alpha"]
    for values in (np.array(e), np.array(e, np.float32)):
        found = e_bh(values, alpha)
        assert chosen(found.reject) == case["expected"]["selected"]
        assert found.num_rejected == case["expected"]["n_reject"]
    none = e_bh(np.ones(len(e)), alpha)
    assert not none.reject.any()  # one rejection is never forced
    assert math.isinf(float(none.threshold))


@pytest.mark.slow("long")
def test_conformal_e_values_repeat_bh():
    """There a large score is evidence: the null of a member under loss-like scores."""
    case = BY_NAME["conformal_evalues_match_bh"]
    calibration, scores = (np.array(case["inputs"][name]) for name in ("cal", "test"))
    alpha = case["params"]["alpha"]
    for sign, null in ((1, "member"), (-1, "nonmember")):
        e = conformal_e_values(sign * calibration, sign * scores, alpha=alpha, null=null)
        np.testing.assert_allclose(e, case["expected"]["evalues"], rtol=1e-6)
        assert chosen(evalues.e_bh(e, alpha).reject) == case["expected"]["selected"]
