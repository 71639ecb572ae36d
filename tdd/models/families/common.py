"""What several families read from a configuration in the same way: activations, windows, rotary positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.models.rotary import LinearScaling, Llama3Scaling, RotaryPositions, YarnScaling
from tdd.models.spec import Activation
from tdd.validate.checkpoints import check_choice, check_positive
from tdd.validate.configs import check_agrees
from tdd.validate.errors import InputError

__all__ = [
    "ROPE_KEYS",
    "WINDOW_KINDS",
    "activation_name",
    "activation_of",
    "layer_types",
    "layer_windows",
    "one_window",
    "rope_parameters",
    "rotary_positions",
]

ROPE_KEYS = frozenset({"partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta"})
"""Configuration keys about rotary positions, old and new."""

WINDOW_KINDS = ("sliding_attention", "full_attention")
"""Types of layers with and without a window, as most families call them."""

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

_ROPE_TYPES: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "dynamic": frozenset({"factor"}),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"}),
    "yarn": frozenset(
        {
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "factor",
            "finetuned",  # a note of the first checkpoints; nothing reads it
            "mscale",
            "mscale_all_dim",
            "original_max_position_embeddings",
            "truncate",
        }
    ),
}
"""Supported values of `rope_type`, each with the parameters that it has."""


def activation_of(key: str, config: Mapping[str, Any]) -> Activation:
    """The activation that a configuration names under `key`."""
    _check_mapped(key, config[key], _ACTIVATIONS)
    return _ACTIVATIONS[config[key]]


def activation_name(activation: Activation) -> str:
    """Its name in a configuration."""
    return next(name for name, ours in _ACTIVATIONS.items() if ours == activation)


def layer_windows(types: Sequence[str], num_layers: int, window: int | None, local: str, full: str) -> tuple:
    """One window a layer from the layers' types.

    Args:
      types: `local` or `full`, one a layer.
      num_layers: L.
      window: of the local layers.
      local: name of a layer with a window.
      full: name of a layer without.
    """
    _check_layer_types(types, num_layers, window, local, full)
    return tuple(window if kind == local else None for kind in types)


def layer_types(windows: Sequence[int | None], local: str, full: str) -> list[str]:
    """The inverse of `layer_windows`."""
    return [full if window is None else local for window in windows]


def one_window(windows: Sequence[int | None], default: int | None) -> int | None:
    """The window of those layers that have one."""
    return next((window for window in windows if window is not None), default)


def rotary_positions(config: Mapping[str, Any], *, head_dim: int, partial: bool = False) -> RotaryPositions:
    """Rotary positions from `rope_parameters`, with what stands of older keys beside it.

    "dynamic" changes nothing within the model's own context and is read as "default": longer sequences are refused.

    Args:
      config: configuration with its defaults filled in.
      head_dim: width of a head.
      partial: whether the family reads `partial_rotary_factor`; elsewhere it must be 1.

    Raises:
      InputError: a `rope_type` that is not supported, parameters that it has not, or old keys that contradict.
    """
    parameters = config["rope_parameters"] or {}
    _check_rope(config, parameters, _ROPE_TYPES, partial=partial)
    theta, share = parameters["rope_theta"], parameters.get("partial_rotary_factor")
    check_positive(rope_theta=theta)
    return RotaryPositions(
        config["max_position_embeddings"],
        head_dim if share is None else int(head_dim * share),
        float(theta),
        _scaling(parameters, config["max_position_embeddings"]),
    )


def rope_parameters(positions: RotaryPositions, head_dim: int | None = None) -> dict[str, Any]:
    """The inverse of `rotary_positions`; with `head_dim`, the share of each head that turns is written too."""
    written: dict[str, Any] = {"rope_theta": positions.theta}
    if head_dim is not None:
        share = positions.dim / head_dim
        if int(head_dim * share) < positions.dim:  # the product is rounded down by a hair, and then cut
            share = math.nextafter(share, 1.0)
        written["partial_rotary_factor"] = share
    scaling = positions.scaling
    if scaling is None:
        return {**written, "rope_type": "default"}
    written["factor"] = scaling.factor
    if isinstance(scaling, LinearScaling):
        return {**written, "rope_type": "linear"}
    written["original_max_position_embeddings"] = scaling.original_length
    if isinstance(scaling, Llama3Scaling):
        return {
            **written,
            "rope_type": "llama3",
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
        }
    return {
        **written,
        "rope_type": "yarn",
        "attention_factor": scaling.amplitude,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.truncate,
    }


def _scaling(parameters: Mapping[str, Any], max_length: int) -> LinearScaling | Llama3Scaling | YarnScaling | None:
    kind = parameters["rope_type"]
    if kind in ("default", "dynamic"):
        return None
    if kind == "linear":
        return LinearScaling(float(parameters["factor"]))
    original = parameters["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
        return Llama3Scaling(float(parameters["factor"]), float(low), float(high), original)
    factor = parameters["factor"]
    if factor is None:
        factor = max_length / original
    amplitude = parameters.get("attention_factor")
    if amplitude is None:
        amplitude = _yarn_amplitude(factor, parameters.get("mscale"), parameters.get("mscale_all_dim"))
    return YarnScaling(
        float(factor),
        original,
        float(parameters.get("beta_fast") or 32),
        float(parameters.get("beta_slow") or 1),
        float(amplitude),
        bool(parameters.get("truncate", True)),
    )


def _yarn_amplitude(factor: float, top: float | None, bottom: float | None) -> float:
    """YaRN's factor on rotated queries and keys (Peng et al. 2023, eq. 22), or a ratio of two such factors."""

    def amplitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    return amplitude(top) / amplitude(bottom) if top and bottom else amplitude(1.0)


def _check_mapped(name: str, value: Any, choices: Mapping[str, Any]) -> None:
    """`value` is a key of `choices`."""
    check_choice(name, value, tuple(choices))


_ROPE_COMMON = frozenset({"partial_rotary_factor", "rope_theta", "rope_type", "type"})

_ROPE_OLD_KEYS = (
    ("rope_theta", "rope_theta"),
    ("rotary_emb_base", "rope_theta"),
    ("partial_rotary_factor", "partial_rotary_factor"),
    ("rotary_pct", "partial_rotary_factor"),
)


def _check_layer_types(types: Any, num_layers: int, window: int | None, local: str, full: str) -> None:
    """One known type a layer, and a window where any layer needs one."""
    if not isinstance(types, Sequence) or isinstance(types, str) or len(types) != num_layers:
        raise InputError(f"the configuration must name one type of attention a layer ({num_layers}), got {types!r}")
    unknown = sorted({str(kind) for kind in types} - {local, full})
    if unknown:
        raise InputError(f"attention of type {', '.join(unknown)} is not supported; supported: {full}, {local}")
    if window is None and local in types:
        raise InputError(f"the configuration has layers of type {local}, but no window for them; set sliding_window")


def _check_rope(
    config: Mapping[str, Any], parameters: Any, supported: Mapping[str, frozenset[str]], *, partial: bool
) -> None:
    """Parameters of rotary positions are of a supported type, complete, and without any that would be ignored.

    Args:
      config: the configuration.
      parameters: its `rope_parameters`.
      supported: type -> the parameters of its own.
      partial: whether a share below 1 of each head may turn.
    """
    if not isinstance(parameters, Mapping) or "rope_theta" not in parameters:
        raise InputError(f"rope_parameters must be an object with rope_theta, got {parameters!r}")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in supported:
        raise InputError(f"rotary positions of rope_type={kind!r} are not supported; supported: {', '.join(supported)}")
    check_agrees(parameters, "type", kind, "rope_type")
    missing = sorted(supported[kind] & {"factor", "high_freq_factor", "low_freq_factor"} - parameters.keys())
    if missing:
        raise InputError(f"rope_parameters of rope_type={kind!r} lack {', '.join(missing)}")
    unknown = sorted(set(parameters) - supported[kind] - _ROPE_COMMON)
    if unknown:
        raise InputError(
            f"rope_parameters have unknown keys {', '.join(unknown)} for rope_type={kind!r}: whether they change the "
            "computation cannot be told; remove them if they do not"
        )
    for old, new in _ROPE_OLD_KEYS:
        check_agrees(config, old, parameters.get(new), f"rope_parameters.{new}")
    if kind == "llama3" and not parameters["high_freq_factor"] > parameters["low_freq_factor"]:
        raise InputError(
            f"high_freq_factor={parameters['high_freq_factor']} must exceed "
            f"low_freq_factor={parameters['low_freq_factor']}"
        )
    share = parameters.get("partial_rotary_factor")
    if not partial and share not in (None, 1.0):
        raise InputError(f"partial_rotary_factor={share} is not supported in this family; supported: 1.0")
    if share is not None and not 0 < share <= 1:
        raise InputError(f"partial_rotary_factor must lie in (0, 1], got {share!r}")
