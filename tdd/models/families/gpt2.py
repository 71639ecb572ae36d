"""GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import activation_name, activation_of
from tdd.models.families.record import Family, TensorNames
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.validate.checkpoints import check_divides

__all__ = ["GPT2"]


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["n_embd"], config["n_head"], config["n_layer"]
    check_divides(n_head=num_heads, n_embd=width)
    scales = _scales(
        num_layers, width // num_heads, config["scale_attn_weights"], config["scale_attn_by_inverse_layer_idx"]
    )
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(config["layer_norm_epsilon"]),
        positions=LearnedPositions(config["n_positions"]),
        attention=Attention(num_heads, width // num_heads, scales),
        mlp=Mlp(
            4 * width if config["n_inner"] is None else config["n_inner"],
            activation_of("activation_function", config),
        ),
        tied_head=config["tie_word_embeddings"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not (isinstance(spec.norm, LayerNorm) and isinstance(spec.positions, LearnedPositions)):
        return None
    attention = spec.attention
    for scaled in (True, False):
        for inverse in (False, True):
            if attention.scales == _scales(spec.num_layers, attention.head_dim, scaled, inverse):
                return {
                    "model_type": "gpt2",
                    "architectures": ["GPT2LMHeadModel"],
                    "vocab_size": spec.vocab_size,
                    "n_positions": spec.positions.count,
                    "n_embd": spec.width,
                    "n_layer": spec.num_layers,
                    "n_head": attention.num_heads,
                    "n_inner": spec.mlp.width,
                    "activation_function": activation_name(spec.mlp.activation),
                    "layer_norm_epsilon": spec.norm.eps,
                    "scale_attn_weights": scaled,
                    "scale_attn_by_inverse_layer_idx": inverse,
                    "tie_word_embeddings": spec.tied_head,
                }
    return None


def _scales(num_layers: int, head_dim: int, scaled: bool, inverse: bool) -> tuple[float, ...]:
    base = head_dim**-0.5 if scaled else 1.0
    return tuple(base / (layer + 1) if inverse else base for layer in range(num_layers))


GPT2 = Family(
    model_type="gpt2",
    to_spec=_spec,
    to_config=_config,
    names=TensorNames(
        base="transformer.",
        layer="h.{layer}.",
        tokens="wte",
        positions="wpe",
        final_norm="ln_f",
        attention_norm="ln_1",
        qkv=("attn.c_attn",),
        attention_out="attn.c_proj",
        mlp_norm="ln_2",
        mlp_in=("mlp.c_fc",),
        mlp_out="mlp.c_proj",
        inputs_first=True,
    ),
    used=frozenset(
        {
            "activation_function",
            "hidden_size",
            "layer_norm_epsilon",
            "max_position_embeddings",
            "n_embd",
            "n_head",
            "n_inner",
            "n_layer",
            "n_positions",
            "num_attention_heads",
            "num_hidden_layers",
            "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights",
            "tie_word_embeddings",
            "vocab_size",
        }
    ),
    ignored=frozenset(
        {
            "n_ctx",  # repeats n_positions in old files
            "n_special",  # of the first files, with the next; nothing reads them
            "predict_special_tokens",
            "reorder_and_upcast_attn",  # the rounding of half precision only
        }
    ),
    buffers=("transformer.h.{layer}.attn.bias", "transformer.h.{layer}.attn.masked_bias"),
)
