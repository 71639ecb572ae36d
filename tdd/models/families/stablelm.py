"""StableLM: layer norms, a gated perceptron, rotary positions on a part of each head; norms of each head and one norm
for both parts of a block in the largest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Keys, check_heads, spec_of
from tdd.models.families.llama import LLAMA, like_llama
from tdd.models.families.rope import rope_parameters, rotary_positions
from tdd.models.spec import DecoderSpec, LayerNorm, RotaryPositions

_KEYS = Keys(eps="layer_norm_eps", num_kv_heads="num_key_value_heads")


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    return spec_of(
        config,
        _KEYS,
        LayerNorm(config["layer_norm_eps"]),
        rotary_positions(config, head_dim=check_heads(config, _KEYS), partial=True),
        attention={
            "qkv_bias": config["use_qkv_bias"],
            "out_bias": False,
            "qk_norm": "each" if config["qk_layernorm"] else None,
        },
        mlp={"gated": True, "bias": False},
        layout="shared" if config["use_parallel_residual"] else "pre",
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.positions, RotaryPositions)
    return {
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
        "use_qkv_bias": spec.attention.qkv_bias,
        "qk_layernorm": spec.attention.qk_norm == "each",
        "use_parallel_residual": spec.layout == "shared",
    }


STABLELM = like_llama(
    "stablelm",
    "StableLmForCausalLM",
    norm=LayerNorm,
    keys=_KEYS,
    names=dataclasses.replace(
        LLAMA.names,
        query_norm="self_attn.q_layernorm.norms.{expert}",
        key_norm="self_attn.k_layernorm.norms.{expert}",
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys={"qk_layernorm", "use_parallel_residual", "use_qkv_bias"},
)
