"""GPT-2, GPT-BigCode, GPT-Neo, GPT-NeoX (with Pythia) and OPT: layer norms and a perceptron without a gate."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family, Keys, first_window, head_dim_of, layer_types, layer_windows, spec_of
from tdd.models.families.rope import ROPE_KEYS, rope_parameters, rotary_positions
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import DecoderSpec, LayerNorm, LearnedPositions, RotaryPositions


def with_mlp_width(config: Mapping[str, Any], keys: Keys) -> Mapping[str, Any]:
    """Fill in the default inner width, four times the width."""
    return config if config[keys.mlp_width] is not None else {**config, keys.mlp_width: 4 * config[keys.width]}


# GPT-2

_GPT2_KEYS = Keys(
    width="n_embd",
    num_layers="n_layer",
    num_heads="n_head",
    mlp_width="n_inner",
    activation="activation_function",
    max_length="n_positions",
)
_GPT2_NAMES = TensorNames(
    base="transformer.",
    layer="h.{layer}.",
    tokens="wte",
    positions="wpe",
    attention_norm="ln_1",
    qkv=("attn.c_attn",),
    attention_out="attn.c_proj",
    mlp_norm="ln_2",
    mlp_in=("mlp.c_fc",),
    mlp_out="mlp.c_proj",
    final_norm="ln_f",
    inputs_first=True,
)


def _gpt2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    scales = _gpt2_scales(
        config["n_layer"],
        head_dim_of(config, _GPT2_KEYS),
        config["scale_attn_weights"],
        config["scale_attn_by_inverse_layer_idx"],
    )
    norm, positions = LayerNorm(config["layer_norm_epsilon"]), LearnedPositions(config["n_positions"])
    return spec_of(with_mlp_width(config, _GPT2_KEYS), _GPT2_KEYS, norm, positions, attention={"scales": scales})


def _gpt2_config(spec: DecoderSpec) -> dict[str, Any] | None:
    for scaled, inverse in itertools.product((True, False), (False, True)):
        if spec.attention.scales == _gpt2_scales(spec.num_layers, spec.attention.head_dim, scaled, inverse):
            return {"scale_attn_weights": scaled, "scale_attn_by_inverse_layer_idx": inverse}
    return None


def _gpt2_scales(num_layers: int, head_dim: int, scaled: bool, inverse: bool) -> tuple[float, ...]:
    base = head_dim**-0.5 if scaled else 1.0
    return tuple(base / (layer + 1) if inverse else base for layer in range(num_layers))


GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    norm=LayerNorm,
    positions=LearnedPositions,
    keys=_GPT2_KEYS,
    names=_GPT2_NAMES,
    to_spec=_gpt2_spec,
    own_config=_gpt2_config,
    own_keys=frozenset({"scale_attn_by_inverse_layer_idx", "scale_attn_weights"})
    | {"hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers"},
    ignored=frozenset(
        {
            "n_ctx",  # repeats n_positions in old files
            "n_special",  # from the first files, as the next; nothing reads them
            "predict_special_tokens",
            "reorder_and_upcast_attn",  # affects rounding in half precision only
        }
    ),
    buffers=("transformer.h.{layer}.attn.bias", "transformer.h.{layer}.attn.masked_bias"),
)


# GPT-BigCode (SantaCoder, StarCoder): GPT-2 with one head of keys and values for all queries.


def _gpt_bigcode_spec(config: Mapping[str, Any]) -> DecoderSpec:
    plain = _gpt2_spec({**config, "scale_attn_by_inverse_layer_idx": False})
    groups = 1 if config["multi_query"] else plain.attention.num_heads
    return dataclasses.replace(plain, attention=dataclasses.replace(plain.attention, num_kv_heads=groups))


def _gpt_bigcode_config(spec: DecoderSpec) -> dict[str, Any]:
    return {"multi_query": spec.attention.kv_heads == 1, "scale_attn_weights": set(spec.attention.scales) != {1.0}}


GPT_BIGCODE = dataclasses.replace(
    GPT2,
    model_type="gpt_bigcode",
    architecture="GPTBigCodeForCausalLM",
    names=dataclasses.replace(_GPT2_NAMES, inputs_first=False, heads_interleaved=True),
    to_spec=_gpt_bigcode_spec,
    own_config=_gpt_bigcode_config,
    own_keys=GPT2.own_keys - {"scale_attn_by_inverse_layer_idx"} | {"multi_query", "num_key_value_heads"},
    ignored=frozenset(),
    # rounding in half precision only
    required={"attention_softmax_in_fp32": (True, False), "scale_attention_softmax_in_fp32": (True, False)},
)


# GPT-Neo: every other layer has a window; attention is not scaled.

_GPT_NEO_KEYS = Keys(num_layers="num_layers", num_heads="num_heads", activation="activation_function")
_GPT_NEO_KINDS = ("local", "global")
_GPT_NEO_WINDOW = 256


def _gpt_neo_spec(config: Mapping[str, Any]) -> DecoderSpec:
    num_layers = config["num_layers"]
    return spec_of(
        with_mlp_width(config, _GPT_NEO_KEYS),
        _GPT_NEO_KEYS,
        LayerNorm(config["layer_norm_epsilon"]),
        LearnedPositions(config["max_position_embeddings"]),
        attention={
            "scales": (1.0,) * num_layers,
            "windows": layer_windows(config["attention_layers"], num_layers, config["window_size"], _GPT_NEO_KINDS),
            "qkv_bias": False,
        },
    )


def _gpt_neo_config(spec: DecoderSpec) -> dict[str, Any]:
    types = layer_types(spec.attention.windows, _GPT_NEO_KINDS)
    return {
        "attention_types": [[types, 1]],
        "attention_layers": types,
        "window_size": first_window(spec.attention.windows, _GPT_NEO_WINDOW),
    }


GPT_NEO = Family(
    model_type="gpt_neo",
    architecture="GPTNeoForCausalLM",
    norm=LayerNorm,
    positions=LearnedPositions,
    keys=_GPT_NEO_KEYS,
    names=dataclasses.replace(
        _GPT2_NAMES,
        qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
        attention_out="attn.attention.out_proj",
        inputs_first=False,
    ),
    to_spec=_gpt_neo_spec,
    own_config=_gpt_neo_config,
    own_keys=frozenset(
        {"attention_layers", "attention_types", "num_attention_heads", "num_hidden_layers", "window_size"}
    ),
    buffers=("transformer.h.{layer}.attn.attention.bias", "transformer.h.{layer}.attn.attention.masked_bias"),
)


# GPT-NeoX: rotary positions on a part of each head; attention and perceptron in parallel.

_GPT_NEOX_KEYS = Keys(eps="layer_norm_eps")


def _gpt_neox_spec(config: Mapping[str, Any]) -> DecoderSpec:
    bias = config["attention_bias"]
    return spec_of(
        config,
        _GPT_NEOX_KEYS,
        LayerNorm(config["layer_norm_eps"]),
        rotary_positions(config, head_dim=head_dim_of(config, _GPT_NEOX_KEYS), partial=True),
        attention={"qkv_bias": bias, "out_bias": bias},
        layout="parallel" if config["use_parallel_residual"] else "pre",
    )


def _gpt_neox_config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.positions, RotaryPositions)
    return {
        "rope_parameters": rope_parameters(spec.positions, spec.attention.head_dim),
        "use_parallel_residual": spec.layout == "parallel",
        "attention_bias": spec.attention.qkv_bias,
    }


GPT_NEOX = Family(
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    norm=LayerNorm,
    positions=RotaryPositions,
    keys=_GPT_NEOX_KEYS,
    names=TensorNames(
        base="gpt_neox.",
        tokens="embed_in",
        qkv=("attention.query_key_value",),
        attention_out="attention.dense",
        mlp_in=("mlp.dense_h_to_4h",),
        mlp_out="mlp.dense_4h_to_h",
        final_norm="final_layer_norm",
        head="embed_out",
        heads_interleaved=True,
    ),
    to_spec=_gpt_neox_spec,
    own_config=_gpt_neox_config,
    own_keys=ROPE_KEYS | {"attention_bias", "rotary_emb_base", "rotary_pct", "use_parallel_residual"},
    buffers=(
        "gpt_neox.layers.{layer}.attention.bias",
        "gpt_neox.layers.{layer}.attention.masked_bias",
        "gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq",
        "gpt_neox.rotary_emb.inv_freq",
    ),
    aliases={"lm_head.weight": "embed_out.weight"},
)


# OPT: positions begin at row 2. The 350M model normalises after the sums and has a narrower embedding.

_OPT_KEYS = Keys(mlp_width="ffn_dim", activation="activation_function", eps="")
_OPT_OFFSET = 2  # rows of the position table that no token reads
_OPT_EPS = 1e-5  # not in the configuration


def _opt_spec(config: Mapping[str, Any]) -> DecoderSpec:
    bias, before = config["enable_bias"], config["do_layer_norm_before"]
    return spec_of(
        config,
        _OPT_KEYS,
        LayerNorm(_OPT_EPS, config["layer_norm_elementwise_affine"]),
        LearnedPositions(config["max_position_embeddings"], _OPT_OFFSET),
        attention={"qkv_bias": bias, "out_bias": bias},
        mlp={"bias": bias},
        layout="pre" if before else "post",
        final_norm=before and not config["_remove_final_layer_norm"],
        embedding_width=config["word_embed_proj_dim"],
    )


def _opt_config(spec: DecoderSpec) -> dict[str, Any]:
    assert isinstance(spec.norm, LayerNorm)
    return {
        "word_embed_proj_dim": spec.embedded_width,
        "do_layer_norm_before": spec.layout == "pre",
        "_remove_final_layer_norm": spec.layout == "pre" and not spec.final_norm,
        "enable_bias": spec.mlp.bias,
        "layer_norm_elementwise_affine": spec.norm.affine,
    }


OPT = Family(
    model_type="opt",
    architecture="OPTForCausalLM",
    norm=LayerNorm,
    positions=LearnedPositions,
    keys=_OPT_KEYS,
    names=TensorNames(
        base="model.decoder.",
        positions="embed_positions",
        embedding_in="project_in",
        embedding_out="project_out",
        attention_norm="self_attn_layer_norm",
        attention_out="self_attn.out_proj",
        mlp_norm="final_layer_norm",
        mlp_in=("fc1",),
        mlp_out="fc2",
        final_norm="final_layer_norm",
    ),
    to_spec=_opt_spec,
    own_config=_opt_config,
    own_keys=frozenset({"_remove_final_layer_norm", "do_layer_norm_before", "layer_norm_elementwise_affine"})
    | {"enable_bias", "word_embed_proj_dim"},
    required={  # from the training code; present in some files
        "learned_embeddings": (True,),
        "output_projection": (True,),
        "scale_embeddings": (False,),
    },
    buffers=("model.decoder.version",),
    bare_prefix="model.",
)
