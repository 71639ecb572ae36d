"""Checkpoints of GPT-2-small's size with random weights, one architecture for every family, and random texts for them.

The texts have 32, 64, 128 and 256 words in WikiMIA's fractions, at about 1.38 GPT-2 tokens a word with the spread of
real text.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from tdd.models import checkpoint
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, Experts, LayerNorm, LearnedPositions, Mlp, RmsNorm, RotaryPositions

__all__ = [
    "GPT2_SMALL",
    "SPECS",
    "documented_texts",
    "forward_flops",
    "sample_texts",
    "save_model",
    "weight_shapes",
    "wikimia_lengths",
    "word",
]

WIKIMIA_TEXTS = {32: 776, 64: 542, 128: 250, 256: 82}
TOKENS_PER_WORD = {32: (1.38, 0.13), 64: (1.38, 0.10), 128: (1.38, 0.085), 256: (1.38, 0.075)}
VOCABULARY, WIDTH, LAYERS, HEADS, POSITIONS = 50_257, 768, 12, 12, 1024
DOCUMENTED = ("argparse", "asyncio", "collections", "decimal", "json", "logging", "statistics", "typing")
GPT2_SMALL = DecoderSpec.gpt2(
    vocab_size=VOCABULARY, width=WIDTH, num_layers=LAYERS, num_heads=HEADS, max_length=POSITIONS
)


_HEAD = WIDTH // HEADS
_SCALES = (_HEAD**-0.5,) * LAYERS
_FULL = Attention(HEADS, _HEAD, _SCALES)
_GROUPED = {"num_kv_heads": 4, "out_bias": False}
_GATED = Mlp(2048, "silu", gated=True, bias=False)
_ROTARY = RotaryPositions(POSITIONS, _HEAD)


def _spec(vocabulary: int, **parts: object) -> DecoderSpec:
    given = {"norm": LayerNorm(), "positions": LearnedPositions(POSITIONS), "attention": _FULL}
    given |= {"mlp": Mlp(4 * WIDTH, "gelu_tanh"), **parts}
    return DecoderSpec(vocabulary, WIDTH, LAYERS, **given)  # type: ignore[arg-type]


def _gated(vocabulary: int, *, qkv_bias: bool = False, **parts: object) -> DecoderSpec:
    attention = {**_GROUPED, "qkv_bias": qkv_bias, **parts.pop("attention", {})}  # type: ignore[dict-item]
    parts = {"norm": RmsNorm(), "positions": _ROTARY, "mlp": _GATED, "tied_head": False, **parts}
    return _spec(vocabulary, attention=Attention(HEADS, _HEAD, _SCALES, **attention), **parts)


SPECS: Mapping[str, DecoderSpec] = {
    "gpt2": _spec(50_257),
    "gpt_neo": _spec(
        50_257,
        attention=Attention(HEADS, _HEAD, (1.0,) * LAYERS, windows=(None, 256) * (LAYERS // 2), qkv_bias=False),
    ),
    "gpt_neox": _spec(
        50_304,
        positions=RotaryPositions(POSITIONS, _HEAD // 4),
        mlp=Mlp(4 * WIDTH, "gelu"),
        layout="parallel",
        tied_head=False,
    ),
    "opt": _spec(50_272, positions=LearnedPositions(POSITIONS, 2), mlp=Mlp(4 * WIDTH, "relu")),
    "llama": _gated(32_000),
    "mistral": _gated(32_000, attention={"windows": (256,) * LAYERS}),
    "qwen2": _gated(151_936, qkv_bias=True, tied_head=True),
    "qwen3": _gated(151_936, attention={"qk_norm": "head"}, tied_head=True),
    "gemma2": _gated(
        256_000,
        norm=RmsNorm(plus_one=True),
        mlp=Mlp(2048, "gelu_tanh", gated=True, bias=False),
        attention={"windows": (256, None) * (LAYERS // 2), "soft_cap": 50.0},
        layout="sandwich",
        embedding_scale=WIDTH**0.5,
        soft_cap=30.0,
        tied_head=True,
    ),
}
"""Name of the family -> its architecture, with the vocabulary of published models."""


def forward_flops(spec: DecoderSpec, lengths: Sequence[int]) -> float:
    """Flop of one forward pass over sequences of these lengths: products of weights, and of attention as if every token
    saw all before it and none behind; additions and everything elementwise are left out."""
    mixed = spec.attention.num_heads * spec.attention.head_dim
    *layers, (width, vocabulary, _) = weight_shapes(spec)
    tokens, pairs = sum(lengths), sum(n * (n + 1) / 2 for n in lengths)
    weights = sum(rows * columns * count for rows, columns, count in layers)
    return 2.0 * (tokens * weights + 2 * spec.num_layers * pairs * mixed + (tokens - len(lengths)) * width * vocabulary)


def weight_shapes(spec: DecoderSpec) -> list[tuple[int, int, int]]:
    """(rows, columns, how often a token is multiplied by such a matrix), the readout last."""
    attention, mlp, width, layers = spec.attention, spec.mlp, spec.width, spec.num_layers
    gated, used = (True, mlp.top_k) if isinstance(mlp, Experts) else (mlp.gated, 1)
    shapes = [(width, sum(attention.qkv_widths), layers), (attention.num_heads * attention.head_dim, width, layers)]
    shapes += [(width, mlp.width, (2 if gated else 1) * used * layers), (mlp.width, width, used * layers)]
    if isinstance(mlp, Experts):
        shapes.append((width, mlp.num_experts, layers))
    return [*shapes, (spec.embedded_width, spec.vocab_size, 1)]


def wikimia_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Token counts of `count` texts: words in WikiMIA's shares, tokens a word by its mean and spread."""
    rng = np.random.default_rng(seed)
    return np.array([max(2, round(n * rng.normal(*TOKENS_PER_WORD[n]))) for n in wikimia_words(count)])


def wikimia_words(count: int) -> list[int]:
    """Word counts of `count` texts in WikiMIA's shares."""
    total = sum(WIKIMIA_TEXTS.values())
    words = [length for length, number in WIKIMIA_TEXTS.items() for _ in range(round(count * number / total))]
    return (words + [32] * count)[:count]


def documented_texts(count: int, seed: int = 1) -> list[str]:
    """Texts of WikiMIA's word counts in real English: passages of the standard library's documentation."""
    documented = [importlib.import_module(name) for name in DOCUMENTED]
    places = [value for module in documented for value in (module, *vars(module).values())]
    said = dict.fromkeys(str(value.__doc__) for value in places if isinstance(getattr(value, "__doc__", None), str))
    words = " ".join(said).split()
    rng = np.random.default_rng(seed)
    starts = [(int(rng.integers(0, len(words) - n)), n) for n in rng.permutation(wikimia_words(count))]
    return [" ".join(words[start : start + n]) for start, n in starts]


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
