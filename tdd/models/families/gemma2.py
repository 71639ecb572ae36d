"""Gemma 2: norms before and behind each part, soft caps, windows in every other layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import (
    WINDOW_KINDS,
    activation_name,
    activation_of,
    layer_types,
    layer_windows,
    one_window,
    rope_parameters,
    rotary_positions,
)
from tdd.models.families.llama import LLAMA_BUFFERS, LLAMA_KEYS, LLAMA_NAMES
from tdd.models.families.record import Family
from tdd.models.spec import Attention, DecoderSpec, Mlp, RmsNorm, RotaryPositions
from tdd.validate.checkpoints import check_divides, check_positive
from tdd.validate.configs import check_agrees

__all__ = ["GEMMA2"]

_DEFAULT_WINDOW = 4096


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    check_divides(num_attention_heads=num_heads, hidden_size=width)
    check_positive(query_pre_attn_scalar=config["query_pre_attn_scalar"])
    window, bias = config["sliding_window"], config["attention_bias"]
    check_agrees(config, "sliding_window_size", window, "sliding_window")
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=RmsNorm(config["rms_norm_eps"], plus_one=True),
        positions=rotary_positions(config, head_dim=config["head_dim"]),
        attention=Attention(
            num_heads,
            config["head_dim"],
            (config["query_pre_attn_scalar"] ** -0.5,) * num_layers,
            config["num_key_value_heads"],
            layer_windows(config["layer_types"], num_layers, window, *WINDOW_KINDS),
            config["attn_logit_softcapping"],
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Mlp(config["intermediate_size"], activation_of("hidden_activation", config), gated=True, bias=False),
        tied_head=config["tie_word_embeddings"],
        layout="sandwich",
        embedding_scale=width**0.5,
        soft_cap=config["final_logit_softcapping"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not (isinstance(spec.norm, RmsNorm) and isinstance(spec.positions, RotaryPositions)):
        return None
    attention = spec.attention
    return {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.positions.max_length,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "intermediate_size": spec.mlp.width,
        "hidden_activation": activation_name(spec.mlp.activation),
        "rms_norm_eps": spec.norm.eps,
        "rope_parameters": rope_parameters(spec.positions),
        "attention_bias": attention.qkv_bias,
        "query_pre_attn_scalar": round(attention.scales[0] ** -2),
        "attn_logit_softcapping": attention.soft_cap,
        "final_logit_softcapping": spec.soft_cap,
        "sliding_window": one_window(attention.windows, _DEFAULT_WINDOW),
        "layer_types": layer_types(attention.windows, *WINDOW_KINDS),
        "tie_word_embeddings": spec.tied_head,
    }


GEMMA2 = Family(
    model_type="gemma2",
    to_spec=_spec,
    to_config=_config,
    names=dataclasses.replace(
        LLAMA_NAMES,
        attention_post_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    ),
    used=LLAMA_KEYS
    | {
        "attention_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "hidden_activation",
        "layer_types",
        "query_pre_attn_scalar",
        "sliding_window",
        "sliding_window_size",
    },
    required={
        "hidden_act": ("gelu_pytorch_tanh",),  # a second name of hidden_activation, which nothing reads
        "use_bidirectional_attention": (None, False),
    },
    buffers=LLAMA_BUFFERS,
)
