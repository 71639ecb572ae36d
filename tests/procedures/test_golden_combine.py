"""Published and high-precision values of combinations of p-values."""

import json
import math
import pathlib

import jax
import numpy as np
import pytest

from tdd.kernels import combine, merge
from tdd.procedures.combining import combine_p_values

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "combine.json").read_text())


def of(procedure):
    return pytest.mark.parametrize(
        "case", [c for c in CASES if c["procedure"] == procedure], ids=lambda case: case["name"]
    )


single = jax.jit(lambda p: (combine.cauchy(p), combine.cauchy_statistic(p)))
log_cauchy = jax.jit(combine.log_cauchy)
truncated_cauchy = jax.jit(combine.truncated_cauchy, static_argnames="tau")


def test_every_case_is_looked_at():
    assert len(CASES) == 19
    assert {c["procedure"] for c in CASES} == {
        "cauchy_combination",
        "truncated_cauchy",
        "combine_pvalues",
        "merge_pvalues_arbitrary_dependence",
    }


@of("cauchy_combination")
def test_cauchy(case):
    found = combine_p_values(case["inputs"]["p"], method="cauchy", weights=case["inputs"].get("weights"))
    assert found.p_value.dtype == np.float64
    assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"], rel=1e-14, abs=0)
    # 1 - 0.999999999 in double precision is 1.00000003e-9: the statistic near p = 1 has that many digits of its input.
    rel = 1e-7 if case["name"] == "acat_near_one" else 1e-14
    assert float(found.statistic) == pytest.approx(case["expected"]["statistic"], rel=rel, abs=1e-15)


@of("cauchy_combination")
def test_cauchy_in_single_precision(case):
    p = np.array(case["inputs"]["p"], np.float32)
    if p.min() == 0 or p.max() == 1:
        pytest.skip("a p-value that single precision cannot hold; the log route can")
    p_value, statistic = map(float, single(p))
    assert p_value == pytest.approx(case["expected"]["pvalue"], rel=5e-7, abs=0)
    assert statistic == pytest.approx(case["expected"]["statistic"], rel=5e-7, abs=1e-6)


@of("cauchy_combination")
def test_cauchy_by_logarithms_in_single_precision(case):
    log_p = np.log(np.array(case["inputs"]["p"])).astype(np.float32)
    found = float(log_cauchy(log_p))
    assert found == pytest.approx(math.log(case["expected"]["pvalue"]), rel=2e-6, abs=0)


@of("truncated_cauchy")
def test_truncated_cauchy(case):
    assert case["params"]["tau"] == 0.5
    found = combine_p_values(case["inputs"]["p"], method="truncated_cauchy")
    assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"], rel=1e-13)
    assert float(found.statistic) == pytest.approx(case["expected"]["statistic"], rel=1e-13)
    assert float(found.statistic) != pytest.approx(case["expected"]["wrong_indexed_mean_statistic"])
    raw = truncated_cauchy(np.array(case["inputs"]["p"], np.float32), tau=case["params"]["tau"])
    assert float(raw.p_value) == pytest.approx(case["expected"]["pvalue"], rel=1e-6)


@of("combine_pvalues")
def test_classical_combinations(case):
    method, weights = case["params"]["method"], case["inputs"].get("weights")
    for p, rel in ((case["inputs"]["p"], 1e-12), (jax.device_put(np.array(case["inputs"]["p"], np.float32)), 1e-6)):
        found = combine_p_values(p, method=method, weights=weights)
        assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"], rel=rel)
        assert float(found.statistic) == pytest.approx(case["expected"]["statistic"], rel=rel)


@of("merge_pvalues_arbitrary_dependence")
def test_merges(case):
    p, expected = case["inputs"]["p"], case["expected"]
    named = {
        "bonferroni": "bonferroni",
        "simes": "simes",
        "hommel_valid_any_dependence": "hommel",
        "arithmetic_twice_mean": "twice_mean",
        "median_twice_ruger": "ruger",
        "geometric_e_times": "geometric",
        "max": "maximum",
    }
    for word, method in named.items():
        assert float(combine_p_values(p, method=method).p_value) == pytest.approx(expected[word], rel=1e-13)
    # e·log K is an upper bound of the smallest valid constant, which is what multiplies the harmonic mean here.
    harmonic = float(combine_p_values(p, method="harmonic").p_value)
    constant = merge.harmonic_constant(len(p))
    assert harmonic / constant == pytest.approx(expected["harmonic_mean_raw_invalid"], rel=1e-13)
    bound = math.e * math.log(len(p))
    assert harmonic / constant * bound == pytest.approx(expected["harmonic_e_lnK_times"], rel=1e-13)
    assert constant < bound
    assert set(named) | {"harmonic_e_lnK_times", "harmonic_mean_raw_invalid"} == set(expected)


def test_the_constants_of_the_harmonic_mean():
    found = [merge.harmonic_constant(k) for k in (1, 2, 3, 5, 10)]
    np.testing.assert_allclose(found, [1, 2, 2.7456, 3.5645, 4.5598], atol=5e-5)
