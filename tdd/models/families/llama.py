"""LLaMA and Mistral, and what Qwen and Gemma share with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import (
    ROPE_KEYS,
    activation_name,
    activation_of,
    one_window,
    rope_parameters,
    rotary_positions,
)
from tdd.models.families.record import Family, TensorNames
from tdd.models.spec import Attention, DecoderSpec, Mlp, RmsNorm, RotaryPositions
from tdd.validate.checkpoints import check_divides

__all__ = ["LLAMA", "LLAMA_BUFFERS", "LLAMA_KEYS", "LLAMA_NAMES", "MISTRAL", "config_of", "spec_of"]

LLAMA_NAMES = TensorNames(
    base="model.",
    layer="layers.{layer}.",
    tokens="embed_tokens",
    final_norm="norm",
    attention_norm="input_layernorm",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_out="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    mlp_in=("mlp.gate_proj", "mlp.up_proj"),
    mlp_out="mlp.down_proj",
    query_norm="self_attn.q_norm",
    key_norm="self_attn.k_norm",
)
LLAMA_BUFFERS = ("model.layers.{layer}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
LLAMA_KEYS = ROPE_KEYS | {
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "tie_word_embeddings",
    "vocab_size",
}
"""Configuration keys that all of these families have."""


def spec_of(
    config: Mapping[str, Any],
    *,
    windows: tuple[int | None, ...] = (),
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> DecoderSpec:
    """The spec of a family like LLaMA; what its own keys say comes as arguments."""
    width, num_heads, num_layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    head_dim = config.get("head_dim")
    if head_dim is None:
        check_divides(num_attention_heads=num_heads, hidden_size=width)
        head_dim = width // num_heads
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=RmsNorm(config["rms_norm_eps"]),
        positions=rotary_positions(config, head_dim=head_dim),
        attention=Attention(
            num_heads,
            head_dim,
            (head_dim**-0.5,) * num_layers,
            config["num_key_value_heads"],
            windows,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            qk_norm=qk_norm,
        ),
        mlp=Mlp(config["intermediate_size"], activation_of("hidden_act", config), gated=True, bias=mlp_bias),
        tied_head=config["tie_word_embeddings"],
    )


def config_of(spec: DecoderSpec, model_type: str, architecture: str, **own: Any) -> dict[str, Any] | None:
    """The configuration of a family like LLaMA, with `own` keys."""
    if not (isinstance(spec.norm, RmsNorm) and isinstance(spec.positions, RotaryPositions)):
        return None
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.positions.max_length,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.attention.num_heads,
        "num_key_value_heads": spec.attention.kv_heads,
        "head_dim": spec.attention.head_dim,
        "intermediate_size": spec.mlp.width,
        "hidden_act": activation_name(spec.mlp.activation),
        "rms_norm_eps": spec.norm.eps,
        "rope_parameters": rope_parameters(spec.positions),
        "tie_word_embeddings": spec.tied_head,
        **own,
    }


def _llama_spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_divides(num_attention_heads=config["num_attention_heads"], hidden_size=config["hidden_size"])
    bias = config["attention_bias"]
    return spec_of(config, qkv_bias=bias, out_bias=bias, mlp_bias=config["mlp_bias"])


def _llama_config(spec: DecoderSpec) -> dict[str, Any] | None:
    bias = {"attention_bias": spec.attention.qkv_bias, "mlp_bias": spec.mlp.bias}
    return config_of(spec, "llama", "LlamaForCausalLM", **bias)


def _mistral_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return spec_of(config, windows=(config["sliding_window"],) * config["num_hidden_layers"])


def _mistral_config(spec: DecoderSpec) -> dict[str, Any] | None:
    window = one_window(spec.attention.windows, None)
    return config_of(spec, "mistral", "MistralForCausalLM", sliding_window=window)


LLAMA = Family(
    model_type="llama",
    to_spec=_llama_spec,
    to_config=_llama_config,
    names=LLAMA_NAMES,
    used=LLAMA_KEYS | {"attention_bias", "hidden_act", "mlp_bias"},
    ignored=frozenset(
        {
            "max_sequence_length",  # of the first conversions; nothing reads it
            "pretraining_tp",  # the order of a sum
        }
    ),
    required={"is_llama_config": (True,), "rope_interleaved": (False,)},  # of other training code
    buffers=LLAMA_BUFFERS,
)

MISTRAL = Family(
    model_type="mistral",
    to_spec=_mistral_spec,
    to_config=_mistral_config,
    names=LLAMA_NAMES,
    used=LLAMA_KEYS | {"hidden_act", "sliding_window"},
    buffers=LLAMA_BUFFERS,
)
