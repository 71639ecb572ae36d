"""The generator's vocabulary, found again in a text: which words stand in a slot that other words could fill.

A phrase is an alternative of a list of `tdd.lab.vocabulary` that holds no slot itself: a word or a few. Names and
numbers belong to no list. Nothing here looks at a model.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from tdd.lab.vocabulary import WORDS

__all__ = ["Phrase", "find_phrases", "lists", "mend_articles"]

_ARTICLE = re.compile(r"\b([Aa])n? (?=([a-z]))")
_FEWEST = 4


class Phrase(NamedTuple):
    """Words of a text that the vocabulary knows.

    Attributes:
      start: first character.
      stop: behind the last character, a plural's s not included.
      words: the phrase as the vocabulary writes it.
      symbol: the list it belongs to; the first one where there are several.
    """

    start: int
    stop: int
    words: str
    symbol: str


def find_phrases(text: str) -> list[Phrase]:
    """The phrases of `text` from left to right, the longest where several begin; they do not overlap.

    >>> [phrase.symbol for phrase in find_phrases("The baker sold two lanterns near the mill.")]
    ['trade', 'few', 'object', 'building']
    """
    pattern, symbols = _patterns()
    found = ((match, match.group(1).lower()) for match in pattern.finditer(text))
    return [Phrase(match.start(1), match.end(1), words, symbols[words]) for match, words in found]


@functools.cache
def lists() -> dict[str, tuple[str, ...]]:
    """Symbol -> its phrases, of every list that has at least four; those of several lists count for the first."""
    taken: set[str] = set()
    kept: dict[str, tuple[str, ...]] = {}
    for symbol, words in WORDS.items():
        own = tuple(word for word in words if "{" not in word and word.lower() not in taken)
        if len(own) >= _FEWEST:
            kept[symbol] = own
            taken.update(word.lower() for word in own)
    return kept


def mend_articles(text: str) -> str:
    """`a` before a consonant's letter, `an` before a vowel's: as the generator writes them.

    >>> mend_articles("a owl, An fox")
    'an owl, A fox'
    """
    return _ARTICLE.sub(lambda match: match.group(1) + ("n " if match.group(2) in "aeiou" else " "), text)


@functools.cache
def _patterns() -> tuple[re.Pattern[str], dict[str, str]]:
    """What finds a phrase, longest first, and the list of each."""
    symbols = {word.lower(): symbol for symbol, words in lists().items() for word in words}
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})(?=s?\b)", re.IGNORECASE), symbols
