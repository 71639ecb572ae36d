"""Planned audits as designs: sizes and the number of targets are data, so that one program serves a whole plan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs.labels import direction
from tdd.study.sample import Sample

__all__ = ["BinormalAudit", "PooledAudit"]


@pytree("most_calibration", "most_tests", "null")
class BinormalAudit:
    """n calibration items N(0, 1) and m candidates, the first `num_targets` of them N(-+signal, spread^2).

    The draws of a repetition are those of one stream: with more targets or items the others stay what they were.

    Attributes:
      most_calibration: places for calibration items, at least n.
      most_tests: places for candidates, at least m.
      num_calibration: n.
      num_tests: m.
      num_targets: candidates that it is right to select.
      signal: distance of the means, in standard deviations of the null.
      spread: standard deviation of the targets, in those of the null.
      null: which items calibrate.
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
        own, test = jax.random.split(key)
        target, masks = _places(self)
        z = jax.random.normal(test, (self.most_tests,))
        scores = jnp.where(target, direction(self.null) * self.signal + self.spread * z, z)
        return Sample(jax.random.normal(own, (self.most_calibration,)), scores, target, **masks)


@pytree("most_calibration", "most_tests", "null", "kind", "smoothed")
class PooledAudit:
    """Calibration items and candidates out of a pool of items with known labels.

    Not smoothed: drawn without replacement, so that the expected power over draws is an unbiased estimate of that in
    the population of the pool. Smoothed: drawn with replacement, plus a normal perturbation: a kernel estimate of the
    two laws (`tdd.study.power.smoothing`).

    Attributes:
      most_calibration: places for calibration items, at least n.
      most_tests: places for candidates, at least m.
      num_calibration: n.
      num_tests: m.
      num_targets: candidates that it is right to select.
      nulls: [K, N0] loss-like scores of the items under the null.
      targets: [K, N1] those of the others.
      null_kernel: [K, K] factor of the covariance of the perturbation of nulls; zeros where not smoothed.
      target_kernel: [K, K] likewise.
      null: which items calibrate.
      kind: "one" (K = 1), "several" (K detectors), "knockoffs" (an item's score and those of its K - 1 knockoffs).
      smoothed: with replacement and perturbed.
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
        one, two = jax.random.split(key)
        nulls = jax.random.permutation(one, jnp.asarray(self.nulls).shape[1])
        targets = jax.random.permutation(two, jnp.asarray(self.targets).shape[1])
        place = jnp.arange(self.most_tests)
        # Beyond what is asked for the places repeat the last item: the masks leave them out.
        own = jnp.take(nulls, jnp.arange(self.most_calibration), mode="clip")
        null = jnp.take(nulls, self.num_calibration + place - self.num_targets, mode="clip")
        found = jnp.take(targets, place, mode="clip")
        scores = jnp.where(target, jnp.take(self.targets, found, axis=1), jnp.take(self.nulls, null, axis=1))
        return jnp.take(self.nulls, own, axis=1), scores

    def _with_replacement(self, key: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, null, found = jax.random.split(key, 3)
        calibration = _perturbed(own, self.nulls, self.null_kernel, self.most_calibration)
        scores = jnp.where(
            target,
            _perturbed(found, self.targets, self.target_kernel, self.most_tests),
            _perturbed(null, self.nulls, self.null_kernel, self.most_tests),
        )
        return calibration, scores


def _places(design: Any) -> tuple[jax.Array, dict[str, Any]]:
    """Which places hold targets, and which hold items at all."""
    place = jnp.arange(design.most_tests)
    masks = {
        "mask": place < design.num_tests,
        "calibration_mask": jnp.arange(design.most_calibration) < design.num_calibration,
    }
    return place < design.num_targets, masks


def _perturbed(key: jax.Array, values: Any, kernel: Any, size: int) -> jax.Array:
    """[K, size] items of a pool at random, each moved by a normal vector of its own."""
    choosing, moving = jax.random.split(key)
    values = jnp.asarray(values)
    which = jax.random.randint(choosing, (size,), 0, values.shape[1])
    z = jax.random.normal(moving, (values.shape[0], size))
    return values[:, which] + jnp.asarray(kernel) @ z
