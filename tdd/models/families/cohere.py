"""Cohere: one layer norm without a bias for both parts of a block, rotary positions on pairs of neighbours, a factor on
the logits; norms of each head (1); windows, and no positions in layers without one (2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Keys, first_window, head_dim_of, layer_types, layer_windows, spec_of
from tdd.models.families.llama import like_llama
from tdd.models.families.rope import rotary_positions
from tdd.models.spec import DecoderSpec, LayerNorm

_KEYS = Keys(eps="layer_norm_eps", head_dim="head_dim", num_kv_heads="num_key_value_heads")
_WINDOW = 4096


def _spec(config: Mapping[str, Any], **attention: Any) -> DecoderSpec:
    bias = config["attention_bias"]
    return spec_of(
        config,
        _KEYS,
        LayerNorm(config["layer_norm_eps"], bias=False),
        rotary_positions(config, head_dim=head_dim_of(config, _KEYS), interleaved=True),
        attention={"qkv_bias": bias, "out_bias": bias, **attention},
        mlp={"gated": True, "bias": False},
        layout="shared",
        logit_scale=config["logit_scale"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    return {"attention_bias": spec.attention.qkv_bias, "logit_scale": spec.logit_scale}


COHERE = like_llama(
    "cohere",
    "CohereForCausalLM",
    norm=LayerNorm,
    keys=_KEYS,
    to_spec=lambda config: _spec(config, qk_norm="each" if config["use_qk_norm"] else None),
    own_config=lambda spec: {**_config(spec), "use_qk_norm": spec.attention.qk_norm == "each"},
    own_keys={"attention_bias", "logit_scale", "use_qk_norm"},
    ignored=frozenset({"pretraining_tp"}),  # the order of a sum
)


# Cohere 2


def _cohere2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    windows = layer_windows(config["layer_types"], config["num_hidden_layers"], config["sliding_window"])
    spec = _spec(config, windows=windows)
    turning = tuple(None if window is None else spec.positions for window in windows)
    return dataclasses.replace(spec, layer_positions=turning)


def _cohere2_config(spec: DecoderSpec) -> dict[str, Any]:
    windows = spec.attention.windows
    own = {"layer_types": layer_types(windows), "sliding_window": first_window(windows, _WINDOW)}
    return {**_config(spec), **own}


COHERE2 = dataclasses.replace(
    COHERE,
    model_type="cohere2",
    architecture="Cohere2ForCausalLM",
    to_spec=_cohere2_spec,
    own_config=_cohere2_config,
    # transformers makes layer_types of the pattern where these are missing
    own_keys=COHERE.own_keys - {"use_qk_norm"} | {"layer_types", "sliding_window", "sliding_window_pattern"},
    ignored=frozenset(),
    required={  # notes from other training code, in published files
        "order_of_interleaved_layers": ("local_attn_first",),
        "position_embedding_type": ("rope_gptj",),
        "use_embedding_sharing": (True,),
        "use_gated_activation": (True,),
        "use_parallel_block": (True,),
    },
)
