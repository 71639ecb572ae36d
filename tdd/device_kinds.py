"""What an engine may take of a device: how much memory it has, and whether it is wide. Imports no JAX at first."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any

from tdd.validate import InputError

_GIB = 2**30
_UNKNOWN = 16 * _GIB


@dataclasses.dataclass(frozen=True)
class DeviceKind:
    """One kind of device."""

    platform: str  # "cpu", "gpu" or "tpu"
    memory: int | None  # bytes that programs may use on it; of a CPU, which shares the host's, None
    # bfloat16 flop a second of matrix products, as its maker states it; None if it is not known
    peak: float | None = None
    bandwidth: float | None = None  # bytes of its memory a second, as its maker states it; None if it is not known
    title: str = ""  # what `jax.Device.device_kind` begins with, of a kind that is known by name

    @property
    def wide(self) -> bool:
        """True for an accelerator: many numbers at once, and a launch for every step of a loop."""
        return self.platform != "cpu"

    def room(self, host: int) -> int:
        """Bytes that the tables of one engine may take: a quarter of an accelerator's memory, `host` on a CPU."""
        return host if self.memory is None else self.memory // 4


KINDS = {
    "v4": DeviceKind("tpu", 32 * _GIB, 275e12, 1.2e12, "TPU v4"),
    "v5e": DeviceKind("tpu", 16 * _GIB, 197e12, 0.819e12, "TPU v5 lite"),
    "v5p": DeviceKind("tpu", 95 * _GIB, 459e12, 2.765e12, "TPU v5"),
    "v6e": DeviceKind("tpu", 32 * _GIB, 918e12, 1.64e12, "TPU v6 lite"),
    "tpu7x": DeviceKind("tpu", 96 * _GIB, 1154e12, 3.69e12, "TPU7x"),  # one of a chip's two cores
    "a100-40gb": DeviceKind("gpu", 37 * _GIB, 312e12, 1.555e12, "NVIDIA A100"),
    "a100": DeviceKind("gpu", 74 * _GIB, 312e12, 2.039e12, "NVIDIA A100-SXM4-80GB"),
    "h100": DeviceKind("gpu", 74 * _GIB, 989e12, 3.35e12, "NVIDIA H100"),
    "h200": DeviceKind("gpu", 131 * _GIB, 989e12, 4.8e12, "NVIDIA H200"),
}
"""Kinds that a program can be planned or compiled for without having one."""


def kind_of(device: Any) -> DeviceKind:
    """The kind of a `jax.Device`, or of one that a program is compiled for without having it."""
    if device.platform == "cpu":
        return DeviceKind("cpu", None)
    found: Any = None
    with contextlib.suppress(Exception):  # what is only compiled for has no statistics
        found = device.memory_stats()
    titled = [kind for kind in KINDS.values() if device.device_kind.startswith(kind.title)]
    known = max(titled, key=lambda kind: len(kind.title), default=DeviceKind(device.platform, _UNKNOWN))
    limit = (found or {}).get("bytes_limit") or known.memory or _UNKNOWN
    return dataclasses.replace(known, platform=device.platform, memory=int(limit))


def named_kind(text: str) -> DeviceKind:
    """The kind of a name in `KINDS`, or an unknown accelerator with a number of bytes: "24GB", "16GiB", "8e9".

    Raises:
      InputError: Neither a name nor a size.
    """
    name = text.strip().lower()
    if name in KINDS:
        return KINDS[name]
    size = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)\s*(gb|gib)?", name)
    number = float(size.group(1)) * {None: 1, "gb": 10**9, "gib": _GIB}[size.group(2)] if size else 0.0
    if not 2**20 <= number < 2**60:
        raise InputError(f"device={text!r} is neither one of {', '.join(KINDS)} nor a size such as 24GB or 16GiB")
    return DeviceKind("gpu", int(number))


def default_platform() -> str:
    """The platform on which JAX makes new arrays in this place: "cpu", "gpu" or "tpu"."""
    import jax.numpy as jnp

    return next(iter(jnp.zeros(()).devices())).platform
