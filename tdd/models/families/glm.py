"""GLM-4: LLaMA with rotary positions on pairs of neighbours in a part of each head, one projection for gate and up,
and, in the later `glm4`, norms of what each part adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import head_dim_of
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import rope_parameters, rotary_positions
from tdd.models.spec import DecoderSpec, Layout, RotaryPositions


def _spec(config: Mapping[str, Any], layout: Layout = "pre") -> DecoderSpec:
    head_dim = head_dim_of(config, LLAMA_KEYS)
    return llama_spec(
        config,
        attention={"out_bias": False},
        positions=rotary_positions(config, head_dim=head_dim, partial=True, interleaved=True),
        layout=layout,
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.positions, RotaryPositions)
    return {
        "attention_bias": spec.attention.qkv_bias,
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
    }


GLM = like_llama(
    "glm",
    "GlmForCausalLM",
    names=dataclasses.replace(LLAMA.names, mlp_in=("mlp.gate_up_proj",)),
    to_spec=_spec,
    own_config=_config,
    own_keys={"attention_bias"},
    required={"mlp_bias": (False,)},
)

GLM4 = dataclasses.replace(
    GLM,
    model_type="glm4",
    architecture="Glm4ForCausalLM",
    names=dataclasses.replace(
        GLM.names, attention_post_norm="post_self_attn_layernorm", mlp_post_norm="post_mlp_layernorm"
    ),
    to_spec=lambda config: _spec(config, "sandwich"),
)
