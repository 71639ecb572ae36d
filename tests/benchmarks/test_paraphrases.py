"""Phrases that the vocabulary knows, and paraphrases made of them."""

from __future__ import annotations

import collections
import itertools
import re

import numpy as np
import pytest

from benchmarks.paraphrases import ORDERS, correct_articles, find_phrases, lists, paraphrases, split_sentences
from tdd.lab.corpus import generate
from tdd.validate import InputError

TEXTS = generate(60, seed=3).texts


def test_nothing_changes_where_nothing_shall():
    for text, (version,) in zip(TEXTS, paraphrases(TEXTS, 1, seed=0, words=0.0, order="keep"), strict=True):
        assert version == text


def test_names_and_numbers_stay():
    for text, versions in zip(TEXTS, paraphrases(TEXTS, 2, seed=1, words=1.0), strict=True):
        for version in versions:
            assert collections.Counter(re.findall(r"\d+", version)) == collections.Counter(re.findall(r"\d+", text))


def test_a_phrase_gives_way_to_another_of_its_list_the_same_everywhere():
    kinds = {word.lower(): symbol for symbol, words in lists().items() for word in words}
    (version,) = paraphrases(["the baker, two bakers and the baker's anvil"], 1, seed=0, words=1.0, order="keep")[0]
    first, second, third = re.match(r"The (.+), \w+ (.+)s and the (.+)'s .+", version).groups()
    assert first == second == third != "baker"
    assert kinds[first.lower()] == "trade"
    assert kinds[re.search(r"'s (.+)$", version).group(1)] == "object"


@pytest.mark.parametrize("words", [0.0, 0.3, 1.0])
def test_the_share_of_replaced_phrases(words):
    own = [alternatives[0] for alternatives in lists().values()]  # one of each list: none comes back for another
    text = " / ".join(own)
    found = [version.split(" / ") for version in paraphrases([text], 100, seed=2, words=words, order="keep")[0]]
    kept = [now.lower() == was.lower() for version in found for was, now in zip(own, version, strict=True)]
    assert abs(np.mean(kept) - (1 - words)) <= 4 * np.sqrt(words * (1 - words) / len(kept))


@pytest.mark.parametrize("order", ORDERS)
def test_which_sentences_move(order):
    text = "First one. Second one. Third one. Fourth one. Last one."
    found = set(paraphrases([text], 60, seed=0, words=0.0, order=order)[0])
    moved = [split_sentences(version) for version in found]
    assert all(sorted(sentences) == sorted(split_sentences(text)) for sentences in moved)
    if order == "keep":
        assert found == {text}
    else:
        ends = {(sentences[0], sentences[-1]) for sentences in moved}
        assert (ends == {("First one.", "Last one.")}) == (order == "middle")
        assert len(found) == 6 if order == "middle" else len(found) > 20


def test_a_version_depends_on_seed_place_and_number_alone():
    few, many = paraphrases(TEXTS[:3], 2, seed=5), paraphrases(TEXTS[:6], 4, seed=5)
    assert few == tuple(versions[:2] for versions in many[:3])
    assert paraphrases(TEXTS[:3], 2, seed=6) != few


def test_phrases_do_not_overlap_and_are_where_they_say():
    for text in TEXTS:
        found = find_phrases(text)
        assert all(one.stop <= two.start for one, two in itertools.pairwise(found))
        assert all(text[phrase.start : phrase.stop].lower() == phrase.words for phrase in found)
        assert all(phrase.words in [word.lower() for word in lists()[phrase.symbol]] for phrase in found)


def test_the_longest_phrase_wins():
    assert [phrase.words for phrase in find_phrases("near the clock tower")] == ["clock tower"]


def test_articles():
    assert correct_articles("a owl and an fox; a Owl") == "an owl and a fox; a Owl"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_versions": 0}, "num_versions must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"words": 1.5}, "words must be a number between 0 and 1, got 1.5"),
        ({"order": "none"}, "order must be one of 'all', 'middle', 'keep', got 'none'"),
        ({"texts": []}, "texts is empty"),
    ],
)
def test_bad_input(options, said):
    given = {"texts": TEXTS[:1], "num_versions": 1, "seed": 0} | options
    with pytest.raises(InputError, match=re.escape(said)):
        paraphrases(given.pop("texts"), given.pop("num_versions"), **given)
