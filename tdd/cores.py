"""The cores of this machine: how many this process may use, and JAX devices on each of them. Imports no JAX."""

from __future__ import annotations

import os
import sys

__all__ = ["available_cores", "set_host_device_count"]

_FLAG = "xla_force_host_platform_device_count"


def available_cores() -> int:
    """Cores that the process may run on: fewer than the machine has where an affinity mask is set."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_host_device_count(devices: int | None = None) -> bool:
    """Have the CPU appear as several devices, by default one a core; accelerators are not affected.

    Returns:
      Whether the setting was made: not after JAX has been loaded, nor if XLA_FLAGS already gives a number.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "jax" in sys.modules or _FLAG in flags:
        return False
    os.environ["XLA_FLAGS"] = f"{flags} --{_FLAG}={available_cores() if devices is None else devices}".strip()
    return True
