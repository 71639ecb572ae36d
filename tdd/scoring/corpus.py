"""How often every token occurs in a corpus, for the scores that compare texts with training data at large."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tdd.records import Texts
from tdd.scoring.tokenise import check_token_ids, token_ids
from tdd.validate import InputError

__all__ = ["Corpus", "read_corpus"]

_BLOCK = 4096
"""Texts that are tokenised at a time."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The token frequencies of a corpus under one tokenizer.

    Attributes:
      log_frequency: [V] float64, log((count + 1) / (num_tokens + V)).
      num_tokens: Its tokens.
      texts: The texts.
    """

    log_frequency: np.ndarray
    num_tokens: int
    texts: Texts

    def facts(self) -> dict[str, Any]:
        """What identifies the corpus in a record."""
        return {
            "source": self.texts.source,
            "sha256": self.texts.sha256,
            "texts": len(self.texts),
            "tokens": self.num_tokens,
        }

    def check_apart(self, texts: Texts) -> None:
        """Check that no text that is scored is a text of the corpus, but for whitespace around it.

        Raises:
          InputError: naming the texts: their own tokens would raise the frequencies that they are compared with.
        """
        there = {text.strip() for text in self.texts.texts}
        both = [identifier for identifier, text in zip(texts.ids, texts.texts, strict=True) if text.strip() in there]
        if both:
            shown = ", ".join(map(repr, both[:5])) + (" ..." if len(both) > 5 else "")
            raise InputError(
                f"{len(both)} of the texts to score {'is' if len(both) == 1 else 'are'} in the corpus: {shown}; a text "
                "must not raise the frequencies that it is compared with: remove it from corpus"
            )


def read_corpus(corpus: Texts | Corpus, tokenizer: Any, vocab_size: int) -> Corpus:
    """Count the tokens of a corpus; a `Corpus` of the same vocabulary stays as it is.

    Args:
      corpus: The texts, from `tdd.load_texts`, or a `Corpus`.
      tokenizer: The tokenizer of the model; its special tokens are not added.
      vocab_size: V, tokens in the readout of the model.

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
        counts += _counts(ids, vocab_size)
    total = int(counts.sum())
    return Corpus(np.log((counts + 1) / (total + vocab_size)), total, corpus)


def _counts(ids: Iterable[np.ndarray], vocab_size: int) -> np.ndarray:
    return np.bincount(np.concatenate([np.zeros(0, np.int32), *ids]), minlength=vocab_size)
