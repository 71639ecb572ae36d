"""Named cases of the suite `kernels` with a ratio that must be reached, at the sizes it is stated for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.throughput.cases import Case, Peer, Size
from benchmarks.throughput.data import p_values, scores
from benchmarks.throughput.kernels import ALPHA
from benchmarks.throughput.peers import ranking, stepup
from tdd.kernels import conformal
from tdd.kernels import stepup as step
from tdd.procedures import testing

__all__ = ["CASES"]


def lattice_ranks(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Conformal ranks in 1..n+1, n = m, and the p-values that SciPy is given."""
    drawn = p_values(rng, size)["p_values"]
    rank = np.ceil(drawn * (size.items + 1)).clip(1, size.items + 1).astype(np.int32)
    return {"rank": rank, "p_values": rank / (size.items + 1)}


def _bh(p_values: jax.Array) -> dict[str, Any]:
    return {"reject": step.bh(p_values, ALPHA).reject}


def doubles(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """P-values as NumPy makes them."""
    return {"p_values": p_values(rng, size)["p_values"].astype(float)}


def _rejections(p_values: np.ndarray) -> dict[str, Any]:
    return {"reject": np.asarray(testing.rejections(p_values, ALPHA))}


def _adjusted(p_values: jax.Array) -> dict[str, Any]:
    return {"adjusted": step.bh(p_values, ALPHA).adjusted}


def _adjusted_on_lattice(rank: jax.Array, p_values: jax.Array) -> dict[str, Any]:
    found = step.bh_ranks(rank, rank.shape[-1], ALPHA, max_rank=rank.shape[-1] + 1)
    return {"adjusted": found.adjusted}


def _conformal(calibration: jax.Array, scores: jax.Array) -> dict[str, Any]:
    return {"p_values": conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))}


def _numpy_adjusted(rank: np.ndarray, p_values: np.ndarray) -> dict[str, np.ndarray]:
    return stepup.scipy_adjusted(p_values)


CASES = (
    Case(
        "bh-10000x1000", _bh, p_values,
        {
            "SciPy": Peer(stepup.fdr_scipy(ALPHA), "scipy", whole=True),
            "statsmodels": Peer(stepup.multiple_tests(ALPHA, "fdr_bh"), "statsmodels"),
        },
        sizes=(Size(1_000, 10_000),), about="batched BH decisions", bars={"SciPy": 15, "statsmodels": 50},
    ),
    Case(
        "rejections-10000x1000", _rejections, doubles,
        {
            "SciPy": Peer(stepup.fdr_scipy(ALPHA), "scipy", whole=True),
            "statsmodels": Peer(stepup.multiple_tests(ALPHA, "fdr_bh"), "statsmodels"),
        },
        sizes=(Size(1_000, 10_000),), about="tdd.rejections: BH decisions from NumPy to NumPy in float64",
        bars={"SciPy": 15, "statsmodels": 50}, public=True,
    ),
    Case(
        "bh-adjusted", _adjusted, p_values,
        {"SciPy": Peer(stepup.scipy_adjusted, "scipy", whole=True)},
        sizes=(Size(1_000, 10_000),), about="batched BH-adjusted p-values of any p-values",
    ),
    Case(
        "bh-adjusted-lattice", _adjusted_on_lattice, lattice_ranks,
        {"SciPy": Peer(_numpy_adjusted, "scipy", whole=True)},
        sizes=(Size(1_000, 10_000),), about="batched BH-adjusted conformal p-values, n = m", bars={"SciPy": 4},
    ),
    Case(
        "conformal-1e6", _conformal, scores, {"NumPy": Peer(ranking.conformal)},
        sizes=(Size(1_000_000),), about="conformal p-values", tolerance=2e-7, bars={"NumPy": 1 / 1.3},
        gpu_bars={"NumPy": 20},
    ),
)  # fmt: skip
