"""Shards of a finished test of canonical order, drawn anew."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.sample import Sample

__all__ = ["ResampledShards"]


@pytree("num_shards", "num_shuffles")
class ResampledShards:
    """Shards drawn with replacement from those of a finished test, and of each some of its shuffles.

    Shuffles are drawn without replacement where there are enough of them (of the second kind below k + 1), with
    replacement otherwise.

    Attributes:
      num_shards: r.
      num_shuffles: k.
      observed: True: the canonical order of a drawn shard is its own. False: it is another one of its shuffles, raised
        by `signal` standard deviations of them in the first round(shifted_share·r) shards.
      canonical: [r0] log-probability minus the mean of the shuffles of its shard.
      shuffled: [r0, k0] log-probabilities of shuffles minus the mean of their shard.
      signal: in standard deviations of a shuffle; not read where `observed`.
      shifted_share: share of the shards that show it; not read where `observed`.
    """

    null: ClassVar[Null] = "nonmember"

    num_shards: int
    num_shuffles: int
    observed: Any
    canonical: Any
    shuffled: Any
    signal: Any = 0.0
    shifted_share: Any = 1.0

    def draw(self, key: jax.Array) -> Sample:
        """One data set: `extra["canonical"]` [r], `extra["shuffled"]` [r, k]; `scores` as of `SkewedShards`."""
        canonical, shuffled = jnp.asarray(self.canonical), jnp.asarray(self.shuffled)
        one, two, three = jax.random.split(key, 3)
        rows = jax.random.randint(one, (self.num_shards,), 0, canonical.shape[0])
        there = shuffled.shape[1]
        order = jnp.argsort(jax.random.bits(two, (self.num_shards, there)), axis=1)  # columns in random order
        others = order[:, 1 : 1 + self.num_shuffles]  # none of them the one that may stand for the canonical order
        if self.num_shuffles >= there:
            again = jax.random.randint(three, (self.num_shards, self.num_shuffles), 1, there)
            others = jnp.take_along_axis(order, again, axis=1)
            if self.num_shuffles == there:
                others = jnp.where(self.observed, order, others)
        found = shuffled[rows[:, None], others]
        share = jnp.asarray(self.shifted_share, found.dtype)
        shown = jnp.arange(self.num_shards) < jnp.rint(share * self.num_shards)
        raised = shuffled[rows, order[:, 0]] + self.signal * jnp.std(shuffled, axis=1, ddof=1)[rows] * shown
        own = jnp.where(self.observed, canonical[rows], raised)
        orders = jnp.concatenate([own[:, None], found], axis=1)
        sums = -jnp.sum(orders, axis=0)
        extra = {"canonical": orders[:, 0], "shuffled": orders[:, 1:]}
        return Sample(sums[1:], sums[:1], jnp.ones(1, bool), extra=extra)
