"""Log-probabilities of shards in canonical and shuffled order: one hypothesis a data set."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study import checks
from tdd.study.sample import Sample

__all__ = ["LAWS", "SkewedShards"]

LAWS = ("normal", "exponential", "lognormal")


@pytree("num_shards", "num_shuffles", "law")
class SkewedShards:
    """Independent log-probabilities of one law for every order of every shard; the canonical ones may be raised.

    The one item to decide on (m = 1) is the data set: selecting it is right where signal·shifted_share > 0. So the
    false discovery rate is the size of a test for `signal=0`, and the power its power otherwise.

    Attributes:
      num_shards: r.
      num_shuffles: k.
      signal: shift of the canonical order, in standard deviations, in the shards that show it.
      shifted_share: fraction of the shards that do (the first round(shifted_share·r)).
      law: "normal", "exponential" (-Exp(1)) or "lognormal" (-exp(N(0, 1))), the latter two with a long left tail; each
        scaled to standard deviation 1.
    """

    null: ClassVar[Null] = "nonmember"

    num_shards: int = 50
    num_shuffles: int = 50
    signal: Any = 0.0
    shifted_share: Any = 1.0
    law: Literal["normal", "exponential", "lognormal"] = "exponential"

    def __post_init__(self):
        checks.check_counts(self, "num_shards", "num_shuffles")
        checks.check_numbers(self, signal=(0, None), shifted_share=(0, 1))
        checks.check_names(self, law=LAWS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set: `extra["canonical"]` [r], `extra["shuffled"]` [r, k].

        `calibration` [k] and `scores` [1] are minus the sums over shards: PTDI on them is the permutation test.
        """
        shape = (self.num_shards, self.num_shuffles + 1)
        if self.law == "exponential":
            orders = -jax.random.exponential(key, shape)
        else:
            z = jax.random.normal(key, shape)
            orders = z if self.law == "normal" else -jnp.exp(z) / math.sqrt(math.e * (math.e - 1))
        shown = jnp.arange(self.num_shards) < jnp.rint(jnp.asarray(self.shifted_share, orders.dtype) * self.num_shards)
        orders = orders.at[:, 0].add(self.signal * shown)
        sums = -jnp.sum(orders, axis=0)
        target = (jnp.asarray(self.signal) > 0) & jnp.any(shown)
        return Sample(sums[1:], sums[:1], target[None], extra={"canonical": orders[:, 0], "shuffled": orders[:, 1:]})
