"""Published values of Hommel's procedure, Grenander's estimate, the closed-form bound, LOND and LORD++."""

import json
import pathlib

import numpy as np
import pytest

from tdd.procedures.bounds import dkw_fdp_bounds
from tdd.procedures.online import lond, lord_plus_plus
from tdd.procedures.testing import hommel, local_fdr

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "bounds.json").read_text())


def cases(procedure):
    found = [case for case in CASES if case["procedure"] == procedure]
    return pytest.mark.parametrize("case", found, ids=[case["name"] for case in found])


@cases("hommel_adjust")
def test_hommel(case):
    expected = np.array(case["expected"]["adjusted_hommel"])
    for alpha in (0.05, 0.6, 0.9):
        step = hommel(case["inputs"]["p"], alpha)
        np.testing.assert_array_equal(step.reject, expected <= alpha)
        np.testing.assert_allclose(step.adjusted, expected, rtol=2e-7)


@cases("local_fdr_grenander")
def test_local_fdr(case):
    got = local_fdr(case["inputs"]["p"], **case["params"])
    np.testing.assert_allclose(got.local_fdr, case["expected"]["lfdr"], rtol=5e-7)
    np.testing.assert_allclose(got.tail_fdr, case["expected"]["fdr"], rtol=5e-7)


@cases("conformal_fdp_bound_ks")
def test_closed_form_bound(case):
    inputs, params = case["inputs"], case["params"]
    got = dkw_fdp_bounds(
        inputs["p"],
        inputs["thresholds"],
        num_calibration=inputs["n_cal"],
        delta=1 - params["confidence"],
        interpolate=params["boost"],
    )
    assert got.offset == pytest.approx(case["expected"]["lambda"], rel=3e-7)
    np.testing.assert_allclose(got.fdp_bound, case["expected"]["fdp_upper_bound"], rtol=5e-7)


@cases("online_lond")
def test_lond(case):
    for dependence, suffix in (("positive", ""), ("any", "_dep")):
        got = lond(case["inputs"]["p"], case["params"]["alpha"], dependence=dependence)
        np.testing.assert_array_equal(got.reject, np.array(case["expected"][f"R{suffix}"], bool))
        np.testing.assert_allclose(got.levels, case["expected"][f"alpha_i{suffix}"], rtol=3e-7)


@cases("online_lord++")
def test_lord_plus_plus(case):
    got = lord_plus_plus(case["inputs"]["p"], case["params"]["alpha"])
    np.testing.assert_array_equal(got.reject, np.array(case["expected"]["R"], bool))
