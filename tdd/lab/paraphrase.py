"""Paraphrases of synthetic documents, made without any model: other words of the same lists, sentences in new order.

Names and numbers stay, as a paraphraser's facts should. How a document differs from its paraphrases is known: a
document keeps its opening in front and its closing behind, and a paraphrase with `order="all"` does not. Such a
paraphrase is not exchangeable with its original, whether or not a model was trained on the latter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tdd.lab.phrases import find_phrases, lists, mend_articles
from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_range, check_texts

__all__ = ["ORDERS", "Order", "paraphrases", "split_sentences"]

Order = Literal["all", "middle", "keep"]
ORDERS = ("all", "middle", "keep")

_BETWEEN = re.compile(r"(?<=[.?!]) (?=[A-Z0-9])")


def paraphrases(
    texts: Sequence[str], num_versions: int, *, seed: int, words: float = 0.5, order: Order = "all"
) -> tuple[tuple[str, ...], ...]:
    """`num_versions` paraphrases of each text.

    Each phrase that the generator's vocabulary knows gives way, with chance `words`, to another one of its list, the
    same one wherever it recurs in the text; the sentences are put into a random order. Version v of text i depends on
    (seed, i, v) and the text alone.

    Args:
      texts: documents of `tdd.lab.corpus.generate`, or others.
      num_versions: paraphrases of each.
      seed: non-negative.
      words: chance that a phrase is replaced, 0..1.
      order: which sentences change places: "all", all but the first and the last ("middle"), none ("keep").

    Returns:
      For each text its paraphrases.

    Raises:
      InputError: no texts, empty ones, options out of range.

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
    """Sentences: they end in a mark and a space before a capital or a digit.

    >>> split_sentences("It rained. Mr Ward left at 3. 12 stayed.")
    ['It rained.', 'Mr Ward left at 3.', '12 stayed.']
    """
    return _BETWEEN.split(text)


def _version(text: str, rng: np.random.Generator, words: float, order: str) -> str:
    chosen: dict[str, str] = {}
    parts, last = [], 0
    for phrase in find_phrases(text):
        if phrase.words not in chosen:
            others = [word for word in lists()[phrase.symbol] if word.lower() != phrase.words]
            chosen[phrase.words] = others[int(rng.integers(len(others)))] if rng.random() < words else ""
        new = chosen[phrase.words] or text[phrase.start : phrase.stop]
        parts += [text[last : phrase.start], new[:1].upper() + new[1:] if text[phrase.start].isupper() else new]
        last = phrase.stop
    return mend_articles(" ".join(_reordered(split_sentences("".join(parts) + text[last:]), rng, order)))


def _reordered(sentences: list[str], rng: np.random.Generator, order: str) -> list[str]:
    """The sentences, each with a capital first letter, in their new order."""
    ends = {"all": 0, "middle": 1, "keep": len(sentences)}[order]
    moving = sentences[ends : len(sentences) - ends]
    moved = [moving[i] for i in rng.permutation(len(moving))]
    placed = (
        sentences if len(sentences) <= 2 * ends else [*sentences[:ends], *moved, *sentences[len(sentences) - ends :]]
    )
    return [sentence[:1].upper() + sentence[1:] for sentence in placed]
