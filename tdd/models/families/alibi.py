"""MPT and BLOOM: no positions, but scores of attention that fall with the distance; a perceptron of four times the
width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family, Keys, spec_of
from tdd.models.families.registry import check_keys
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import AlibiPositions, DecoderSpec, LayerNorm

# MPT: nothing has a bias. Some of its keys are in an object of their own.

_MPT_KEYS = Keys(
    width="d_model",
    num_layers="n_layers",
    num_heads="n_heads",
    mlp_width="",
    activation="",
    max_length="max_seq_len",
)
_MPT_CODE = {"AutoConfig": "configuration_mpt.MPTConfig", "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM"}
"""What published files name; transformers has had these classes since, and no code of a checkpoint is run."""

_MPT_READ = frozenset({"attn_impl", "clip_qkv", "softmax_scale"})
_MPT_REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "alibi": (True,),
    "alibi_bias_max": (8,),  # transformers takes 8 whatever it is, other code does not
    "attn_type": ("multihead_attention",),
    "attn_uses_sequence_id": (False,),
    "prefix_lm": (False,),
    "qk_ln": (False,),
}


def _mpt_spec(config: Mapping[str, Any]) -> DecoderSpec:
    attention = config["attn_config"]
    check_keys(attention, "attn_config", "mpt", known=_MPT_READ, required=_MPT_REQUIRED)
    scale, clip = attention["softmax_scale"], attention["clip_qkv"]
    scales = {} if scale is None else {"scales": (float(scale),) * config["n_layers"]}
    return spec_of(
        config,
        _MPT_KEYS,
        LayerNorm(config["layer_norm_epsilon"], bias=False),
        AlibiPositions(config["max_seq_len"]),
        attention={"qkv_bias": False, "out_bias": False, "qkv_clip": clip or None, **scales},
        mlp={"width": 4 * config["d_model"], "activation": "gelu", "bias": False},
    )


def _mpt_config(spec: DecoderSpec) -> dict[str, Any]:
    plain = spec.attention.head_dim**-0.5
    scale = next((scale for scale in spec.attention.scales if scale != plain), None)
    return {"attn_config": {"alibi": True, "clip_qkv": spec.attention.qkv_clip, "softmax_scale": scale}}


MPT = Family(
    model_type="mpt",
    architecture="MptForCausalLM",
    norm=LayerNorm,
    positions=AlibiPositions,
    keys=_MPT_KEYS,
    names=TensorNames(
        base="transformer.",
        layer="blocks.{layer}.",
        tokens="wte",
        attention_norm="norm_1",
        qkv=("attn.Wqkv",),
        attention_out="attn.out_proj",
        mlp_norm="norm_2",
        mlp_in=("ffn.up_proj",),
        mlp_out="ffn.down_proj",
        final_norm="norm_f",
    ),
    to_spec=_mpt_spec,
    own_config=_mpt_config,
    own_keys=frozenset({"attn_config", "hidden_size", "num_attention_heads", "num_hidden_layers"}),
    ignored=frozenset({"emb_pdrop", "init_device"}),
    required={
        "auto_map": (None, _MPT_CODE),
        "embedding_fraction": (1.0,),
        "expansion_ratio": (4,),
        "learned_pos_emb": (True, False),  # there are none beside slopes
        "logit_scale": (None,),
        "no_bias": (True,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
    },
)


# BLOOM: biases everywhere, the embedded tokens are normalised.

_BLOOM_KEYS = Keys(num_layers="n_layer", num_heads="n_head", mlp_width="", activation="", max_length="seq_length")
_BLOOM_LENGTH = 2048  # of all published models; most files do not say it


def _bloom_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return spec_of(
        config,
        _BLOOM_KEYS,
        LayerNorm(config["layer_norm_epsilon"]),
        AlibiPositions(config.get("seq_length") or _BLOOM_LENGTH),
        mlp={"width": 4 * config["hidden_size"], "activation": "gelu_tanh"},
        embedding_norm=True,
    )


BLOOM = Family(
    model_type="bloom",
    architecture="BloomForCausalLM",
    norm=LayerNorm,
    positions=AlibiPositions,
    keys=_BLOOM_KEYS,
    names=TensorNames(
        base="transformer.",
        layer="h.{layer}.",
        tokens="word_embeddings",
        embedding_norm="word_embeddings_layernorm",
        qkv=("self_attention.query_key_value",),
        attention_out="self_attention.dense",
        mlp_in=("mlp.dense_h_to_4h",),
        mlp_out="mlp.dense_4h_to_h",
        final_norm="ln_f",
        heads_interleaved=True,
    ),
    to_spec=_bloom_spec,
    own_config=lambda spec: {},
    own_keys=frozenset({"n_embed", "num_attention_heads", "num_hidden_layers"}),
    ignored=frozenset({"pretraining_tp"}),  # the order of a sum
    required={
        "apply_residual_connection_post_layernorm": (False,),
        "slow_but_exact": (False,),  # leaves out a bias where `pretraining_tp` exceeds 1
    },
)
