"""Items with one membership label a model: the synthetic set-up of JECS."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import checks
from tdd.study.sample import Sample

__all__ = ["JointLabels"]


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
