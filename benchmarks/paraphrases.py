"""Paraphrases of synthetic documents, made without any model: other words of the same lists, sentences in new order.

A phrase is an alternative of a word list of the grammar that holds no slot itself: a word or a few. Names and numbers
belong to no list and stay, as a paraphraser's facts should. How a document differs from its paraphrases is known: a
document keeps its opening in front and its closing behind, and a paraphrase with `order="all"` does not. Such a
paraphrase is not exchangeable with its original, whether or not a model was trained on the latter.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from tdd.lab.checks import check_count, check_range, check_texts
from tdd.lab.corpus import grammar
from tdd.validate import InputError

__all__ = [
    "ORDERS",
    "Order",
    "Phrase",
    "correct_articles",
    "find_phrases",
    "lists",
    "paraphrases",
    "replaced",
    "split_sentences",
]

Order = Literal["all", "middle", "keep"]
ORDERS = ("all", "middle", "keep")

_BETWEEN = re.compile(r"(?<=[.?!]) (?=[A-Z0-9])")
_ARTICLE = re.compile(r"\b([Aa])n? (?=([a-z]))")
_FEWEST = 4
"""Phrases of a list that can replace each other."""


def paraphrases(
    texts: Sequence[str], num_versions: int, *, seed: int, words: float = 0.5, order: Order = "all"
) -> tuple[tuple[str, ...], ...]:
    """Draw `num_versions` paraphrases of each text.

    Each phrase that the grammar knows is replaced, with probability `words`, by another one of its list, the same one
    wherever it recurs in the text; the sentences are put into a random order. Version v of text i depends on
    (seed, i, v) and the text alone.

    Args:
      texts: Documents of `tdd.lab.corpus.generate`, or others.
      num_versions: Number of paraphrases of each text.
      seed: Non-negative random seed.
      words: Probability that a phrase is replaced, 0..1.
      order: Which sentences are shuffled: "all", all but the first and the last ("middle"), none ("keep").

    Returns:
      For each text its paraphrases.

    Raises:
      InputError: No texts, empty ones, or options out of range.

    Cost: about 0.1 ms a paraphrase.

    >>> paraphrases(["The baker left."], 1, seed=0, words=1.0)[0][0].startswith("The baker")
    False
    """
    check_texts("texts", texts)
    check_count("num_versions", num_versions, minimum=1)
    check_count("seed", seed, minimum=0)
    check_range("words", words, 0.0, 1.0)
    if order not in ORDERS:
        raise InputError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
    return tuple(
        tuple(_version(text, np.random.default_rng([seed, i, v]), words, order) for v in range(num_versions))
        for i, text in enumerate(texts)
    )


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences: they end in a mark and a space before a capital or a digit.

    >>> split_sentences("It rained. Mr Ward left at 3. 12 stayed.")
    ['It rained.', 'Mr Ward left at 3.', '12 stayed.']
    """
    return _BETWEEN.split(text)


class Phrase(NamedTuple):
    """Words of a text, `text[start:stop]` without a plural's s, that belong to a list of the grammar.

    Attributes:
      words: The phrase in lower case.
      symbol: Name of the list; the first one if there are several.
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
    matches = ((match, match.group(1).lower()) for match in pattern.finditer(text))
    return [Phrase(match.start(1), match.end(1), words, symbols[words]) for match, words in matches]


def replaced(text: str, new: Sequence[tuple[Phrase, str]]) -> str:
    """`text` with new words for some of its phrases, from left to right; a capital stays one."""
    parts, last = [], 0
    for phrase, words in new:
        capital = text[phrase.start].isupper()
        parts += [text[last : phrase.start], words[:1].upper() + words[1:] if capital else words]
        last = phrase.stop
    return "".join(parts) + text[last:]


@functools.cache
def lists() -> dict[str, tuple[str, ...]]:
    """Symbol -> its phrases, for every list with at least four; a phrase of several lists counts for the first."""
    taken: set[str] = set()
    phrases: dict[str, tuple[str, ...]] = {}
    for symbol, words in grammar()["words"].items():
        new = tuple(word for word in words if "{" not in word and word.lower() not in taken)
        if len(new) >= _FEWEST:
            phrases[symbol] = new
            taken.update(word.lower() for word in new)
    return phrases


def correct_articles(text: str) -> str:
    """Write `a` before a consonant's letter and `an` before a vowel's, as the generator does.

    >>> correct_articles("a owl, An fox")
    'an owl, A fox'
    """
    return _ARTICLE.sub(lambda match: match.group(1) + ("n " if match.group(2) in "aeiou" else " "), text)


@functools.cache
def _patterns() -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern that matches a phrase, longest first, and the list of each phrase."""
    symbols = {word.lower(): symbol for symbol, words in lists().items() for word in words}
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})(?=s?\b)", re.IGNORECASE), symbols


def _version(text: str, rng: np.random.Generator, words: float, order: str) -> str:
    """One paraphrase."""
    replacement: dict[str, str] = {}
    phrases = find_phrases(text)
    for phrase in phrases:
        if phrase.words not in replacement:
            others = [word for word in lists()[phrase.symbol] if word.lower() != phrase.words]
            replacement[phrase.words] = others[int(rng.integers(len(others)))] if rng.random() < words else ""
    new = replaced(text, [(phrase, replacement[phrase.words]) for phrase in phrases if replacement[phrase.words]])
    return correct_articles(" ".join(_reordered(split_sentences(new), rng, order)))


def _reordered(sentences: list[str], rng: np.random.Generator, order: str) -> list[str]:
    """The sentences, each with a capital first letter, in their new order."""
    ends = {"all": 0, "middle": 1, "keep": len(sentences)}[order]
    moving = sentences[ends : len(sentences) - ends]
    moved = [moving[i] for i in rng.permutation(len(moving))]
    placed = (
        sentences if len(sentences) <= 2 * ends else [*sentences[:ends], *moved, *sentences[len(sentences) - ends :]]
    )
    return [sentence[:1].upper() + sentence[1:] for sentence in placed]
