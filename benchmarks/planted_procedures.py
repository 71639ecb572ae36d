"""Procedures beside PTDI where the truth was planted: KTD, TD4Eval, JMCS, JECS and the test of a data set.

A text is one of several versions that were drawn alike, so that the versions of a non-member are exchangeable; which
one of them was published is drawn anew in every division. Which members calibrate a search for clean items is drawn
anew, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import tdd
from benchmarks.known_truth import Select, divide

__all__ = ["CLEAN", "DETECTORS", "JOINT", "KNOCKOFFS", "clean", "data_set", "joint", "knockoffs"]

DETECTORS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
"""The scores that TD4Eval and the test of a data set combine."""

KNOCKOFFS: dict[str, Select] = {
    "ktd, 1 knockoff": lambda known, rows, alpha: tdd.ktd(rows[:, 0], rows[:, 1:2], alpha=alpha, rule="ktd").selected,
    "ktd, all knockoffs": lambda known, rows, alpha: tdd.ktd(rows[:, 0], rows[:, 1:], alpha=alpha, rule="ktd").selected,
    "multi": lambda known, rows, alpha: tdd.ktd(rows[:, 0], rows[:, 1:], alpha=alpha).selected,
    "conformal": lambda known, rows, alpha: tdd.ktd(
        rows[:, 0], rows[:, 1:], alpha=alpha, rule="conformal", calibration=known[:, 0],
        calibration_knockoffs=known[:, 1:],
    ).selected,
}  # fmt: skip
"""Rule of `tdd.ktd` -> selection from columns of the published version and its paraphrases."""

CLEAN: dict[str, Select] = {
    "pooled_rank": lambda known, rows, alpha: tdd.td4eval(known.T, rows.T, alpha=alpha).selected,
    "cauchy": lambda known, rows, alpha: tdd.td4eval(known.T, rows.T, alpha=alpha, combine="cauchy").selected,
}
"""Combination of `tdd.td4eval` -> selection from columns of detectors."""

JOINT: dict[str, Select] = {
    "jmcs, by": lambda known, rows, alpha: tdd.jmcs(known.T, rows.T, alpha=alpha, rule="by").selected,
    "jmcs, storey": lambda known, rows, alpha: tdd.jmcs(known.T, rows.T, alpha=alpha, rule="storey").selected,
    "jecs": lambda known, rows, alpha: tdd.jecs(known.T, rows.T, alpha=alpha).selected,
}
"""Joint procedure -> selection from columns of models."""


def knockoffs(
    losses: np.ndarray, member: np.ndarray, calibration: int, alphas: Sequence[float], divisions: int, seed: int
) -> list[dict[str, Any]]:
    """What KTD finds in [N, 1 + k] losses of published versions and of k paraphrases; `member` [N]."""
    return _decided("ktd", KNOCKOFFS, losses, member, calibration, alphas, divisions, seed, versions=True)


def clean(
    columns: Mapping[str, np.ndarray], member: np.ndarray, alphas: Sequence[float], divisions: int, seed: int
) -> list[dict[str, Any]]:
    """What TD4Eval finds to be clean by `DETECTORS`, calibrated on a random half of the members."""
    detectors = np.stack([columns[name] for name in DETECTORS], axis=-1)
    return _decided("td4eval", CLEAN, detectors, ~member, member.sum() // 2, alphas, divisions, seed)


def joint(
    losses: np.ndarray, member: np.ndarray, alphas: Sequence[float], divisions: int, seed: int
) -> list[dict[str, Any]]:
    """What is found to be clean for all models, by [N, M] losses; a random half of the members calibrates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few calibration items, which the rates show
        return _decided("joint", JOINT, losses, ~member, member.sum() // 2, alphas, divisions, seed)


def data_set(columns: Mapping[str, np.ndarray], member: np.ndarray, seed: int) -> dict[str, float]:
    """p-values of `tdd.dataset_inference` on `DETECTORS`: members, and half of the non-members, beside the others."""
    detectors = np.stack([columns[name] for name in DETECTORS])
    inside, outside = detectors[:, member], detectors[:, ~member]
    half, key = outside.shape[1] // 2, jax.random.key(seed)
    compared = {"members": (inside, outside), "non-members": (outside[:, :half], outside[:, half:])}
    return {name: float(tdd.dataset_inference(*pair, key=key).p_value) for name, pair in compared.items()}


def _decided(
    family: str,
    rules: Mapping[str, Select],
    scores: np.ndarray,
    found: np.ndarray,
    calibration: int,
    alphas: Sequence[float],
    divisions: int,
    seed: int,
    versions: bool = False,
) -> list[dict[str, Any]]:
    """FDR and power of each rule at each level, in search of the items that `found` marks."""
    rows = []
    for name, select in rules.items():
        levels = []
        for alpha in alphas:
            realised = divide(
                scores, found, calibration=int(calibration), alpha=alpha, repetitions=divisions, seed=seed,
                select=select, versions=versions,
            )  # fmt: skip
            levels.append({"alpha": alpha, **realised.summary()})
        rows.append({"procedure": family, "rule": name, "levels": levels})
    return rows
