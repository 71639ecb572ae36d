"""Designs that draw planned audits: sizes and number of targets are data, so that one program serves a whole plan.

Draws beyond a pool come from a kernel estimate of its law. Drawn with replacement, a small pool has no scores beyond
its own extremes, while a selection is decided in the tail of the null: the power is overstated, and equal scores hide
false discoveries. Perturbed draws err less, if they are made in a scale without long tails: that of normal scores,
which depend on the order alone, as decisions do. (In the scale of the scores themselves a perturbation as wide as a
long upper tail asks for blurs a sharp lower one, where members lie.) The tests measure both on known laws.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Null, pytree
from tdd.study.designs.labels import direction
from tdd.study.sample import Sample

__all__ = ["BinormalAudit", "PooledAudit", "normal_scores", "smoothed"]

_IQR = 1.349  # interquartile range of N(0, 1)


@pytree("most_calibration", "most_tests", "null")
class BinormalAudit:
    """n calibration items N(0, 1) and m candidates, the first `num_targets` of them N(-+signal, spread^2).

    The random numbers of a place do not depend on the sizes: with more targets or items the others stay as they were.

    Attributes:
      most_calibration: Places for calibration items, at least n.
      most_tests: Places for candidates, at least m.
      num_calibration: n.
      num_tests: m.
      num_targets: Candidates that it is right to select.
      signal: Distance of the means, in standard deviations of the null.
      spread: Standard deviation of the targets, in those of the null.
      null: Which items calibrate.
    """

    most_calibration: int
    most_tests: int
    num_calibration: Any
    num_tests: Any
    num_targets: Any
    signal: Any
    spread: Any = 1.0
    null: Null = "nonmember"

    def draw(self, key: jax.Array) -> Sample:
        """One audit."""
        calibration_key, test_key = jax.random.split(key)
        target, masks = _places(self)
        z = jax.random.normal(test_key, (self.most_tests,))
        scores = jnp.where(target, direction(self.null) * self.signal + self.spread * z, z)
        return Sample(jax.random.normal(calibration_key, (self.most_calibration,)), scores, target, **masks)


@pytree("most_calibration", "most_tests", "null", "kind", "smoothed")
class PooledAudit:
    """Calibration items and candidates from a pool of items with known labels.

    Not smoothed: drawn without replacement, so that the expected power over draws is an unbiased estimate of that in
    the population of the pool. Smoothed: drawn with replacement and perturbed, a kernel estimate of the two laws.

    Attributes:
      most_calibration: Places for calibration items, at least n.
      most_tests: Places for candidates, at least m.
      num_calibration: n.
      num_tests: m.
      num_targets: Candidates that it is right to select.
      nulls: [K, N0] loss-like scores of the items under the null.
      targets: [K, N1] those of the others.
      null_kernel: [K, K] factor of the covariance of the nulls' perturbation; zeros where not smoothed.
      target_kernel: [K, K] likewise for the targets.
      null: Which items calibrate.
      kind: "one" (K = 1), "several" (K detectors), "knockoffs" (an item's score and those of its K - 1 knockoffs).
      smoothed: With replacement and perturbed.
    """

    most_calibration: int
    most_tests: int
    num_calibration: Any
    num_tests: Any
    num_targets: Any
    nulls: Any
    targets: Any
    null_kernel: Any
    target_kernel: Any
    null: Null = "nonmember"
    kind: str = "one"
    smoothed: bool = False

    def draw(self, key: jax.Array) -> Sample:
        """One audit."""
        target, masks = _places(self)
        draw = self._with_replacement if self.smoothed else self._without_replacement
        calibration, scores = draw(key, target)
        if self.kind == "several":
            return Sample(calibration, scores, target, **masks)
        extra = {"knockoffs": scores[1:].T} if self.kind == "knockoffs" else {}
        return Sample(calibration[0], scores[0], target, extra=extra, **masks)

    def _without_replacement(self, key: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        null_key, target_key = jax.random.split(key)
        nulls = jax.random.permutation(null_key, jnp.asarray(self.nulls).shape[1])
        targets = jax.random.permutation(target_key, jnp.asarray(self.targets).shape[1])
        place = jnp.arange(self.most_tests)
        # Places beyond the sizes repeat the last item: the masks leave them out.
        calibration = jnp.take(nulls, jnp.arange(self.most_calibration), mode="clip")
        # Knockoffs set no item aside to calibrate: the last candidate wraps around to the first item.
        null_tests = jnp.take(nulls, self.num_calibration + place - self.num_targets, mode="wrap")
        target_tests = jnp.take(targets, place, mode="clip")
        scores = jnp.where(
            target, jnp.take(self.targets, target_tests, axis=1), jnp.take(self.nulls, null_tests, axis=1)
        )
        return jnp.take(self.nulls, calibration, axis=1), scores

    def _with_replacement(self, key: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        calibration_key, null_key, target_key = jax.random.split(key, 3)
        calibration = _perturbed(calibration_key, self.nulls, self.null_kernel, self.most_calibration)
        scores = jnp.where(
            target,
            _perturbed(target_key, self.targets, self.target_kernel, self.most_tests),
            _perturbed(null_key, self.nulls, self.null_kernel, self.most_tests),
        )
        return calibration, scores


def _places(design: BinormalAudit | PooledAudit) -> tuple[jax.Array, dict[str, Any]]:
    """[most_tests] bool, the places of targets, and the masks of the places that hold items at all."""
    place = jnp.arange(design.most_tests)
    masks = {
        "mask": place < design.num_tests,
        "calibration_mask": jnp.arange(design.most_calibration) < design.num_calibration,
    }
    return place < design.num_targets, masks


def _perturbed(key: jax.Array, values: Any, kernel: Any, size: int) -> jax.Array:
    """[K, size] items of a pool, drawn with replacement, each moved by a normal vector."""
    index_key, move_key = jax.random.split(key)
    values = jnp.asarray(values)
    index = jax.random.randint(index_key, (size,), 0, values.shape[1])
    z = jax.random.normal(move_key, (values.shape[0], size))
    return values[:, index] + jnp.asarray(kernel) @ z


def normal_scores(values: np.ndarray) -> np.ndarray:
    """[K, N] standard normal quantiles of (rank - 1/2)/N, row by row; equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    places = (rankdata(values, axis=1) - 0.5) / values.shape[1]
    return np.asarray(jax.scipy.special.ndtri(places), np.float64)


def smoothed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shrink the values of a pool towards their means, and give the factor of the perturbation's covariance.

    With h Silverman's bandwidth in K dimensions and s the smaller of the standard deviation and IQR/1.349 of a row, a
    draw is mean + (x - mean + h s e)/sqrt(1 + h^2 s^2/sd^2), with e normal and correlated as the rows are.

    Args:
      values: [K, N] scores of one kind of items.

    Returns:
      [K, N] values and [K, K] factor F: a draw is values[:, i] + F z with z ~ N(0, I). A single item, and rows that do
      not vary, are not moved.

    References: Silverman (1986), Density Estimation, sections 3.4, 4.3 and 6.4.1.
    """
    dimensions, size = values.shape
    mean = values.mean(axis=1, keepdims=True)
    if size < 2:
        return values, np.zeros((dimensions, dimensions))
    sd = values.std(axis=1, ddof=1)
    quartiles = np.quantile(values, (0.25, 0.75), axis=1)
    iqr = (quartiles[1] - quartiles[0]) / _IQR
    scale = np.where(iqr > 0, np.minimum(sd, iqr), sd)
    width = (4 / ((dimensions + 2) * size)) ** (1 / (dimensions + 4)) * scale
    varies = np.where(sd > 0, sd, 1)
    shrink = 1 / np.sqrt(1 + (width / varies) ** 2)
    unit = (values - mean) / varies[:, None]
    correlation = unit @ unit.T / (size - 1)
    strength, axes = np.linalg.eigh(correlation)
    root = axes * np.sqrt(np.maximum(strength, 0))
    return mean + shrink[:, None] * (values - mean), (shrink * width)[:, None] * root
