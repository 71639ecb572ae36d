"""Does the published order of a data set look random, and do its examples repeat each other? Without any model.

A model finds an order with visible structure (sorted by topic, numbered, alternating answers) more or less likely
than its shuffles without ever having seen the data set; the test of canonical order then says nothing about training.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.records import Guarantee
from tdd.texts.near import near_pairs
from tdd.texts.words import normalise, words_and_marks
from tdd.validate.arrays import as_count

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
_MAX_CHARACTERS = 5_000
_FIRST_NUMBER = re.compile(r"\d{1,15}")
_UNIT = 1 << 20  # similarities are whole multiples of 1/_UNIT
_SORTED_BY_CHANCE = 0.005 / 4  # by each of the four keys

_Kind = Literal["alike", "trend", "ascending", "equal"]


@dataclasses.dataclass(frozen=True)
class OrderTest:
    """One property of the order against its shuffles."""

    # "neighbours" (mean TF-IDF cosine of adjacent examples), "lengths" (rank correlation of position and length in
    # characters), "alphabet" (fraction of neighbours in ascending alphabetical order, ties counted half), "numbers"
    # (likewise of the first number in each text), or "field NAME" (fraction of neighbours with the same value)
    name: str
    observed: float  # the property of the published order
    expected: float  # its mean over the shuffles
    p_value: float  # two-sided permutation p-value


@dataclasses.dataclass(frozen=True)
class OrderStructure:
    """The structure of an order, seen without a model."""

    tests: tuple[OrderTest, ...]  # one for each property that the examples can show at all
    p_value: float  # min(1, number of tests times the smallest p-value); 1 without tests
    num_draws: int  # shuffles behind each p-value
    num_examples: int  # examples that were looked at; large data sets are sampled in whole blocks, evenly over the file


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
      examples: The texts in published order.
      bounds: (first, stop) of each shard.
      seed: Random seed.
      num_draws: Number of shuffles, at least 1.
      fields: Further values of each example (a label, a source); those that repeat are tested for runs.

    Cost: O(num_draws N) and, for N examples in shards of m, O(N min(m, 400)) similarities; 20,000 examples at most are
    looked at, of each the first 5,000 characters.

    >>> texts = [f"{animal} number {i}" for animal in ("cat", "dog") for i in range(30)]
    >>> order_structure(texts, [(0, 60)], seed=0).p_value < 0.05
    True
    """
    num_draws = as_count(num_draws, "num_draws")
    blocks = _blocks(bounds)
    properties = _properties(examples, fields or {}, blocks)
    rng = np.random.default_rng([seed, 0x5EED])
    sizes = [stop - first for first, stop in blocks]
    totals = np.zeros((len(properties), num_draws + 1), np.int64)
    for place, size in enumerate(sizes):
        orders = np.tile(np.arange(size), (num_draws + 1, 1))
        orders[1:] = rng.permuted(orders[1:], axis=1)
        for row, prop in enumerate(properties):
            totals[row] += _statistic(prop.kind, prop.values[place], orders)
    tests = []
    for prop, row in zip(properties, totals, strict=True):
        in_units = _in_units(prop, sizes)
        p = float(two_sided(row[0], row[1:]))
        tests.append(OrderTest(prop.name, in_units(row[0]), in_units(row[1:].mean()), p))
    smallest = min((test.p_value for test in tests), default=1.0)
    return OrderStructure(tuple(tests), min(1.0, smallest * max(1, len(tests))), num_draws, sum(sizes))


def sortedness(examples: Sequence[str]) -> str | None:
    """The key and direction by which the order is exactly sorted, "by text, ascending"; None if it is not.

    Keys: the text, the text without differences of case and white space, its length in characters, and the first
    number in it if every text has one. Ties are allowed, as long as a random order would be sorted by that key, in
    one of the two directions, with a probability of at most .00125: the order of six texts says little. A random order
    passes for sorted with a probability of at most .005.

    >>> sortedness(["ant", "bee", "Cat", "dog", "emu", "fox", "gnu"])
    'by text without case, ascending'
    """
    numbers = [_FIRST_NUMBER.search(text[:_MAX_CHARACTERS]) for text in examples]
    keys: dict[str, Sequence[Any]] = {
        "text": examples,
        "text without case": [normalise(text) for text in examples],
        "length": [len(text) for text in examples],
    }
    if all(numbers):
        keys["the first number in each text"] = [int(match[0]) for match in numbers if match]
    for name, values in keys.items():
        for direction, step in (("ascending", 1), ("descending", -1)):
            line = values[::step]
            if all(a <= b for a, b in itertools.pairwise(line)) and _by_chance(values) <= _SORTED_BY_CHANCE:
                return f"by {name}, {direction}"
    return None


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


def _by_chance(values: Sequence[Any]) -> float:
    """Probability that a random order is sorted by these keys, up or down (1 if all are equal)."""
    _, counts = np.unique(_codes(values), return_counts=True)
    return min(1.0, 2 * math.exp(sum(math.lgamma(n + 1) for n in counts) - math.lgamma(len(values) + 1)))


class _Property(NamedTuple):
    """A property of orders: whole numbers from which it is computed block by block; sums and ties are exact."""

    name: str
    kind: _Kind
    values: tuple[np.ndarray, ...]


def _properties(
    examples: Sequence[str], fields: Mapping[str, Sequence[Any]], blocks: Sequence[tuple[int, int]]
) -> list[_Property]:
    """The properties that the examples can show, whatever their order within the blocks."""
    rows = [row for first, stop in blocks for row in range(first, stop)]
    if not rows:
        return []
    cuts = np.cumsum([stop - first for first, stop in blocks])[:-1]
    texts = [examples[row][:_MAX_CHARACTERS] for row in rows]
    numbers = [_FIRST_NUMBER.search(text) for text in texts]
    keys: dict[str, tuple[_Kind, Sequence[Any]]] = {
        "lengths": ("trend", [len(examples[row]) for row in rows]),
        "alphabet": ("ascending", [normalise(text) for text in texts]),
    }
    if 2 * sum(match is not None for match in numbers) >= len(rows):
        keys["numbers"] = ("ascending", [int(match[0]) if match else -1 for match in numbers])
    chosen = [
        _Property(name, kind, tuple(_ranks(part) for part in np.split(_codes(values), cuts)))
        for name, (kind, values) in keys.items()
    ]
    for name, column in fields.items():
        labels = _codes([str(column[row]) for row in rows])
        if 2 * np.unique(labels).size <= labels.size:
            chosen.append(_Property(f"field {name}", "equal", tuple(np.split(labels, cuts))))
    chosen = [prop for prop in chosen if any(np.ptp(part) for part in prop.values)]
    similar = _similarities(texts, cuts)
    if any(np.ptp(part[~np.eye(len(part), dtype=bool)]) for part in similar):
        chosen.insert(0, _Property("neighbours", "alike", similar))
    return chosen


def _statistic(kind: _Kind, values: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The property of each order [..., m] of a block, as a whole number [...]: a sum that adds up over blocks."""
    before, after = orders[..., :-1], orders[..., 1:]
    if kind == "alike":
        return values[before, after].sum(axis=-1, dtype=np.int64)
    if kind == "trend":
        return (values[orders] * _places(orders.shape[-1])).sum(axis=-1)
    if kind == "ascending":
        return np.sign(values[after] - values[before]).sum(axis=-1)
    return (values[before] == values[after]).sum(axis=-1)


def _in_units(prop: _Property, sizes: Sequence[int]) -> Callable[[Any], float]:
    """The function from sums to the property in the units of `OrderTest`."""
    pairs = sum(size - 1 for size in sizes)
    if prop.kind == "trend":
        squares = [(np.sum(_places(m) ** 2), np.sum(part**2)) for m, part in zip(sizes, prop.values, strict=True)]
        scale = math.sqrt(float(sum(a for a, _ in squares)) * float(sum(b for _, b in squares)))
        return lambda total: float(total) / scale
    if prop.kind == "ascending":
        return lambda total: (float(total) / pairs + 1) / 2
    unit = _UNIT if prop.kind == "alike" else 1
    return lambda total: float(total) / pairs / unit


def _codes(values: Sequence[Any]) -> np.ndarray:
    """Whole numbers in the order of the values, equal for equal ones."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[value] for value in values], np.int64)


def _similarities(texts: list[str], cuts: np.ndarray) -> tuple[np.ndarray, ...]:
    """TF-IDF cosines within blocks, [m, m] int32 in units of 1/_UNIT."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words: Any = lambda text: words_and_marks(normalise(text))  # noqa: E731
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True)
    try:
        rows: Any = vectorizer.fit_transform(texts)
    except ValueError:  # no word in any text
        return ()
    edges = [0, *cuts.tolist(), len(texts)]
    parts = [rows[a:b] for a, b in itertools.pairwise(edges)]
    return tuple(np.rint((part @ part.T).toarray() * _UNIT).astype(np.int32) for part in parts)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Twice the midranks, centred: whole numbers that add up to 0."""
    from scipy.stats import rankdata

    return (2 * rankdata(values)).astype(np.int64) - len(values) - 1


def _places(size: int) -> np.ndarray:
    return 2 * np.arange(size) - (size - 1)


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Duplicates within a data set."""

    num_examples: int  # all examples
    num_distinct: int  # different texts among them
    num_groups: int  # texts that occur more than once
    largest_group: int  # examples of the most frequent text
    num_within_shards: int  # examples that repeat an earlier one of the same shard
    num_near: int  # examples with a near duplicate of another wording, whitespace or case
    share: float  # fraction of the examples that have an exact or a near duplicate
    # False if the search for near duplicates stopped early; `num_near` and `share` are then lower bounds
    complete: bool
    near: float  # Jaccard similarity from which a pair counts as near


def duplicates(
    examples: Sequence[str], bounds: Sequence[tuple[int, int]] | None = None, *, near: float = 0.8
) -> Repeats:
    """Count exact and near duplicates among the examples of a data set.

    Exact: equal strings. Near: different strings that are equal but for case, Unicode composition and white space, or
    whose sets of 5-grams (of words in long texts, of characters in short ones) have Jaccard similarity `near` or more.

    `bounds` are (first, stop) of each shard; without them the whole data set is one.

    Cost: linear in the length of the texts, plus about 5 million comparisons of pairs at most.

    >>> duplicates(["a cat", "a dog", "a cat"]).num_groups
    1
    """
    times = collections.Counter(examples)
    bounds = [(0, len(examples))] if bounds is None else bounds
    folded: dict[str, set[str]] = {}
    for text in times:
        folded.setdefault(normalise(text), set()).add(text)
    distinct = list(folded)
    (left, right, _), complete = near_pairs(distinct, distinct, near)
    close = {distinct[i] for i in np.union1d(left, right)} | {text for text, same in folded.items() if len(same) > 1}
    has_near = {text for group in close for text in folded[group]}
    with_copy = sum(count for text, count in times.items() if count > 1 or text in has_near)
    return Repeats(
        num_examples=len(examples),
        num_distinct=len(times),
        num_groups=sum(count > 1 for count in times.values()),
        largest_group=max(times.values(), default=0),
        num_within_shards=sum(stop - first - len(set(examples[first:stop])) for first, stop in bounds),
        num_near=sum(times[text] for text in has_near),
        share=with_copy / max(1, len(examples)),
        complete=complete,
        near=near,
    )
