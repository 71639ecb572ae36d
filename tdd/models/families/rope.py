"""Rotary positions in a configuration: read, checked and written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from tdd.models.rotary import LinearScaling, Llama3Scaling, LongScaling, RotaryPositions, YarnScaling
from tdd.models.spec import DecoderSpec
from tdd.validate import InputError
from tdd.validate.files import check_positive

ROPE_KEYS = frozenset({"partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta"})
"""Configuration keys about rotary positions, old and new."""

_ORIGINAL = "original_max_position_embeddings"

_TYPES = ("sliding_attention", "full_attention")
"""Types of layers, where each has rotary positions of its own."""

_PARAMETERS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "dynamic": frozenset({"factor"}),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "high_freq_factor", "low_freq_factor", _ORIGINAL}),
    "longrope": frozenset({"attention_factor", "factor", "long_factor", _ORIGINAL, "short_factor"}),
    "yarn": frozenset({"attention_factor", "beta_fast", "beta_slow", "factor", _ORIGINAL, "truncate"})
    | {"mscale", "mscale_all_dim"}
    | {"finetuned"},  # a note in the first checkpoints; nothing reads it
}
"""Supported values of `rope_type`, with the parameters of each."""

_COMMON_PARAMETERS = frozenset({"partial_rotary_factor", "rope_theta", "rope_type", "type"})

_OLD_KEYS = (
    ("rope_theta", "rope_theta"),
    ("rotary_emb_base", "rope_theta"),
    ("partial_rotary_factor", "partial_rotary_factor"),
    ("rotary_pct", "partial_rotary_factor"),
)


def rotary_positions(
    config: Mapping[str, Any], *, head_dim: int, partial: bool = False, interleaved: bool = False
) -> RotaryPositions:
    """Read rotary positions from `rope_parameters` and the older keys beside it.

    "dynamic" is read as "default": it changes nothing within the model's own context, and longer sequences are refused.
    "longrope" is read with the factors of the original context, which is then the longest sequence (`LongScaling`).

    Args:
      config: Configuration with its defaults filled in.
      head_dim: Width of a head.
      partial: True if the family reads `partial_rotary_factor`; otherwise it must be 1.
      interleaved: True if the family turns pairs of neighbouring coordinates.

    Raises:
      InputError: Unsupported `rope_type`, parameters that it does not have, or old keys that contradict it.
    """
    parameters = config["rope_parameters"] or {}
    _check_parameters(config, parameters, partial=partial)
    fraction = parameters.get("partial_rotary_factor")
    check_positive(rope_theta=parameters["rope_theta"])
    scaling = _scaling(parameters, config["max_position_embeddings"])
    return RotaryPositions(
        scaling.original_length if isinstance(scaling, LongScaling) else config["max_position_embeddings"],
        head_dim if fraction is None else int(head_dim * fraction),
        float(parameters["rope_theta"]),
        scaling,
        interleaved,
    )


def rope_parameters(positions: RotaryPositions, head_dim: int | None = None) -> dict[str, Any]:
    """The inverse of `rotary_positions`; with `head_dim`, the rotated fraction of each head is written too."""
    written: dict[str, Any] = {"rope_theta": positions.theta}
    if head_dim is not None:
        fraction = positions.dim / head_dim
        if int(head_dim * fraction) < positions.dim:  # rounding of the product cut one coordinate
            fraction = math.nextafter(fraction, 1.0)
        written["partial_rotary_factor"] = fraction
    scaling = positions.scaling
    if scaling is None:
        return {**written, "rope_type": "default"}
    if isinstance(scaling, LongScaling):
        factors = {"short_factor": [*scaling.short], "long_factor": [*scaling.long]}
        lengths = {_ORIGINAL: scaling.original_length, "attention_factor": scaling.amplitude}
        return {**written, "rope_type": "longrope", **factors, **lengths}
    written["factor"] = scaling.factor
    if isinstance(scaling, LinearScaling):
        return {**written, "rope_type": "linear"}
    written["original_max_position_embeddings"] = scaling.original_length
    if isinstance(scaling, Llama3Scaling):
        frequencies = {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
        return {**written, "rope_type": "llama3", **frequencies}
    return {
        **written,
        "rope_type": "yarn",
        "attention_factor": scaling.amplitude,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.truncate,
    }


def with_rotary_by_type(
    config: Mapping[str, Any], head_dim: int, spec_of: Callable[[Mapping[str, Any]], DecoderSpec]
) -> DecoderSpec:
    """A spec with rotary positions of their own in layers with and without a window.

    `spec_of` makes it of the configuration with the positions of the layers without. The older keys describe those too,
    but for `rope_local_base_freq`.
    """
    given = config["rope_parameters"]
    if not isinstance(given, Mapping) or set(given) != set(_TYPES):
        raise InputError(f"rope_parameters must have an entry for each of {', '.join(_TYPES)}, got {given!r}")
    local, full = _TYPES
    plain = {key: value for key, value in config.items() if key not in ("rope_theta", "rope_scaling")}
    check_agrees(config, "rope_local_base_freq", (given[local] or {}).get("rope_theta"), f"rope_parameters.{local}")
    near = rotary_positions({**plain, "rope_parameters": given[local]}, head_dim=head_dim)
    spec = spec_of({**config, "rope_parameters": given[full]})
    by_layer = tuple(spec.positions if window is None else near for window in spec.attention.windows)
    return dataclasses.replace(spec, layer_positions=by_layer)


def rope_by_type(spec: DecoderSpec) -> dict[str, Any]:
    """The inverse of `with_rotary_by_type`, for a spec whose layers have it."""
    assert isinstance(spec.positions, RotaryPositions)
    kinds = zip(spec.layer_positions, spec.attention.windows, strict=False)
    local = next((kind for kind, window in kinds if kind is not None and window is not None), spec.positions)
    return dict(zip(_TYPES, map(rope_parameters, (local, spec.positions)), strict=True))


def check_agrees(config: Mapping[str, Any], key: str, value: Any, other: str) -> None:
    """An optional key has the same value as another one."""
    if config.get(key) is not None and config[key] != value:
        raise InputError(f"the configuration has {key}={config[key]!r}, but {other}={value!r}; remove the wrong one")


def _scaling(
    parameters: Mapping[str, Any], max_length: int
) -> LinearScaling | Llama3Scaling | LongScaling | YarnScaling | None:
    kind = parameters["rope_type"]
    if kind in ("default", "dynamic"):
        return None
    if kind == "linear":
        return LinearScaling(float(parameters["factor"]))
    original = parameters[_ORIGINAL]
    if kind == "longrope":
        short, long = (tuple(map(float, parameters[key])) for key in ("short_factor", "long_factor"))
        factor = parameters.get("factor") or max_length / original
        amplitude = parameters.get("attention_factor")
        if amplitude is None:
            amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return LongScaling(short, long, original, max_length, float(amplitude))
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


def _check_parameters(config: Mapping[str, Any], parameters: Any, *, partial: bool) -> None:
    """The parameters belong to a supported type, are complete, and none of them would be ignored."""
    if not isinstance(parameters, Mapping) or "rope_theta" not in parameters:
        raise InputError(f"rope_parameters must be an object with rope_theta, got {parameters!r}")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in _PARAMETERS:
        raise InputError(
            f"rotary positions of rope_type={kind!r} are not supported; supported: {', '.join(_PARAMETERS)}"
        )
    check_agrees(parameters, "type", kind, "rope_type")
    needed = {"high_freq_factor", "long_factor", "low_freq_factor", "short_factor"}
    needed |= set() if kind == "longrope" else {"factor"}
    missing = sorted(_PARAMETERS[kind] & needed - parameters.keys())
    if missing:
        raise InputError(f"rope_parameters of rope_type={kind!r} lack {', '.join(missing)}")
    unknown = sorted(set(parameters) - _PARAMETERS[kind] - _COMMON_PARAMETERS)
    if unknown:
        raise InputError(
            f"rope_parameters have unknown keys {', '.join(unknown)} for rope_type={kind!r}: whether they change the "
            "computation cannot be told; remove them if they do not"
        )
    given = {"partial_rotary_factor": 1.0, **parameters}
    for old, new in _OLD_KEYS:
        check_agrees(config, old, given[new], f"rope_parameters.{new}")
    if kind == "llama3" and not parameters["high_freq_factor"] > parameters["low_freq_factor"]:
        raise InputError(
            f"high_freq_factor={parameters['high_freq_factor']} must exceed "
            f"low_freq_factor={parameters['low_freq_factor']}"
        )
    fraction = parameters.get("partial_rotary_factor")
    if not partial and fraction not in (None, 1.0):
        raise InputError(f"partial_rotary_factor={fraction} is not supported in this family; supported: 1.0")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"partial_rotary_factor must lie in (0, 1], got {fraction!r}")
