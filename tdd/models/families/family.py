"""A model family: its configuration keys, its tensor names, and how its configuration becomes a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tdd.models.families.rope import rope_parameters
from tdd.models.families.tensors import TensorNames
from tdd.models.spec import (
    Activation,
    AlibiPositions,
    Attention,
    DecoderSpec,
    Experts,
    LayerNorm,
    LearnedPositions,
    Mlp,
    RmsNorm,
    RotaryPositions,
)
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_divides

_WINDOW_KINDS = ("sliding_attention", "full_attention")
"""Layer types with and without a window, as most families name them."""

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


@dataclasses.dataclass(frozen=True)
class Keys:
    """Names of the configuration keys that every family has; "" for a key that a family lacks, such as both of the
    perceptron.

    A configuration's `head_dim` of None means width / num_heads.
    """

    width: str = "hidden_size"
    num_layers: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    mlp_width: str = "intermediate_size"
    activation: str = "hidden_act"
    max_length: str = "max_position_embeddings"
    eps: str = "layer_norm_epsilon"
    head_dim: str = ""
    num_kv_heads: str = ""
    vocab_size: str = "vocab_size"
    tied_head: str = "tie_word_embeddings"


@dataclasses.dataclass(frozen=True)
class Family:
    """The differences of one family of checkpoints."""

    model_type: str
    architecture: str  # name of transformers' class
    norm: type[LayerNorm | RmsNorm]  # type of its norms
    positions: type[LearnedPositions | RotaryPositions | AlibiPositions]  # type of its positions
    keys: Keys
    names: TensorNames
    # configuration with its defaults filled in -> spec. InputError for an unsupported value
    to_spec: Callable[[Mapping[str, Any]], DecoderSpec]
    # spec -> the configuration keys beyond the common ones that `to_spec` reads, or None if the family cannot express
    # the spec. `family_of_spec` checks that `to_spec` leads back to the spec
    own_config: Callable[[DecoderSpec], dict[str, Any] | None]
    own_keys: frozenset[str] = frozenset()  # configuration keys beyond the common ones that decide the spec
    # configuration keys that would change the computation, with the values under which they do not
    required: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    ignored: frozenset[str] = frozenset()  # configuration keys that never change the logits of a text
    # names of stored tensors that are not parameters, with "{layer}" for the number of a layer
    buffers: tuple[str, ...] = ()
    # alternative tensor names in files -> the name in `names`
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bare_prefix: str = ""  # what files of a model without its head omit from all names; "" means `names.base`
    mlp: type[Mlp | Experts] = Mlp  # type of its perceptrons
    # beginnings of names of tensors in files of a larger model -> those in files of this one, or None for tensors that
    # no text meets
    within: tuple[tuple[str, str | None], ...] = ()

    @property
    def used(self) -> frozenset[str]:
        """All configuration keys that decide the spec."""
        return (frozenset(dataclasses.astuple(self.keys)) - {""}) | self.own_keys

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Names of tensors as files of this model alone have them -> those in the files; without what no text meets."""
        found: dict[str, str] = {}
        for name in sorted(names):
            old, new = next((pair for pair in self.within if name.startswith(pair[0])), ("", ""))
            if new is not None:
                own = new + name.removeprefix(old)
                found[name if own in found else own] = name  # a second spelling stays, and is reported as too many
        return found

    def to_config(self, spec: DecoderSpec) -> dict[str, Any] | None:
        """The configuration of a spec, with every key that `to_spec` reads; None if the family cannot express it."""
        kinds = ((spec.norm, self.norm), (spec.positions, self.positions), (spec.mlp, self.mlp))
        if not all(isinstance(part, kind) for part, kind in kinds):
            return None
        own_keys = self.own_config(spec)
        if own_keys is None:
            return None
        keys = self.keys
        values = {
            keys.vocab_size: spec.vocab_size,
            keys.max_length: spec.max_length,
            keys.width: spec.width,
            keys.num_layers: spec.num_layers,
            keys.num_heads: spec.attention.num_heads,
            keys.num_kv_heads: spec.attention.kv_heads,
            keys.head_dim: spec.attention.head_dim,
            keys.mlp_width: spec.mlp.width,
            keys.activation: next(name for name, ours in _ACTIVATIONS.items() if ours == spec.mlp.activation),
            keys.eps: spec.norm.eps,
            keys.tied_head: spec.tied_head,
        }
        if "rope_parameters" in self.used and isinstance(spec.positions, RotaryPositions):
            values["rope_parameters"] = rope_parameters(spec.positions)
        common = {key: value for key, value in values.items() if key}
        return {"model_type": self.model_type, "architectures": [self.architecture], **common, **own_keys}


def spec_of(
    config: Mapping[str, Any],
    keys: Keys,
    norm: LayerNorm | RmsNorm,
    positions: LearnedPositions | RotaryPositions | AlibiPositions,
    *,
    attention: Mapping[str, Any] | None = None,
    mlp: Mapping[str, Any] | None = None,
    **fields: Any,
) -> DecoderSpec:
    """The spec that the common keys describe, with a family's own fields of `Attention`, `Mlp` and `DecoderSpec`."""
    num_layers, head_dim = config[keys.num_layers], head_dim_of(config, keys)
    perceptron: dict[str, Any] = {}
    if keys.activation:
        check_choice(keys.activation, config[keys.activation], tuple(_ACTIVATIONS))
        perceptron = {"width": config[keys.mlp_width], "activation": _ACTIVATIONS[config[keys.activation]]}
    return DecoderSpec(
        vocab_size=config[keys.vocab_size],
        width=config[keys.width],
        num_layers=num_layers,
        norm=norm,
        positions=positions,
        attention=Attention(
            **{
                "num_heads": config[keys.num_heads],
                "head_dim": head_dim,
                "scales": (head_dim**-0.5,) * num_layers,
                "num_kv_heads": config[keys.num_kv_heads] if keys.num_kv_heads else None,
                **(attention or {}),
            }
        ),
        mlp=Mlp(**perceptron, **(mlp or {})),
        tied_head=config[keys.tied_head],
        **fields,
    )


def head_dim_of(config: Mapping[str, Any], keys: Keys) -> int:
    """Width of a head."""
    given = config.get(keys.head_dim) if keys.head_dim else None
    return check_heads(config, keys) if given is None else given


def check_heads(config: Mapping[str, Any], keys: Keys) -> int:
    """The heads divide the width; returns the width of each."""
    check_divides(**{keys.num_heads: config[keys.num_heads], keys.width: config[keys.width]})
    return config[keys.width] // config[keys.num_heads]


def layer_windows(
    types: Sequence[str], num_layers: int, window: int | None, kinds: tuple[str, str] = _WINDOW_KINDS
) -> tuple[int | None, ...]:
    """One window a layer from the types of the layers; `kinds` names those with and without a window."""
    local, full = kinds
    if not isinstance(types, Sequence) or isinstance(types, str) or len(types) != num_layers:
        raise InputError(f"the configuration must name one type of attention a layer ({num_layers}), got {types!r}")
    unknown = sorted({str(kind) for kind in types} - {local, full})
    if unknown:
        raise InputError(f"attention of type {', '.join(unknown)} is not supported; supported: {full}, {local}")
    if window is None and local in types:
        raise InputError(f"the configuration has layers of type {local}, but no window for them; set sliding_window")
    return tuple(window if kind == local else None for kind in types)


def layer_types(windows: Sequence[int | None], kinds: tuple[str, str] = _WINDOW_KINDS) -> list[str]:
    """The inverse of `layer_windows`."""
    local, full = kinds
    return [full if window is None else local for window in windows]


def first_window(windows: Sequence[int | None], default: int | None = None) -> int | None:
    """The window of the layers that have one, or `default`."""
    return next((window for window in windows if window is not None), default)
