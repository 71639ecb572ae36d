"""A given table of texts and paraphrases as a design."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.sample import Sample

__all__ = ["KnockoffPool"]


@pytree("num_knockoffs")
class KnockoffPool:
    """Half of the items, drawn anew in each repetition, with the first k of their knockoffs.

    Attributes:
      scores: [N] loss-like scores of the texts.
      knockoffs: [N, at least k] of their knockoffs.
      is_member: [N] bool.
      num_knockoffs: k.
    """

    null: ClassVar[Null] = "nonmember"

    scores: Any
    knockoffs: Any
    is_member: Any
    num_knockoffs: int = 1

    def draw(self, key: jax.Array) -> Sample:
        """One half, with `extra["knockoffs"]` [m, k]."""
        scores = jnp.asarray(self.scores, jnp.result_type(float))
        knockoffs = jnp.asarray(self.knockoffs, jnp.result_type(float))[:, : self.num_knockoffs]
        chosen = jax.random.permutation(key, scores.shape[0])[: scores.shape[0] // 2]
        target = jnp.asarray(self.is_member)[chosen]
        return Sample(scores[:0], scores[chosen], target, extra={"knockoffs": knockoffs[chosen]})
