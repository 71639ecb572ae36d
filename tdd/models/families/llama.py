"""LLaMA, Mistral, Qwen 2 and 3, Gemma 2: root-mean-square norms, rotary positions and a gated perceptron."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import (
    Family,
    Keys,
    check_heads,
    first_window,
    head_dim_of,
    layer_types,
    layer_windows,
    spec_of,
)
from tdd.models.families.rope import ROPE_KEYS, check_agrees, rotary_positions
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import DecoderSpec, RmsNorm, RotaryPositions
from tdd.validate.files import check_positive

__all__ = ["GEMMA2", "LLAMA", "MISTRAL", "QWEN2", "QWEN3"]

_KEYS = Keys(eps="rms_norm_eps", head_dim="head_dim", num_kv_heads="num_key_value_heads")


def _spec(
    config: Mapping[str, Any],
    keys: Keys = _KEYS,
    *,
    plus_one: bool = False,
    mlp_bias: bool = False,
    attention: Mapping[str, Any],
    **fields: Any,
) -> DecoderSpec:
    return spec_of(
        config,
        keys,
        RmsNorm(config[keys.eps], plus_one),
        rotary_positions(config, head_dim=head_dim_of(config, keys)),
        attention={"qkv_bias": False, "out_bias": False, **attention},
        mlp={"gated": True, "bias": mlp_bias},
        **fields,
    )


# LLaMA


def _llama_spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_heads(config, _KEYS)
    bias = config["attention_bias"]
    return _spec(config, attention={"qkv_bias": bias, "out_bias": bias}, mlp_bias=config["mlp_bias"])


LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    norm=RmsNorm,
    positions=RotaryPositions,
    keys=_KEYS,
    names=TensorNames(),
    to_spec=_llama_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias, "mlp_bias": spec.mlp.bias},
    own_keys=ROPE_KEYS | {"attention_bias", "mlp_bias"},
    ignored=frozenset(
        {
            "max_sequence_length",  # from the first conversions; nothing reads it
            "pretraining_tp",  # the order of a sum
        }
    ),
    required={"is_llama_config": (True,), "rope_interleaved": (False,)},  # from other training code
    buffers=("model.layers.{layer}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)


def _like_llama(model_type: str, architecture: str, *, own_keys: set[str], **differences: Any) -> Family:
    fields = {"ignored": frozenset(), "required": {}, "own_keys": ROPE_KEYS | own_keys, **differences}
    return dataclasses.replace(LLAMA, model_type=model_type, architecture=architecture, **fields)


# Mistral: a window in every layer.

MISTRAL = _like_llama(
    "mistral",
    "MistralForCausalLM",
    to_spec=lambda config: _spec(
        config, attention={"windows": (config["sliding_window"],) * config["num_hidden_layers"]}
    ),
    own_config=lambda spec: {"sliding_window": first_window(spec.attention.windows)},
    own_keys={"sliding_window"},
)


# Qwen: biases (2) or norms (3) on queries and keys, and windows from some layer on.

_SLIDING_KEYS = {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"}


def _qwen_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    window = config["sliding_window"] if config["use_sliding_window"] else None
    return layer_windows(config["layer_types"], config["num_hidden_layers"], window)


def _qwen_window_config(spec: DecoderSpec) -> dict[str, Any]:
    windows = spec.attention.windows
    window = first_window(windows)
    return {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": next((i for i, window in enumerate(windows) if window is not None), spec.num_layers),
        "layer_types": layer_types(windows),
    }


def _qwen3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    bias = config["attention_bias"]
    windows = _qwen_windows(config)
    return _spec(config, attention={"windows": windows, "qkv_bias": bias, "out_bias": bias, "qk_norm": True})


QWEN2 = _like_llama(
    "qwen2",
    "Qwen2ForCausalLM",
    to_spec=lambda config: _spec(config, attention={"windows": _qwen_windows(config), "qkv_bias": True}),
    own_config=_qwen_window_config,
    own_keys=_SLIDING_KEYS,
    required={"use_mrope": (False,)},
)

QWEN3 = _like_llama(
    "qwen3",
    "Qwen3ForCausalLM",
    to_spec=_qwen3_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias, **_qwen_window_config(spec)},
    own_keys=_SLIDING_KEYS | {"attention_bias"},
)


# Gemma 2: norms before and after each part, soft caps, windows in every other layer.

_GEMMA2_KEYS = dataclasses.replace(_KEYS, activation="hidden_activation")
_GEMMA2_WINDOW = 4096


def _gemma2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_heads(config, _GEMMA2_KEYS)
    check_positive(query_pre_attn_scalar=config["query_pre_attn_scalar"])
    check_agrees(config, "sliding_window_size", config["sliding_window"], "sliding_window")
    num_layers, bias = config["num_hidden_layers"], config["attention_bias"]
    attention = {
        "scales": (config["query_pre_attn_scalar"] ** -0.5,) * num_layers,
        "windows": layer_windows(config["layer_types"], num_layers, config["sliding_window"]),
        "soft_cap": config["attn_logit_softcapping"],
        "qkv_bias": bias,
        "out_bias": bias,
    }
    return _spec(
        config,
        _GEMMA2_KEYS,
        plus_one=True,
        attention=attention,
        layout="sandwich",
        embedding_scale=config["hidden_size"] ** 0.5,
        soft_cap=config["final_logit_softcapping"],
    )


def _gemma2_config(spec: DecoderSpec) -> dict[str, Any]:
    attention = spec.attention
    return {
        "attention_bias": attention.qkv_bias,
        "query_pre_attn_scalar": round(attention.scales[0] ** -2),
        "attn_logit_softcapping": attention.soft_cap,
        "final_logit_softcapping": spec.soft_cap,
        "sliding_window": first_window(attention.windows, _GEMMA2_WINDOW),
        "layer_types": layer_types(attention.windows),
    }


GEMMA2 = _like_llama(
    "gemma2",
    "Gemma2ForCausalLM",
    keys=_GEMMA2_KEYS,
    names=dataclasses.replace(
        LLAMA.names,
        attention_post_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_post_norm="post_feedforward_layernorm",
    ),
    to_spec=_gemma2_spec,
    own_config=_gemma2_config,
    own_keys={
        "attention_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "layer_types",
        "query_pre_attn_scalar",
        "sliding_window",
        "sliding_window_size",
    },
    required={
        "hidden_act": ("gelu_pytorch_tanh",),  # an unused alias of hidden_activation
        "use_bidirectional_attention": (None, False),
    },
)
