"""Metadata of a GGUF file -> the keys of a config.json, the family, and the family's names of the tensors.

As in a config.json, every key of the architecture that the file holds must be understood. What the file leaves to its
readers (activation, which layers have a window, gemma's scale of attention) is a fact of the architecture and stands
here. Numbers in float32 are read as the shortest decimal number that has these bits: 1e-5, not 9.9999997e-06.

Source: the writers of the format, ggml's convert_hf_to_gguf.py, whose changes to names, rows and norms are undone here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tdd.models.families import FAMILIES
from tdd.models.families.family import Family
from tdd.models.gguf.header import Header, single
from tdd.models.gguf.tensors import Form
from tdd.validate import InputError, some

_LONG_FACTORS = {"long_factor": "rope_factors_long.weight", "short_factor": "rope_factors_short.weight"}
_FREQUENCY_FACTORS = "rope_freqs.weight"
_HEAD = "output.weight"
_HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
_NAME = re.compile(r"(?:blk\.(0|[1-9]\d*)\.)?(\w+)\.(weight|bias)")
_GEMMA_27B = (46, 62)
"""Numbers of layers of the largest Gemma 2 and Gemma 3, which alone scale attention by width / heads."""


class Reading(NamedTuple):
    """A GGUF file's model in the terms of this package."""

    family: Family  # with the names and forms of tensors that hold after `forms`
    config: dict[str, Any]  # keys of a config.json
    forms: dict[str, Form]  # the family's name of each tensor -> its form in the file


class _Entries:
    """The metadata of one architecture; remembers which were asked for, and which tensors were taken in."""

    def __init__(self, header: Header, architecture: str, where: str) -> None:
        self.header, self.where, self._prefix = header, where, f"{architecture}."
        self._asked: set[str] = set()
        self.taken: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """A value by its name without the architecture; no array."""
        self._asked.add(key)
        value = single(self.header.metadata, self._prefix + key, default, self.where)
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1, which must be there if there is no default."""
        value = self.get(key, default)
        if value is None:
            raise InputError(f"{self.where} lacks the metadata {self._prefix}{key}; convert the model again")
        if type(value) is not int or value < 1:
            raise InputError(f"{self.where} has {self._prefix}{key} = {value!r}; a whole number from 1 on is needed")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A positive number, which must be there if there is no default."""
        value = self.get(key, default)
        if value is None:
            raise InputError(f"{self.where} lacks the metadata {self._prefix}{key}; convert the model again")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise InputError(f"{self.where} has {self._prefix}{key} = {value!r}; a positive number is needed")
        return float(value)

    def must_be(self, key: str, *allowed: Any) -> None:
        """A value that may be left out has one of the allowed ones."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            raise InputError(
                f"{self.where} has {self._prefix}{key} = {value!r}, which changes the computation and is not "
                f"supported; supported: {' or '.join(map(str, allowed))}"
            )

    def factors(self, name: str, pairs: int) -> list[float]:
        """The numbers of a tensor with one factor for each pair of coordinates, which is no parameter then."""
        self.taken.add(name)
        tensor = self.header.tensors[name]
        if tensor.kind.name != "F32" or tensor.shape != (pairs,):
            raise InputError(f"{self.where} has {name} as {tensor.kind.name} {[*tensor.shape]}; need F32 [{pairs}]")
        return self.header.data[tensor.start : tensor.start + tensor.size].view("<f4").tolist()

    def check_all_asked(self) -> None:
        """No entry of the architecture is left that nothing asked for."""
        known = {self._prefix + key for key in self._asked | _IGNORED}
        left = sorted(key for key in self.header.metadata if key.startswith(self._prefix) and key not in known)
        if left:
            raise InputError(
                f"{self.where} has unknown metadata {some(left)}: whether they change the computation cannot be told"
            )


_IGNORED = {"vocab_size", "rope.scaling.finetuned", "tensor_data_layout"}
"""The number of rows of the embedding; a note; a note of the first files, whose rows are ordered as all others'."""


@dataclasses.dataclass(frozen=True)
class _Architecture:
    """How one value of general.architecture is read."""

    model_type: str
    config: Callable[[_Entries], dict[str, Any]]  # the configuration keys
    by_pairs: bool = False  # true if rows of queries and keys are stored so that rotated pairs are neighbours
    added_to_norms: float = 0.0  # what was added to the scales of norms
    norms_behind: bool = False  # true if norms are those of the outputs of attention and perceptron alone
    transposed: bool = False  # true if the family's own files store kernels [in, out]; these never do


def _trunk(entries: _Entries, *, epsilon: str = "layer_norm_rms_epsilon", partial: bool = False) -> dict[str, Any]:
    """The keys of LLaMA; `partial` as in `_rotary`."""
    heads, width = entries.count("attention.head_count"), entries.count("embedding_length")
    head_dim = entries.count("attention.key_length", max(1, width // heads))
    entries.must_be("attention.value_length", head_dim)
    for key in ("expert_count", "expert_used_count"):
        entries.must_be(key, 0)
    return {
        "hidden_size": width,
        "num_hidden_layers": entries.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": entries.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": entries.count("feed_forward_length"),
        "max_position_embeddings": entries.count("context_length"),
        "rms_norm_eps": entries.real(f"attention.{epsilon}"),
        "vocab_size": _rows(entries),
        "tie_word_embeddings": _HEAD not in entries.header.tensors,
        "rope_parameters": _rotary(entries, head_dim, partial=partial),
    }


def _rows(entries: _Entries) -> int:
    """V, the rows of the embedding."""
    tensor = entries.header.tensors.get("token_embd.weight")
    if tensor is None:
        raise InputError(f"{entries.where} has no tensor token_embd.weight; it is no language model")
    return tensor.shape[0]


def _rotary(entries: _Entries, head_dim: int, *, partial: bool = False) -> dict[str, Any]:
    """Rotary positions, as `rope_parameters`; `partial` if a family may turn a part of each head.

    Factors of the frequencies that a tensor holds (Llama 3's) are those of LongRoPE within the whole context.
    """
    turned = entries.count("rope.dimension_count", head_dim)
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": entries.real("rope.freq_base", 10_000.0)}
    if partial:
        found["partial_rotary_factor"] = turned / head_dim
    else:
        entries.must_be("rope.dimension_count", head_dim)
    kind, old = entries.get("rope.scaling.type"), entries.get("rope.scale_linear")
    if _FREQUENCY_FACTORS in entries.header.tensors:
        entries.must_be("rope.scaling.type", None, "none")
        factors = entries.factors(_FREQUENCY_FACTORS, turned // 2)
        return found | {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "factor": 1.0,
            "attention_factor": 1.0,
            "original_max_position_embeddings": entries.count("context_length"),
        }
    if kind == "linear" or (kind is None and old is not None):
        factor = entries.real("rope.scaling.factor", None if old is None else entries.real("rope.scale_linear"))
        return found | ({"rope_type": "linear", "factor": factor} if factor != 1 else {})
    entries.must_be("rope.scaling.type", None, "none", "yarn", *(["longrope"] if partial else []))
    if kind == "yarn":
        for key, usual in (("attn_factor", 1.0), ("yarn_beta_fast", 32.0), ("yarn_beta_slow", 1.0)):
            entries.must_be(f"rope.scaling.{key}", usual)
        original = entries.count("rope.scaling.original_context_length")
        return found | {
            "rope_type": "yarn",
            "factor": entries.real("rope.scaling.factor"),
            "original_max_position_embeddings": original,
        }
    return found


def _llama(entries: _Entries) -> dict[str, Any]:
    biases = {key: f"blk.0.{part}.bias" for key, part in (("attention_bias", "attn_q"), ("mlp_bias", "ffn_up"))}
    return _trunk(entries) | {key: name in entries.header.tensors for key, name in biases.items()}


def _qwen(entries: _Entries) -> dict[str, Any]:
    entries.must_be("attention.sliding_window", 0)
    kinds = ["full_attention"] * entries.count("block_count")
    return _trunk(entries) | {"use_sliding_window": False, "sliding_window": None, "layer_types": kinds}


def _gemma(entries: _Entries, period: int, window: int | None) -> dict[str, Any]:
    """Every layer has a window but the last of each `period`."""
    config = _trunk(entries)
    layers = config["num_hidden_layers"]
    wide = layers in _GEMMA_27B
    scale = config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
    period = entries.count("attention.sliding_window_pattern", period)
    kinds = ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)]
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scale,
        "sliding_window": entries.count("attention.sliding_window", window),
        "layer_types": kinds,
    }


def _gemma2(entries: _Entries) -> dict[str, Any]:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return _gemma(entries, 2, 4096) | {key: entries.real(key, cap) for key, cap in caps.items()}


def _gemma3(entries: _Entries) -> dict[str, Any]:
    config = _gemma(entries, 6, None)
    entries.must_be("attn_logit_softcapping", 0.0)
    entries.must_be("final_logit_softcapping", 0.0)
    near = {"rope_type": "default", "rope_theta": entries.real("rope.freq_base_swa", 10_000.0)}
    kinds = {"sliding_attention": near, "full_attention": config["rope_parameters"]}
    return config | {"final_logit_softcapping": None, "rope_parameters": kinds}


def _heads_of_the_width(entries: _Entries, config: dict[str, Any]) -> dict[str, Any]:
    """Without `head_dim`, which the family always takes as width / heads."""
    entries.must_be("attention.key_length", config["hidden_size"] // config["num_attention_heads"])
    return {key: value for key, value in config.items() if key != "head_dim"}


def _phi3(entries: _Entries) -> dict[str, Any]:
    config = _heads_of_the_width(entries, _trunk(entries, partial=True))
    context = config["max_position_embeddings"]
    original = entries.count("rope.scaling.original_context_length", context)
    window = entries.get("attention.sliding_window")
    config["sliding_window"] = None if window in (None, 0) else entries.count("attention.sliding_window")
    names = [name for name in _LONG_FACTORS.values() if name in entries.header.tensors]
    if not names:
        entries.must_be("rope.scaling.original_context_length", context)
        return config
    if len(names) < len(_LONG_FACTORS):
        raise InputError(
            f"{entries.where} has {names[0]} alone; {' and '.join(_LONG_FACTORS.values())} belong together"
        )
    pairs = entries.count("rope.dimension_count", config["hidden_size"] // config["num_attention_heads"]) // 2
    config["original_max_position_embeddings"] = original
    config["rope_parameters"] |= {
        "rope_type": "longrope",
        "factor": context / original,
        "attention_factor": entries.real("rope.scaling.attn_factor", 1.0),
        "original_max_position_embeddings": original,
        **{key: entries.factors(name, pairs) for key, name in _LONG_FACTORS.items()},
    }
    return config


def _olmo(entries: _Entries) -> dict[str, Any]:
    config = _heads_of_the_width(entries, _trunk(entries, epsilon="layer_norm_epsilon"))
    entries.must_be("attention.layer_norm_epsilon", 1e-5)
    clip = entries.get("attention.clamp_kqv")
    return config | {"clip_qkv": None if clip in (None, 0) else entries.real("attention.clamp_kqv")}


def _olmo2(entries: _Entries) -> dict[str, Any]:
    entries.must_be("attention.sliding_window", 0)
    return _heads_of_the_width(entries, _trunk(entries))


def _gpt2(entries: _Entries) -> dict[str, Any]:
    return {
        "n_embd": entries.count("embedding_length"),
        "n_layer": entries.count("block_count"),
        "n_head": entries.count("attention.head_count"),
        "n_inner": entries.count("feed_forward_length"),
        "n_positions": entries.count("context_length"),
        "layer_norm_epsilon": entries.real("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
        "vocab_size": _rows(entries),
        "tie_word_embeddings": _HEAD not in entries.header.tensors,
    }


ARCHITECTURES: Mapping[str, _Architecture] = {
    "llama": _Architecture("llama", _llama, by_pairs=True),
    "qwen2": _Architecture("qwen2", _qwen),
    "qwen3": _Architecture("qwen3", _qwen),
    "gemma2": _Architecture("gemma2", _gemma2, added_to_norms=1.0),
    "gemma3": _Architecture("gemma3_text", _gemma3, added_to_norms=1.0),
    "phi3": _Architecture("phi3", _phi3),
    "olmo": _Architecture("olmo", _olmo, by_pairs=True),
    "olmo2": _Architecture("olmo2", _olmo2, norms_behind=True),
    "gpt2": _Architecture("gpt2", _gpt2, transposed=True),
}
"""Supported values of general.architecture."""


def read_configuration(header: Header, where: str) -> Reading:
    """What a file says of its model.

    Raises:
      InputError: No model, an architecture that is not supported, metadata that are missing, of another type or
        unknown, or a part of a model that is split into several files.
    """
    metadata = header.metadata
    architecture, kind = (
        single(metadata, f"general.{key}", default, where)
        for key, default in (("architecture", None), ("type", "model"))
    )
    if kind != "model":
        raise InputError(f"{where} holds general.type = {kind!r}; a file with a whole model is needed")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise InputError(
            f"{where} has general.architecture = {architecture!r}, which is not supported; supported: "
            f"{', '.join(ARCHITECTURES)}"
        )
    if single(metadata, "split.count", 0, where) not in (0, 1):
        raise InputError(
            f"{where} is one of {metadata['split.count']} parts of a model; join them with llama-gguf-split --merge"
        )
    entries, how = _Entries(header, architecture, where), ARCHITECTURES[architecture]
    layers = entries.count("block_count")
    if layers > len(header.tensors):
        raise InputError(f"{where} has {architecture}.block_count = {layers}, but {len(header.tensors)} tensors")
    config = how.config(entries)
    entries.check_all_asked()
    family = FAMILIES[how.model_type]
    if how.transposed:
        family = dataclasses.replace(family, names=dataclasses.replace(family.names, inputs_first=False))
    return Reading(family, {"model_type": how.model_type, **config}, _forms(entries, how, family, config))


def _forms(entries: _Entries, how: _Architecture, family: Family, config: Mapping[str, Any]) -> dict[str, Form]:
    """The family's name of every tensor but those that the configuration has taken in; unknown names stay."""
    in_layer, in_trunk = _parts(family, how)
    forms: dict[str, Form] = {}
    for name, tensor in entries.header.tensors.items():
        if name in entries.taken:
            continue
        found = _NAME.fullmatch(name)
        layer, part, last = found.groups() if found else (None, "", "")
        own = (in_trunk if layer is None else in_layer).get(part)
        spelled = name if own is None else f"{own.format(layer=layer)}.{last}"
        heads = _HEADS.get(part) if how.by_pairs and layer is not None else None
        order = None if heads is None else _by_halves(tensor.shape[0], config[heads])
        added = how.added_to_norms if part.endswith("_norm") and last == "weight" else 0.0
        # where two names mean the same, the second stays as it is and is reported as too many
        forms[name if spelled in forms else spelled] = Form(name, order, added)
    return forms


def _parts(family: Family, how: _Architecture) -> tuple[dict[str, str], dict[str, str]]:
    """Name of a part in GGUF files -> the family's, with "{layer}": those of a layer, and the others."""
    names = family.names
    qkv = ("attn_qkv",) if len(names.qkv) == 1 else ("attn_q", "attn_k", "attn_v")
    mlp_in = ("ffn_up",) if len(names.mlp_in) == 1 else ("ffn_gate", "ffn_up")
    before, behind = ("attn_norm", "ffn_norm"), ("post_attention_norm", "post_ffw_norm")
    in_layer = {
        **dict(zip(behind if how.norms_behind else before, (names.attention_norm, names.mlp_norm), strict=True)),
        **dict(zip(qkv, names.qkv, strict=True)),
        **dict(zip(mlp_in, names.mlp_in, strict=True)),
        "attn_q_norm": names.query_norm,
        "attn_k_norm": names.key_norm,
        "attn_output": names.attention_out,
        "ffn_down": names.mlp_out,
    }
    if names.attention_post_norm:
        in_layer |= dict(zip(behind, (names.attention_post_norm, names.mlp_post_norm), strict=True))
    in_trunk = {"token_embd": names.tokens, "position_embd": names.positions, "output_norm": names.final_norm}
    return (
        {part: names.base + names.layer + own for part, own in in_layer.items()},
        {"output": names.head, **{part: names.base + own for part, own in in_trunk.items() if own}},
    )


def _by_halves(rows: int, heads: int) -> np.ndarray | None:
    """Row of the file for each row of a family's queries or keys: there pair i of a head is i and i + d/2, here 2i and
    2i + 1. None where the sizes do not allow it, which the shapes show."""
    if rows % (2 * heads):
        return None
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
