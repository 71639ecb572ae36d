"""Phi 1, 1.5 and 2: biases everywhere, on each logit too, one norm for both parts of a block, a part of each head
turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family, Keys, check_heads, spec_of
from tdd.models.families.rope import ROPE_KEYS, rope_parameters, rotary_positions
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import DecoderSpec, LayerNorm, RotaryPositions

_KEYS = Keys(eps="layer_norm_eps", num_kv_heads="num_key_value_heads")

_OWN_CODE = {"AutoConfig": "configuration_phi.PhiConfig", "AutoModelForCausalLM": "modeling_phi.PhiForCausalLM"}
"""What published files name; transformers has had these classes since, and no code of a checkpoint is run."""


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    return spec_of(
        config,
        _KEYS,
        LayerNorm(config["layer_norm_eps"]),
        rotary_positions(config, head_dim=check_heads(config, _KEYS), partial=True),
        attention={"qk_norm": "head" if config["qk_layernorm"] else None},
        layout="shared",
        head_bias=True,
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.positions, RotaryPositions)
    return {
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
        "qk_layernorm": spec.attention.qk_norm == "head",
    }


PHI = Family(
    model_type="phi",
    architecture="PhiForCausalLM",
    norm=LayerNorm,
    positions=RotaryPositions,
    keys=_KEYS,
    names=TensorNames(
        query_norm="self_attn.q_layernorm",
        key_norm="self_attn.k_layernorm",
        attention_out="self_attn.dense",
        mlp_in=("mlp.fc1",),
        mlp_out="mlp.fc2",
        final_norm="final_layernorm",
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys=ROPE_KEYS | {"qk_layernorm"},
    required={"auto_map": (None, _OWN_CODE)},
)
