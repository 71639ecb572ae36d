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
    from tdd.probe.adapters import levanter_hook, logged, periodic_action, tunix_hooks, write_scalars
    from tdd.probe.benchmark import contamination
    from tdd.probe.evidence import Evidence, ProbeState
    from tdd.probe.gradients import example_grad_norms, gradient_norm, quantiles, record_grad_norms
    from tdd.probe.leak import Leak
    from tdd.probe.order import OrderGuard
    from tdd.probe.probe import Probe
    from tdd.probe.record import ProbeRecord
    from tdd.probe.result import ProbeResult
    from tdd.probe.stream import StreamGuard

__all__ = [
    "Evidence",
    "Leak",
    "OrderGuard",
    "Probe",
    "ProbeRecord",
    "ProbeResult",
    "ProbeState",
    "StreamGuard",
    "contamination",
    "example_grad_norms",
    "gradient_norm",
    "levanter_hook",
    "logged",
    "periodic_action",
    "quantiles",
    "record_grad_norms",
    "tunix_hooks",
    "write_scalars",
]

_HOMES = {
    "adapters": ("levanter_hook", "logged", "periodic_action", "tunix_hooks", "write_scalars"),
    "benchmark": ("contamination",),
    "evidence": ("Evidence", "ProbeState"),
    "gradients": ("example_grad_norms", "gradient_norm", "quantiles", "record_grad_norms"),
    "leak": ("Leak",),
    "order": ("OrderGuard",),
    "probe": ("Probe",),
    "record": ("ProbeRecord",),
    "result": ("ProbeResult",),
    "stream": ("StreamGuard",),
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
