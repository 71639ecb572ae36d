"""OLMo 2 and 3: norms after each branch, and over all heads of queries and of keys together; windows by layer (3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Keys, check_heads, first_window, layer_types, layer_windows
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import rope_by_type, rotary_by_type
from tdd.models.spec import DecoderSpec

__all__ = ["OLMO2", "OLMO3"]

_KEYS = dataclasses.replace(LLAMA_KEYS, head_dim="")
_WINDOW = 4096


def _spec(config: Mapping[str, Any], keys: Keys = _KEYS, **attention: Any) -> DecoderSpec:
    bias = config["attention_bias"]
    of_attention = {"qkv_bias": bias, "out_bias": bias, "qk_norm": "full", **attention}
    return llama_spec(config, keys, attention=of_attention, layout="branch")


OLMO2 = like_llama(
    "olmo2",
    "Olmo2ForCausalLM",
    keys=_KEYS,
    names=dataclasses.replace(
        LLAMA.names, attention_norm="post_attention_layernorm", mlp_norm="post_feedforward_layernorm"
    ),
    to_spec=_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias},
    own_keys={"attention_bias"},
)


def _olmo3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    positions = rotary_by_type(config, head_dim=check_heads(config, _KEYS))
    windows = layer_windows(config["layer_types"], config["num_hidden_layers"], config["sliding_window"])
    full = {**config, "rope_parameters": config["rope_parameters"]["full_attention"]}
    by_layer = tuple(positions[kind] for kind in config["layer_types"])
    return dataclasses.replace(_spec(full, windows=windows), layer_positions=by_layer)


def _olmo3_config(spec: DecoderSpec) -> dict[str, Any]:
    windows = spec.attention.windows
    return {
        "attention_bias": spec.attention.qkv_bias,
        "layer_types": layer_types(windows),
        "rope_parameters": rope_by_type(spec),
        "sliding_window": first_window(windows, _WINDOW),
    }


OLMO3 = dataclasses.replace(
    OLMO2,
    model_type="olmo3",
    architecture="Olmo3ForCausalLM",
    to_spec=_olmo3_spec,
    own_config=_olmo3_config,
    own_keys=OLMO2.own_keys | {"layer_types", "sliding_window"},
)
