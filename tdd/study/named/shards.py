"""Shards of a data set whose order a model may have seen: synthetic, or a given table of log-probabilities."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.sample import Sample

__all__ = ["OrderedShards", "ShardPool"]


@pytree("num_shards", "num_shuffles", "num_examples")
class OrderedShards:
    """N examples in r shards of s = N/r; an example gains where it follows its canonical neighbour.

    The log-probability of a shard of s examples in some order is normal with variance s, about `gain` times the number
    of canonical neighbours: s - 1 in the canonical order, and (s - 1)/s on average in a random one. Few shards leave
    few degrees of freedom, many shards cut through many neighbours.

    Attributes:
      num_shards: r.
      num_shuffles: k.
      num_examples: N.
      gain: in standard deviations of an example's log-probability; 0 is the null.
    """

    null: ClassVar[Null] = "nonmember"

    num_shards: int = 20
    num_shuffles: int = 25
    num_examples: int = 1_000
    gain: Any = 0.0

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["canonical"]` [r] and `extra["shuffled"]` [r, k]."""
        size = self.num_examples / self.num_shards
        own, others = jax.random.split(key)
        gain = jnp.asarray(self.gain, jnp.result_type(float))
        spread = size**0.5
        canonical = spread * jax.random.normal(own, (self.num_shards,)) + gain * (size - 1)
        shuffled = spread * jax.random.normal(others, (self.num_shards, self.num_shuffles)) + gain * (size - 1) / size
        return _sample(canonical, shuffled, gain > 0)


@pytree("num_shards", "num_shuffles")
class ShardPool:
    """Some shards of a given table, drawn anew, with the first k of their shuffles.

    Attributes:
      canonical: [at least r] log-probabilities.
      shuffled: [as many, at least k].
      num_shards: r.
      num_shuffles: k.
      gain: 1 keeps the canonical orders where they are; 0 puts in the place of each one of its k + 1 orders at random,
        which makes the null true.
    """

    null: ClassVar[Null] = "nonmember"

    canonical: Any
    shuffled: Any
    num_shards: int = 2
    num_shuffles: int = 1
    gain: Any = 1.0

    def draw(self, key: jax.Array) -> Sample:
        """One choice of shards."""
        which, mixing = jax.random.split(key)
        chosen = jax.random.permutation(which, jnp.shape(self.canonical)[0])[: self.num_shards]
        canonical, shuffled = (jnp.asarray(x, jnp.result_type(float)) for x in (self.canonical, self.shuffled))
        orders = jnp.concatenate([canonical[:, None], shuffled[:, : self.num_shuffles]], axis=1)[chosen]
        mixed = jax.random.permutation(mixing, orders, axis=1, independent=True)
        shown = jnp.asarray(self.gain) > 0
        orders = jnp.where(shown, orders, mixed)
        return _sample(orders[:, 0], orders[:, 1:], shown)


def _sample(canonical: jax.Array, shuffled: jax.Array, target: jax.Array) -> Sample:
    sums = -jnp.sum(shuffled, axis=0)
    extra = {"canonical": canonical, "shuffled": shuffled}
    return Sample(sums, -jnp.sum(canonical)[None], target[None], extra=extra)
