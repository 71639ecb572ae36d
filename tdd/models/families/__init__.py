"""Model families: how a Hugging Face configuration becomes a spec, and which stored tensors fill which parameter.

A family is a value of `Family`; `FAMILIES` is the registry. Everything that a configuration may hold is named: keys
that the spec is built from, keys that must have one value (another would change the computation in a way that is not
implemented), and keys that are ignored because they only concern training, generation or bookkeeping. A key in none of
these lists is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tdd.models.config_keys import IGNORED, REQUIRED
from tdd.models.families.gemma2 import GEMMA2
from tdd.models.families.gpt2 import GPT2
from tdd.models.families.gpt_neo import GPT_NEO
from tdd.models.families.gpt_neox import GPT_NEOX
from tdd.models.families.llama import LLAMA, MISTRAL
from tdd.models.families.opt import OPT
from tdd.models.families.qwen import QWEN2, QWEN3
from tdd.models.families.record import Family
from tdd.models.spec import DecoderSpec
from tdd.validate.errors import InputError

__all__ = ["FAMILIES", "family_of_config", "family_of_spec"]

FAMILIES: dict[str, Family] = {
    family.model_type: family for family in (GPT2, GPT_NEO, GPT_NEOX, OPT, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2)
}
"""Supported families by `model_type`."""


def family_of_config(config: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json as it stands in the file, after checking its keys.

    Args:
      config: contents of the file.
      where: the file's path, for messages.

    Raises:
      InputError: unsupported or missing `model_type`, an unknown key, or a value that is not implemented.
    """
    _check_model_type(config.get("model_type"), tuple(FAMILIES), where)
    family = FAMILIES[config["model_type"]]
    known = family.used | family.ignored | IGNORED
    _check_config_keys(config, known=known, required={**REQUIRED, **family.required}, where=where)
    return family


def family_of_spec(spec: DecoderSpec) -> tuple[Family, dict[str, Any]]:
    """The first family whose configuration leads back to exactly this spec, and that configuration.

    Raises:
      InputError: no supported family can express it.
    """
    for family in FAMILIES.values():
        config = family.to_config(spec)
        if config is not None and _leads_back(family, config, spec):
            return family, config
    raise InputError(f"no supported family ({', '.join(FAMILIES)}) can store this architecture: {spec}")


def _leads_back(family: Family, config: dict[str, Any], spec: DecoderSpec) -> bool:
    try:
        return family.to_spec(config) == spec
    except InputError:
        return False


_SHOWN = 5


def _check_model_type(model_type: Any, supported: Sequence[str], where: str) -> None:
    """The architecture is one that is implemented."""
    if model_type not in supported:
        named = "no model_type" if model_type is None else f"model_type {model_type!r}, which is not supported"
        raise InputError(f"{where} has {named}; supported architectures: {', '.join(supported)}")


def _check_config_keys(
    config: Mapping[str, Any], *, known: frozenset[str], required: Mapping[str, tuple[Any, ...]], where: str
) -> None:
    """Every key is known, and those that must have one value have it."""
    for key, allowed in required.items():
        if key in config and config[key] not in allowed:
            raise InputError(
                f"{where} has {key}={config[key]!r}, which changes the computation and is not supported; "
                f"supported: {' or '.join(map(repr, allowed))}"
            )
    unknown = sorted(config.keys() - known - required.keys())
    if unknown:
        raise InputError(
            f"{where} has unknown keys {_listed(unknown)}: whether they change the computation cannot "
            "be told; remove them if they do not"
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
