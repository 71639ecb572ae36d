"""Results of a probe: scores and decisions at one set of parameters, the record of a look, and histories of records."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import jax
import numpy as np

from tdd.kernels.trajectories import Evidence
from tdd.records import pytree
from tdd.validate import InputError

__all__ = ["GRAD_NORM_QUANTILES", "AlarmHistory", "ProbeRecord", "ProbeResult", "as_step", "check_same"]

GRAD_NORM_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Levels of the reported quantiles of the suspects' gradient norms."""


@pytree()
class ProbeResult:
    """Scores and decisions at one set of parameters. m suspects, n references, c canaries, k canary references.

    Scores are loss-like: LOWER = MORE member-like. A score that is not finite is left out of every comparison.

    Attributes:
      suspect_scores: [m] float32.
      reference_scores: [n] float32.
      p_values: [m] conformal p-values of "this suspect is a non-member", (1 + #{references <= it}) / (n + 1); NaN where
        the score is not finite.
      adjusted: [m] adjusted p-values of PTDI; `selected == (adjusted <= alpha)`. NaN likewise.
      selected: [m] bool, suspects that this one evaluation selects as members: FDR <= alpha if it was chosen before
        any score was seen, not if it was chosen for its alarm; see `ProbeRecord.flagged`.
      num_flagged: [] int32, number of selected suspects.
      proportion: [] estimated fraction of members among the suspects; 0 under proportion="none", and negative where
        the suspects look even less like members than the references.
      canary_scores: [c] float32; [0] without canaries, as the next three.
      canary_rank: [c] int32, 1 + the number of canary references that score as low or lower; k + 1 where the canary's
        own score is not finite.
      canary_exposure: [c] log2(k + 1) - log2(rank), in bits (Carlini et al. 2019, "The secret sharer", definition 3,
        over the canary and its references).
      canary_p_values: [c] rank / (k + 1).
      grad_norm_quantiles: [5] minimum, quartiles and maximum of the norms of the gradients of the suspects' summed
        losses; [0] without `grad_norms`.
      num_not_finite: [] int32, scores of any role that are not finite.
    """

    suspect_scores: jax.Array
    reference_scores: jax.Array
    p_values: jax.Array
    adjusted: jax.Array
    selected: jax.Array
    num_flagged: jax.Array
    proportion: jax.Array
    canary_scores: jax.Array
    canary_rank: jax.Array
    canary_exposure: jax.Array
    canary_p_values: jax.Array
    grad_norm_quantiles: jax.Array
    num_not_finite: jax.Array


@dataclasses.dataclass(frozen=True)
class ProbeRecord:
    """One look; `evidence` is that the suspects as a set are in the training data."""

    step: int  # of the training
    look: int  # from 1
    result: ProbeResult  # NumPy arrays
    evidence: Evidence  # p_value of this look alone, anytime_p_value and log_e_value of all looks so far; NumPy scalars
    alarm: bool  # whether the anytime p-value has been alpha or less, now or before
    warnings: tuple[str, ...]  # sentences about this look
    seconds: float  # from the call to the result on the host; the first look compiles
    e_values: np.ndarray  # [m] e-values of the suspects, over all looks so far
    adjusted: np.ndarray  # [m] the smallest level at which each suspect is flagged
    flagged: np.ndarray  # [m] bool, suspects that the looks so far flag: FDR <= alpha at whatever look one stops
    on_schedule: bool = True  # whether the look came `every` steps after the one before

    def scalars(self, prefix: str = "tdd/") -> dict[str, float]:
        """The look as numbers for a metric writer, by name.

        p_value, anytime_p_value, log_e_value, alarm (0 or 1), num_flagged (by all looks so far), num_selected (by this
        look alone), proportion, mean_suspect and mean_reference (of the finite scores), num_not_finite, seconds; with
        canaries canary_exposure_max and canary_exposure_median (bits) and canary_p_value_min; with gradient norms
        grad_norm_q0 to grad_norm_q100.
        """
        result = self.result
        numbers = {
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
            numbers["canary_exposure_max"] = np.max(result.canary_exposure)
            numbers["canary_exposure_median"] = np.median(result.canary_exposure)
            numbers["canary_p_value_min"] = np.min(result.canary_p_values)
        if len(result.grad_norm_quantiles):
            for level, norm in zip(GRAD_NORM_QUANTILES, result.grad_norm_quantiles, strict=True):
                numbers[f"grad_norm_q{round(100 * level)}"] = norm
        return {prefix + name: float(number) for name, number in numbers.items()}


class AlarmHistory:
    """A `history` of records, in which an alarm stays once it has been raised."""

    history: list[Any]

    @property
    def alarm(self) -> bool:
        """True once the anytime p-value has been alpha or less."""
        return bool(self.history) and self.history[-1].alarm

    @property
    def first_alarm(self) -> int | None:
        """The step at which that first happened."""
        return next((record.step for record in self.history if record.alarm), None)


def as_step(step: Any, last: int | None = None) -> int:
    """The number of a training step, not before the last one."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or not 0 <= number < 2**31:
        raise InputError(
            f"step={step!r} must be the number of the training step, a whole number from 0 to 2^31 - 1; inside a "
            "compiled function use evaluate and observe"
        )
    if last is not None and number < last:
        raise InputError(
            f"step={number} comes after step {last}, and evidence over a run is not taken back. If training restarts "
            "from a checkpoint, load the state that was saved with it (load_state_dict); for another run, start anew"
        )
    return number


def check_same(name: str, saved: Any, expected: Any) -> None:
    """A saved state belongs to a guard with the same arguments."""
    if saved != expected:
        raise InputError(
            f"state is of another guard: its {name} is {saved!r}, this guard's is {expected!r}; make the guard with "
            "the arguments of the run that saved the state"
        )


def _finite_mean(scores: Any) -> float:
    finite = scores[np.isfinite(scores)]
    return float(finite.mean(dtype=np.float64)) if finite.size else float("nan")
