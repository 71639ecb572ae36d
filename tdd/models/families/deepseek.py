"""DeepSeek 2 and 3: latent attention, and experts beside a perceptron that every token meets, from some layer on; their
choice is corrected (3)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from tdd.models.families.family import Family, check_heads
from tdd.models.families.llama import LLAMA, LLAMA_KEYS, llama_spec
from tdd.models.families.rope import ROPE_KEYS, check_agrees, rope_parameters, rotary_positions
from tdd.models.rotary import YarnScaling
from tdd.models.spec import DecoderSpec, Experts, Latent, RotaryPositions
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_positive

_DENSE_KEYS = dataclasses.replace(LLAMA_KEYS, head_dim="")
_KEYS = dataclasses.replace(_DENSE_KEYS, mlp_width="moe_intermediate_size")
_EPS = 1e-6  # of the norms within attention; not in the configuration
_METHODS = ("greedy", "group_limited_greedy")


def _own_code(version: int) -> dict[str, str]:
    """What published files name; transformers has had these classes since, and no code of a checkpoint is run."""
    classes = {"AutoConfig": "Config", "AutoModel": "Model", "AutoModelForCausalLM": "ForCausalLM"}
    return {
        key: f"{'configuration' if name == 'Config' else 'modeling'}_deepseek.DeepseekV{version}{name}"
        for key, name in classes.items()
    }


def _spec(config: Mapping[str, Any], experts_of: Callable[..., Experts], interleaved: bool = True) -> DecoderSpec:
    check_heads(config, _KEYS)
    rotated, plain = config["qk_rope_head_dim"], config["qk_nope_head_dim"]
    head_dim, num_layers = rotated + plain, config["num_hidden_layers"]
    check_agrees(config, "head_dim", rotated, "qk_rope_head_dim")
    check_agrees(config, "qk_head_dim", head_dim, "qk_nope_head_dim + qk_rope_head_dim")
    positions = rotary_positions(config, head_dim=rotated, interleaved=interleaved)
    factor = (config["rope_parameters"] or {}).get("mscale_all_dim")
    attention = {
        "head_dim": head_dim,
        "scales": (_scale(head_dim, positions, factor),) * num_layers,
        "latent": Latent(config["kv_lora_rank"], config["v_head_dim"], config["q_lora_rank"], _EPS),
    }
    dense = llama_spec(config, _DENSE_KEYS, attention=attention, positions=positions)
    first = config["first_k_dense_replace"]
    if first >= num_layers:
        raise InputError(f"first_k_dense_replace={first} leaves none of {num_layers} layers with experts; lower it")
    check_positive(n_shared_experts=config["n_shared_experts"])
    experts = experts_of(
        config,
        num_experts=config["n_routed_experts"],
        top_k=config["num_experts_per_tok"],
        width=config[_KEYS.mlp_width],
        activation=dense.mlp.activation,
        scale=float(config["routed_scaling_factor"]),
        shared_width=config["n_shared_experts"] * config[_KEYS.mlp_width],
    )
    return dataclasses.replace(
        dense, mlp=experts, layer_mlps=tuple(dense.mlp if i < first else experts for i in range(num_layers))
    )


def _experts2(config: Mapping[str, Any], **fields: Any) -> Experts:
    check_choice("topk_method", config["topk_method"], _METHODS)
    grouped = config["topk_method"] == "group_limited_greedy"
    groups, kept = (config["n_group"], config["topk_group"]) if grouped else (1, 1)
    return Experts(**fields, renormalised=False, groups=groups, kept_groups=kept)


def _experts3(config: Mapping[str, Any], **fields: Any) -> Experts:
    groups, kept, renormalised = config["n_group"], config["topk_group"], config["norm_topk_prob"]
    return Experts(**fields, renormalised=renormalised, groups=groups, kept_groups=kept, corrected=True)


def _scale(head_dim: int, positions: RotaryPositions, weight: float | None) -> float:
    """The factor on scores, which grows with the logarithm of YaRN's factor."""
    plain = head_dim**-0.5
    if not weight or not isinstance(positions.scaling, YarnScaling) or positions.scaling.factor <= 1:
        return plain
    return plain * (0.1 * weight * math.log(positions.scaling.factor) + 1.0) ** 2


def _rope(spec: DecoderSpec) -> dict[str, Any]:
    """The rotary parameters, with the weight that leads back to the factor on scores."""
    positions, head_dim, scale = spec.positions, spec.attention.head_dim, spec.attention.scales[0]
    assert isinstance(positions, RotaryPositions)
    written = rope_parameters(positions)
    if isinstance(positions.scaling, YarnScaling) and scale != head_dim**-0.5:
        weight = (math.sqrt(scale * head_dim**0.5) - 1.0) / (0.1 * math.log(positions.scaling.factor))
        near = round(weight, 9)
        written["mscale_all_dim"] = near if _scale(head_dim, positions, near) == scale else weight
    return written


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    experts, latent = spec.mlp, spec.attention.latent
    if latent is None or not isinstance(experts, Experts):
        return None
    first = next(i for i, mlp in enumerate(spec.mlps) if isinstance(mlp, Experts))
    assert isinstance(spec.positions, RotaryPositions)
    return {
        "attention_bias": spec.attention.qkv_bias,
        "rope_parameters": _rope(spec),
        "qk_rope_head_dim": spec.positions.dim,
        "qk_nope_head_dim": spec.attention.head_dim - spec.positions.dim,
        "kv_lora_rank": latent.rank,
        "v_head_dim": latent.value_dim,
        "q_lora_rank": latent.query_rank,
        "first_k_dense_replace": first,
        "intermediate_size": spec.mlps[0].width,
        "n_routed_experts": experts.num_experts,
        "num_experts_per_tok": experts.top_k,
        "n_shared_experts": experts.shared_width // experts.width,
        "routed_scaling_factor": experts.scale,
        "n_group": experts.groups,
        "topk_group": experts.kept_groups,
    }


def _config2(spec: DecoderSpec) -> dict[str, Any] | None:
    common = _config(spec)
    assert isinstance(spec.mlp, Experts)
    return common and {**common, "topk_method": _METHODS[spec.mlp.groups > 1]}


DEEPSEEK_V2 = Family(
    model_type="deepseek_v2",
    architecture="DeepseekV2ForCausalLM",
    norm=LLAMA.norm,
    positions=RotaryPositions,
    mlp=Experts,
    keys=_KEYS,
    names=dataclasses.replace(
        LLAMA.names,
        qkv=(),
        query="self_attn.q_proj",
        query_down="self_attn.q_a_proj",
        query_norm="self_attn.q_a_layernorm",
        query_up="self_attn.q_b_proj",
        kv_down="self_attn.kv_a_proj_with_mqa",
        key_norm="self_attn.kv_a_layernorm",
        kv_up="self_attn.kv_b_proj",
        experts_in=("mlp.experts.{expert}.gate_proj", "mlp.experts.{expert}.up_proj"),
        experts_out="mlp.experts.{expert}.down_proj",
        router="mlp.gate",
        shared_in=("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"),
        shared_out="mlp.shared_experts.down_proj",
    ),
    to_spec=lambda config: _spec(config, _experts2),
    own_config=_config2,
    own_keys=ROPE_KEYS
    | {"attention_bias", "head_dim", "qk_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"}
    | {"kv_lora_rank", "q_lora_rank", "first_k_dense_replace", "intermediate_size"}
    | {"n_routed_experts", "num_experts_per_tok", "n_shared_experts", "routed_scaling_factor"}
    | {"topk_method", "n_group", "topk_group"},
    required={
        "auto_map": (None, _own_code(2)),
        "mlp_bias": (False,),
        "moe_layer_freq": (1,),
        "norm_topk_prob": (False, None),  # transformers reads it and does not apply it
        "scoring_func": ("softmax",),
    },
    buffers=LLAMA.buffers,
    # of training, and the order of sums
    ignored=frozenset({"aux_loss_alpha", "ep_size", "output_router_logits", "pretraining_tp", "seq_aux"}),
)


# DeepSeek 3: the correction of a layer's experts is a tensor of its own.


def _config3(spec: DecoderSpec) -> dict[str, Any] | None:
    common = _config(spec)
    assert isinstance(spec.mlp, Experts)
    assert isinstance(spec.positions, RotaryPositions)
    own = {"norm_topk_prob": spec.mlp.renormalised, "rope_interleave": spec.positions.interleaved}
    return common and {**common, **own}


DEEPSEEK_V3 = dataclasses.replace(
    DEEPSEEK_V2,
    model_type="deepseek_v3",
    architecture="DeepseekV3ForCausalLM",
    names=dataclasses.replace(DEEPSEEK_V2.names, correction="mlp.gate.e_score_correction_bias"),
    to_spec=lambda config: _spec(config, _experts3, config["rope_interleave"]),
    own_config=_config3,
    own_keys=DEEPSEEK_V2.own_keys - {"topk_method"} | {"norm_topk_prob", "rope_interleave"},
    required={
        "auto_map": (None, _own_code(3)),
        "mlp_bias": (False,),
        "moe_layer_freq": (1,),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
    },
    # layers that predict further tokens are no part of the next token's logits
    ignored=DEEPSEEK_V2.ignored | {"num_mtp_layers", "num_nextn_predict_layers"},
)
