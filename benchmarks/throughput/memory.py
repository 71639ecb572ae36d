"""Memory of a process, of a compiled program, and of a device."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

import jax

__all__ = ["peak_bytes", "peak_during", "program_bytes", "resident_bytes"]


def resident_bytes() -> int:
    """Resident memory of this process now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak_bytes() -> int:
    """Largest resident memory of this process so far, or since `peak_during` last reset it."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def peak_during(call: Callable[[], Any]) -> int | None:
    """Bytes by which the resident memory rose at most during one call; None where the peak cannot be reset.

    Pages that the process holds free already are used first, so that this is at most what the call allocates: it
    says most about a first call.
    """
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        jax.block_until_ready(call())
        return None
    before = resident_bytes()
    jax.block_until_ready(call())
    return max(0, peak_bytes() - before)


def program_bytes(compiled: Any) -> dict[str, int]:
    """Arguments, outputs and temporaries of a compiled program; empty where the backend does not say."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return {}
    return {
        "argument_bytes": int(analysis.argument_size_in_bytes),
        "output_bytes": int(analysis.output_size_in_bytes),
        "temporary_bytes": int(analysis.temp_size_in_bytes),
    }
