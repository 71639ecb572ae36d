"""Texts → tokenizer → rows of tokens → training batches of few lengths, whose order depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tdd.lab.checks import check_count, check_texts
from tdd.scoring.tokenise import token_ids
from tdd.validate import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LENGTH_STEP = 16


class Batch(NamedTuple):
    """The input of one step."""

    tokens: np.ndarray  # [B, T] int32, right-padded with 0
    mask: np.ndarray  # [B, T] bool, True at scored targets; rows beyond the batch's texts are False throughout


def encode(name: str, tokenizer: Any, texts: Sequence[str], *, max_length: int, vocab_size: int) -> list[np.ndarray]:
    """Token ids of every text, texts longer than `max_length` cut into consecutive windows.

    A window of a single token, which predicts nothing, is dropped. `name` is that of the texts in error messages.

    Raises:
      InputError: A text of fewer than two tokens, or a token id that the model does not have.
    """
    rows = token_ids(tokenizer, texts, add_special_tokens=True)
    if max_length < 2:
        raise InputError(f"max_length must be at least 2, got {max_length}")
    for index, row in enumerate(rows):
        if len(row) < 2:
            raise InputError(
                f"{name}[{index}] has {len(row)} token(s); a text needs at least two, remove or lengthen it"
            )
    largest = max(int(row.max()) for row in rows)
    if largest >= vocab_size:
        raise InputError(
            f"tokenizer gives token id {largest}, but the model's vocabulary has {vocab_size} entries; "
            "use the tokenizer that the model was made for"
        )
    windows = (row[start : start + max_length] for row in rows for start in range(0, len(row), max_length))
    return [window for window in windows if len(window) > 1]


class Batches:
    """Rows of tokens in buckets of equal padded length, shuffled anew each epoch.

    Every batch has exactly `batch_size` rows and one of at most `num_buckets` lengths, so a compiled step
    sees at most `num_buckets` shapes. An epoch has `per_epoch` batches.
    """

    def __init__(
        self, rows: Sequence[np.ndarray], *, batch_size: int, num_buckets: int, max_length: int, seed: int
    ) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        lengths = np.asarray([len(row) for row in rows])
        self._padded = _bucket_lengths(lengths, num_buckets, max_length)
        sizes = np.unique(self._padded, return_counts=True)[1]
        self.per_epoch = int(np.sum(-(-sizes // batch_size)))

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from the `start`-th on.

        Rows are permuted within their bucket, cut into batches, and the batches permuted.
        """
        rng = np.random.default_rng([self.seed, epoch])
        members: list[np.ndarray] = []
        for length in np.unique(self._padded):
            order = rng.permutation(np.flatnonzero(self._padded == length))
            members += [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        for index in rng.permutation(len(members))[start:]:
            yield self._batch(members[index])

    def in_order(self) -> Iterator[Batch]:
        """Every row once, by length; for evaluation."""
        for length in np.unique(self._padded):
            order = np.flatnonzero(self._padded == length)
            for start in range(0, len(order), self.batch_size):
                yield self._batch(order[start : start + self.batch_size])

    def _batch(self, indices: np.ndarray) -> Batch:
        """The rows `indices`, padded to their bucket's length and to B rows."""
        length = int(self._padded[indices[0]])
        tokens = np.zeros((self.batch_size, length), np.int32)
        mask = np.zeros((self.batch_size, length), bool)
        for position, index in enumerate(indices):
            row = self.rows[index]
            tokens[position, : len(row)] = row
            mask[position, 1 : len(row)] = True
        return Batch(tokens, mask)


def _bucket_lengths(lengths: np.ndarray, num_buckets: int, max_length: int) -> np.ndarray:
    """The padded length of every row: equally filled buckets whose lengths are multiples of 16.

    No bucket exceeds `max_length`, beyond which the model has no positions.
    """
    quantiles = np.quantile(lengths, np.arange(1, num_buckets + 1) / num_buckets, method="higher")
    edges = np.unique(np.minimum(-(-quantiles.astype(int) // _LENGTH_STEP) * _LENGTH_STEP, max_length))
    return edges[np.searchsorted(edges, lengths)]


END_OF_TEXT = "<|endoftext|>"
"""The only special token; it is never added to a text automatically."""

_NUM_BYTES = 256


def train_tokenizer(texts: Sequence[str], *, vocab_size: int = 1536) -> PreTrainedTokenizerFast:
    """Learn byte-pair merges from `texts`; every text, whatever its script, can be encoded and decoded.

    The tokenizer adds no token of its own to a text, as GPT-2's does not. Train it on texts that are neither
    members nor non-members (or equally on both kinds); otherwise the lengths of texts tell the two apart.

    Args:
      texts: Training texts.
      vocab_size: V, at least 257: the bytes and one special token come first, merges fill the rest. Fewer
        if the texts offer fewer merges.

    Returns:
      A Hugging Face fast tokenizer; `save_pretrained` writes what `AutoTokenizer` reads.

    Raises:
      InputError: `texts` is empty or holds something other than strings, or `vocab_size` is too small.

    Cost: one pass over the texts to count their words, then one merge for each further token of the vocabulary.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    check_texts("texts", texts)
    check_count("vocab_size", vocab_size, minimum=_NUM_BYTES + 1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        unk_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )
