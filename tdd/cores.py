"""Settings of the process, before JAX starts: cores, devices on them, freed memory that stays. Imports no JAX."""

from __future__ import annotations

import ctypes
import os
import sys

_COUNT = "JAX_NUM_CPU_DEVICES"
_FLAG = "xla_force_host_platform_device_count"  # the same, said to XLA


def available_cores() -> int:
    """Cores that the process may run on: fewer than the machine has where an affinity mask is set."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_host_device_count(devices: int | None = None) -> bool:
    """Have the CPU appear as several devices, by default one a core; accelerators are not affected.

    Returns:
      Whether the setting was made: not after JAX has been loaded, nor if JAX_NUM_CPU_DEVICES or XLA_FLAGS already
      gives a number.
    """
    if "jax" in sys.modules or _COUNT in os.environ or _FLAG in os.environ.get("XLA_FLAGS", ""):
        return False
    os.environ[_COUNT] = str(available_cores() if devices is None else devices)
    return True


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8  # malloc.h of glibc
_LARGEST = 2**31 - 1
_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Tell glibc's allocator to give no freed memory back, and to take all of it from one arena.

    On CPU, XLA allocates the temporary memory of a program at each call and frees it at the end; glibc returns large
    pieces to the system at once, and the system hands out, and clears, every page again at the next step: 262,144
    pages of 4 KiB for each GiB. Numbers do not change.

    A setting of the whole process, for programs, not for libraries: the commands call it before JAX starts its
    threads. The process then keeps its largest amount of memory until it ends. The user's own settings
    (MALLOC_ARENA_MAX, MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES) win.

    Returns:
      Whether it was set: False on other systems, with other allocators, and where the user has settings.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # no glibc
        return False
    # glibc before 2.35 refuses thresholds above 32 MiB, but not that no piece at all is mapped by itself
    if mallopt(_MMAP_THRESHOLD, _LARGEST) != 1 and mallopt(_MMAP_MAX, 0) != 1:
        return False
    accepted = [mallopt(parameter, value) == 1 for parameter, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _LARGEST))]
    return all(accepted)
