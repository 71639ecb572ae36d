"""GPT-NeoX and Pythia: partial rotary positions, attention and multilayer perceptron side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import ROPE_KEYS, activation_name, activation_of, rope_parameters, rotary_positions
from tdd.models.families.record import Family, TensorNames
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, Mlp, RotaryPositions
from tdd.validate.checkpoints import check_divides

__all__ = ["GPT_NEOX"]


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    check_divides(num_attention_heads=num_heads, hidden_size=width)
    head_dim, bias = width // num_heads, config["attention_bias"]
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(config["layer_norm_eps"]),
        positions=rotary_positions(config, head_dim=head_dim, partial=True),
        attention=Attention(num_heads, head_dim, (head_dim**-0.5,) * num_layers, qkv_bias=bias, out_bias=bias),
        mlp=Mlp(config["intermediate_size"], activation_of("hidden_act", config)),
        tied_head=config["tie_word_embeddings"],
        layout="parallel" if config["use_parallel_residual"] else "pre",
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not (isinstance(spec.norm, LayerNorm) and isinstance(spec.positions, RotaryPositions)):
        return None
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.positions.max_length,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.attention.num_heads,
        "intermediate_size": spec.mlp.width,
        "hidden_act": activation_name(spec.mlp.activation),
        "layer_norm_eps": spec.norm.eps,
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
        "use_parallel_residual": spec.layout == "parallel",
        "attention_bias": spec.attention.qkv_bias,
        "tie_word_embeddings": spec.tied_head,
    }


GPT_NEOX = Family(
    model_type="gpt_neox",
    to_spec=_spec,
    to_config=_config,
    names=TensorNames(
        base="gpt_neox.",
        layer="layers.{layer}.",
        tokens="embed_in",
        final_norm="final_layer_norm",
        attention_norm="input_layernorm",
        qkv=("attention.query_key_value",),
        attention_out="attention.dense",
        mlp_norm="post_attention_layernorm",
        mlp_in=("mlp.dense_h_to_4h",),
        mlp_out="mlp.dense_4h_to_h",
        head="embed_out",
        heads_interleaved=True,
    ),
    used=frozenset(
        {
            "attention_bias",
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "rotary_emb_base",
            "rotary_pct",
            "tie_word_embeddings",
            "use_parallel_residual",
            "vocab_size",
        }
    )
    | ROPE_KEYS,
    buffers=(
        "gpt_neox.layers.{layer}.attention.bias",
        "gpt_neox.layers.{layer}.attention.masked_bias",
        "gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq",
        "gpt_neox.rotary_emb.inv_freq",
    ),
    aliases={"lm_head.weight": "embed_out.weight"},
)
