"""A word-level transformers tokenizer: "w7" is 15, "W7" is 14, and lowercasing changes the id."""

import functools


@functools.cache
def word_tokenizer(vocabulary, *, bos=False):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {(f"w{i // 2}" if i % 2 else f"W{i // 2}"): i for i in range(vocabulary - bos)}
    if bos:
        words["<s>"] = vocabulary - 1
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="W0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", vocabulary - 1)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>" if bos else None)
