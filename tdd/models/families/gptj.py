"""GPT-J: neighbouring coordinates of a head turn, one norm for attention and perceptron, a bias on each logit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import spec_of
from tdd.models.families.gpt import GPT2, with_mlp_width
from tdd.models.spec import DecoderSpec, LayerNorm, RotaryPositions
from tdd.validate.files import check_positive

_THETA = 10_000.0  # not in the configuration


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_positive(rotary_dim=config["rotary_dim"])
    return spec_of(
        with_mlp_width(config, GPT2.keys),
        GPT2.keys,
        LayerNorm(config["layer_norm_epsilon"]),
        RotaryPositions(config["n_positions"], config["rotary_dim"], _THETA, interleaved=True),
        attention={"qkv_bias": False, "out_bias": False},
        layout="shared",
        head_bias=True,
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    assert isinstance(spec.positions, RotaryPositions)
    return {"rotary_dim": spec.positions.dim} if spec.head_bias else None


GPTJ = dataclasses.replace(
    GPT2,
    model_type="gptj",
    architecture="GPTJForCausalLM",
    positions=RotaryPositions,
    names=dataclasses.replace(
        GPT2.names,
        qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        attention_out="attn.out_proj",
        mlp_in=("mlp.fc_in",),
        mlp_out="mlp.fc_out",
        inputs_first=False,
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys=frozenset(
        {"hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "rotary_dim"}
    ),
    ignored=frozenset(),
    required={"rotary": (True,), "scale_attn_weights": (True,)},  # in published files; nothing reads them
)
