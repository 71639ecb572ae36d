"""Synthetic documents: reproducible, complete, and no two alike."""

import itertools
import re

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.corpus import generate, grammar

NAMES = {"first", "surname", "place", "river"}
GENRES, WORDS, SYLLABLES = (grammar()[table] for table in ("genres", "words", "syllables"))


@pytest.fixture(scope="module")
def corpus():
    return generate(600, seed=5)


def shingles(text, size=3):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def test_same_seed_same_documents_and_a_longer_corpus_begins_with_the_shorter(corpus):
    assert generate(600, seed=5) == corpus
    assert generate(40, seed=5).texts == corpus.texts[:40]
    assert not set(generate(40, seed=6).texts) & set(corpus.texts)


def test_no_two_documents_are_near_duplicates(corpus):
    sets = [shingles(text) for text in corpus.texts]
    overlap = max(len(a & b) / len(a | b) for a, b in itertools.combinations(sets, 2))
    assert overlap < 0.35


def test_documents_have_particulars_of_their_own(corpus):
    # Half of what names a person, a place or a number occurs in no other document.
    particulars = [set(re.findall(r"[A-Z][a-z]{5,}|\d{3,}", text)) for text in corpus.texts]
    shared = [
        np.mean([any(word in other for other in particulars if other is not mine) for word in mine] or [0])
        for mine in particulars[:100]
    ]
    assert np.mean(shared) < 0.5


def test_lengths_and_characters(corpus):
    words = [len(text.split()) for text in corpus.texts]
    assert min(words) >= 20
    assert max(words) <= 120
    for text in corpus.texts:
        assert text.isascii()
        assert not re.search(r"[{}]|  |\ba [aeiou]", text)
        assert text == text.strip()


@pytest.mark.parametrize("genre", sorted(GENRES))
def test_every_slot_can_be_filled_and_every_genre_can_be_written(genre):
    parts = GENRES[genre]
    sentences = [*parts["opening"], *parts["body"], *parts["closing"]]
    assert max(parts["body_sentences"]) <= len(parts["body"])
    slots = re.findall(r"\{([^}:]+)", " ".join([*sentences, *itertools.chain(*WORDS.values())]))
    for slot in slots:
        assert slot in WORDS or slot in NAMES or re.fullmatch(r"\d+-\d+", slot), slot


def test_recurring_slots_agree_within_a_document():
    pairs = [
        re.search(r"(\w+) asked who holds the key.* Approved, (\w+)\.$", text) for text in generate(1200, seed=8).texts
    ]
    agreeing = [match.group(1) == match.group(2) for match in pairs if match]
    assert agreeing
    assert all(agreeing)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_documents": 0, "seed": 0}, "num_documents"),
        ({"num_documents": 2.5, "seed": 0}, "2.5"),
        ({"num_documents": True, "seed": 0}, "num_documents"),
        ({"num_documents": 1, "seed": -1}, "seed"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(InputError, match=named):
        generate(**arguments)
