"""What an engine may take of a device: how much memory it has, and whether it is wide. Imports no JAX."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

__all__ = ["DeviceKind", "kind_of"]

_GIB = 2**30
_MEMORY = {
    "TPU v4": 32,
    "TPU v5 lite": 16,
    "TPU v5": 95,
    "TPU v6 lite": 32,
    "TPU7x": 96,
    "NVIDIA A100": 37,
    "NVIDIA A100-SXM4-80GB": 74,
    "NVIDIA H100": 74,
    "NVIDIA H200": 131,
}
"""GiB by the beginning of `device_kind`, the longest that fits, for devices that a program is only compiled for."""
_UNKNOWN = 16


@dataclasses.dataclass(frozen=True)
class DeviceKind:
    """One kind of device.

    Attributes:
      platform: "cpu", "gpu" or "tpu".
      memory: bytes that JAX may use on it; of a CPU, which shares the host's, None.
    """

    platform: str
    memory: int | None

    @property
    def wide(self) -> bool:
        """True for an accelerator: many numbers at once, and a launch for every step of a loop."""
        return self.platform != "cpu"

    def room(self, host: int) -> int:
        """Bytes that the tables of one engine may take: a quarter of an accelerator's memory, `host` on a CPU."""
        return host if self.memory is None else self.memory // 4


def kind_of(device: Any) -> DeviceKind:
    """The kind of a `jax.Device`, or of one that a program is compiled for without having it."""
    if device.platform == "cpu":
        return DeviceKind("cpu", None)
    found: Any = None
    with contextlib.suppress(Exception):  # what is only compiled for has no statistics
        found = device.memory_stats()
    named = max((name for name in _MEMORY if device.device_kind.startswith(name)), key=len, default="")
    limit = (found or {}).get("bytes_limit") or _MEMORY.get(named, _UNKNOWN) * _GIB
    return DeviceKind(device.platform, int(limit))
