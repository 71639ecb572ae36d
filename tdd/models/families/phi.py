"""Phi 3 and 4: LLaMA with one projection for queries, keys and values, one for gate and up, and LongRoPE."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import check_heads, first_window
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import rope_parameters, rotary_positions
from tdd.models.rotary import LongScaling
from tdd.models.spec import DecoderSpec, RotaryPositions

_KEYS = dataclasses.replace(LLAMA_KEYS, head_dim="")

_OWN_CODE = {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}
"""What published files name; transformers has had these classes since, and no code of a checkpoint is run."""


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    positions = rotary_positions(config, head_dim=check_heads(config, _KEYS), partial=True)
    windows = (config["sliding_window"],) * config["num_hidden_layers"]
    return llama_spec(config, _KEYS, attention={"windows": windows}, positions=positions)


def _config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.positions, RotaryPositions)
    scaling = spec.positions.scaling
    own: dict[str, Any] = {
        "sliding_window": first_window(spec.attention.windows),
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
    }
    if isinstance(scaling, LongScaling):
        own["max_position_embeddings"] = scaling.stretched_length
        own["original_max_position_embeddings"] = scaling.original_length
    return own


PHI3 = like_llama(
    "phi3",
    "Phi3ForCausalLM",
    keys=_KEYS,
    names=dataclasses.replace(LLAMA.names, qkv=("self_attn.qkv_proj",), mlp_in=("mlp.gate_up_proj",)),
    to_spec=_spec,
    own_config=_config,
    own_keys={"original_max_position_embeddings", "sliding_window"},
    required={
        "attention_bias": (False,),
        "auto_map": (None, _OWN_CODE, {**_OWN_CODE, "AutoTokenizer": "Xenova/gpt-4o"}),
        "full_attn_mod": (1,),
        "interpolate_factor": (1,),
        "lm_head_bias": (False,),
        "mlp_bias": (False,),
    },
)
