"""LLaMA, Mistral, Qwen 2 and 3, SmolLM3: root-mean-square norms, rotary positions and a gated perceptron."""

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
from tdd.models.families.rope import ROPE_KEYS, rotary_positions
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import DecoderSpec, RmsNorm, RotaryPositions
from tdd.validate import InputError

LLAMA_KEYS = Keys(eps="rms_norm_eps", head_dim="head_dim", num_kv_heads="num_key_value_heads")


def llama_spec(
    config: Mapping[str, Any],
    keys: Keys = LLAMA_KEYS,
    *,
    plus_one: bool = False,
    attention: Mapping[str, Any],
    positions: RotaryPositions | None = None,
    **fields: Any,
) -> DecoderSpec:
    """The spec of a configuration with LLaMA's keys and a family's own fields; without keys for biases it has none."""
    bias = config.get("attention_bias", False)
    return spec_of(
        config,
        keys,
        RmsNorm(config[keys.eps], plus_one),
        positions or rotary_positions(config, head_dim=head_dim_of(config, keys)),
        attention={"qkv_bias": bias, "out_bias": bias, **attention},
        mlp={"gated": True, "bias": config.get("mlp_bias", False)},
        **fields,
    )


# LLaMA


def _llama_spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_heads(config, LLAMA_KEYS)
    return llama_spec(config, attention={})


LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    norm=RmsNorm,
    positions=RotaryPositions,
    keys=LLAMA_KEYS,
    names=TensorNames(),
    to_spec=_llama_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias, "mlp_bias": spec.mlp.bias},
    own_keys=ROPE_KEYS | {"attention_bias", "mlp_bias"},
    # from the first conversions, read by nothing; the order of a sum
    ignored=frozenset({"max_sequence_length", "pretraining_tp"}),
    required={"is_llama_config": (True,), "rope_interleaved": (False,)},  # from other training code
    buffers=("model.layers.{layer}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)


def like_llama(model_type: str, architecture: str, *, own_keys: set[str], **differences: Any) -> Family:
    """LLaMA with the differences of another family."""
    fields = {"ignored": frozenset(), "required": {}, "own_keys": ROPE_KEYS | own_keys, **differences}
    return dataclasses.replace(LLAMA, model_type=model_type, architecture=architecture, **fields)


# Mistral: a window in every layer.

MISTRAL = like_llama(
    "mistral",
    "MistralForCausalLM",
    to_spec=lambda config: llama_spec(
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


QWEN2 = like_llama(
    "qwen2",
    "Qwen2ForCausalLM",
    to_spec=lambda config: llama_spec(config, attention={"windows": _qwen_windows(config), "qkv_bias": True}),
    own_config=_qwen_window_config,
    own_keys=_SLIDING_KEYS,
    required={"use_mrope": (False,)},
)

QWEN3 = like_llama(
    "qwen3",
    "Qwen3ForCausalLM",
    to_spec=lambda config: llama_spec(config, attention={"windows": _qwen_windows(config), "qk_norm": "head"}),
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias, **_qwen_window_config(spec)},
    own_keys=_SLIDING_KEYS | {"attention_bias"},
)


# SmolLM3: every fourth layer without positions.


def _smollm3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_heads(config, LLAMA_KEYS)
    turning, num_layers = config["no_rope_layers"], config["num_hidden_layers"]
    if not isinstance(turning, list) or len(turning) != num_layers or not set(turning) <= {0, 1}:
        raise InputError(f"no_rope_layers must hold a 1 or a 0 (no positions) for each of {num_layers} layers")
    plain = llama_spec(config, attention={"windows": _qwen_windows(config)})
    return dataclasses.replace(plain, layer_positions=tuple(plain.positions if turns else None for turns in turning))


def _smollm3_config(spec: DecoderSpec) -> dict[str, Any]:
    windows = _qwen_window_config(spec)
    del windows["max_window_layers"]
    kinds = spec.layer_positions or (spec.positions,) * spec.num_layers
    turning = [int(kind is not None) for kind in kinds]
    return {**(LLAMA.own_config(spec) or {}), **windows, "no_rope_layers": turning}


SMOLLM3 = like_llama(
    "smollm3",
    "SmolLM3ForCausalLM",
    to_spec=_smollm3_spec,
    own_config=_smollm3_config,
    # transformers makes no_rope_layers of the interval where that is missing
    own_keys=_SLIDING_KEYS - {"max_window_layers"}
    | {"attention_bias", "mlp_bias", "no_rope_layer_interval", "no_rope_layers"},
    ignored=frozenset({"max_window_layers", "pretraining_tp"}),  # nothing reads it; the order of a sum
)
