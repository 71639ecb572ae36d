"""The cases of `tdd bench kernels`: every family of kernels, at n = m = 1,000 and 100,000 and in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tdd.bench.cases import Case, Peer, Size
from tdd.bench.peers import ranking, stepup, tests
from tdd.kernels import (
    combine,
    conformal,
    evalues,
    fdp_bounds,
    hommel,
    independent,
    knockoff,
    permutation,
    pooled_ranks,
    rank_sum,
    sidak,
    student,
    two_stage,
    weighted,
)
from tdd.kernels import stepup as step
from tdd.methods.jecs import jecs, jmcs
from tdd.methods.ptdi import ptdi

__all__ = ["CASES"]

ALPHA = 0.1
DETECTORS = 5
Make = Callable[[np.random.Generator, Size], dict[str, np.ndarray]]


def shape(size: Size, *trailing: int) -> tuple[int, ...]:
    """The shape of an array of one value an item, with the axis of the batch if there is one."""
    leading = () if size.batch is None else (size.batch,)
    return (*leading, *trailing, size.items)


def p_values(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Uniform p-values, a fifth of them signals down to 1e-6."""
    values = rng.random(shape(size))
    signals = rng.random(values.shape) < 0.2
    return {"p_values": np.maximum(np.where(signals, values**5, values), 1e-6).astype(np.float32)}


def scores(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """N(0, 1) calibration scores; a fifth of the tests are shifted down by 3."""
    shift = 3.0 * (rng.random(shape(size)) < 0.2)
    calibration, tested = rng.normal(size=shape(size)), rng.normal(size=shape(size)) - shift
    return {"calibration": calibration.astype(np.float32), "scores": tested.astype(np.float32)}


def panels(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Scores of known members under several models; three tenths of the candidates belong to none and lie higher."""
    shift = 3.0 * (rng.random(shape(size)) < 0.3)[..., None, :]
    calibration = rng.normal(size=shape(size, DETECTORS))
    tested = rng.normal(size=shape(size, DETECTORS)) + shift
    return {"calibration": calibration.astype(np.float32), "scores": tested.astype(np.float32)}


def weighted_scores(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Scores with log-normal weights."""
    drawn = scores(rng, size)
    for name in ("calibration_weights", "weights"):
        drawn[name] = np.exp(0.5 * rng.normal(size=shape(size))).astype(np.float32)
    return drawn


def groups(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Five p-values an item."""
    values = rng.random((*shape(size), DETECTORS)) ** 2
    return {"p_values": np.clip(values, 1e-6, 0.9999).astype(np.float32)}


def statistics(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Knockoff statistics, a fifth of them shifted up."""
    return {"w": -scores(rng, size)["scores"]}


def e_values(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Reciprocals of p-values, which reject often enough to compare decisions."""
    return {"e_values": (1 / p_values(rng, size)["p_values"]).astype(np.float32)}


def draws(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """A statistic and so many permuted ones."""
    leading = () if size.batch is None else (size.batch,)
    return {
        "observed": np.asarray(1 + rng.random(leading), np.float32),
        "permuted": rng.normal(size=shape(size)).astype(np.float32),
    }


def shards(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Log-probabilities of as many orders as there are items: ten shuffles a shard."""
    leading = () if size.batch is None else (size.batch,)
    rows = max(2, size.items // 10)
    return {
        "canonical": (rng.normal(size=(*leading, rows)) + 0.1).astype(np.float32),
        "shuffled": rng.normal(size=(*leading, rows, 10)).astype(np.float32),
    }


def templates(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Ranks, and an envelope of the usual form: mean and a multiple of the square root, on geometric grids."""
    points = size.items + 1
    nulls = np.unique(np.geomspace(1, size.items, 40).astype(np.int32))
    grid = np.unique(np.geomspace(1, size.items, 120).astype(np.int32))
    mean = nulls[:, None] * grid / points
    bound = np.minimum(np.ceil(mean + 3 * np.sqrt(mean) + 2), nulls[:, None]).astype(np.int32)
    rank = np.where(rng.random(shape(size)) < 0.3, rng.integers(1, 2 + size.items // 50, shape(size)), 0)
    rank = np.where(rank > 0, rank, rng.integers(1, points + 1, shape(size))).astype(np.int32)
    every = {"num_nulls": nulls, "grid": grid, "bound": bound, "num_calibration": np.int32(size.items)}
    if size.batch is not None:
        every = {name: np.broadcast_to(value, (size.batch, *np.shape(value))) for name, value in every.items()}
    return {**{name: np.asarray(value) for name, value in every.items()}, "rank": rank}


def _bounds(num_nulls: Any, grid: Any, bound: Any, num_calibration: Any, rank: Any) -> dict[str, Any]:
    template = fdp_bounds.Template(num_nulls, grid, bound, num_calibration, jnp.float32(ALPHA))
    found = fdp_bounds.bounds(template, rank, num_calibration, max_rank=rank.shape[-1] + 1)
    return {"false_bound": found.false_bound, "max_nulls": found.max_nulls}


def _rejections(
    name: str, decide: Callable[..., Any], peers: dict[str, Peer], about: str, make: Make = p_values
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


_WHOLE = {"SciPy": Peer(stepup.fdr_scipy(ALPHA), "scipy", whole=True)}

CASES = (
    Case(
        "conformal", _conformal, scores, {"NumPy": Peer(ranking.conformal)}, about="conformal p-values", tolerance=2e-7
    ),
    Case(
        "weighted", _weighted, weighted_scores, {"NumPy": Peer(ranking.weighted)}, about="weighted conformal p-values",
        tolerance=1e-5,
    ),
    Case(
        "pooled_ranks", _pooled, panels, _scipy(ranking.pooled_sum), about="ranks of five detectors' summed pool ranks"
    ),
    _rejections("bh", step.bh, _WHOLE | _statsmodels("fdr_bh"), "Benjamini-Hochberg"),
    _rejections("storey", step.storey_bh, _scipy(stepup.storey_scipy(ALPHA)), "Storey's adaptive BH"),
    _rejections(
        "by", step.by, {"SciPy": Peer(stepup.fdr_scipy(ALPHA, "by"), "scipy", whole=True)} | _statsmodels("fdr_by"),
        "Benjamini-Yekutieli",
    ),
    _rejections("two_stage", two_stage.two_stage_bh, _statsmodels("fdr_tsbky"), "two-stage BH"),
    _rejections("holm", step.holm, {"NumPy": Peer(stepup.holm_numpy(ALPHA))}, "Holm"),
    _rejections("hochberg", step.hochberg, _statsmodels("simes-hochberg"), "Hochberg"),
    _rejections("sidak", sidak.sidak, _statsmodels("sidak"), "Šidák"),
    _rejections(
        "hommel", hommel.hommel,
        {"NumPy": Peer(stepup.hommel_numpy(ALPHA))} | _statsmodels("hommel", max_items=1_000), "Hommel",
    ),
    _rejections("e_bh", evalues.e_bh, _scipy(stepup.e_bh_scipy(ALPHA)), "e-BH", e_values),
    Case(
        "cauchy", lambda p_values: {"p_value": combine.cauchy(p_values)}, groups, {"NumPy": Peer(tests.cauchy)},
        about="Cauchy combination of five p-values an item", tolerance=1e-5,
    ),
    Case(
        "fisher", lambda p_values: {"p_value": independent.fisher(p_values).p_value}, groups, _scipy(tests.fisher),
        about="Fisher's combination of five p-values an item", tolerance=2e-5,
    ),
    Case(
        "knockoff", lambda w: {"threshold": knockoff.threshold(w, ALPHA)}, statistics,
        {
            "NumPy": Peer(tests.knockoff_numpy(ALPHA)),
            "knockpy": Peer(tests.knockpy(ALPHA), "knockpy"),
        },
        about="knockoff+ threshold",
    ),
    Case("ptdi", _ptdi("none"), scores, _scipy(ranking.ptdi(ALPHA)), about="PTDI without a proportion"),
    Case(
        "ptdi-scaled", _ptdi("subtraction"), scores, _scipy(ranking.ptdi(ALPHA, 0.05)),
        about="PTDI with the subtraction estimate",
    ),
    Case(
        "jmcs", lambda calibration, scores: {"selected": jmcs(calibration, scores, alpha=ALPHA).selected}, panels,
        _scipy(ranking.jmcs(ALPHA)), about="JMCS of five models",
    ),
    Case(
        "jecs", lambda calibration, scores: {"selected": jecs(calibration, scores, alpha=ALPHA).selected}, panels,
        _scipy(ranking.jecs(ALPHA)), about="JECS of five models",
    ),
    Case(
        "rank_sum", _rank_sum, shards, {"NumPy": Peer(tests.rank_sum)},
        sizes=(Size(1_000), Size(10_000), Size(1_000, 1_000)), about="sharded rank-sum test, ten shuffles a shard",
        unit="shuffles", tolerance=2e-5,
    ),
    Case(
        "permutation", lambda observed, permuted: {"p_value": permutation.p_value(observed, permuted).p_value}, draws,
        {"NumPy": Peer(tests.permutation)}, about="permutation p-value", unit="draws",
    ),
    Case(
        "student", lambda values: {"p_value": student.one_sample(values).p_value},
        lambda rng, size: {"values": (rng.normal(size=shape(size)) + 0.5 / np.sqrt(size.items)).astype(np.float32)},
        _scipy(tests.student), about="one-sample t test", tolerance=2e-5,
    ),
    Case(
        "fdp_bounds", _bounds, templates, {"NumPy": Peer(tests.fdp_bounds)}, about="simultaneous bounds at every rank"
    ),
)  # fmt: skip
