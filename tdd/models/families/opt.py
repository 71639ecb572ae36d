"""OPT, with the two oddities of its 350M model: norms behind the sums, and a narrower embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import activation_name, activation_of
from tdd.models.families.record import Family, TensorNames
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.validate.checkpoints import check_divides

__all__ = ["OPT"]

_OFFSET = 2  # rows of the table of positions that no token ever reads
_EPS = 1e-5  # no key of the configuration says so


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    check_divides(num_attention_heads=num_heads, hidden_size=width)
    bias, before = config["enable_bias"], config["do_layer_norm_before"]
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(_EPS, config["layer_norm_elementwise_affine"]),
        positions=LearnedPositions(config["max_position_embeddings"], _OFFSET),
        attention=Attention(
            num_heads,
            width // num_heads,
            ((width // num_heads) ** -0.5,) * num_layers,
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=Mlp(config["ffn_dim"], activation_of("activation_function", config), bias=bias),
        tied_head=config["tie_word_embeddings"],
        layout="pre" if before else "post",
        final_norm=before and not config["_remove_final_layer_norm"],
        embedding_width=config["word_embed_proj_dim"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any] | None:
    if not (isinstance(spec.norm, LayerNorm) and isinstance(spec.positions, LearnedPositions)):
        return None
    return {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.positions.count,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.attention.num_heads,
        "ffn_dim": spec.mlp.width,
        "activation_function": activation_name(spec.mlp.activation),
        "word_embed_proj_dim": spec.embedded_width,
        "do_layer_norm_before": spec.layout == "pre",
        "_remove_final_layer_norm": spec.layout == "pre" and not spec.final_norm,
        "enable_bias": spec.mlp.bias,
        "layer_norm_elementwise_affine": spec.norm.affine,
        "tie_word_embeddings": spec.tied_head,
    }


OPT = Family(
    model_type="opt",
    to_spec=_spec,
    to_config=_config,
    names=TensorNames(
        base="model.decoder.",
        layer="layers.{layer}.",
        tokens="embed_tokens",
        positions="embed_positions",
        embedding_in="project_in",
        embedding_out="project_out",
        final_norm="final_layer_norm",
        attention_norm="self_attn_layer_norm",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        attention_out="self_attn.out_proj",
        mlp_norm="final_layer_norm",
        mlp_in=("fc1",),
        mlp_out="fc2",
    ),
    used=frozenset(
        {
            "_remove_final_layer_norm",
            "activation_function",
            "do_layer_norm_before",
            "enable_bias",
            "ffn_dim",
            "hidden_size",
            "layer_norm_elementwise_affine",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "tie_word_embeddings",
            "vocab_size",
            "word_embed_proj_dim",
        }
    ),
    required={  # of the code that trained them; left in some files
        "learned_embeddings": (True,),
        "output_projection": (True,),
        "scale_embeddings": (False,),
    },
    buffers=("model.decoder.version",),
    bare_prefix="model.",
)
