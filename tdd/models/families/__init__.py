"""Model families: how a Hugging Face configuration becomes a spec, and which stored tensors fill which parameter.

A family is a value of `Family`; `FAMILIES` is the registry. Every key that a configuration may hold is listed: keys
that the spec is built from, keys that must have one value (any other would change the computation in a way that is not
implemented), and keys that are ignored because they only concern training, generation or bookkeeping. A key in none of
these lists is an error if transformers reads it for the type of model; else nothing reads it, and it is logged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family
from tdd.models.families.registry import FAMILIES, IGNORED, MULTIMODAL, REQUIRED, check_keys, unread
from tdd.models.spec import DecoderSpec
from tdd.validate import InputError

__all__ = ["FAMILIES", "IGNORED", "MULTIMODAL", "REQUIRED", "family_of_config", "family_of_spec", "unread_keys"]


def family_of_config(config: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json, the file `where`, after checking its keys; that of the text decoder of a model that
    sees.

    Raises:
      InputError: Unsupported or missing `model_type`, an unknown key, or a value that is not implemented.
    """
    model_type = config.get("model_type")
    if model_type in MULTIMODAL:
        from tdd.models.families.multimodal import text_family

        return text_family(config, where)
    if model_type not in tuple(FAMILIES):  # it may be anything, a list too
        named = "no model_type" if model_type is None else f"model_type {model_type!r}, which is not supported"
        raise InputError(f"{where} has {named}; supported architectures: {', '.join((*FAMILIES, *MULTIMODAL))}")
    family = FAMILIES[model_type]
    check_keys(config, where, family.model_type, known=family.used | family.ignored, required=family.required)
    return family


def unread_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys of a supported config.json that neither transformers nor this package reads, sorted."""
    if config["model_type"] in MULTIMODAL:
        from tdd.models.families.multimodal import parts

        return sorted({key for part, own in parts(config) for key in unread(part, *own)})
    family = FAMILIES[config["model_type"]]
    return unread(config, family.model_type, family.used | family.ignored | family.required.keys())


def family_of_spec(spec: DecoderSpec) -> tuple[Family, dict[str, Any]]:
    """The first family whose configuration leads back to exactly this spec, and that configuration.

    Raises:
      InputError: No supported family can express it.
    """
    for family in FAMILIES.values():
        config = family.to_config(spec)
        with contextlib.suppress(InputError):
            if config is not None and family.to_spec(config) == spec:
                return family, config
    raise InputError(f"no supported family ({', '.join(FAMILIES)}) can store this architecture: {spec}")
