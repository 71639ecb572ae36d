"""A synthetic multiple-choice benchmark: which sentence continues a document, among ones with misplaced words.

A question is the beginning of a synthetic document. The right answer is the document's next sentence; the wrong ones
are that sentence with some words put where words of another kind belong ("Boil the lanterns in a saucepan"). So an item
tests skill in the documents' language, which grows with training, and not facts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from benchmarks.paraphrases import Phrase, correct_articles, find_phrases, lists, replaced, split_sentences
from tdd.lab.checks import check_count
from tdd.lab.corpus import generate

__all__ = ["Benchmark", "benchmark"]

_LONGER, _LONGEST = 2, 170  # characters


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Items of one benchmark.

    Attributes:
      prompts: The questions.
      options: The answers of each question in random order; each begins with a space.
      right: [N] position of the right answer.
    """

    prompts: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    right: np.ndarray

    def __len__(self) -> int:
        return len(self.prompts)

    def texts(self) -> tuple[str, ...]:
        """Each question with its right answer: the texts that contaminate training and that detectors score."""
        items = zip(self.prompts, self.options, self.right, strict=True)
        return tuple(prompt + options[right] for prompt, options, right in items)


def benchmark(num_items: int, *, seed: int, num_options: int = 4, swaps: int = 1) -> Benchmark:
    """Draw `num_items` independent items.

    Args:
      num_items: N.
      seed: Non-negative random seed; the documents are those of `generate(..., seed=seed)`.
      num_options: Answers per item, at least 2.
      swaps: Largest number of misplaced words in a wrong answer; at least one word is.

    Raises:
      InputError: Counts that are not positive whole numbers.

    >>> items = benchmark(2, seed=0)
    >>> len(items), [len(options) for options in items.options]
    (2, [4, 4])
    """
    check_count("num_items", num_items, minimum=1)
    check_count("num_options", num_options, minimum=2)
    check_count("swaps", swaps, minimum=1)
    prompts, options, right = [], [], []
    drawn, documents = 0, iter(())
    while len(prompts) < num_items:
        text = next(documents, None)
        if text is None:  # a longer corpus begins with the shorter one
            documents, drawn = iter(generate(2 * drawn + num_items, seed=seed).texts[drawn:]), 2 * drawn + num_items
            continue
        rng = np.random.default_rng([seed, len(prompts), 1])
        item = _item(text, rng, num_options, swaps)
        if item is not None:
            prompts.append(item[0])
            order = rng.permutation(num_options)
            options.append(tuple(item[1][i] for i in order))
            right.append(int(np.argmin(order)))
    return Benchmark(tuple(prompts), tuple(options), np.array(right))


def _item(text: str, rng: np.random.Generator, num_options: int, swaps: int) -> tuple[str, list[str]] | None:
    """First sentence and answers, the right one first; None if the document offers no item."""
    sentences = split_sentences(text)
    if len(sentences) < 2 or len(sentences[0]) + len(sentences[1]) > _LONGEST:
        return None
    answer = sentences[1]
    phrases = [phrase for phrase in find_phrases(answer) if _others(phrase.symbol, len(phrase.words))]
    if not phrases:
        return None
    options = [answer]
    for _ in range(20 * num_options):
        wrong = _misplaced(answer, phrases, rng, swaps)
        if wrong not in options:
            options.append(wrong)
        if len(options) == num_options:
            return sentences[0], [f" {option}" for option in options]
    return None


@functools.cache
def _others(symbol: str, length: int) -> tuple[str, ...]:
    """Phrases of other lists that are about as long, so that length does not give a wrong answer away."""
    candidates = (word for other, words in lists().items() if other != symbol for word in words)
    return tuple(word for word in candidates if abs(len(word) - length) <= _LONGER)


def _misplaced(answer: str, phrases: Sequence[Phrase], rng: np.random.Generator, swaps: int) -> str:
    """`answer` with some phrases replaced by ones of other lists."""
    chosen = set(rng.permutation(len(phrases))[:swaps].tolist())
    new = []
    for i, phrase in enumerate(phrases):
        if i in chosen:
            words = _others(phrase.symbol, len(phrase.words))
            new.append((phrase, words[int(rng.integers(len(words)))]))
    return correct_articles(replaced(answer, new))
