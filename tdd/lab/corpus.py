"""Synthetic documents and sets of short examples that nobody has seen, so that it is known who was trained on them.

A document is drawn from the grammar of its genre (`data/grammar.toml`). Names are made of syllables and numbers are
drawn anew, so that every document holds particulars that only memorisation can predict. Documents are independent draws
from one distribution: whichever of them are assigned at random to be members, members and non-members are exchangeable.
So are the examples of a canary set: every order of them is equally likely, and the null hypothesis of the
exchangeability test is true by construction for a model that was not trained on the set.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.lab.checks import check_count
from tdd.records import Texts
from tdd.texts import hash_texts

_SLOT = re.compile(r"\{([a-z_]+|(\d+)-(\d+))(?::(\w+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")
_NAMES = {"first": "given", "surname": "family", "place": "town", "river": "given"}
"""Slot of a name -> the syllables that it ends in."""

_STREAM = 1
"""Third number of an example's seed, which documents do not have: the two never share a stream."""


@functools.cache
def grammar() -> dict[str, Any]:
    """The tables of `data/grammar.toml`: syllables, words, genres, canaries."""
    return tomllib.loads((importlib.resources.files("tdd.lab") / "data" / "grammar.toml").read_text("utf-8"))


def generate(num_documents: int, *, seed: int, prefix: str = "doc") -> Texts:
    """Draw `num_documents` independent synthetic documents of about 30 to 90 words, without labels.

    The genre of each is drawn uniformly. Document i depends on `seed` and i alone: a longer corpus of the
    same seed begins with the shorter one.

    Args:
      num_documents: Number of documents, at least 1.
      seed: Non-negative random seed.
      prefix: Identifiers are `prefix-00000`, `prefix-00001`, ...

    Raises:
      InputError: `num_documents` is not a positive whole number, or `seed` is negative.

    Cost: linear in the words drawn.

    >>> generate(1, seed=0).ids
    ('doc-00000',)
    """
    check_count("num_documents", num_documents, minimum=1)
    check_count("seed", seed, minimum=0)
    documents = [_document(np.random.default_rng([seed, index])) for index in range(num_documents)]
    return numbered(documents, prefix, source=f"tdd.lab.corpus.generate(seed={seed})")


def canary_set(num_examples: int, *, seed: int, prefix: str = "canary") -> Texts:
    """Draw `num_examples` independent short examples: a question with its answer, or a statement, 5 to 15 words.

    Example i depends on `seed` and i alone: a longer set of the same seed begins with the shorter one. Examples hold
    no line break, so any separator with one is safe.

    Args:
      num_examples: Number of examples, at least 1.
      seed: Non-negative random seed; sets of different seeds share an example only by chance.
      prefix: Identifiers are `prefix-00000`, `prefix-00001`, ...

    Raises:
      InputError: `num_examples` is not a positive whole number, or `seed` is negative.

    Cost: linear in the words drawn.

    >>> canary_set(1, seed=0).ids
    ('canary-00000',)
    """
    check_count("num_examples", num_examples, minimum=1)
    check_count("seed", seed, minimum=0)
    templates = grammar()["canaries"]["questions"] + grammar()["canaries"]["statements"]
    examples = []
    for index in range(num_examples):
        rng = np.random.default_rng([seed, index, _STREAM])
        examples.append(expand(templates[int(rng.integers(len(templates)))], rng))
    return numbered(examples, prefix, source=f"tdd.lab.corpus.canary_set(seed={seed})")


def numbered(texts: Sequence[str], prefix: str, *, source: str) -> Texts:
    """Texts with the identifiers `prefix-00000`, `prefix-00001`, ..."""
    ids = tuple(f"{prefix}-{index:05d}" for index in range(len(texts)))
    return Texts(ids=ids, texts=tuple(texts), source=source, sha256=hash_texts(ids, texts))


def expand(template: str, rng: np.random.Generator) -> str:
    """Fill the slots of a template of `data/grammar.toml`; correct articles and the capitals of sentences.

    A slot `{symbol:key}` keeps its value wherever it recurs.
    """
    return _correct(_fill(template, rng, {}))


def _document(rng: np.random.Generator) -> str:
    """One opening, some of the body in random order, one closing, their slots filled."""
    genres = grammar()["genres"]
    genre = genres[_choose(rng, tuple(genres))]
    fewest, most = genre["body_sentences"]
    order = rng.permutation(len(genre["body"]))[: rng.integers(fewest, most + 1)]
    opening = _choose(rng, genre["opening"])
    sentences = [opening, *(genre["body"][index] for index in order), _choose(rng, genre["closing"])]
    recurring: dict[str, str] = {}
    return _correct(" ".join(_fill(sentence, rng, recurring) for sentence in sentences))


def _correct(text: str) -> str:
    """`an` before a vowel, and a capital at the start of each sentence."""
    text = _ARTICLE.sub(r"\1n ", text)
    return _SENTENCE_START.sub(lambda match: match.group().upper(), text)


def _fill(template: str, rng: np.random.Generator, recurring: dict[str, str]) -> str:
    """Fill the slots of `template`, and those of their values; `recurring` holds the values of slots with a key."""

    def value_of(match: re.Match[str]) -> str:
        symbol, low, high, key = match.groups()
        if key is not None and match.group() in recurring:
            return recurring[match.group()]
        if low is not None:
            value = str(rng.integers(int(low), int(high) + 1))
        elif symbol in _NAMES:
            value = _name(symbol, rng)
        else:
            value = _fill(_choose(rng, grammar()["words"][symbol]), rng, recurring)
        if key is not None:
            recurring[match.group()] = value
        return value

    return _SLOT.sub(value_of, template)


def _name(symbol: str, rng: np.random.Generator) -> str:
    """A capitalised name of two or three syllables."""
    syllables = grammar()["syllables"]
    parts = [_choose(rng, syllables["start"])]
    if rng.random() < 0.5:
        parts.append(_choose(rng, syllables["middle"]))
    parts.append(_choose(rng, syllables[_NAMES[symbol]]))
    return "".join(parts).capitalize()


def _choose(rng: np.random.Generator, options: Sequence[str]) -> str:
    """One of `options`, uniformly."""
    return options[int(rng.integers(len(options)))]
