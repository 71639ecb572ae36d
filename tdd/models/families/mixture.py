"""Mixtral and Qwen 3 MoE: Mistral and Qwen 3 with a mixture of experts in every layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.llama import MISTRAL, QWEN3
from tdd.models.families.rope import ROPE_KEYS, check_agrees
from tdd.models.spec import DecoderSpec, Experts

__all__ = ["MIXTRAL", "QWEN3_MOE"]

_EXPERT_KEYS = {"num_experts", "num_experts_per_tok", "num_local_experts"}
_TRAINING_KEYS = {"output_router_logits", "router_aux_loss_coef"}
_STACKS = {"mlp_in": ("mlp.experts.gate_up_proj",), "mlp_out": "mlp.experts.down_proj", "router": "mlp.gate"}


def _with_experts(spec: DecoderSpec, config: Mapping[str, Any], *, renormalised: bool) -> DecoderSpec:
    """The spec of the dense relative with experts in place of its perceptron."""
    number = config["num_local_experts" if "num_local_experts" in config else "num_experts"]
    check_agrees(config, "num_experts", number, "num_local_experts")
    experts = Experts(number, config["num_experts_per_tok"], spec.mlp.width, spec.mlp.activation, renormalised)
    return dataclasses.replace(spec, mlp=experts)


# Mixtral


def _mixtral_config(spec: DecoderSpec) -> dict[str, Any] | None:
    own = MISTRAL.own_config(spec)
    if own is None or not isinstance(spec.mlp, Experts):
        return None
    return {**own, "num_local_experts": spec.mlp.num_experts, "num_experts_per_tok": spec.mlp.top_k}


MIXTRAL = dataclasses.replace(
    MISTRAL,
    model_type="mixtral",
    architecture="MixtralForCausalLM",
    names=dataclasses.replace(
        MISTRAL.names,
        mlp_in=("block_sparse_moe.experts.{expert}.w1", "block_sparse_moe.experts.{expert}.w3"),
        mlp_out="block_sparse_moe.experts.{expert}.w2",
        router="block_sparse_moe.gate",
    ),
    stacked=dataclasses.replace(MISTRAL.names, **_STACKS),
    to_spec=lambda config: _with_experts(MISTRAL.to_spec(config), config, renormalised=True),
    own_config=_mixtral_config,
    own_keys=MISTRAL.own_keys | _EXPERT_KEYS,
    ignored=frozenset(_TRAINING_KEYS | {"router_jitter_noise"}),
)


# Qwen 3 MoE: one window in all layers, and probabilities that need not be divided by their sum.

_KEYS = dataclasses.replace(QWEN3.keys, mlp_width="moe_intermediate_size")


def _qwen3_moe_spec(config: Mapping[str, Any]) -> DecoderSpec:
    kind = "sliding_attention" if config["use_sliding_window"] else "full_attention"
    changes = {
        "intermediate_size": config[_KEYS.mlp_width],
        "layer_types": [kind] * config["num_hidden_layers"],
    }
    return _with_experts(QWEN3.to_spec({**config, **changes}), config, renormalised=config["norm_topk_prob"])


def _qwen3_moe_config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not isinstance(spec.mlp, Experts):
        return None
    window = spec.attention.windows[0]
    return {
        "attention_bias": spec.attention.qkv_bias,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "num_experts": spec.mlp.num_experts,
        "num_experts_per_tok": spec.mlp.top_k,
        "norm_topk_prob": spec.mlp.renormalised,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


QWEN3_MOE = dataclasses.replace(
    QWEN3,
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    keys=_KEYS,
    names=dataclasses.replace(
        QWEN3.names,
        mlp_in=("mlp.experts.{expert}.gate_proj", "mlp.experts.{expert}.up_proj"),
        mlp_out="mlp.experts.{expert}.down_proj",
        router="mlp.gate",
    ),
    stacked=dataclasses.replace(QWEN3.names, **_STACKS),
    to_spec=_qwen3_moe_spec,
    own_config=_qwen3_moe_config,
    own_keys=ROPE_KEYS | _EXPERT_KEYS | {"attention_bias", "norm_topk_prob", "sliding_window", "use_sliding_window"},
    required={"decoder_sparse_step": (1,), "mlp_only_layers": ([], None)},
    ignored=frozenset(
        _TRAINING_KEYS
        | {
            "intermediate_size",  # of layers without experts
            "max_window_layers",  # the class has one window for all layers
        }
    ),
)
