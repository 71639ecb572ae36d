"""GPT-OSS: experts with biases and a clamped gate, attention with sinks, windows in every other layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import first_window, layer_types, layer_windows
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, like_llama, llama_spec
from tdd.models.families.rope import check_agrees
from tdd.models.spec import ClampedGate, DecoderSpec, Experts
from tdd.validate.files import check_choice

_WINDOW = 128


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    num_layers, chosen = config["num_hidden_layers"], config["num_experts_per_tok"]
    check_choice("hidden_act", config["hidden_act"], ("silu",))
    check_agrees(config, "experts_per_token", chosen, "num_experts_per_tok")
    check_agrees(config, "num_experts", config["num_local_experts"], "num_local_experts")
    windows = layer_windows(config["layer_types"], num_layers, config["sliding_window"])
    plain = llama_spec(config, attention={"windows": windows, "sinks": True})
    experts = Experts(
        config["num_local_experts"],
        chosen,
        plain.mlp.width,
        plain.mlp.activation,
        bias=True,
        clamped=ClampedGate(float(config["swiglu_alpha"]), float(config["swiglu_limit"])),
    )
    return dataclasses.replace(plain, mlp=experts)


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    experts, windows = spec.mlp, spec.attention.windows
    if not isinstance(experts, Experts) or experts.clamped is None:
        return None
    return {
        "attention_bias": spec.attention.qkv_bias,
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.top_k,
        "swiglu_alpha": experts.clamped.alpha,
        "swiglu_limit": experts.clamped.limit,
        "sliding_window": first_window(windows, _WINDOW),
        "layer_types": layer_types(windows),
    }


GPT_OSS = like_llama(
    "gpt_oss",
    "GptOssForCausalLM",
    mlp=Experts,
    keys=LLAMA_KEYS,
    names=dataclasses.replace(
        LLAMA.names,
        experts_in=("mlp.experts.gate_up_proj",),
        experts_out="mlp.experts.down_proj",
        router="mlp.router",
        experts_inputs_first=True,
    ),
    to_spec=_spec,
    own_config=_config,
    own_keys={"attention_bias", "experts_per_token", "layer_types", "num_experts", "num_experts_per_tok"}
    | {"num_local_experts", "sliding_window", "swiglu_alpha", "swiglu_limit"},
    # the first repeats a parameter of the rotation, the others concern training
    ignored=frozenset({"initial_context_length", "output_router_logits", "router_aux_loss_coef"}),
)
