"""Falcon: queries, keys and values in one tensor by heads of keys, one or several; parts of a block in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family, Keys, check_heads, spec_of
from tdd.models.families.rope import ROPE_KEYS, rotary_positions
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import DecoderSpec, LayerNorm, Layout, RotaryPositions
from tdd.validate import InputError

_KEYS = Keys(mlp_width="ffn_hidden_size", activation="activation", num_kv_heads="num_kv_heads")

_OWN_CODE = {
    "AutoConfig": "configuration_falcon.FalconConfig",
    "AutoModel": "modeling_falcon.FalconModel",
    "AutoModelForSequenceClassification": "modeling_falcon.FalconForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_falcon.FalconForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_falcon.FalconForQuestionAnswering",
    "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM",
}
"""What published files name; transformers has had these classes since, and no code of a checkpoint is run."""


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    heads, bias = config["num_attention_heads"], config["bias"]
    old = 1 if config["multi_query"] else heads
    groups = config["num_kv_heads"] if config["new_decoder_architecture"] else old
    return spec_of(
        config,
        _KEYS,
        LayerNorm(config["layer_norm_epsilon"]),
        rotary_positions(config, head_dim=check_heads(config, _KEYS)),
        attention={"num_kv_heads": groups, "qkv_bias": bias, "out_bias": bias},
        mlp={"bias": bias},
        layout=_layout(config),
    )


def _layout(config: Mapping[str, Any]) -> Layout:
    """The places of the norms; the old architecture has one norm in parallel blocks, the new one or two."""
    norms, parallel = config["num_ln_in_parallel_attn"], config["parallel_attn"]
    if config["new_decoder_architecture"]:
        if not parallel:
            raise InputError("parallel_attn=False needs new_decoder_architecture=False: the new one is always parallel")
        if norms not in (None, 1, 2):
            raise InputError(f"num_ln_in_parallel_attn must be 1 or 2, got {norms!r}")
        return "shared" if norms == 1 else "parallel"
    if parallel and norms == 2:
        raise InputError("num_ln_in_parallel_attn=2 needs new_decoder_architecture=True: the old one has one norm")
    return "shared" if parallel else "pre"


def _config(spec: DecoderSpec) -> dict[str, Any]:
    attention, parallel = spec.attention, spec.layout != "pre"
    new = spec.layout == "parallel" or attention.kv_heads not in (1, attention.num_heads)
    return {
        "new_decoder_architecture": new,
        "multi_query": not new and attention.kv_heads == 1,
        "parallel_attn": parallel,
        "num_ln_in_parallel_attn": 2 if spec.layout == "parallel" else 1 if new else None,
        "bias": spec.mlp.bias,
    }


FALCON = Family(
    model_type="falcon",
    architecture="FalconForCausalLM",
    norm=LayerNorm,
    positions=RotaryPositions,
    keys=_KEYS,
    names=TensorNames(
        base="transformer.",
        layer="h.{layer}.",
        tokens="word_embeddings",
        parallel_norms=("ln_attn", "ln_mlp"),
        qkv=("self_attention.query_key_value",),
        attention_out="self_attention.dense",
        mlp_in=("mlp.dense_h_to_4h",),
        mlp_out="mlp.dense_4h_to_h",
        final_norm="ln_f",
        heads_interleaved=True,
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys=ROPE_KEYS
    | {"bias", "multi_query", "new_decoder_architecture", "num_ln_in_parallel_attn", "parallel_attn"},
    required={
        "alibi": (False, None),
        "apply_residual_connection_post_layernorm": (False,),  # in published files; nothing reads it
        "auto_map": (None, _OWN_CODE),
    },
)
