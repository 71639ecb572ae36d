"""Scores of the same items by several detectors, or by several models with labels of their own."""

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

__all__ = ["LAWS", "CorrelatedDetectors", "JointLabels"]

LAWS = ("normal", "uniform", "exponential", "lognormal")


@pytree("num_detectors", "num_calibration", "num_tests", "null", "law", "labels")
class CorrelatedDetectors:
    """K scores an item, joined by a normal copula with equal correlations, or by Student's.

    Z_k = sqrt(correlation)·Z + sqrt(1 - correlation)·E_k, shifted by -+signal_k for targets (lower for
    `null="nonmember"`, higher for `null="member"`), then brought to the marginal law by an increasing function; ranks,
    and with them every method of `tdd` for several detectors, do not see that function.

    Attributes:
      num_detectors: K.
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      signal: shift, one number or [K], in standard deviations.
      correlation: correlation of any two detectors, in [0, 1].
      degrees: degrees of freedom: the null vector (Z_k) is divided by sqrt(chi^2/degrees), one an item, which makes
        extreme scores of different detectors come together (Student's copula). None: normal.
      null: the kind of items that calibrate.
      law: law of a null score: "normal", "uniform" on (0, 1), "exponential" with mean 1, or "lognormal"; only "normal"
        (no function) where `degrees` are given, and the marginal law is Student's then.
      labels: "fixed" (the first round(target_share·m) items) or "random" (each with that probability).
    """

    num_detectors: int = 5
    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    signal: Any = 1.0
    correlation: Any = 0.3
    degrees: Any = None
    null: Null = "member"
    law: Literal["normal", "uniform", "exponential", "lognormal"] = "normal"
    labels: labelling.Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_detectors", "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1), correlation=(0, 1), degrees=(0.1, None))
        _check_signal(self.signal, self.num_detectors)
        checks.check_names(self, null=checks.NULLS, law=LAWS, labels=labelling.LABELS)
        if self.degrees is not None and self.law != "normal":
            raise InputError(
                'CorrelatedDetectors: with degrees the law must be "normal" (the margins are Student\'s), got '
                f"{self.law!r}"
            )

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, test_key, label_key = jax.random.split(key, 3)
        target = labelling.draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        signal = jnp.broadcast_to(jnp.asarray(self.signal, jnp.result_type(float)), (self.num_detectors,))
        shift = labelling.direction(self.null) * signal[:, None] * target
        return Sample(
            self._marginal(self._nulls(calibration_key, self.num_calibration)),
            self._marginal(self._nulls(test_key, self.num_tests) + shift),
            target,
        )

    def _nulls(self, key: jax.Array, size: int) -> jax.Array:
        """[K, size] vectors of the copula, before the marginal law."""
        common, single, scaling = jax.random.split(key, 3)
        rho = jnp.asarray(self.correlation, jnp.result_type(float))
        z = jnp.sqrt(rho) * jax.random.normal(common, (size,))
        z = z + jnp.sqrt(1 - rho) * jax.random.normal(single, (self.num_detectors, size))
        if self.degrees is None:
            return z
        half = jnp.asarray(self.degrees, jnp.result_type(float)) / 2
        return z / jnp.sqrt(jax.random.gamma(scaling, half, (size,)) / half)

    def _marginal(self, z: jax.Array) -> jax.Array:
        """Increasing in z; of the law that is asked for where z is standard normal."""
        if self.law == "uniform":
            return jax.scipy.special.ndtr(z)
        if self.law == "exponential":
            return -jax.scipy.special.log_ndtr(-z)
        return jnp.exp(z) if self.law == "lognormal" else z


def _check_signal(signal: Any, num_detectors: int) -> None:
    """Check for one shift, or one a detector."""
    if not is_known(signal):
        return
    shifts = np.asarray(signal, float)
    if shifts.shape not in ((), (num_detectors,)) or not np.isfinite(shifts).all():
        raise InputError(
            f"CorrelatedDetectors: signal must be one finite number or {num_detectors}, one a detector; got {signal!r}"
        )


@pytree("num_models", "num_calibration", "num_tests")
class JointLabels:
    """Items that all models were trained on calibrate; each of the others is a member of each model at random.

    A test item is a member of each model with the same probability, independently over items and models; targets are
    the items that no model was trained on. Scores are N(-signal·member, 1), independent over items and models:
    loss-like, so that members score lower (the paper has the other sign). The defaults are 30 % and 70 % of 2,000 items
    and five models.

    Attributes:
      num_models: K.
      num_calibration: n, items that every model was trained on.
      num_tests: m.
      signal: distance between the mean scores of non-members and members, in standard deviations.
      member_share: probability that a test item is a member of one model; a target is a member of none.

    References: JECS, appendix E.1.
    """

    null: ClassVar[Null] = "member"

    num_models: int = 5
    num_calibration: int = 600
    num_tests: int = 1400
    signal: Any = 2.0
    member_share: Any = 0.25

    def __post_init__(self):
        checks.check_counts(self, "num_models", "num_calibration", "num_tests")
        checks.check_numbers(self, signal=(None, None), member_share=(0, 1))

    def draw(self, key: jax.Array) -> Sample:
        """One data set; `extra["member"]` [K, m] says which model was trained on which item."""
        labels, calibration, scores = jax.random.split(key, 3)
        member = jax.random.bernoulli(labels, self.member_share, (self.num_models, self.num_tests))
        return Sample(
            jax.random.normal(calibration, (self.num_models, self.num_calibration)) - self.signal,
            jax.random.normal(scores, (self.num_models, self.num_tests)) - self.signal * member,
            ~jnp.any(member, axis=0),
            extra={"member": member},
        )
