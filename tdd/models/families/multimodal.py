"""Models that see (Gemma 3, LLaVA, Qwen VL): the text decoder alone, without what encodes images.

Where a text has no image, the positions of Qwen's three axes are one and the same number, and its rotation is that of
Qwen 2 or 3; Gemma 3 lets no token see a later one.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from tdd.models.families.family import Family
from tdd.models.families.llama import QWEN2, QWEN3
from tdd.models.families.registry import FAMILIES, MULTIMODAL, check_keys
from tdd.models.spec import DecoderSpec
from tdd.validate import InputError

_IMAGES = """
    boi_token_index eoi_token_index ignore_index image_grid_pinpoints image_seq_length image_token_id image_token_index
    mm_tokens_per_image multimodal_projector_bias projector_hidden_act text_config tie_word_embeddings
    use_image_newline_parameter video_token_id video_token_index vision_aspect_ratio vision_config vision_end_token_id
    vision_feature_layer vision_feature_select_strategy vision_start_token_id vision_token_id vocab_size
"""
_AROUND = frozenset(_IMAGES.split())
"""Keys beside those of the decoder. Special tokens stand for images; `vocab_size` repeats the decoder's."""

_TOWERS = ("vision_tower.", "multi_modal_projector.", "visual.", "image_newline")
_WITHOUT = tuple((f"{before}{tower}", None) for before in ("model.", "") for tower in _TOWERS)


class _Model(NamedTuple):
    """A type of model that sees."""

    text: str  # type of its decoder, where the configuration does not say it
    flat: bool = False  # true if published files have the decoder's keys beside the others
    # keys of the decoder that the decoder alone would read, with the values under which the whole does the same
    required: Mapping[str, tuple[Any, ...]] = types.MappingProxyType({})


_MODELS = {
    "gemma3": _Model("gemma3_text", required={"final_logit_softcapping": (None,)}),
    "llava": _Model("llama"),
    "llava_next": _Model("llama"),
    "llava_onevision": _Model("qwen2"),
    "qwen2_vl": _Model("qwen2_vl_text", flat=True),
    "qwen2_5_vl": _Model("qwen2_5_vl_text", flat=True),
    "qwen3_vl": _Model("qwen3_vl_text", required={"use_sliding_window": (False,)}),
}
assert _MODELS.keys() == set(MULTIMODAL)


_NO_WINDOWS = {"use_sliding_window": False, "sliding_window": None}
"""What Qwen 3 has beside Qwen 3 VL."""


def _qwen_spec(plain: Family, config: Mapping[str, Any]) -> DecoderSpec:
    """As without images; which axis turns which pair does not matter where all axes count alike."""
    parameters = dict(config["rope_parameters"] or {})
    for key in ("mrope_section", "mrope_interleaved"):
        parameters.pop(key, None)
    if parameters.get("type") == "mrope":
        del parameters["type"]
    full = {"layer_types": ["full_attention"] * config["num_hidden_layers"], **_NO_WINDOWS} if plain is QWEN3 else {}
    return plain.to_spec({**config, **full, "rope_parameters": parameters})


_QWEN = {
    name: dataclasses.replace(plain, model_type=name, to_spec=functools.partial(_qwen_spec, plain))
    for name, plain in (("qwen2_vl_text", QWEN2), ("qwen2_5_vl_text", QWEN2), ("qwen3_vl_text", QWEN3))
}


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The decoder's part of a configuration; whether the head is tied is what the whole says, if it does."""
    model = _MODELS[config["model_type"]]
    within = config.get("text_config")
    if within is None and model.flat:
        within = {key: value for key, value in config.items() if key not in _AROUND - {"vocab_size"}}
    if within is None:
        within = {}
    if not isinstance(within, Mapping):
        raise InputError(f"text_config must be an object, got {within!r}")
    part = {"model_type": model.text, **within}
    if part["model_type"] == config["model_type"]:
        part["model_type"] = model.text
    own = {model.text, model.text.removesuffix("_vl_text"), model.text.removesuffix("_5_vl_text")}
    if model.text in _QWEN and part["model_type"] not in own:
        raise InputError(
            f"text_config has model_type {part['model_type']!r}, but the decoder of {config['model_type']} is "
            f"{model.text!r}; the two parts do not belong together"
        )
    tied = "tie_word_embeddings"
    return {**part, tied: config[tied]} if tied in config else part


def text_family(config: Mapping[str, Any], where: str) -> Family:
    """The family of the decoder, with the names of its tensors in files of the whole model, after checking all keys.

    Raises:
      InputError: As `family_of_config`; or a key beside text_config that contradicts it.
    """
    (around, of_model), (part, (model_type, known)) = parts(config)
    check_keys(around, where, *of_model[:1], known=of_model[1])
    place, family = f"text_config of {where}", _family(part, where)
    required = {**family.required, **_MODELS[config["model_type"]].required}
    check_keys(part, place, model_type, known=known - family.required.keys(), required=required)
    for key in around.keys() & family.used & part.keys() - {"tie_word_embeddings"}:
        if around[key] != part[key]:
            raise InputError(
                f"{where} has {key}={around[key]!r}, but {part[key]!r} in text_config; remove the wrong one"
            )
    base = family.bare_prefix or family.names.base
    within = (*_WITHOUT, ("model.language_model.", base), ("language_model.", ""))
    return dataclasses.replace(family, within=within)


def parts(config: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], tuple[str, frozenset[str]]], ...]:
    """What surrounds the decoder, and the decoder's part, each with the type of model that reads it and known keys."""
    part = text_part(config)
    family = _family(part, "the configuration")
    known = family.used | family.ignored | family.required.keys()
    around = config
    if config.get("text_config") is None:
        around = {key: value for key, value in config.items() if key in _AROUND}
    return (around, (config["model_type"], _AROUND | known & part.keys())), (part, (family.model_type, known))


def left_out(folder: pathlib.Path) -> dict[str, int]:
    """How many tensors of a folder no text meets, by the part of the model."""
    from tdd.models.weights import StoredTensors

    with StoredTensors(folder) as stored:
        names = stored.names()
    heads = (name.removeprefix("model.") for name in names if name.startswith(tuple(old for old, _ in _WITHOUT)))
    return dict(sorted(collections.Counter(name.partition(".")[0] for name in heads).items()))


def _family(part: Mapping[str, Any], where: str) -> Family:
    found = part["model_type"]
    if found in _QWEN:
        return _QWEN[found]
    if found not in tuple(FAMILIES):
        raise InputError(f"text_config of {where} has model_type {found!r}; supported: {', '.join(FAMILIES)}")
    return FAMILIES[found]
