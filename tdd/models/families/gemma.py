"""Gemma: norms stored minus one and scaled embeddings (1); norms before and after each part and windows by layer
(2 and 3), with soft caps (2) or norms of queries and keys (3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import check_heads, first_window, head_dim_of, layer_types, layer_windows
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import check_agrees, rope_by_type, with_rotary_by_type
from tdd.models.spec import DecoderSpec
from tdd.validate.files import check_positive

# Gemma 1


def _gemma_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return llama_spec(config, plus_one=True, attention={}, embedding_scale=config["hidden_size"] ** 0.5)


def _gemma_config(spec: DecoderSpec) -> dict[str, Any] | None:
    # transformers reads "gelu" as the tanh form, which the first files meant
    return None if spec.mlp.activation == "gelu" else {"attention_bias": spec.attention.qkv_bias}


GEMMA = like_llama(
    "gemma",
    "GemmaForCausalLM",
    to_spec=_gemma_spec,
    own_config=_gemma_config,
    own_keys={"attention_bias"},
    required={
        "hidden_activation": (None, "gelu_pytorch_tanh"),  # later transformers of some months read it first
        "use_bidirectional_attention": (None, False),
    },
)


# Gemma 2

_KEYS = dataclasses.replace(LLAMA_KEYS, activation="hidden_activation")
_WINDOW = 4096


def _spec(config: Mapping[str, Any], **attention_fields: Any) -> DecoderSpec:
    check_heads(config, _KEYS)
    check_positive(query_pre_attn_scalar=config["query_pre_attn_scalar"])
    check_agrees(config, "sliding_window_size", config["sliding_window"], "sliding_window")
    num_layers = config["num_hidden_layers"]
    attention = {
        "scales": (config["query_pre_attn_scalar"] ** -0.5,) * num_layers,
        "windows": layer_windows(config["layer_types"], num_layers, config["sliding_window"]),
        "soft_cap": config["attn_logit_softcapping"],
        **attention_fields,
    }
    return llama_spec(
        config,
        _KEYS,
        plus_one=True,
        attention=attention,
        layout="sandwich",
        embedding_scale=config["hidden_size"] ** 0.5,
        soft_cap=config["final_logit_softcapping"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    attention = spec.attention
    return {
        "attention_bias": attention.qkv_bias,
        "query_pre_attn_scalar": round(attention.scales[0] ** -2),
        "attn_logit_softcapping": attention.soft_cap,
        "final_logit_softcapping": spec.soft_cap,
        "sliding_window": first_window(attention.windows, _WINDOW),
        "layer_types": layer_types(attention.windows),
    }


GEMMA2 = like_llama(
    "gemma2",
    "Gemma2ForCausalLM",
    keys=_KEYS,
    names=dataclasses.replace(
        LLAMA.names,
        attention_post_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys={"attention_bias", "layer_types", "query_pre_attn_scalar", "sliding_window", "sliding_window_size"}
    | {"attn_logit_softcapping", "final_logit_softcapping"},
    required={
        "hidden_act": ("gelu_pytorch_tanh",),  # an unused alias of hidden_activation
        "use_bidirectional_attention": (None, False),
    },
)


# Gemma 3: norms of queries and keys, and rotary positions of their own in the layers with windows.


GEMMA3_TEXT = dataclasses.replace(
    GEMMA2,
    model_type="gemma3_text",
    architecture="Gemma3ForCausalLM",
    to_spec=lambda config: with_rotary_by_type(
        config, head_dim_of(config, _KEYS), lambda full: _spec(full, qk_norm="head", soft_cap=None)
    ),
    own_config=lambda spec: {**_config(spec), "rope_parameters": rope_by_type(spec)},
    own_keys=GEMMA2.own_keys - {"attn_logit_softcapping", "sliding_window_size"}
    | {
        "_sliding_window_pattern",
        "rope_local_base_freq",
        "sliding_window_pattern",  # transformers makes layer_types of it where these are missing
    },
    required={
        "attn_logit_softcapping": (None,),  # transformers reads it and does not apply it
        "use_bidirectional_attention": (None, False),
    },
)
