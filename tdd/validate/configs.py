"""Checks of what a model's configuration says about its layers and positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_agrees", "check_layer_counts", "check_layer_types", "check_rope"]

_LAYER_COUNTS = ("n_layer", "num_layers", "num_hidden_layers", "attention_types")

_ROPE_COMMON = frozenset({"partial_rotary_factor", "rope_theta", "rope_type", "type"})
_ROPE_OLD_KEYS = (
    ("rope_theta", "rope_theta"),
    ("rotary_emb_base", "rope_theta"),
    ("partial_rotary_factor", "partial_rotary_factor"),
    ("rotary_pct", "partial_rotary_factor"),
)


def check_agrees(config: Mapping[str, Any], key: str, value: Any, other: str) -> None:
    """A key that may be there says the same as another one."""
    if config.get(key) is not None and config[key] != value:
        raise InputError(f"the configuration has {key}={config[key]!r}, but {other}={value!r}; remove the wrong one")


def check_layer_counts(config: Mapping[str, Any], num_tensors: int, where: str) -> None:
    """No more layers than there are tensors, before a list as long as the layers is made."""
    for key in _LAYER_COUNTS:
        for number in _numbers(config.get(key)):
            if number > num_tensors:
                raise InputError(
                    f"{where} has {key}={config[key]!r}, but the files beside it hold {num_tensors} tensors, fewer "
                    "than layers: they do not belong together"
                )


def _numbers(value: Any) -> Iterator[int | float]:
    """The numbers in nested lists."""
    if isinstance(value, list):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, (int, float)):
        yield value


def check_layer_types(types: Any, num_layers: int, window: int | None, local: str, full: str) -> None:
    """One known type a layer, and a window where any layer needs one."""
    if not isinstance(types, Sequence) or isinstance(types, str) or len(types) != num_layers:
        raise InputError(f"the configuration must name one type of attention a layer ({num_layers}), got {types!r}")
    unknown = sorted({str(kind) for kind in types} - {local, full})
    if unknown:
        raise InputError(f"attention of type {', '.join(unknown)} is not supported; supported: {full}, {local}")
    if window is None and local in types:
        raise InputError(f"the configuration has layers of type {local}, but no window for them; set sliding_window")


def check_rope(
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
