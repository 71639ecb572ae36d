"""The cases of the suite `kernels`: every family of kernels, at n = m = 1,000 and 100,000 and in batches.

The last cases have a ratio that must be reached, at the sizes it is stated for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.throughput import data
from benchmarks.throughput.cases import Case, Peer, Size
from benchmarks.throughput.peers import ranking, stepup, tests
from tdd.kernels import (
    combine,
    conformal,
    evalues,
    fdp_bounds,
    hommel,
    knockoff,
    permutation,
    pooled_ranks,
    rank_sum,
    student,
    weighted,
)
from tdd.kernels import stepup as step
from tdd.procedures import testing
from tdd.procedures.jecs import jecs, jmcs
from tdd.procedures.ptdi import ptdi

__all__ = ["CASES"]

ALPHA = 0.1
Make = Callable[[np.random.Generator, Size], dict[str, np.ndarray]]


def _bounds(num_nulls: Any, grid: Any, bound: Any, num_calibration: Any, rank: Any) -> dict[str, Any]:
    template = fdp_bounds.Template(num_nulls, grid, bound, num_calibration, jnp.float32(ALPHA))
    found = fdp_bounds.bounds(template, rank, num_calibration, max_rank=rank.shape[-1] + 1)
    return {"false_bound": found.false_bound, "max_nulls": found.max_nulls}


def _rejections(
    name: str, decide: Callable[..., Any], peers: dict[str, Peer], about: str, make: Make = data.p_values
) -> Case:
    def call(**arrays: Any) -> dict[str, Any]:
        return {"reject": decide(*arrays.values(), ALPHA).reject}

    return Case(name, call, make, peers, about=about)


def _statsmodels(method: str, **limits: Any) -> dict[str, Peer]:
    return {"statsmodels": Peer(stepup.multiple_tests(ALPHA, method), "statsmodels", **limits)}


def _scipy(peer: Callable[..., Any], **limits: Any) -> dict[str, Peer]:
    return {"SciPy": Peer(peer, "scipy", **limits)}


def _conformal(calibration: Any, scores: Any) -> dict[str, Any]:
    return {"p_values": conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))}


def _weighted(calibration: Any, scores: Any, calibration_weights: Any, weights: Any) -> dict[str, Any]:
    return {"p_values": weighted.p_values(calibration, scores, calibration_weights, weights, null="nonmember")}


def _pooled(calibration: Any, scores: Any) -> dict[str, Any]:
    return {"rank": pooled_ranks.rank(calibration, scores, null="member", rule="sum").combined.rank}


def _ptdi(proportion: Any) -> Callable[..., dict[str, Any]]:
    return lambda calibration, scores: {
        "selected": ptdi(calibration, scores, alpha=ALPHA, proportion=proportion).selected
    }


def _rank_sum(canonical: Any, shuffled: Any) -> dict[str, Any]:
    found = rank_sum.rank_sum(canonical, shuffled)
    return {"statistic": found.statistic, "p_value": found.p_value}


def lattice_ranks(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Conformal ranks in 1..n+1, n = m, and the p-values that SciPy is given."""
    drawn = data.p_values(rng, size)["p_values"]
    rank = np.ceil(drawn * (size.items + 1)).clip(1, size.items + 1).astype(np.int32)
    return {"rank": rank, "p_values": rank / (size.items + 1)}


def doubles(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """P-values as NumPy makes them."""
    return {"p_values": data.p_values(rng, size)["p_values"].astype(float)}


def _public_rejections(p_values: np.ndarray) -> dict[str, Any]:
    return {"reject": np.asarray(testing.rejections(p_values, ALPHA))}


def _adjusted(p_values: jax.Array) -> dict[str, Any]:
    return {"adjusted": step.bh(p_values, ALPHA).adjusted}


def _adjusted_on_lattice(rank: jax.Array, p_values: jax.Array) -> dict[str, Any]:
    found = step.bh_ranks(rank, rank.shape[-1], ALPHA, max_rank=rank.shape[-1] + 1)
    return {"adjusted": found.adjusted}


def _numpy_adjusted(rank: np.ndarray, p_values: np.ndarray) -> dict[str, np.ndarray]:
    return stepup.scipy_adjusted(p_values)


_WHOLE = {"SciPy": Peer(stepup.fdr_scipy(ALPHA), "scipy", whole=True)}

CASES = (
    Case(
        "conformal", _conformal, data.scores, {"NumPy": Peer(ranking.conformal)},
        about="conformal p-values", tolerance=2e-7
    ),
    Case(
        "weighted", _weighted, data.weighted_scores, {"NumPy": Peer(ranking.weighted)},
        about="weighted conformal p-values",
        tolerance=1e-5,
    ),
    Case(
        "pooled_ranks", _pooled, data.panels, _scipy(ranking.pooled_sum),
        about="ranks of five detectors' summed pool ranks"
    ),
    _rejections("bh", step.bh, _WHOLE | _statsmodels("fdr_bh"), "Benjamini-Hochberg"),
    _rejections("storey", step.storey_bh, _scipy(stepup.storey_scipy(ALPHA)), "Storey's adaptive BH"),
    _rejections(
        "by", step.by, {"SciPy": Peer(stepup.fdr_scipy(ALPHA, "by"), "scipy", whole=True)} | _statsmodels("fdr_by"),
        "Benjamini-Yekutieli",
    ),
    _rejections("two_stage", step.two_stage_bh, _statsmodels("fdr_tsbky"), "two-stage BH"),
    _rejections("holm", step.holm, {"NumPy": Peer(stepup.holm_numpy(ALPHA))}, "Holm"),
    _rejections("hochberg", step.hochberg, _statsmodels("simes-hochberg"), "Hochberg"),
    _rejections("sidak", step.sidak, _statsmodels("sidak"), "Šidák"),
    _rejections(
        "hommel", hommel.hommel,
        {"NumPy": Peer(stepup.hommel_numpy(ALPHA))} | _statsmodels("hommel", max_items=1_000), "Hommel",
    ),
    _rejections("e_bh", evalues.e_bh, _scipy(stepup.e_bh_scipy(ALPHA)), "e-BH", data.e_values),
    Case(
        "cauchy", lambda p_values: {"p_value": combine.cauchy(p_values)}, data.groups, {"NumPy": Peer(tests.cauchy)},
        about="Cauchy combination of five p-values an item", tolerance=1e-5,
    ),
    Case(
        "fisher", lambda p_values: {"p_value": combine.fisher(p_values).p_value}, data.groups, _scipy(tests.fisher),
        about="Fisher's combination of five p-values an item", tolerance=2e-5,
    ),
    Case(
        "knockoff", lambda w: {"threshold": knockoff.threshold(w, ALPHA)}, data.statistics,
        {
            "NumPy": Peer(tests.knockoff_numpy(ALPHA)),
            "knockpy": Peer(tests.knockpy(ALPHA), "knockpy"),
        },
        about="knockoff+ threshold",
    ),
    Case("ptdi", _ptdi("none"), data.scores, _scipy(ranking.ptdi(ALPHA)), about="PTDI without a proportion"),
    Case(
        "ptdi-scaled", _ptdi("subtraction"), data.scores, _scipy(ranking.ptdi(ALPHA, 0.05)),
        about="PTDI with the subtraction estimate",
    ),
    Case(
        "jmcs", lambda calibration, scores: {"selected": jmcs(calibration, scores, alpha=ALPHA).selected}, data.panels,
        _scipy(ranking.jmcs(ALPHA)), about="JMCS of five models",
    ),
    Case(
        "jecs", lambda calibration, scores: {"selected": jecs(calibration, scores, alpha=ALPHA).selected}, data.panels,
        _scipy(ranking.jecs(ALPHA)), about="JECS of five models",
    ),
    Case(
        "rank_sum", _rank_sum, data.shards, {"NumPy": Peer(tests.rank_sum)},
        sizes=(Size(1_000), Size(10_000), Size(1_000, 1_000)), about="sharded rank-sum test, ten shuffles a shard",
        unit="shuffles", tolerance=2e-5,
    ),
    Case(
        "permutation", lambda observed, permuted: {"p_value": permutation.p_value(observed, permuted).p_value},
        data.draws,
        {"NumPy": Peer(tests.permutation)}, about="permutation p-value", unit="draws",
    ),
    Case(
        "student", lambda values: {"p_value": student.one_sample(values).p_value},
        data.normal,
        _scipy(tests.student), about="one-sample t test", tolerance=2e-5,
    ),
    Case(
        "fdp_bounds", _bounds, data.templates, {"NumPy": Peer(tests.fdp_bounds)},
        about="simultaneous bounds at every rank"
    ),
    Case(
        "bh-10000x1000", lambda p_values: {"reject": step.bh(p_values, ALPHA).reject}, data.p_values,
        _WHOLE | _statsmodels("fdr_bh"),
        sizes=(Size(1_000, 10_000),), about="batched BH decisions", bars={"SciPy": 15, "statsmodels": 50},
    ),
    Case(
        "rejections-10000x1000", _public_rejections, doubles,
        _WHOLE | _statsmodels("fdr_bh"),
        sizes=(Size(1_000, 10_000),), about="tdd.rejections: BH decisions from NumPy to NumPy in float64",
        bars={"SciPy": 15, "statsmodels": 50}, public=True,
    ),
    Case(
        "bh-adjusted", _adjusted, data.p_values,
        {"SciPy": Peer(stepup.scipy_adjusted, "scipy", whole=True)},
        sizes=(Size(1_000, 10_000),), about="batched BH-adjusted p-values of any p-values",
    ),
    Case(
        "bh-adjusted-lattice", _adjusted_on_lattice, lattice_ranks,
        {"SciPy": Peer(_numpy_adjusted, "scipy", whole=True)},
        sizes=(Size(1_000, 10_000),), about="batched BH-adjusted conformal p-values, n = m", bars={"SciPy": 4},
    ),
    Case(
        "conformal-1e6", _conformal, data.scores, {"NumPy": Peer(ranking.conformal)},
        sizes=(Size(1_000_000),), about="conformal p-values", tolerance=2e-7, bars={"NumPy": 1 / 1.3},
        gpu_bars={"NumPy": 20},
    ),
)  # fmt: skip
