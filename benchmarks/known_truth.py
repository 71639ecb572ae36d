"""What scores achieve where it is known who was trained on: AUC, and PTDI over random divisions of the non-members."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tdd

__all__ = ["Realised", "auc", "auc_error", "divide", "figures", "mean_and_error"]


class Realised(NamedTuple):
    """The errors of PTDI over random divisions.

    Attributes:
      fdp: [R] false discovery proportion of each division.
      selected: [M] fraction of the divisions in which each member is selected.
      any: fraction of the divisions in which anything is selected.
    """

    fdp: np.ndarray
    selected: np.ndarray
    any: float

    def summary(self) -> dict[str, float]:
        """FDR, its standard error over the divisions, and power where there is anything to be found."""
        error = self.fdp.std(ddof=1) / np.sqrt(len(self.fdp))
        power = {"power": float(self.selected.mean())} if len(self.selected) else {}
        return {"fdr": float(self.fdp.mean()), "fdr_se": float(error), **power}


def auc(scores: np.ndarray, member: np.ndarray) -> float:
    """P(a member scores lower than a non-member), ties half; NaN scores are left out.

    >>> auc(np.array([1.0, 2.0, 3.0, 2.0]), np.array([True, True, False, False]))
    0.875
    """
    known = ~np.isnan(scores)
    inside, outside = scores[known & member], np.sort(scores[known & ~member])
    below = np.searchsorted(outside, inside, side="left") + np.searchsorted(outside, inside, side="right")
    return float(1 - below.mean() / (2 * len(outside)))


def auc_error(scores: np.ndarray, member: np.ndarray) -> float:
    """Standard error of `auc` over the texts (DeLong et al. 1988), at least two on each side; no score may be NaN.

    >>> round(auc_error(np.array([1.0, 2.0, 3.0, 2.0]), np.array([True, True, False, False])), 4)
    0.1768
    """
    inside, outside = scores[member][:, None], scores[~member][None]
    wins = (inside < outside) + 0.5 * (inside == outside)
    return float(np.sqrt(sum(wins.mean(1 - side).var(ddof=1) / wins.shape[side] for side in (0, 1))))


def divide(
    scores: np.ndarray,
    member: np.ndarray,
    *,
    calibration: int,
    alpha: float,
    repetitions: int = 200,
    seed: int = 0,
) -> Realised:
    """Select by `tdd.ptdi` with random `calibration` non-members as calibration items and all others as candidates.

    Which non-members calibrate is the randomness that the guarantee is about; it makes them exchangeable with the
    others by construction.

    Args:
      scores: [N] loss-like scores.
      member: [N] bool, True = what is to be found; where none is, every selection is false, and the FDR is `any`.
      calibration: non-members that calibrate, fewer than there are.
      alpha: level.
      repetitions: random divisions.
      seed: random seed of the divisions.
    """
    keys = jax.random.split(jax.random.key(seed), repetitions)
    inside, outside = jnp.asarray(scores[member]), jnp.asarray(scores[~member])
    found = _divide(outside, inside, alpha, keys, calibration=calibration)
    fdp, count, selected = (np.asarray(part, np.float64) for part in found)
    return Realised(fdp, selected[:, len(outside) - calibration :].mean(0), float((count > 0).mean()))


@functools.partial(jax.jit, static_argnames="calibration")
def _divide(outside: Any, inside: Any, alpha: Any, keys: Any, *, calibration: int) -> tuple[Any, Any, Any]:
    others = len(outside) - calibration

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        shuffled = jax.random.permutation(key, outside)
        candidates = jnp.concatenate([shuffled[calibration:], inside])
        selected = tdd.ptdi(shuffled[:calibration], candidates, alpha=alpha).selected
        count = jnp.sum(selected)
        return jnp.sum(selected[:others]) / jnp.maximum(count, 1), count, selected

    return jax.lax.map(one, keys, batch_size=50)


def figures(
    scores: np.ndarray,
    copies: np.ndarray,
    calibration: int,
    alphas: Sequence[float],
    repetitions: int = 200,
    seed: int = 0,
    trained: bool = True,
) -> dict[str, Any]:
    """What one score achieves under one model, by number of copies.

    Args:
      scores: [N] loss-like scores; where some are NaN, only the AUC of the others is computed.
      copies: [N] numbers of copies in the training data, 0 for non-members.
      calibration: non-members that calibrate in each division.
      alphas: levels.
      repetitions: random divisions.
      seed: random seed of the divisions.
      trained: whether the model was trained on the members. Under one that was not, all texts are non-members.

    Returns:
      "texts" with a score, "auc", "auc_se", "by_copies": the AUC of the members of each number of copies against all
      non-members, and "levels": at each alpha "fdr" and "fdr_se", and if `trained` "power" and "power_by_copies".
    """
    known = ~np.isnan(scores)
    whole, scores, copies = bool(known.all()), scores[known], copies[known]
    member = copies > 0
    counts = sorted({*copies[member].tolist()}) if whole else []
    row: dict[str, Any] = {"texts": len(scores), "auc": auc(scores, member), "auc_se": auc_error(scores, member)}
    kept = {count: ~member | (copies == count) for count in counts}
    row |= {"by_copies": {str(count): auc(scores[one], member[one]) for count, one in kept.items()}, "levels": []}
    truth = member if trained else np.zeros_like(member)
    for alpha in alphas if whole else ():
        found = divide(scores, truth, calibration=calibration, alpha=alpha, repetitions=repetitions, seed=seed)
        row["levels"].append({"alpha": alpha, **found.summary()})
        if trained:
            power = {str(count): float(found.selected[copies[member] == count].mean()) for count in counts}
            row["levels"][-1] |= {"power_by_copies": power}
    return row


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error over seeds; None for a single one."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error
