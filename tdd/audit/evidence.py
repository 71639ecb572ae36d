"""What a decision is made from, and how it is to be made: scores by role, and the options of the procedure."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Evidence", "Options"]


def _no_rows() -> np.ndarray:
    return np.zeros((0, 0))


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Loss-like scores on the host: LOWER = MORE member-like, NaN where an item has none.

    Attributes:
      names: K names of the columns that decide: one score, several detectors, or one score under several models.
      candidates: [K, m].
      calibration: [K, n] items for which the null holds; n = 0 where the procedure needs none.
      members: [n1] known members, for the moment estimate, or an empty array.
      knockoffs: [m, k] scores of the candidates' knockoffs, [m, 0] where there are none.
      calibration_knockoffs: [n, k] likewise of the calibration items.
      clusters: one name a candidate, or an empty tuple.
      calibration_clusters: one name a calibration item, or an empty tuple.
      weights: [m] density ratio of each candidate ("weighted"), or an empty array.
      calibration_weights: [n] likewise of each calibration item.
      split: [n] bool, calibration items from which "td4eval" learns its weights, or an empty array.
    """

    names: tuple[str, ...]
    candidates: np.ndarray
    calibration: np.ndarray
    members: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    knockoffs: np.ndarray = dataclasses.field(default_factory=_no_rows)
    calibration_knockoffs: np.ndarray = dataclasses.field(default_factory=_no_rows)
    clusters: tuple[str, ...] = ()
    calibration_clusters: tuple[str, ...] = ()
    weights: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    calibration_weights: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    split: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def of(cls, calibration: np.ndarray, candidates: np.ndarray, name: str = "score") -> Evidence:
        """One score: [n] and [m]."""
        return cls((name,), np.asarray(candidates, float)[None], np.asarray(calibration, float)[None])


@dataclasses.dataclass(frozen=True)
class Options:
    """The procedure and its options; those of other procedures are ignored by it.

    Attributes:
      alpha: level in (0, 1).
      method: a name in `tdd.audit.procedures.PROCEDURES`.
      proportion: estimate of the member proportion ("ptdi", and "ktd" with rule="conformal").
      eta: region of presumed non-members ("ptdi").
      combine: how detectors are combined ("td4eval").
      rule: knockoff rule ("ktd"), how pooled ranks are combined ("td4eval"), step-up procedure ("jmcs"), table of
        bounds ("conditional") or how selections are pruned ("weighted").
      weights: of the detectors, fixed beforehand ("td4eval"); empty where they are equal.
      grid: candidate edges of the envelope ("jecs"); empty for the usual ones.
      unit: "cluster", "item" or "drawn": what is decided on where items come in clusters ("ptdi").
      delta: the simultaneous bounds hold with probability at least 1 - delta.
      seed: of every random choice in the decision.
    """

    alpha: float
    method: str = "ptdi"
    proportion: str = "storey"
    eta: float = 0.05
    combine: str = "pooled_rank"
    rule: str = "multi"
    weights: tuple[float, ...] = ()
    grid: tuple[float, ...] = ()
    unit: str = "cluster"
    delta: float = 0.05
    seed: int = 0
