"""What an audit decides from, on the host: score columns by role."""

from __future__ import annotations

import dataclasses

import numpy as np

from tdd.procedures.procedure import Procedure
from tdd.records import Evidence

__all__ = ["Panels"]


def _no_rows() -> np.ndarray:
    return np.zeros((0, 0))


@dataclasses.dataclass(frozen=True)
class Panels:
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
    def of(cls, calibration: np.ndarray, candidates: np.ndarray, name: str = "score") -> Panels:
        """One score: [n] and [m]."""
        return cls((name,), np.asarray(candidates, float)[None], np.asarray(calibration, float)[None])

    def evidence(self, procedure: Procedure) -> Evidence:
        """As the procedure takes it: one row of scores as a vector, None where there is nothing."""
        row = 0 if procedure.columns == "one" else slice(None)
        optional = ("members", "knockoffs", "calibration_knockoffs", "weights", "calibration_weights", "split")
        return Evidence(
            self.calibration[row],
            self.candidates[row],
            **{name: value if (value := getattr(self, name)).size else None for name in optional},
            names=self.names,
            clusters=self.clusters,
            calibration_clusters=self.calibration_clusters,
        )
