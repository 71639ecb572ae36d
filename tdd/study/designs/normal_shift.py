"""Normal scores, shifted for the items that are right to select."""

from __future__ import annotations

from typing import Any

import jax

from tdd.records import Null, pytree
from tdd.study.designs import checks
from tdd.study.designs import labels as labelling
from tdd.study.sample import Sample

__all__ = ["NormalShift"]


@pytree("num_calibration", "num_tests", "null", "labels")
class NormalShift:
    """Independent scores: N(0, 1) under the null, N(-+signal, spread^2) for targets.

    Targets are members and lie lower for `null="nonmember"`, non-members and higher for `null="member"`.

    Attributes:
      num_calibration: n.
      num_tests: m.
      target_share: share of the test items that are targets.
      signal: distance of the means, in standard deviations of the null.
      spread: standard deviation of the targets' scores.
      null: which items calibrate.
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
        own, test, which = jax.random.split(key, 3)
        target = labelling.draw_targets(which, self.num_tests, self.target_share, self.labels)
        z = jax.random.normal(test, (self.num_tests,))
        shifted = labelling.direction(self.null) * self.signal + self.spread * z
        scores = jax.numpy.where(target, shifted, z)
        return Sample(jax.random.normal(own, (self.num_calibration,)), scores, target)
