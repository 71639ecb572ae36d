"""GPT-Neo: layers with a window in turn, and attention without a scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import activation_name, activation_of, layer_types, layer_windows, one_window
from tdd.models.families.record import Family, TensorNames
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.validate.checkpoints import check_divides

__all__ = ["GPT_NEO"]

_DEFAULT_WINDOW = 256


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["hidden_size"], config["num_heads"], config["num_layers"]
    check_divides(num_heads=num_heads, hidden_size=width)
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(config["layer_norm_epsilon"]),
        positions=LearnedPositions(config["max_position_embeddings"]),
        attention=Attention(
            num_heads,
            width // num_heads,
            (1.0,) * num_layers,
            windows=layer_windows(config["attention_layers"], num_layers, config["window_size"], "local", "global"),
            qkv_bias=False,
        ),
        mlp=Mlp(
            4 * width if config["intermediate_size"] is None else config["intermediate_size"],
            activation_of("activation_function", config),
        ),
        tied_head=config["tie_word_embeddings"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not (isinstance(spec.norm, LayerNorm) and isinstance(spec.positions, LearnedPositions)):
        return None
    types = layer_types(spec.attention.windows, "local", "global")
    return {
        "model_type": "gpt_neo",
        "architectures": ["GPTNeoForCausalLM"],
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.positions.count,
        "hidden_size": spec.width,
        "num_layers": spec.num_layers,
        "num_heads": spec.attention.num_heads,
        "attention_types": [[types, 1]],
        "attention_layers": types,
        "window_size": one_window(spec.attention.windows, _DEFAULT_WINDOW),
        "intermediate_size": spec.mlp.width,
        "activation_function": activation_name(spec.mlp.activation),
        "layer_norm_epsilon": spec.norm.eps,
        "tie_word_embeddings": spec.tied_head,
    }


GPT_NEO = Family(
    model_type="gpt_neo",
    to_spec=_spec,
    to_config=_config,
    names=TensorNames(
        base="transformer.",
        layer="h.{layer}.",
        tokens="wte",
        positions="wpe",
        final_norm="ln_f",
        attention_norm="ln_1",
        qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
        attention_out="attn.attention.out_proj",
        mlp_norm="ln_2",
        mlp_in=("mlp.c_fc",),
        mlp_out="mlp.c_proj",
    ),
    used=frozenset(
        {
            "activation_function",
            "attention_layers",
            "attention_types",
            "hidden_size",
            "intermediate_size",
            "layer_norm_epsilon",
            "max_position_embeddings",
            "num_attention_heads",
            "num_heads",
            "num_hidden_layers",
            "num_layers",
            "tie_word_embeddings",
            "vocab_size",
            "window_size",
        }
    ),
    buffers=("transformer.h.{layer}.attn.attention.bias", "transformer.h.{layer}.attn.attention.masked_bias"),
)
