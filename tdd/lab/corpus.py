"""Synthetic documents: texts that nobody has seen, so that it is known who was trained on them.

A document is drawn from the grammar of its genre (`tdd.lab.genres`, `tdd.lab.vocabulary`). Names are made
of syllables and numbers are drawn anew, so that every document holds particulars that only memorisation can
predict. Documents are independent draws from one distribution: whichever of them are assigned at random to be
members, members and non-members are exchangeable.
"""

from __future__ import annotations

import re

import numpy as np

from tdd.lab.genres import GENRES, Genre
from tdd.lab.vocabulary import SYLLABLES, WORDS
from tdd.records import Texts
from tdd.texts import hash_texts
from tdd.validate.lab import check_count

__all__ = ["expand", "generate"]

_SLOT = re.compile(r"\{([a-z_]+|(\d+)-(\d+))(?::(\w+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")


def generate(num_documents: int, *, seed: int, prefix: str = "doc") -> Texts:
    """Draw `num_documents` independent synthetic documents of about 30 to 90 words.

    The genre of each is drawn uniformly. Document i depends on `seed` and i alone: a longer corpus of the
    same seed begins with the shorter one.

    Args:
      num_documents: how many, at least 1.
      seed: non-negative seed of the corpus.
      prefix: identifiers are `prefix-00000`, `prefix-00001`, ...

    Returns:
      Texts without labels; its source names the generator and the seed.

    Raises:
      InputError: `num_documents` is not a positive whole number, or `seed` is negative.

    Cost: about 0.1 ms a document.

    >>> generate(1, seed=0).ids
    ('doc-00000',)
    """
    check_count("num_documents", num_documents, minimum=1)
    check_count("seed", seed, minimum=0)
    documents = tuple(_document(np.random.default_rng([seed, index])) for index in range(num_documents))
    identifiers = tuple(f"{prefix}-{index:05d}" for index in range(num_documents))
    return Texts(
        ids=identifiers,
        texts=documents,
        source=f"tdd.lab.corpus.generate(seed={seed})",
        sha256=hash_texts(identifiers, documents),
    )


def expand(template: str, rng: np.random.Generator) -> str:
    """A text of `template`: its slots (`tdd.lab.vocabulary`) filled, and the small repairs of written English made.

    Args:
      template: sentences with slots; `{symbol:key}` keeps its value wherever the same slot recurs.
      rng: what fills them.
    """
    return _repair(_expand(template, rng, {}))


def _document(rng: np.random.Generator) -> str:
    """One document: genre, sentences, slots, repairs."""
    genre = GENRES[_choose(rng, tuple(GENRES))]
    kept: dict[str, str] = {}
    return _repair(" ".join(_expand(sentence, rng, kept) for sentence in _sentences(genre, rng)))


def _repair(text: str) -> str:
    """The article before a vowel, and a capital at the start of each sentence."""
    text = _ARTICLE.sub(r"\1n ", text)
    return _SENTENCE_START.sub(lambda match: match.group().upper(), text)


def _sentences(genre: Genre, rng: np.random.Generator) -> list[str]:
    """Opening, some of the body in random order, closing."""
    fewest, most = genre.body_sentences
    order = rng.permutation(len(genre.body))[: rng.integers(fewest, most + 1)]
    return [_choose(rng, genre.opening), *(genre.body[index] for index in order), _choose(rng, genre.closing)]


def _expand(template: str, rng: np.random.Generator, kept: dict[str, str]) -> str:
    """Fill the slots of `template`, and of what fills them; `kept` holds what recurs in the document."""

    def fill(match: re.Match[str]) -> str:
        symbol, low, high, key = match.groups()
        if key is not None and match.group() in kept:
            return kept[match.group()]
        if low is not None:
            value = str(rng.integers(int(low), int(high) + 1))
        elif symbol in _NAMES:
            value = _name(symbol, rng)
        else:
            value = _expand(_choose(rng, WORDS[symbol]), rng, kept)
        if key is not None:
            kept[match.group()] = value
        return value

    return _SLOT.sub(fill, template)


_NAMES = {"first": "given", "surname": "family", "place": "town", "river": "given"}


def _name(symbol: str, rng: np.random.Generator) -> str:
    """A capitalised name of two or three parts from `SYLLABLES`."""
    parts = [_choose(rng, SYLLABLES["start"])]
    if rng.random() < 0.5:
        parts.append(_choose(rng, SYLLABLES["middle"]))
    parts.append(_choose(rng, SYLLABLES[_NAMES[symbol]]))
    return "".join(parts).capitalize()


def _choose(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    """One of `options`, uniformly."""
    return options[int(rng.integers(len(options)))]
