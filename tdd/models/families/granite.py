"""Granite: LLaMA with factors on embeddings, attention scores, what each part adds to the stream, and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.llama import LLAMA, like_llama, llama_spec
from tdd.models.spec import DecoderSpec
from tdd.validate.files import check_positive

_FACTORS = ("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier")


def _spec(config: Mapping[str, Any]) -> DecoderSpec:
    check_positive(**{key: config[key] for key in _FACTORS})
    return llama_spec(
        config,
        attention={"scales": (float(config["attention_multiplier"]),) * config["num_hidden_layers"]},
        embedding_scale=float(config["embedding_multiplier"]),
        residual_scale=float(config["residual_multiplier"]),
        logit_scale=1 / config["logits_scaling"],
    )


def _config(spec: DecoderSpec) -> dict[str, Any]:
    return {
        **(LLAMA.own_config(spec) or {}),
        "attention_multiplier": spec.attention.scales[0],
        "embedding_multiplier": spec.embedding_scale,
        "logits_scaling": _divisor(spec.logit_scale),
        "residual_multiplier": spec.residual_scale,
    }


def _divisor(factor: float) -> float:
    """The number whose reciprocal is the factor, a short decimal one if there is one."""
    found = 1 / factor
    return round(found, 9) if 1 / round(found, 9) == factor else found


GRANITE = like_llama(
    "granite",
    "GraniteForCausalLM",
    to_spec=_spec,
    own_config=_config,
    own_keys={"attention_bias", "mlp_bias", *_FACTORS},
)
