"""A GPT-2-small-sized checkpoint of random weights, and random texts of WikiMIA's lengths in its vocabulary.

The texts have 32, 64, 128 and 256 words in WikiMIA's shares, at about 1.38 GPT-2 tokens a word with the spread of real
text.
"""

from __future__ import annotations

import pathlib

import jax
import numpy as np

from tdd.models import checkpoint
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

__all__ = ["GPT2_SMALL", "forward_flops", "sample_texts", "save_model", "wikimia_lengths", "word"]

WIKIMIA_TEXTS = {32: 776, 64: 542, 128: 250, 256: 82}
TOKENS_PER_WORD = {32: (1.38, 0.13), 64: (1.38, 0.10), 128: (1.38, 0.085), 256: (1.38, 0.075)}
VOCABULARY, WIDTH, LAYERS, HEADS, POSITIONS = 50_257, 768, 12, 12, 1024
GPT2_SMALL = DecoderSpec.gpt2(
    vocab_size=VOCABULARY, width=WIDTH, num_layers=LAYERS, num_heads=HEADS, max_length=POSITIONS
)


def forward_flops(texts: list[str]) -> float:
    """Flop of three forward passes over the tokens alone, without padding: products of weights and of attention."""
    block = 12 * WIDTH**2
    total = 0.0
    for text in texts:
        length = len(text.split())
        total += 2 * length * LAYERS * block + 2 * LAYERS * 2 * length**2 * WIDTH
        total += 2 * (length - 1) * WIDTH * VOCABULARY
    return 3 * total


def wikimia_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Token counts of `count` texts: words in WikiMIA's shares, tokens a word by its mean and spread."""
    rng = np.random.default_rng(seed)
    total = sum(WIKIMIA_TEXTS.values())
    words = [length for length, number in WIKIMIA_TEXTS.items() for _ in range(round(count * number / total))]
    words = (words + [32] * count)[:count]
    return np.array([max(2, round(n * rng.normal(*TOKENS_PER_WORD[n]))) for n in words])


def sample_texts(count: int, lengths: np.ndarray, seed: int = 1, vocabulary: int = VOCABULARY) -> list[str]:
    """Texts of random words, one token each; every word exists in an upper and a lower case."""
    rng = np.random.default_rng(seed)
    return [" ".join(word(i) for i in rng.integers(0, vocabulary - 1, n)) for n in rng.permutation(lengths[:count])]


def word(index: int) -> str:
    """The word with this token id; case is its last bit."""
    return f"w{index // 2}" if index % 2 else f"W{index // 2}"


def save_model(folder: pathlib.Path, seed: int, spec: DecoderSpec = GPT2_SMALL) -> pathlib.Path:
    """A checkpoint of random weights with a word tokenizer; GPT-2-small-sized unless a spec is given."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # random weights of standard deviation 0.02 give nearly uniform distributions: a few times that is livelier
    params = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 2 else leaf, init_params(spec, jax.random.key(seed)))
    # some classes of tokenizers add this token where it is missing, beyond the model's vocabulary
    known = {word(i): i for i in range(spec.vocab_size - 1)} | {"<|endoftext|>": spec.vocab_size - 1}
    words = Tokenizer(models.WordLevel(known, unk_token=word(0)))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token=word(0))
    checkpoint.save(folder, language_model(spec), params, tokenizer)
    return folder
