"""Mixtral, OLMoE and Qwen 3 MoE: Mistral, OLMo with norms before each part, and Qwen 3, with mixtures of experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.llama import MISTRAL, QWEN3
from tdd.models.families.olmo import OLMO, OLMO2, full_norm_spec
from tdd.models.families.rope import ROPE_KEYS, check_agrees
from tdd.models.spec import DecoderSpec, Experts, Mlp
from tdd.validate.files import check_positive

_EXPERT_KEYS = {"num_experts", "num_experts_per_tok", "num_local_experts"}
_TRAINING_KEYS = {"output_router_logits", "router_aux_loss_coef"}
_ONE_BY_ONE = {
    "experts_in": ("mlp.experts.{expert}.gate_proj", "mlp.experts.{expert}.up_proj"),
    "experts_out": "mlp.experts.{expert}.down_proj",
    "router": "mlp.gate",
}


def _with_experts(
    spec: DecoderSpec, config: Mapping[str, Any], *, renormalised: bool, width: int | None = None
) -> DecoderSpec:
    """The spec of the dense relative with experts, by default as wide, in place of its perceptron."""
    number = config["num_local_experts" if "num_local_experts" in config else "num_experts"]
    check_agrees(config, "num_experts", number, "num_local_experts")
    width = spec.mlp.width if width is None else width
    experts = Experts(number, config["num_experts_per_tok"], width, spec.mlp.activation, renormalised)
    return dataclasses.replace(spec, mlp=experts)


def _expert_config(spec: DecoderSpec, number: str = "num_experts") -> dict[str, Any]:
    """The keys that every family of experts has; `number` is that of E."""
    assert isinstance(spec.mlp, Experts)
    return {number: spec.mlp.num_experts, "num_experts_per_tok": spec.mlp.top_k}


# Mixtral

MIXTRAL = dataclasses.replace(
    MISTRAL,
    model_type="mixtral",
    architecture="MixtralForCausalLM",
    mlp=Experts,
    names=dataclasses.replace(
        MISTRAL.names,
        experts_in=("block_sparse_moe.experts.{expert}.w1", "block_sparse_moe.experts.{expert}.w3"),
        experts_out="block_sparse_moe.experts.{expert}.w2",
        router="block_sparse_moe.gate",
    ),
    to_spec=lambda config: _with_experts(MISTRAL.to_spec(config), config, renormalised=True),
    own_config=lambda spec: {**(MISTRAL.own_config(spec) or {}), **_expert_config(spec, "num_local_experts")},
    own_keys=MISTRAL.own_keys | _EXPERT_KEYS,
    ignored=frozenset(_TRAINING_KEYS | {"router_jitter_noise"}),
)


# OLMoE: norms over all heads of queries and of keys, as OLMo 2, and what is clipped, as OLMo 1, was normalised before.


def _plain_or_not(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.mlp, Experts)
    return {**_expert_config(spec), "norm_topk_prob": spec.mlp.renormalised}


OLMOE = dataclasses.replace(
    OLMO2,
    model_type="olmoe",
    architecture="OlmoeForCausalLM",
    mlp=Experts,
    names=dataclasses.replace(MISTRAL.names, **_ONE_BY_ONE),
    to_spec=lambda config: _with_experts(
        full_norm_spec(config, layout="pre", qkv_clip=config["clip_qkv"]),
        config,
        renormalised=config["norm_topk_prob"],
    ),
    own_config=lambda spec: {**(OLMO.own_config(spec) or {}), **_plain_or_not(spec)},
    own_keys=OLMO.own_keys | _EXPERT_KEYS | {"norm_topk_prob"},
    ignored=frozenset(_TRAINING_KEYS),
)


# Qwen 3 MoE: one window in all layers, probabilities that need not be divided by their sum, layers without experts.

_KEYS = dataclasses.replace(QWEN3.keys, mlp_width="moe_intermediate_size")


def _qwen3_moe_spec(config: Mapping[str, Any]) -> DecoderSpec:
    kind = "sliding_attention" if config["use_sliding_window"] else "full_attention"
    dense = QWEN3.to_spec({**config, "layer_types": [kind] * config["num_hidden_layers"]})
    sparse = _with_experts(dense, config, renormalised=config["norm_topk_prob"], width=config[_KEYS.mlp_width])
    step, without = config["decoder_sparse_step"], config["mlp_only_layers"] or ()
    check_positive(decoder_sparse_step=step)
    mlps = tuple(
        dense.mlp if layer in without or (layer + 1) % step else sparse.mlp for layer in range(dense.num_layers)
    )
    return dataclasses.replace(sparse if sparse.mlp in mlps else dense, layer_mlps=mlps)


def _qwen3_moe_config(spec: DecoderSpec) -> dict[str, Any]:
    window = spec.attention.windows[0]
    dense = {layer: mlp.width for layer, mlp in enumerate(spec.mlps) if isinstance(mlp, Mlp)}
    return {
        "attention_bias": spec.attention.qkv_bias,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        **_plain_or_not(spec),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [*dense],
        "intermediate_size": next(iter(dense.values()), spec.mlp.width),
    }


QWEN3_MOE = dataclasses.replace(
    QWEN3,
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    mlp=Experts,
    keys=_KEYS,
    names=dataclasses.replace(QWEN3.names, **_ONE_BY_ONE),
    to_spec=_qwen3_moe_spec,
    own_config=_qwen3_moe_config,
    own_keys=ROPE_KEYS
    | _EXPERT_KEYS
    | {"attention_bias", "norm_topk_prob", "sliding_window", "use_sliding_window"}
    | {"decoder_sparse_step", "intermediate_size", "mlp_only_layers"},
    ignored=frozenset(_TRAINING_KEYS | {"max_window_layers"}),  # the class has one window for all layers
)
