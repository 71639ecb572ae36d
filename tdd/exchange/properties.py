"""Properties of an order that need no model: whole numbers, so that sums and ties are exact."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.audit.word_split import normalise, words_and_marks

__all__ = ["FIRST_NUMBER", "MAX_CHARACTERS", "Property", "codes", "properties", "shown", "statistic"]

Kind = Literal["alike", "trend", "ascending", "equal"]

FIRST_NUMBER = re.compile(r"\d{1,15}")
MAX_CHARACTERS = 5_000
_UNIT = 1 << 20  # similarities are whole multiples of 1/_UNIT


class Property(NamedTuple):
    """A property of orders: integers from which it is computed, block by block."""

    name: str
    kind: Kind
    values: tuple[np.ndarray, ...]


def properties(
    examples: Sequence[str], fields: Mapping[str, Sequence[Any]], blocks: Sequence[tuple[int, int]]
) -> list[Property]:
    """What can be told of the order. The choice depends on the examples of each block, never on their order."""
    rows = [row for first, stop in blocks for row in range(first, stop)]
    if not rows:
        return []
    cuts = np.cumsum([stop - first for first, stop in blocks])[:-1]
    texts = [examples[row][:MAX_CHARACTERS] for row in rows]
    numbers = [FIRST_NUMBER.search(text) for text in texts]
    keys: dict[str, tuple[Kind, Sequence[Any]]] = {
        "lengths": ("trend", [len(examples[row]) for row in rows]),
        "alphabet": ("ascending", [normalise(text) for text in texts]),
    }
    if 2 * sum(match is not None for match in numbers) >= len(rows):
        keys["numbers"] = ("ascending", [int(match[0]) if match else -1 for match in numbers])
    found = [
        Property(name, kind, tuple(_ranks(part) for part in np.split(codes(values), cuts)))
        for name, (kind, values) in keys.items()
    ]
    for name, column in fields.items():
        labels = codes([str(column[row]) for row in rows])
        if 2 * np.unique(labels).size <= labels.size:
            found.append(Property(f"field {name}", "equal", tuple(np.split(labels, cuts))))
    found = [one for one in found if any(np.ptp(part) for part in one.values)]
    similar = _similarities(texts, cuts)
    if any(np.ptp(part[~np.eye(len(part), dtype=bool)]) for part in similar):
        found.insert(0, Property("neighbours", "alike", similar))
    return found


def statistic(kind: Kind, values: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The property of each order [..., m] of a block, as a whole number [...]: a sum that adds up over blocks."""
    before, after = orders[..., :-1], orders[..., 1:]
    if kind == "alike":
        return values[before, after].sum(axis=-1, dtype=np.int64)
    if kind == "trend":
        return (values[orders] * _places(orders.shape[-1])).sum(axis=-1)
    if kind == "ascending":
        return np.sign(values[after] - values[before]).sum(axis=-1)
    return (values[before] == values[after]).sum(axis=-1)


def shown(prop: Property, sizes: Sequence[int]) -> Callable[[Any], float]:
    """From sums to the property in the units of `OrderTest`."""
    pairs = sum(size - 1 for size in sizes)
    if prop.kind == "trend":
        squares = [(np.sum(_places(m) ** 2), np.sum(part**2)) for m, part in zip(sizes, prop.values, strict=True)]
        scale = math.sqrt(float(sum(a for a, _ in squares)) * float(sum(b for _, b in squares)))
        return lambda total: float(total) / scale
    if prop.kind == "ascending":
        return lambda total: (float(total) / pairs + 1) / 2
    unit = _UNIT if prop.kind == "alike" else 1
    return lambda total: float(total) / pairs / unit


def codes(values: Sequence[Any]) -> np.ndarray:
    """Whole numbers in the order of the values, equal for equal ones."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[value] for value in values], np.int64)


def _similarities(texts: list[str], cuts: np.ndarray) -> tuple[np.ndarray, ...]:
    """TF-IDF cosines within blocks, [m, m] int32 in units of 1/_UNIT."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words: Any = _words
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True)
    try:
        rows: Any = vectorizer.fit_transform(texts)
    except ValueError:  # no word in any text
        return ()
    edges = [0, *cuts.tolist(), len(texts)]
    parts = [rows[a:b] for a, b in itertools.pairwise(edges)]
    return tuple(np.rint((part @ part.T).toarray() * _UNIT).astype(np.int32) for part in parts)


def _words(text: str) -> list[str]:
    return words_and_marks(normalise(text))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Twice the midranks, centred: whole numbers that add up to 0."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts - len(values))[inverse]


def _places(size: int) -> np.ndarray:
    return 2 * np.arange(size) - (size - 1)
