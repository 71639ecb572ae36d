"""What must be set before JAX starts for studies to use every core: host devices. Imports no JAX."""

from __future__ import annotations

import os
import sys

from tdd.cores import available_cores

__all__ = ["prepare"]

_FLAG = "xla_force_host_platform_device_count"


def prepare(devices: int | None = None) -> bool:
    """Have the CPU appear as one device a core, which repetitions are shared out over.

    Args:
      devices: how many; by default as many as this process may use cores.

    Returns:
      Whether the setting was made: not where JAX is loaded already, or where XLA_FLAGS says how many. Accelerators are
      not affected.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "jax" in sys.modules or _FLAG in flags:
        return False
    os.environ["XLA_FLAGS"] = f"{flags} --{_FLAG}={available_cores() if devices is None else devices}".strip()
    return True
