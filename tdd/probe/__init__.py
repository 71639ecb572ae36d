"""The same statistics inside somebody else's training loop.

    probe = tdd.Probe(lm, suspect=benchmark, reference=fresh, tokenizer=tokenizer, every=500, num_steps=10_000)
    for step in range(10_000):
        params, ... = train_step(params, ...)
        record = probe(step, params)

The names below are loaded on first use: importing this package imports no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdd.probe.probe import Probe
    from tdd.probe.record import ProbeRecord
    from tdd.probe.result import ProbeResult

__all__ = ["Probe", "ProbeRecord", "ProbeResult"]

_HOMES = {
    "probe": ("Probe",),
    "record": ("ProbeRecord",),
    "result": ("ProbeResult",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, once."""
    if name not in _HOME:
        raise AttributeError(f"module 'tdd.probe' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"tdd.probe.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
