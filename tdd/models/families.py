"""Model families: how a Hugging Face configuration becomes a spec, and which stored tensor is which
parameter.

A family is a value of `Family`; `FAMILIES` is the registry. Everything that a configuration may hold is
named in one of three lists: keys that the spec is built from, keys that must have one value (another would
change the computation in a way that is not implemented), and keys that are ignored because they only
concern training, generation or bookkeeping. A key in none of them is an error, never a guess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tdd.models.config_keys import IGNORED, REQUIRED
from tdd.models.spec import Activation, Attention, DecoderSpec, LayerNorm, LearnedPositions, PlainMlp
from tdd.validate.checkpoints import check_config_keys, check_divides, check_mapped, check_model_type
from tdd.validate.errors import InputError

__all__ = ["FAMILIES", "Family", "Slot", "family_of_config", "family_of_spec"]


@dataclasses.dataclass(frozen=True)
class Slot:
    """One parameter and the stored tensors that fill it.

    Attributes:
      path: keys into the nested dict of parameters.
      shape: shape of one stored tensor; the parameter of a layered slot is [L, *shape].
      names: names of the stored tensors: L of them in layer order where `layered`, else one.
      layered: whether the parameter is stacked over layers.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...]
    layered: bool


@dataclasses.dataclass(frozen=True)
class Family:
    """What sets one family of checkpoints apart.

    Attributes:
      model_type: the `model_type` of its config.json.
      to_spec: configuration with its defaults filled in -> spec. InputError where a value is not supported.
      to_config: spec -> the computation's part of config.json, or None where the family cannot express the
      spec. slots: spec -> every parameter with its stored tensors.
      used: configuration keys that decide the spec.
      ignored: its own configuration keys that never change the logits of a text.
      base_prefix: what files saved from the bare model, without its head, leave out of the names.
      buffers: endings of the names of stored tensors that are not parameters.
      tied_names: (copy, original): a copy of the embedding that some files of tied models carry.
    """

    model_type: str
    to_spec: Callable[[Mapping[str, Any]], DecoderSpec]
    to_config: Callable[[DecoderSpec], dict[str, Any] | None]
    slots: Callable[[DecoderSpec], tuple[Slot, ...]]
    used: frozenset[str]
    ignored: frozenset[str]
    base_prefix: str
    buffers: tuple[str, ...]
    tied_names: tuple[str, str]


def family_of_config(config: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json as it stands in the file, after checking its keys.

    Args:
      config: contents of the file.
      where: the file's path, for messages.

    Raises:
      InputError: unsupported or missing `model_type`, an unknown key, or a value that is not implemented.
    """
    check_model_type(config.get("model_type"), tuple(FAMILIES), where)
    family = FAMILIES[config["model_type"]]
    check_config_keys(config, known=family.used | family.ignored | IGNORED, required=REQUIRED, where=where)
    return family


def family_of_spec(spec: DecoderSpec) -> tuple[Family, dict[str, Any]]:
    """The first family that can express the spec, and its configuration."""
    for family in FAMILIES.values():
        config = family.to_config(spec)
        if config is not None:
            return family, config
    raise InputError(f"no supported family ({', '.join(FAMILIES)}) can store this architecture: {spec}")


_ACTIVATIONS: dict[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Hugging Face's name -> ours; the first name of each of ours is the one that is written."""


def _gpt2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    width, num_heads, num_layers = config["n_embd"], config["n_head"], config["n_layer"]
    check_divides(n_head=num_heads, n_embd=width)
    scales = _gpt2_scales(
        num_layers,
        width // num_heads,
        config["scale_attn_weights"],
        config["scale_attn_by_inverse_layer_idx"],
    )
    check_mapped("activation_function", config["activation_function"], _ACTIVATIONS)
    return DecoderSpec(
        vocab_size=config["vocab_size"],
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(config["layer_norm_epsilon"]),
        positions=LearnedPositions(config["n_positions"]),
        attention=Attention(num_heads, width // num_heads, scales),
        mlp=PlainMlp(
            4 * width if config["n_inner"] is None else config["n_inner"],
            _ACTIVATIONS[config["activation_function"]],
        ),
        tied_head=config["tie_word_embeddings"],
    )


def _gpt2_config(spec: DecoderSpec) -> dict[str, Any] | None:
    attention = spec.attention
    if attention.num_heads * attention.head_dim != spec.width:
        return None
    for scaled in (True, False):
        for inverse in (False, True):
            if attention.scales == _gpt2_scales(spec.num_layers, attention.head_dim, scaled, inverse):
                return {
                    "model_type": "gpt2",
                    "architectures": ["GPT2LMHeadModel"],
                    "vocab_size": spec.vocab_size,
                    "n_positions": spec.positions.count,
                    "n_embd": spec.width,
                    "n_layer": spec.num_layers,
                    "n_head": attention.num_heads,
                    "n_inner": spec.mlp.width,
                    "activation_function": next(
                        name for name, ours in _ACTIVATIONS.items() if ours == spec.mlp.activation
                    ),
                    "layer_norm_epsilon": spec.norm.eps,
                    "scale_attn_weights": scaled,
                    "scale_attn_by_inverse_layer_idx": inverse,
                    "tie_word_embeddings": spec.tied_head,
                }
    return None


def _gpt2_scales(num_layers: int, head_dim: int, scaled: bool, inverse: bool) -> tuple[float, ...]:
    base = head_dim**-0.5 if scaled else 1.0
    return tuple(base / (layer + 1) if inverse else base for layer in range(num_layers))


def _gpt2_slots(spec: DecoderSpec) -> tuple[Slot, ...]:
    # Conv1D stores [in, out], our own orientation; query, key and value stand side by side in c_attn.
    width, inner = spec.width, spec.mlp.width
    layer_tensors = {
        ("attention_norm", "scale"): ("ln_1.weight", (width,)),
        ("attention_norm", "bias"): ("ln_1.bias", (width,)),
        ("qkv", "kernel"): ("attn.c_attn.weight", (width, 3 * width)),
        ("qkv", "bias"): ("attn.c_attn.bias", (3 * width,)),
        ("attention_out", "kernel"): ("attn.c_proj.weight", (width, width)),
        ("attention_out", "bias"): ("attn.c_proj.bias", (width,)),
        ("mlp_norm", "scale"): ("ln_2.weight", (width,)),
        ("mlp_norm", "bias"): ("ln_2.bias", (width,)),
        ("mlp_in", "kernel"): ("mlp.c_fc.weight", (width, inner)),
        ("mlp_in", "bias"): ("mlp.c_fc.bias", (inner,)),
        ("mlp_out", "kernel"): ("mlp.c_proj.weight", (inner, width)),
        ("mlp_out", "bias"): ("mlp.c_proj.bias", (width,)),
    }
    single_tensors = {
        ("embedding", "tokens"): ("transformer.wte.weight", (spec.vocab_size, width)),
        ("embedding", "positions"): ("transformer.wpe.weight", (spec.positions.count, width)),
        ("final_norm", "scale"): ("transformer.ln_f.weight", (width,)),
        ("final_norm", "bias"): ("transformer.ln_f.bias", (width,)),
    }
    if not spec.tied_head:
        single_tensors["head", "kernel"] = ("lm_head.weight", (spec.vocab_size, width))
    layers = range(spec.num_layers)
    return tuple(
        Slot(("layers", *path), shape, tuple(f"transformer.h.{layer}.{name}" for layer in layers), True)
        for path, (name, shape) in layer_tensors.items()
    ) + tuple(Slot(path, shape, (name,), False) for path, (name, shape) in single_tensors.items())


_GPT2 = Family(
    model_type="gpt2",
    to_spec=_gpt2_spec,
    to_config=_gpt2_config,
    slots=_gpt2_slots,
    used=frozenset(
        {
            "activation_function",
            "hidden_size",
            "layer_norm_epsilon",
            "max_position_embeddings",
            "n_embd",
            "n_head",
            "n_inner",
            "n_layer",
            "n_positions",
            "num_attention_heads",
            "num_hidden_layers",
            "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights",
            "tie_word_embeddings",
            "vocab_size",
        }
    ),
    ignored=frozenset(
        {
            "attn_pdrop",
            "embd_pdrop",
            "n_ctx",  # repeats n_positions in old files
            "reorder_and_upcast_attn",  # the rounding of half precision only
            "resid_pdrop",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        }
    ),
    base_prefix="transformer.",
    buffers=(".attn.bias", ".attn.masked_bias"),
    tied_names=("lm_head.weight", "transformer.wte.weight"),
)

FAMILIES: dict[str, Family] = {family.model_type: family for family in (_GPT2,)}
"""Supported families by `model_type`."""
