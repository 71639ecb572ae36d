"""Does the published order of a data set look random? Tests of that without any model.

A model finds an order with visible structure (sorted by topic, numbered, alternating answers) more or less likely
than its shuffles without ever having seen the data set; the test of canonical order then says nothing about training.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.exchange.properties import properties, shown, statistic
from tdd.exchange.repeats import Repeats, duplicates
from tdd.exchange.sortedness import sortedness
from tdd.records import Guarantee
from tdd.validate.arrays import as_count

__all__ = ["OrderStructure", "OrderTest", "Repeats", "duplicates", "order_structure", "sortedness"]

GUARANTEE_ROWS = [
    (
        "tdd.run_exchange",
        "structure of the order",
        Guarantee(
            "P(p <= t) <= t for every t",
            ("the examples are exchangeable within shards",),
            "finite-sample",
            "permutation p-values of each property, Bonferroni over them",
        ),
    )
]

_BLOCK = 400  # examples that are shuffled among themselves: similarities of all pairs of them are held in memory
_MAX_EXAMPLES = 20_000


@dataclasses.dataclass(frozen=True)
class OrderTest:
    """One property of the order against its shuffles.

    Attributes:
      name: "neighbours" (mean TF-IDF cosine of adjacent examples), "lengths" (rank correlation of position and length
        in characters), "alphabet" (share of neighbours in ascending alphabetical order, ties counted half), "numbers"
        (likewise of the first number in each text), or "field NAME" (share of neighbours with the same value).
      observed: the property of the published order.
      expected: its mean over the shuffles.
      p_value: two-sided permutation p-value.
    """

    name: str
    observed: float
    expected: float
    p_value: float


@dataclasses.dataclass(frozen=True)
class OrderStructure:
    """What the order shows without a model.

    Attributes:
      tests: one for each property that the examples can show at all.
      p_value: min(1, number of tests times the smallest p-value); 1 without tests.
      num_draws: shuffles behind each p-value.
      num_examples: examples that were looked at; large data sets are sampled in whole blocks, evenly over the file.
    """

    tests: tuple[OrderTest, ...]
    p_value: float
    num_draws: int
    num_examples: int


def order_structure(
    examples: Sequence[str],
    bounds: Sequence[tuple[int, int]],
    *,
    seed: int,
    num_draws: int = 2_999,
    fields: Mapping[str, Sequence[Any]] | None = None,
) -> OrderStructure:
    """Test whether the published order differs from shuffles within shards, without a model.

    Each property is compared with its values in `num_draws` uniform shuffles of the examples within their shards, the
    group under which the test on the model shuffles too (within blocks of at most 400 examples of a shard, a subgroup).
    p = min(1, 2 min(1 + #{at least}, 1 + #{at most}) / (1 + num_draws)), ties against; Bonferroni over the properties.

    Guarantee: P(p <= t) <= t, finite-sample, for examples that are exchangeable within shards. A large p-value does not
    show that they are: structure of other kinds is not seen.

    Args:
      examples: the texts in published order.
      bounds: (first, stop) of each shard.
      seed: of the shuffles.
      num_draws: shuffles.
      fields: further values of each example (a label, a source); those that repeat are tested for runs.

    Returns:
      `OrderStructure`.

    Raises:
      InputError: num_draws below 1.

    Cost: O(num_draws N) and, for N examples in shards of m, O(N min(m, 400)) similarities; 20,000 examples at most are
    looked at, of each the first 5,000 characters.

    >>> texts = [f"{animal} number {i}" for animal in ("cat", "dog") for i in range(30)]
    >>> order_structure(texts, [(0, 60)], seed=0).p_value < 0.05
    True
    """
    num_draws = as_count(num_draws, "num_draws")
    blocks = _blocks(bounds)
    found = properties(examples, fields or {}, blocks)
    rng = np.random.default_rng([seed, 0x5EED])
    sizes = [stop - first for first, stop in blocks]
    totals = np.zeros((len(found), num_draws + 1), np.int64)
    for place, size in enumerate(sizes):
        orders = np.tile(np.arange(size), (num_draws + 1, 1))
        orders[1:] = rng.permuted(orders[1:], axis=1)
        for row, prop in enumerate(found):
            totals[row] += statistic(prop.kind, prop.values[place], orders)
    tests = []
    for prop, row in zip(found, totals, strict=True):
        in_words = shown(prop, sizes)
        p = float(two_sided(row[0], row[1:]))
        tests.append(OrderTest(prop.name, in_words(row[0]), in_words(row[1:].mean()), p))
    smallest = min((test.p_value for test in tests), default=1.0)
    return OrderStructure(tuple(tests), min(1.0, smallest * max(1, len(tests))), num_draws, sum(sizes))


def two_sided(observed: Any, drawn: np.ndarray) -> np.ndarray:
    """Two-sided permutation p-values of observed [...] among drawn [..., B]; ties and the order itself count."""
    observed = np.asarray(observed)[..., None]
    fewer = np.minimum((drawn >= observed).sum(axis=-1), (drawn <= observed).sum(axis=-1))
    return np.minimum(1, 2 * (1 + fewer) / (1 + drawn.shape[-1]))


def _blocks(bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Shards in pieces of at most `_BLOCK`, none of a single example; of too many, an even choice."""
    pieces = []
    for first, stop in bounds:
        number = -(-(stop - first) // _BLOCK)
        cuts = [first + (stop - first) * i // number for i in range(number + 1)] if number else []
        pieces += [(a, b) for a, b in itertools.pairwise(cuts) if b - a > 1]
    every = -(-sum(b - a for a, b in pieces) // _MAX_EXAMPLES)
    return pieces[:: max(1, every)]
