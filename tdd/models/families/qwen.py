"""Qwen2 and Qwen3: biases or norms on queries and keys, and windows from some layer on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.models.families.common import WINDOW_KINDS, layer_types, layer_windows, one_window
from tdd.models.families.llama import LLAMA_BUFFERS, LLAMA_KEYS, LLAMA_NAMES, config_of, spec_of
from tdd.models.families.record import Family
from tdd.models.spec import DecoderSpec

__all__ = ["QWEN2", "QWEN3"]

_SLIDING_KEYS = {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"}


def _windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    window = config["sliding_window"] if config["use_sliding_window"] else None
    return layer_windows(config["layer_types"], config["num_hidden_layers"], window, *WINDOW_KINDS)


def _sliding(spec: DecoderSpec) -> dict[str, Any]:
    windows = spec.attention.windows
    window = one_window(windows, None)
    return {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": next((i for i, own in enumerate(windows) if own is not None), spec.num_layers),
        "layer_types": layer_types(windows, *WINDOW_KINDS),
    }


def _qwen2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return spec_of(config, windows=_windows(config), qkv_bias=True)


def _qwen2_config(spec: DecoderSpec) -> dict[str, Any] | None:
    return config_of(spec, "qwen2", "Qwen2ForCausalLM", **_sliding(spec))


def _qwen3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    bias = config["attention_bias"]
    return spec_of(config, windows=_windows(config), qkv_bias=bias, out_bias=bias, qk_norm=True)


def _qwen3_config(spec: DecoderSpec) -> dict[str, Any] | None:
    own = {"attention_bias": spec.attention.qkv_bias, **_sliding(spec)}
    return config_of(spec, "qwen3", "Qwen3ForCausalLM", **own)


QWEN2 = Family(
    model_type="qwen2",
    to_spec=_qwen2_spec,
    to_config=_qwen2_config,
    names=LLAMA_NAMES,
    used=LLAMA_KEYS | {"hidden_act"} | _SLIDING_KEYS,
    required={"use_mrope": (False,)},
    buffers=LLAMA_BUFFERS,
)

QWEN3 = Family(
    model_type="qwen3",
    to_spec=_qwen3_spec,
    to_config=_qwen3_config,
    names=LLAMA_NAMES,
    used=LLAMA_KEYS | {"attention_bias", "hidden_act"} | _SLIDING_KEYS,
    buffers=LLAMA_BUFFERS,
)
