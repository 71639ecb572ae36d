"""What scores achieve where it is known who was trained on: AUC, and PTDI over random divisions of the non-members."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tdd

__all__ = ["Realised", "auc", "divide"]


class Realised(NamedTuple):
    """The errors of a selection over random divisions.

    Attributes:
      fdp: [R] false discovery proportion of each division.
      selected: [M] fraction of the divisions in which each member is selected.
      any: fraction of the divisions in which anything is selected.
    """

    fdp: np.ndarray
    selected: np.ndarray
    any: float

    def summary(self) -> dict[str, float]:
        """FDR, its standard error over the divisions, and power."""
        error = self.fdp.std(ddof=1) / np.sqrt(len(self.fdp))
        return {"fdr": float(self.fdp.mean()), "fdr_se": float(error), "power": float(self.selected.mean())}


def auc(scores: np.ndarray, member: np.ndarray) -> float:
    """P(a member scores lower than a non-member), ties half; NaN scores are left out.

    >>> auc(np.array([1.0, 2.0, 3.0, 2.0]), np.array([True, True, False, False]))
    0.875
    """
    known = ~np.isnan(scores)
    inside, outside = scores[known & member], np.sort(scores[known & ~member])
    below = np.searchsorted(outside, inside, side="left") + np.searchsorted(outside, inside, side="right")
    return float(1 - below.mean() / (2 * len(outside)))


def divide(
    scores: np.ndarray, member: np.ndarray, *, calibration: int, alpha: float, repetitions: int = 200, seed: int = 0
) -> Realised:
    """Select by `tdd.ptdi` with random `calibration` non-members as calibration items and all others as candidates.

    Which non-members calibrate is the randomness that the guarantee is about; it makes them exchangeable with the
    others by construction.

    Args:
      scores: [N] loss-like scores.
      member: [N] bool, True = trained on.
      calibration: non-members that calibrate, fewer than there are.
      alpha: level.
      repetitions: random divisions.
      seed: random seed of the divisions.
    """
    keys = jax.random.split(jax.random.key(seed), repetitions)
    inside, outside = jnp.asarray(scores[member]), jnp.asarray(scores[~member])
    found = _divide(outside, inside, alpha, keys, calibration=calibration)
    fdp, count, selected = (np.asarray(part, np.float64) for part in found)
    return Realised(fdp, selected.mean(0), float((count > 0).mean()))


@functools.partial(jax.jit, static_argnames="calibration")
def _divide(outside: Any, inside: Any, alpha: Any, keys: Any, *, calibration: int) -> tuple[Any, Any, Any]:
    others = len(outside) - calibration

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        shuffled = jax.random.permutation(key, outside)
        candidates = jnp.concatenate([shuffled[calibration:], inside])
        selected = tdd.ptdi(shuffled[:calibration], candidates, alpha=alpha).selected
        count = jnp.sum(selected)
        return jnp.sum(selected[:others]) / jnp.maximum(count, 1), count, selected[others:]

    return jax.lax.map(one, keys, batch_size=50)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error over seeds; None for a single one."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error
