"""Is the published order simply sorted?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.audit.word_split import normalise
from tdd.exchange.properties import FIRST_NUMBER, MAX_CHARACTERS, codes

__all__ = ["sortedness"]

_BY_CHANCE = 0.005 / 4  # of each of the four keys


def sortedness(examples: Sequence[str]) -> str | None:
    """How the order is sorted, if it is, exactly: "by text, ascending"; None if it is not.

    Keys: the text, the text without differences of case and white space, its length in characters, and the first
    number in it where every text has one. Ties are allowed, as long as a random order would be sorted by that key, in
    one of the two directions, with a probability of at most .00125: the order of six texts says little. A random order
    passes for sorted with a probability of at most .005.

    >>> sortedness(["ant", "bee", "Cat", "dog", "emu", "fox", "gnu"])
    'by text without case, ascending'
    """
    numbers = [FIRST_NUMBER.search(text[:MAX_CHARACTERS]) for text in examples]
    keys: dict[str, Sequence[Any]] = {
        "text": examples,
        "text without case": [normalise(text) for text in examples],
        "length": [len(text) for text in examples],
    }
    if all(numbers):
        keys["the first number in each text"] = [int(found[0]) for found in numbers if found]
    for name, values in keys.items():
        for direction, step in (("ascending", 1), ("descending", -1)):
            line = values[::step]
            if all(a <= b for a, b in itertools.pairwise(line)) and _by_chance(values) <= _BY_CHANCE:
                return f"by {name}, {direction}"
    return None


def _by_chance(values: Sequence[Any]) -> float:
    """Probability that a random order is sorted by these keys, up or down (1 where all are equal)."""
    _, counts = np.unique(codes(values), return_counts=True)
    return min(1.0, 2 * math.exp(sum(math.lgamma(n + 1) for n in counts) - math.lgamma(len(values) + 1)))
