"""Canary examples: reproducible, short, each with particulars of its own, in no order."""

import re

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.corpus import canary_set, generate
from tdd.texts import hash_texts


@pytest.fixture(scope="module")
def examples():
    return canary_set(2000, seed=3)


def test_an_example_depends_on_seed_and_number_alone(examples):
    assert canary_set(50, seed=3).texts == examples.texts[:50]
    assert not set(canary_set(200, seed=4).texts) & set(examples.texts)
    assert not set(generate(50, seed=3).texts) & set(examples.texts)
    assert examples.sha256 == hash_texts(examples.ids, examples.texts)
    assert canary_set(1, seed=0, prefix="x").ids == ("x-00000",)


def test_they_are_short_different_lines_of_english(examples):
    assert len(set(examples.texts)) == len(examples)
    words = [len(text.split()) for text in examples.texts]
    assert min(words) >= 4
    assert max(words) <= 16
    for text in examples.texts:
        assert text.isascii()
        assert text == text.strip()
        assert text[0].isupper()
        assert text[-1] == "."
        assert not re.search(r"[{}\n]|  |\b[Aa] [aeiou]", text)
    assert 0.4 < np.mean(["?" in text for text in examples.texts]) < 0.6


def test_no_trend_along_the_order(examples):
    """Lengths in canonical order: no serial correlation, no drift (four standard errors)."""
    lengths = np.array([len(text) for text in examples.texts], float)
    n = len(lengths)
    assert abs(np.corrcoef(lengths[:-1], lengths[1:])[0, 1]) < 4 / np.sqrt(n)
    assert abs(np.corrcoef(np.arange(n), lengths)[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize(
    ("count", "seed", "named"), [(0, 0, "num_examples"), (1, -1, "seed"), (1.5, 0, "num_examples")]
)
def test_bad_arguments_are_named(count, seed, named):
    with pytest.raises(InputError, match=named):
        canary_set(count, seed=seed)
