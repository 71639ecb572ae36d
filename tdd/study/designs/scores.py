"""One score an item: shifted normal laws, mixtures of them, or scores beside those of knockoffs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Null, pytree
from tdd.study.designs import checks
from tdd.study.designs import labels as labelling
from tdd.study.designs.checks import is_known
from tdd.study.sample import Sample
from tdd.validate.errors import InputError

__all__ = ["LAWS", "Mixture", "NormalShift", "PairedScores"]

LAWS = ("normal", "exponential", "negative_exponential", "lognormal")


@pytree("num_calibration", "num_tests", "null", "labels")
class NormalShift:
    """Independent scores: N(0, 1) under the null, N(-+signal, spread^2) for targets.

    Targets are members and lie lower for `null="nonmember"`, non-members and higher for `null="member"`.

    Attributes:
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      signal: distance of the means, in standard deviations of the null.
      spread: standard deviation of the targets' scores.
      null: the kind of items that calibrate.
      labels: "fixed" (the first round(target_share·m) items) or "random" (each with that probability).

    >>> import jax
    >>> NormalShift(num_calibration=5, num_tests=4).draw(jax.random.key(0)).target.tolist()
    [True, True, False, False]
    """

    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    signal: Any = 2.0
    spread: Any = 1.0
    null: Null = "nonmember"
    labels: labelling.Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1), signal=(None, None), spread=(0, None))
        checks.check_names(self, null=checks.NULLS, labels=labelling.LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, test_key, label_key = jax.random.split(key, 3)
        target = labelling.draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        z = jax.random.normal(test_key, (self.num_tests,))
        shifted = labelling.direction(self.null) * self.signal + self.spread * z
        scores = jnp.where(target, shifted, z)
        return Sample(jax.random.normal(calibration_key, (self.num_calibration,)), scores, target)


@pytree("num_calibration", "num_tests", "null", "labels")
class Mixture:
    """Independent scores; each law is a mixture of normal components, given as rows (weight, mean, sd).

    Attributes:
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      null_components: [C, 3] of calibration and null items; weights are relative.
      target_components: [D, 3] of targets; by default half of them lie far below the others.
      null: the kind of items that calibrate.
      labels: "fixed" (the first round(target_share·m) items) or "random" (each with that probability).
    """

    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    null_components: Any = ((1.0, 0.0, 1.0),)
    target_components: Any = ((1.0, -3.0, 1.0), (1.0, -0.5, 1.0))
    null: Null = "nonmember"
    labels: labelling.Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1))
        _check_components(self, "null_components", "target_components")
        checks.check_names(self, null=checks.NULLS, labels=labelling.LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, null_key, target_key, label_key = jax.random.split(key, 4)
        target = labelling.draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        scores = jnp.where(
            target,
            _draw(target_key, self.target_components, self.num_tests),
            _draw(null_key, self.null_components, self.num_tests),
        )
        return Sample(_draw(calibration_key, self.null_components, self.num_calibration), scores, target)


def _draw(key: jax.Array, components: Any, size: int) -> jax.Array:
    """[size] draws of a mixture."""
    weight, mean, spread = jnp.asarray(components, jnp.result_type(float)).T
    choosing, drawing = jax.random.split(key)
    component = jax.random.categorical(choosing, jnp.log(weight), shape=(size,))
    return mean[component] + spread[component] * jax.random.normal(drawing, (size,))


def _check_components(design: Any, *names: str) -> None:
    """Check components of a normal mixture: rows (weight, mean, sd)."""
    for name in names:
        value = getattr(design, name)
        if not is_known(value):
            continue
        where = f"{type(design).__name__}: {name}"
        try:
            rows = np.asarray(value, float)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where} must be rows (weight, mean, sd): {error}") from error
        if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
            raise InputError(f"{where} must be rows (weight, mean, sd), at least one; got shape {rows.shape}")
        if not np.isfinite(rows).all() or (rows[:, 0] < 0).any() or rows[:, 0].sum() <= 0 or (rows[:, 2] < 0).any():
            raise InputError(f"{where} needs finite means, weights and sds that are not negative; got {value!r}")


@pytree("num_tests", "num_knockoffs", "num_calibration", "law", "labels")
class PairedScores:
    """The k + 1 scores of an item, text and knockoffs, are an item's level plus independent draws of one law.

    The own score of a member is lower by `signal`. So the copies of a non-member are exchangeable, and the W of
    non-members are symmetric about 0 for k = 1 but, unless the law is symmetric, not for k > 1.

    Attributes:
      num_tests: m.
      num_knockoffs: k.
      num_calibration: n, known non-members with knockoffs of their own.
      target_share: fraction of the test items that are members.
      signal: shift of a member's own score to lower values.
      item_spread: standard deviation of the items' levels.
      law: "normal" N(0, 1), "exponential" Exp(1), "negative_exponential" -Exp(1), or "lognormal" exp(N(0, 1)).
      labels: "fixed" (the first round(target_share·m) items) or "random" (each with that probability).
    """

    null: ClassVar[Null] = "nonmember"

    num_tests: int = 200
    num_knockoffs: int = 1
    num_calibration: int = 200
    target_share: Any = 0.5
    signal: Any = 2.0
    item_spread: Any = 1.0
    law: Literal["normal", "exponential", "negative_exponential", "lognormal"] = "normal"
    labels: labelling.Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_tests", "num_knockoffs", "num_calibration")
        checks.check_numbers(self, target_share=(0, 1), signal=(None, None), item_spread=(0, None))
        checks.check_names(self, law=LAWS, labels=labelling.LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["knockoffs"]` [m, k] and `extra["calibration_knockoffs"]` [n, k]."""
        calibration_key, test_key, label_key = jax.random.split(key, 3)
        target = labelling.draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        calibration, others = self._copies(calibration_key, self.num_calibration)
        scores, knockoffs = self._copies(test_key, self.num_tests)
        return Sample(
            calibration,
            scores - self.signal * target,
            target,
            extra={"knockoffs": knockoffs, "calibration_knockoffs": others},
        )

    def _copies(self, key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        """[size] first copies and [size, k] others."""
        level, single = jax.random.split(key)
        shape = (size, self.num_knockoffs + 1)
        if self.law in ("exponential", "negative_exponential"):
            x = jax.random.exponential(single, shape) * (1 if self.law == "exponential" else -1)
        else:
            x = jax.random.normal(single, shape)
            x = jnp.exp(x) if self.law == "lognormal" else x
        x = x + self.item_spread * jax.random.normal(level, (size, 1))
        return x[:, 0], x[:, 1:]
