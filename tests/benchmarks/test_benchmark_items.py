"""The synthetic multiple-choice benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paraphrases import find_phrases
from benchmarks.reproductions.benchmark_items import benchmark
from tdd.lab.corpus import generate
from tdd.validate import InputError

ITEMS = benchmark(120, seed=4, swaps=2)


def test_the_right_answer_is_how_the_document_goes_on():
    documents = generate(600, seed=4).texts
    for text in ITEMS.texts():
        assert any(document.startswith(text) for document in documents)


def test_answers_differ_and_are_about_as_long():
    for options, right in zip(ITEMS.options, ITEMS.right, strict=True):
        assert len(options) == len(set(options)) == 4
        assert all(option.startswith(" ") for option in options)
        assert all(abs(len(option) - len(options[right])) <= 2 * 2 + 2 for option in options)  # two words, two articles


def test_a_wrong_answer_has_words_of_another_kind():
    for options, right in zip(ITEMS.options, ITEMS.right, strict=True):
        known = [phrase.symbol for phrase in find_phrases(options[right])]
        for place, option in enumerate(options):
            if place != right:
                assert [phrase.symbol for phrase in find_phrases(option)] != known


def test_right_answers_stand_anywhere():
    counts = np.bincount(benchmark(400, seed=1).right, minlength=4)
    assert np.all(np.abs(counts - 100) < 4 * np.sqrt(400 * 0.25 * 0.75))


def test_a_longer_benchmark_begins_with_the_shorter_one():
    longer, shorter = benchmark(90, seed=2), benchmark(7, seed=2)
    assert longer.prompts[:7] == shorter.prompts
    assert longer.options[:7] == shorter.options
    assert longer.right[:7].tolist() == shorter.right.tolist()
    assert benchmark(7, seed=3).prompts != shorter.prompts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_items": 0}, "num_items must be a whole number of at least 1"),
        ({"num_options": 1}, "num_options must be a whole number of at least 2"),
        ({"swaps": 0}, "swaps must be a whole number of at least 1"),
    ],
)
def test_bad_input(options, said):
    given = {"num_items": 2, "seed": 0} | options
    with pytest.raises(InputError, match=said):
        benchmark(given.pop("num_items"), **given)
