"""Texts beside those that are scored: a corpus, whose tokens are counted, prefixes, a population, texts to tune on.

The score of a text must not rest on the text itself: those that are scored may not be among them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from tdd.records import Texts
from tdd.scoring.scores.score import Known
from tdd.scoring.tokenise import check_token_ids, token_ids
from tdd.validate import InputError, some

_BLOCK = 4096
"""Texts that are tokenised at a time."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The token frequencies of a corpus under one tokenizer."""

    log_frequency: np.ndarray  # [V] float64, log((count + 1) / (num_tokens + V))
    num_tokens: int  # its tokens
    texts: Texts  # the texts

    @property
    def sha256(self) -> str:
        """That of the texts."""
        return self.texts.sha256

    def facts(self) -> dict[str, Any]:
        """What identifies the corpus in a record."""
        return {**facts_of(self.texts), "tokens": self.num_tokens}


def check_apart(beside: Mapping[str, Texts], texts: Texts, known: Mapping[str, Collection[Known]]) -> None:
    """Check that no text to score is among the texts beside, and no known member among those that must not be one.

    White space does not tell two texts apart.

    Raises:
      InputError: naming the field of the score, a key of `beside`, and the texts.
    """
    unseen = {argument: others for argument, others in beside.items() if "unseen" in known[argument]}
    for argument, others in beside.items():
        there = {*_bare(others)}
        apart = {"the texts to score": texts, **(unseen if "seen" in known[argument] else {})}
        for what, scored in apart.items():
            both = [one for one, text in zip(scored.ids, _bare(scored), strict=True) if text in there]
            if both:
                advice = (
                    f"the score of a text must not rest on the text itself: remove it from {argument}"
                    if scored is texts
                    else f"no model was trained on the texts of {what}, and the audited one was on those of "
                    f"{argument}: remove what is in both from one of them"
                )
                raise InputError(
                    f"{len(both)} of {what} {'is' if len(both) == 1 else 'are'} in {argument}: "
                    f"{some([*map(repr, both)])}; {advice}"
                )


def _bare(texts: Texts) -> Iterator[str]:
    """The texts with one space for each run of white space."""
    return (" ".join(text.split()) for text in texts.texts)


def read_corpus(corpus: Texts | Corpus, tokenizer: Any, vocab_size: int) -> Corpus:
    """Count the tokens of a corpus, special ones not added; a `Corpus` of the same vocabulary stays as it is.

    Raises:
      InputError: token ids outside of the vocabulary, a `Corpus` of another vocabulary.
    """
    if isinstance(corpus, Corpus):
        if len(corpus.log_frequency) != vocab_size:
            raise InputError(
                f"corpus has the frequencies of {len(corpus.log_frequency)} tokens, but the model has a vocabulary of "
                f"{vocab_size}; count the corpus with the model's own tokenizer"
            )
        return corpus
    counts = np.zeros(vocab_size, np.int64)
    for first in range(0, len(corpus), _BLOCK):
        ids = token_ids(tokenizer, corpus.texts[first : first + _BLOCK], add_special_tokens=False)
        check_token_ids(ids, corpus.ids[first : first + _BLOCK], vocab_size, "model")
        counts += np.bincount(np.concatenate([np.zeros(0, np.int32), *ids]), minlength=vocab_size)
    total = int(counts.sum())
    return Corpus(np.log((counts + 1) / (total + vocab_size)), total, corpus)


def read_prefix(texts: Texts, tokenizer: Any, vocab_size: int) -> np.ndarray:
    """[P] int32 tokens of the texts, joined without a separator, with the special tokens of the tokenizer.

    Raises:
      InputError: no token, or one outside of the vocabulary.
    """
    (tokens,) = token_ids(tokenizer, ["".join(texts.texts)], add_special_tokens=True)
    check_token_ids([tokens], [texts.source], vocab_size, "model")
    if not len(tokens):
        raise InputError(f"the prefix {texts.source} has no token; give texts that are not empty")
    return tokens


def facts_of(texts: Texts) -> dict[str, Any]:
    """What identifies texts in a record."""
    return {"source": texts.source, "sha256": texts.sha256, "texts": len(texts)}
