"""What one look of a probe leaves behind, and a history of looks as plain arrays and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.kernels.trajectories import Evidence
from tdd.probe.result import GRAD_NORM_QUANTILES, ProbeResult

__all__ = ["ProbeRecord", "history_of_arrays", "history_to_arrays"]

_RESULT = tuple(field.name for field in dataclasses.fields(ProbeResult))  # pyright: ignore[reportArgumentType]

_ITEMS = ("e_values", "adjusted", "flagged")


@dataclasses.dataclass(frozen=True)
class ProbeRecord:
    """One look.

    Attributes:
      step: of the training.
      look: its number, from 1.
      result: what was found, NumPy arrays.
      evidence: that the suspects as a set are in the training data: `p_value` of this look alone, `anytime_p_value`
        of all looks so far, `log_e_value` of all looks so far; NumPy scalars.
      alarm: whether the anytime p-value has been alpha or less, now or before.
      warnings: sentences about this look.
      seconds: from the call to the result on the host; the first look compiles.
      e_values: [m] of the suspects, over all looks so far.
      adjusted: [m] the smallest level at which each suspect is flagged.
      flagged: [m] bool, suspects that the looks so far flag: FDR <= alpha at whatever look one stops.
      on_schedule: whether the look came `every` steps after the one before.
    """

    step: int
    look: int
    result: ProbeResult
    evidence: Evidence
    alarm: bool
    warnings: tuple[str, ...]
    seconds: float
    e_values: np.ndarray
    adjusted: np.ndarray
    flagged: np.ndarray
    on_schedule: bool = True

    def scalars(self, prefix: str = "tdd/") -> dict[str, float]:
        """The look as numbers for a metric writer, by name.

        p_value, anytime_p_value, log_e_value, alarm (0 or 1), num_flagged (by all looks so far), num_selected (by this
        look alone), proportion, mean_suspect and mean_reference (of the finite scores), num_not_finite, seconds; with
        canaries canary_exposure_max and canary_exposure_median (bits) and canary_p_value_min; with gradient norms
        grad_norm_q0 to grad_norm_q100.
        """
        result = self.result
        found = {
            "p_value": self.evidence.p_value,
            "anytime_p_value": self.evidence.anytime_p_value,
            "log_e_value": self.evidence.log_e_value,
            "alarm": self.alarm,
            "num_flagged": np.sum(self.flagged),
            "num_selected": result.num_flagged,
            "proportion": result.proportion,
            "mean_suspect": _finite_mean(result.suspect_scores),
            "mean_reference": _finite_mean(result.reference_scores),
            "num_not_finite": result.num_not_finite,
            "seconds": self.seconds,
        }
        if len(result.canary_rank):
            found["canary_exposure_max"] = np.max(result.canary_exposure)
            found["canary_exposure_median"] = np.median(result.canary_exposure)
            found["canary_p_value_min"] = np.min(result.canary_p_values)
        if len(result.grad_norm_quantiles):
            for share, value in zip(GRAD_NORM_QUANTILES, result.grad_norm_quantiles, strict=True):
                found[f"grad_norm_q{round(100 * share)}"] = value
        return {prefix + name: float(value) for name, value in found.items()}


def history_to_arrays(history: Sequence[ProbeRecord]) -> dict[str, np.ndarray]:
    """Looks as arrays with one row a look; no Python objects in them."""
    words = json.dumps([list(record.warnings) for record in history]).encode()
    found = {
        "step": np.array([record.step for record in history], np.int64),
        "look": np.array([record.look for record in history], np.int64),
        "alarm": np.array([record.alarm for record in history], bool),
        "seconds": np.array([record.seconds for record in history], np.float64),
        "on_schedule": np.array([record.on_schedule for record in history], bool),
        "warnings": np.frombuffer(words, np.uint8),
    }
    if history:
        for name in _ITEMS:
            found[f"items/{name}"] = np.stack([getattr(record, name) for record in history])
        for name in Evidence._fields:
            found[f"evidence/{name}"] = np.stack([getattr(record.evidence, name) for record in history])
        for name in _RESULT:
            found[f"result/{name}"] = np.stack([getattr(record.result, name) for record in history])
    return found


def history_of_arrays(arrays: Mapping[str, np.ndarray]) -> list[ProbeRecord]:
    """What `history_to_arrays` was given."""
    words = json.loads(arrays["warnings"].tobytes())
    return [
        ProbeRecord(
            step=int(arrays["step"][i]),
            look=int(arrays["look"][i]),
            result=ProbeResult(**{name: arrays[f"result/{name}"][i] for name in _RESULT}),
            evidence=Evidence(**{name: arrays[f"evidence/{name}"][i] for name in Evidence._fields}),
            alarm=bool(arrays["alarm"][i]),
            warnings=tuple(words[i]),
            seconds=float(arrays["seconds"][i]),
            on_schedule=bool(arrays["on_schedule"][i]),
            **{name: arrays[f"items/{name}"][i] for name in _ITEMS},
        )
        for i in range(len(arrays["step"]))
    ]


def _finite_mean(scores: Any) -> float:
    finite = scores[np.isfinite(scores)]
    return float(finite.mean(dtype=np.float64)) if finite.size else float("nan")
