"""Published and hand-worked values of permutation p-values, Student's tail and the exchangeability tests."""

import itertools
import json
import pathlib

import jax
import numpy as np
import pytest

from tdd.kernels import permutation, student
from tdd.procedures.exchangeability import exchangeability

CASES = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "permutation.json").read_text())
BY_NAME = {case["name"]: case for case in CASES}


def named(prefix):
    found = [case for case in CASES if case["name"].startswith(prefix)]
    return pytest.mark.parametrize("case", found, ids=lambda case: case["name"])


survival, log_survival = jax.jit(student.sf), jax.jit(student.log_sf)
p_value, complete_p_value = jax.jit(permutation.p_value), jax.jit(permutation.complete_p_value)


@named("t_sf_")
def test_tail_of_t(case):
    t, df = case["inputs"]["t"], case["inputs"]["df"]
    expected = case["expected"]["sf"]
    # the tail is the exponential of its logarithm: a rounding of that costs |log| of its own
    assert float(survival(t, df)) == pytest.approx(expected, rel=1.2e-7 * (1 - np.log(expected)))
    assert float(log_survival(t, df)) == pytest.approx(np.log(expected), rel=3e-7)
    with jax.enable_x64(True):
        assert float(survival(t, df)) == pytest.approx(expected, rel=3e-14)


@named("phipson_smyth")
def test_upper_bound_of_draws(case):
    x, draws = case["inputs"]["x"], case["inputs"]["nperm"]
    upper = p_value(1.0, np.r_[np.ones(x), np.zeros(draws - x)].astype(np.float32))
    assert float(upper.p_value) == pytest.approx(case["expected"]["upper_plus1"], rel=2e-7)


def test_all_divisions_of_six():
    case = BY_NAME["perm_exact_6"]
    pool = np.array(case["inputs"]["a"] + case["inputs"]["b"], np.float32)
    groups = [list(group) for group in itertools.combinations(range(6), 3)]
    # small values in the first group are evidence ("less"): the statistic is minus the difference of means
    statistics = np.array([np.delete(pool, group).mean() - pool[group].mean() for group in groups])
    found = complete_p_value(statistics[0], statistics)
    assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"])


@pytest.mark.parametrize("wide", [False, True])
def test_ties_of_correlations_within_rounding(wide):
    case = BY_NAME["perm_tie_tolerance"]
    x, y = np.array(case["inputs"]["x"], float), np.array(case["inputs"]["y"], float)
    orders = itertools.permutations(range(4))
    statistics = np.array([np.corrcoef(x[list(order)], y)[0, 1] for order in orders])
    with jax.enable_x64(wide):
        found = complete_p_value(statistics[0], statistics)
        assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"])


@pytest.mark.slow("long")
def test_plus_one():
    case = BY_NAME["perm_plus_one"]
    observed, draws = case["inputs"]["t_obs"], case["inputs"]["t_perm"]
    found = p_value(observed, np.array(draws, np.float32))
    assert int(found.num_at_least) == case["expected"]["b"]
    assert float(found.p_value) == pytest.approx(case["expected"]["pvalue"])
    whole = exchangeability([observed], [draws], test="permutation")
    assert float(whole.p_value) == pytest.approx(case["expected"]["pvalue"])


@named("shard_t")
def test_sharded_t(case):
    s = np.array(case["inputs"]["s"])
    result = exchangeability(s, np.zeros((len(s), 1)), test="t")
    assert float(result.statistic) == pytest.approx(case["expected"]["t"], rel=2e-7)
    assert float(result.p_value) == pytest.approx(case["expected"]["pvalue"], rel=2e-7)
    assert int(result.num_shards) == case["expected"]["df"] + 1
    np.testing.assert_allclose(result.shard_statistic, s, rtol=1e-6)


def test_sharded_t_subtracts_the_mean_of_the_shuffles():
    case = BY_NAME["shard_t_r5"]
    s = np.array(case["inputs"]["s"])
    shuffled = np.array([[-3.0, 1.0, 2.0], [-1.0, 0.0, 1.0]])[np.arange(5) % 2] - 1e5
    result = exchangeability(s - 1e5, shuffled, test="t")
    assert float(result.p_value) == pytest.approx(case["expected"]["pvalue"], rel=1e-6)


def test_exact_randomisation():
    case = BY_NAME["shard_exact_randomisation"]
    rows = np.array(case["inputs"]["loglik_canonical_first"])
    result = exchangeability(rows[:, 0], rows[:, 1:], test="exact")
    expected = case["expected"]
    assert float(result.p_value) == pytest.approx(expected["pvalue"])
    assert expected["pvalue"] == pytest.approx(expected["n_ge"] / expected["n_total"])
