"""Shards of a data set and the orders of each: the canonical one and uniform draws from a group of permutations."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from tdd.exchange.data import ExampleSet
from tdd.validate.errors import InputError

__all__ = ["Shards", "shard_bounds"]


def shard_bounds(num_examples: int, num_shards: int) -> tuple[tuple[int, int], ...]:
    """Contiguous shards (first, stop) that cover all examples; the first N mod r have one example more.

    >>> shard_bounds(7, 3)
    ((0, 3), (3, 5), (5, 7))
    """
    size, more = divmod(num_examples, num_shards)
    edges = np.cumsum([0, *(size + (shard < more) for shard in range(num_shards))])
    return tuple((int(a), int(b)) for a, b in itertools.pairwise(edges))


@dataclasses.dataclass(frozen=True)
class Shards:
    """The orders of every shard of a data set.

    Order 0 is the canonical one. Order b >= 1 is an independent uniform draw from the permutations of the last
    `num_free(shard)` examples of the shard, the identity among them: a group, as the tests require. It depends on
    the seed, the data set, the shard and b alone, so that more shuffles leave those before them as they are.

    Attributes:
      data: The data set.
      bounds: (first, stop) of each shard.
      suffix: Fraction of each shard that is permuted.
      seed: Random seed of the draws.
    """

    data: ExampleSet
    bounds: tuple[tuple[int, int], ...]
    suffix: float
    seed: int

    @classmethod
    def cut(cls, data: ExampleSet, *, num_shards: int, suffix: float, seed: int) -> Shards:
        """Contiguous shards.

        Raises:
          InputError: fewer than two examples a shard.
        """
        _check_num_shards(data.name, num_shards, len(data))
        return cls(data, shard_bounds(len(data), num_shards), suffix, seed)

    def __len__(self) -> int:
        return len(self.bounds)

    def size(self, shard: int) -> int:
        """Examples of a shard."""
        first, stop = self.bounds[shard]
        return stop - first

    def num_free(self, shard: int) -> int:
        """Number of examples at the end of a shard that are permuted: `suffix` of it, rounded up, at least two."""
        return max(2, math.ceil(self.suffix * self.size(shard) - 1e-9))

    @property
    def permuted(self) -> tuple[tuple[int, int], ...]:
        """(first, stop) of the part of each shard that is permuted."""
        return tuple((stop - self.num_free(shard), stop) for shard, (_, stop) in enumerate(self.bounds))

    def order(self, shard: int, number: int) -> np.ndarray:
        """Order `number` of a shard, as indices of examples of the data set."""
        first, stop = self.bounds[shard]
        indices = np.arange(first, stop)
        if number > 0:
            free = self.num_free(shard)
            words = [self.seed, int(self.data.sha256[:16], 16), shard, number]
            indices[-free:] = np.random.default_rng(words).permutation(indices[-free:])
        return indices

    def fixed_text(self, shard: int, separator: str) -> str:
        """The examples that keep their places, joined; empty if all are permuted."""
        first, stop = self.bounds[shard]
        return separator.join(self.data.examples[first : stop - self.num_free(shard)])

    def text(self, shard: int, number: int, separator: str) -> str:
        """A shard in one of its orders, as one text."""
        return separator.join(self.data.examples[index] for index in self.order(shard, number))


def _check_num_shards(name: str, num_shards: int, num_examples: int) -> None:
    """At least two examples a shard: one has a single order."""
    if num_shards * 2 > num_examples:
        most = num_examples // 2
        fix = f"use num_shards={most} or fewer" if most else "a data set needs two examples at least"
        fewer = "fewer examples than shards" if num_examples < num_shards else "shards of a single example"
        raise InputError(
            f"data set {name!r} has {num_examples} examples for num_shards={num_shards}: {fewer}, and a shard of one "
            f"has no other order; {fix}"
        )
