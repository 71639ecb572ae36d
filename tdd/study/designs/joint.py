"""Items with one membership label a model: the set-up of JECS."""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from tdd.records import Null, pytree
from tdd.study import joint_labels
from tdd.study.sample import Sample
from tdd.validate import studies as checks

__all__ = ["JointLabels"]


@pytree("num_models", "num_calibration", "num_tests")
class JointLabels:
    """`tdd.study.joint_labels.draw` as a design: targets are the items that no model was trained on.

    Attributes:
      num_models: K.
      num_calibration: n, items that every model was trained on.
      num_tests: m.
      signal: distance between the mean scores of non-members and members, in standard deviations.
      member_share: probability that a test item is a member of one model; a target is a member of none.
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
        drawn = joint_labels.draw(
            key,
            num_models=self.num_models,
            num_calibration=self.num_calibration,
            num_tests=self.num_tests,
            signal=self.signal,
            member_share=self.member_share,
        )
        return Sample(drawn.calibration, drawn.scores, ~drawn.contaminated, extra={"member": drawn.member})
