"""OLMo: plain norms and clipped projections (1); norms after each branch, and over all heads of queries and of keys
together (2 and 3); windows by layer (3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import check_heads, first_window, layer_types, layer_windows, spec_of
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import rope_by_type, rotary_positions, with_rotary_by_type
from tdd.models.spec import DecoderSpec, LayerNorm, Layout

_KEYS = dataclasses.replace(LLAMA_KEYS, head_dim="")
_PLAIN_KEYS = dataclasses.replace(_KEYS, eps="")
_EPS = 1e-5
_WINDOW = 4096


def _olmo_spec(config: Mapping[str, Any]) -> DecoderSpec:
    bias = config["attention_bias"]
    return spec_of(
        config,
        _PLAIN_KEYS,
        LayerNorm(_EPS, affine=False),
        rotary_positions(config, head_dim=check_heads(config, _PLAIN_KEYS)),
        attention={"qkv_bias": bias, "out_bias": bias, "qkv_clip": config["clip_qkv"]},
        mlp={"gated": True, "bias": False},
    )


OLMO = like_llama(
    "olmo",
    "OlmoForCausalLM",
    norm=LayerNorm,
    keys=_PLAIN_KEYS,
    to_spec=_olmo_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias, "clip_qkv": spec.attention.qkv_clip},
    own_keys={"attention_bias", "clip_qkv"},
    ignored=frozenset({"pretraining_tp"}),  # the order of a sum
)


def full_norm_spec(config: Mapping[str, Any], layout: Layout = "branch", **attention: Any) -> DecoderSpec:
    """With norms over all heads of the queries, and over all of the keys."""
    return llama_spec(config, _KEYS, attention={"qk_norm": "full", **attention}, layout=layout)


OLMO2 = like_llama(
    "olmo2",
    "Olmo2ForCausalLM",
    keys=_KEYS,
    names=dataclasses.replace(
        LLAMA.names, attention_norm="post_attention_layernorm", mlp_norm="post_feedforward_layernorm"
    ),
    to_spec=full_norm_spec,
    own_config=lambda spec: {"attention_bias": spec.attention.qkv_bias},
    own_keys={"attention_bias"},
)


def _olmo3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    windows = layer_windows(config["layer_types"], config["num_hidden_layers"], config["sliding_window"])
    return with_rotary_by_type(config, check_heads(config, _KEYS), lambda full: full_norm_spec(full, windows=windows))


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
