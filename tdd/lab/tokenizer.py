"""A small byte-level BPE tokenizer, trained on given texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tdd.lab.checks import check_count, check_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["END_OF_TEXT", "train_tokenizer"]

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

    Cost: seconds for ten thousand short texts.
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
