"""One architecture of GPT-2-small's size for every family, and the flop of its forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp, RmsNorm, RotaryPositions

__all__ = ["SPECS", "forward_flops"]

_LAYERS, _HEADS, _HEAD, _WIDTH, _LENGTH = 12, 12, 64, 768, 1024
_SCALES = (_HEAD**-0.5,) * _LAYERS
_FULL = Attention(_HEADS, _HEAD, _SCALES)
_GROUPED = {"num_kv_heads": 4, "out_bias": False}
_GATED = Mlp(2048, "silu", gated=True, bias=False)
_ROTARY = RotaryPositions(_LENGTH, _HEAD)


def _spec(vocabulary: int, **parts: object) -> DecoderSpec:
    given = {"norm": LayerNorm(), "positions": LearnedPositions(_LENGTH), "attention": _FULL}
    given |= {"mlp": Mlp(4 * _WIDTH, "gelu_tanh"), **parts}
    return DecoderSpec(vocabulary, _WIDTH, _LAYERS, **given)  # type: ignore[arg-type]


def _gated(vocabulary: int, *, qkv_bias: bool = False, **parts: object) -> DecoderSpec:
    attention = {**_GROUPED, "qkv_bias": qkv_bias, **parts.pop("attention", {})}  # type: ignore[dict-item]
    parts = {"norm": RmsNorm(), "positions": _ROTARY, "mlp": _GATED, "tied_head": False, **parts}
    return _spec(vocabulary, attention=Attention(_HEADS, _HEAD, _SCALES, **attention), **parts)


SPECS: Mapping[str, DecoderSpec] = {
    "gpt2": _spec(50_257),
    "gpt_neo": _spec(
        50_257,
        attention=Attention(_HEADS, _HEAD, (1.0,) * _LAYERS, windows=(None, 256) * (_LAYERS // 2), qkv_bias=False),
    ),
    "gpt_neox": _spec(
        50_304,
        positions=RotaryPositions(_LENGTH, _HEAD // 4),
        mlp=Mlp(4 * _WIDTH, "gelu"),
        layout="parallel",
        tied_head=False,
    ),
    "opt": _spec(50_272, positions=LearnedPositions(_LENGTH, 2), mlp=Mlp(4 * _WIDTH, "relu")),
    "llama": _gated(32_000),
    "mistral": _gated(32_000, attention={"windows": (256,) * _LAYERS}),
    "qwen2": _gated(151_936, qkv_bias=True, tied_head=True),
    "qwen3": _gated(151_936, attention={"qk_norm": True}, tied_head=True),
    "gemma2": _gated(
        256_000,
        norm=RmsNorm(plus_one=True),
        mlp=Mlp(2048, "gelu_tanh", gated=True, bias=False),
        attention={"windows": (256, None) * (_LAYERS // 2), "soft_cap": 50.0},
        layout="sandwich",
        embedding_scale=_WIDTH**0.5,
        soft_cap=30.0,
        tied_head=True,
    ),
}
"""Name of the family -> its architecture, with the vocabulary of published models."""


def forward_flops(spec: DecoderSpec, lengths: Sequence[int]) -> float:
    """Flop of one forward pass over sequences of these lengths: products of weights, and of attention as if every token
    saw all before it and none behind; additions and everything elementwise are left out."""
    attention = spec.attention
    mixed = attention.num_heads * attention.head_dim
    inner = spec.mlp.width * (3 if spec.mlp.gated else 2)
    weights = spec.num_layers * spec.width * (sum(attention.qkv_widths) + mixed + inner)
    tokens, pairs = sum(lengths), sum(n * (n + 1) / 2 for n in lengths)
    readout = (tokens - len(lengths)) * spec.vocab_size * spec.embedded_width
    return 2.0 * (tokens * weights + 2 * spec.num_layers * pairs * mixed + readout)
