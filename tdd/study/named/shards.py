"""Shards of a data set whose order a model may have seen: synthetic, or a given table of log-probabilities."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.procedures.exchangeability import exchangeability
from tdd.records import Null, pytree
from tdd.study.sample import Sample

__all__ = ["OrderedShards", "ShardPool", "decide"]

NUM_DRAWS = 999


@pytree("max_shards", "num_shuffles")
class OrderedShards:
    """N examples in r shards of s = N/r; an example gains where it follows its canonical neighbour.

    The log-probability of a shard of s examples in some order is normal with variance s, about `gain` times the number
    of canonical neighbours: s - 1 in the canonical order, and (s - 1)/s on average in a random one. Few shards leave
    few degrees of freedom, many shards cut through many neighbours.

    Attributes:
      max_shards: bound of r; a mask says which shards are real.
      num_shuffles: k.
      num_shards: r.
      num_examples: N.
      gain: in standard deviations of an example's log-probability; 0 is the null.
    """

    null: ClassVar[Null] = "nonmember"

    max_shards: int = 20
    num_shuffles: int = 25
    num_shards: Any = 20
    num_examples: Any = 1_000
    gain: Any = 0.0

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra` as `decide` reads it."""
        size = jnp.asarray(self.num_examples, jnp.result_type(float)) / self.num_shards
        gain = jnp.asarray(self.gain, jnp.result_type(float))
        own, others = jax.random.split(key)
        canonical = jax.random.normal(own, (self.max_shards,)) * jnp.sqrt(size) + gain * (size - 1)
        shuffled = jax.random.normal(others, (self.max_shards, self.num_shuffles)) * jnp.sqrt(size)
        shuffled = shuffled + gain * (size - 1) / size
        return _sample(canonical, shuffled, jnp.arange(self.max_shards) < self.num_shards, gain > 0)


@pytree("num_shuffles")
class ShardPool:
    """Some shards of a given table, drawn anew, with the first k of their shuffles.

    Attributes:
      canonical: [at least r] log-probabilities.
      shuffled: [as many, at least k].
      num_shuffles: k.
      num_shards: r.
      gain: 1 keeps the canonical orders where they are; 0 puts in the place of each one of its k + 1 orders at random,
        which makes the null true.
    """

    null: ClassVar[Null] = "nonmember"

    canonical: Any
    shuffled: Any
    num_shuffles: int = 1
    num_shards: Any = 2
    gain: Any = 1.0

    def draw(self, key: jax.Array) -> Sample:
        """One choice of shards, with `extra` as `decide` reads it."""
        which, mixing = jax.random.split(key)
        canonical, shuffled = (jnp.asarray(x, jnp.result_type(float)) for x in (self.canonical, self.shuffled))
        chosen = jax.random.permutation(which, canonical.shape[0])
        orders = jnp.concatenate([canonical[:, None], shuffled[:, : self.num_shuffles]], axis=1)[chosen]
        mixed = jax.random.permutation(mixing, orders, axis=1, independent=True)
        shown = jnp.asarray(self.gain) > 0
        orders = jnp.where(shown, orders, mixed)
        return _sample(orders[:, 0], orders[:, 1:], jnp.arange(canonical.shape[0]) < self.num_shards, shown)


def decide(key: jax.Array, scores: Any, calibration: Any, *, alpha: float, extra: Any, test: Any) -> jax.Array:
    """[1] bool, whether the test is significant; `scores` and `calibration` tell it nothing.

    Args:
      key: PRNG key.
      scores: unused.
      calibration: unused.
      alpha: level.
      extra: "canonical" [r], "shuffled" [r, k], "shards" [r] bool, True = real shard.
      test: of `tdd.exchangeability`.
    """
    del scores, calibration
    orders = extra["canonical"], extra["shuffled"]
    found = exchangeability(*orders, test=test, key=key, num_draws=NUM_DRAWS, mask=extra["shards"])
    return (found.p_value <= alpha)[None]


def _sample(canonical: jax.Array, shuffled: jax.Array, real: jax.Array, target: jax.Array) -> Sample:
    extra = {"canonical": canonical, "shuffled": shuffled, "shards": real}
    return Sample(jnp.zeros(1), jnp.zeros(1), target[None], extra=extra)
