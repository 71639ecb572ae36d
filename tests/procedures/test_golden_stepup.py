"""Published and hand-worked values of the step-up procedures and of conformal p-values."""

import functools
import json
import pathlib

import jax
import numpy as np
import pytest

import tdd
from tdd.kernels import conformal, ranks, stepup
from tdd.procedures.calls import level_operand

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "stepup.json").read_text())
BY_NAME = {case["name"]: case for case in CASES}
ADJUSTED = {
    "bh": tdd.bh,
    "by": tdd.by,
    "holm": tdd.holm,
    "hochberg": tdd.hochberg,
    "bonferroni": tdd.bonferroni,
    "sidak_ss": tdd.sidak,
    "sidak_sd": tdd.holm_sidak,
    "tsbh_alpha_0.05": functools.partial(tdd.two_stage_bh, variant="bh"),
    "tsbky_alpha_0.05": functools.partial(tdd.two_stage_bh, variant="bky"),
}


def p_of(case):
    return np.array([np.nan if p is None else p for p in case["inputs"]["p"]])


def filled(values, size=30):
    """With NaN, which counts for nothing, up to the size of the longest case: one compilation for all.

    Cases of one item, and of that size, stay as they are.
    """
    return values if len(values) == 1 else np.append(values, np.full(size - len(values), np.nan))


@pytest.mark.parametrize("case", [c for c in CASES if "p" in c["inputs"]], ids=lambda c: c["name"])
def test_adjusted_values(case):
    p, alpha = filled(p_of(case)), case["params"].get("alpha", 0.05)
    compared = 0
    for name, procedure in ADJUSTED.items():
        expected = case["expected"].get(f"adjusted_{name}", case["expected"].get(f"adjusted_{name}_R_omit"))
        if expected is None:
            continue
        expected = filled(np.array([np.nan if x is None else x for x in expected]))
        step = procedure(p, alpha)
        np.testing.assert_allclose(step.adjusted, expected, rtol=2e-7, atol=1e-12)
        np.testing.assert_array_equal(step.reject, np.nan_to_num(expected, nan=1) <= alpha + 1e-15)
        compared += 1
    assert compared or case["procedure"].startswith("storey")
    if case["procedure"] == "p_adjust_family":
        assert compared == sum(name.startswith("adjusted_") for name in case["expected"])


@pytest.mark.parametrize("name", ["bh1995_neuhaus_taps_15", "edge_all_one", "edge_all_zero", "edge_stepup_skip"])
def test_number_of_rejections(name):
    case = BY_NAME[name]
    alpha, expected = case["params"]["alpha"], case["expected"]
    p = filled(p_of(case))
    assert tdd.bh(p, alpha).num_rejected == expected.get("n_reject", expected.get("n_reject_bh"))
    if "n_reject_by" in expected:
        assert tdd.by(p, alpha).num_rejected == expected["n_reject_by"]
        assert tdd.bonferroni(p, alpha).num_rejected == expected["n_reject_bonferroni"]


def test_storey():
    case = BY_NAME["storeybh_onlinefdr_15"]
    step = tdd.storey_bh(p_of(case), 0.05, lambda_=0.5)
    assert step.null_proportion == pytest.approx(case["expected"]["pi0_plus1"])
    np.testing.assert_allclose(step.adjusted, case["expected"]["adjusted"], rtol=2e-7)
    np.testing.assert_array_equal(step.reject, case["expected"]["reject"])


def test_storey_proportion_is_positive_and_uncapped():
    assert tdd.storey_bh(filled(p_of(BY_NAME["storey_empty_region"]), 15), 0.05).null_proportion == pytest.approx(0.5)
    p = filled(p_of(BY_NAME["storey_uncapped_can_exceed_one"]), 15)
    assert tdd.storey_bh(p, 0.05).null_proportion == pytest.approx(2.0)
    assert tdd.storey_bh(p, 0.05, cap=True).null_proportion == pytest.approx(1.0)


bh_ranks = jax.jit(stepup.bh_ranks, static_argnames="max_rank")


@pytest.mark.parametrize("case", BY_NAME["lattice_equality_conformal_bh"]["inputs"]["cases"], ids=str)
def test_equality_on_the_lattice(case):
    """k items at one rank r with r/(n+1) = k·alpha/m exactly: all k are rejected, one fewer and none is."""
    n, m, alpha, k, r = case
    for count, expected in ((k, k), (k - 1, 0)):
        rank = np.full(m, n + 1, np.int32)
        rank[:count] = r
        padded = np.append(rank, np.full(200 - m, 1001, np.int32))  # beyond the largest rank: no item
        assert bh_ranks(padded, n, level_operand(alpha), max_rank=1000).num_rejected == expected
        p = filled(rank / (n + 1), 200)
        assert tdd.bh(p, alpha).num_rejected == expected
        assert tdd.bh(p.astype(np.float32), alpha).num_rejected == expected


def test_conformal_ties():
    """The case counts large scores as evidence, which is the null of a member under loss-like scores."""
    case = BY_NAME["conformal_ties"]
    calibration, scores = (np.array(case["inputs"][k]) for k in ("cal", "test"))
    ranked = jax.jit(conformal.rank, static_argnames="null")(calibration, scores, null="member")
    assert ranked.rank.tolist() == case["expected"]["rank_num"]
    np.testing.assert_allclose(jax.jit(conformal.p_values)(ranked), case["expected"]["pvalue_conservative"], rtol=1e-7)
    count = jax.device_get(jax.jit(ranks.counts)(calibration, scores))
    assert count.equal.tolist() == case["expected"]["n_equal"]
    assert (count.num_calibration - count.less - count.equal).tolist() == case["expected"]["n_greater"]
    np.testing.assert_allclose(
        tdd.conformal_p_values(-calibration, -scores, null="nonmember"),
        case["expected"]["pvalue_conservative"],
        rtol=1e-7,
    )


def test_all_tied():
    case = BY_NAME["conformal_all_tied"]
    got = tdd.conformal_p_values(case["inputs"]["cal"], case["inputs"]["test"], null="nonmember")
    assert got.tolist() == case["expected"]["pvalue_conservative"]


@pytest.mark.parametrize("name", ["resolution_floor_n99_m100", "resolution_floor_n999_m1000"])
def test_resolution(name):
    case = BY_NAME[name]
    n, m = case["inputs"]["n_cal"], case["inputs"]["m"]
    selection = tdd.ptdi(np.arange(n) + 1.0, np.zeros(m), alpha=case["params"]["alpha"], proportion="none")
    assert selection.min_selections == case["expected"]["min_rejections_possible"]
    assert selection.p_values.min() == pytest.approx(case["expected"]["min_p"])
