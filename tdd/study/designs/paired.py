"""Texts with knockoffs (paraphrases): scores that come in pairs or larger groups."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import checks
from tdd.study.designs import labels as labelling
from tdd.study.sample import Sample

__all__ = ["LAWS", "PairedScores"]

LAWS = ("normal", "exponential", "negative_exponential", "lognormal")


@pytree("num_tests", "num_knockoffs", "num_calibration", "law", "labels")
class PairedScores:
    """The k + 1 scores of an item, text and knockoffs, are an item's level plus independent draws of one law.

    Of a member the text's own score is lower by `signal`. So the copies of a non-member are exchangeable, and the W of
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
        own, test, which = jax.random.split(key, 3)
        target = labelling.draw_targets(which, self.num_tests, self.target_share, self.labels)
        calibration, others = self._copies(own, self.num_calibration)
        scores, knockoffs = self._copies(test, self.num_tests)
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
