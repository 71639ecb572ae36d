"""Monte Carlo studies of what the procedures promise.

    import tdd
    result = tdd.study.run(tdd.study.NormalShift(signal=2.0), ["ptdi/storey"], alphas=[0.1], repetitions=10_000)

`run` takes any design and any method; `resample` is the faster engine for one labelled pool,
`resample_joint` and `fresh_joint` are those for joint selections. With a folder and `shard=(i, n)`
each runs a part of the repetitions; without `shard` it joins the parts. The names below are loaded
on first use: importing this package imports no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdd.study.designs import (
        CorrelatedDetectors,
        JointLabels,
        Mixture,
        NormalShift,
        PairedScores,
        Pool,
        SkewedShards,
    )
    from tdd.study.joint_fresh import fresh_joint
    from tdd.study.joint_pool import resample_joint
    from tdd.study.methods import NAMES, StudyMethod, method
    from tdd.study.pool import resample
    from tdd.study.results import QUANTILES, StudyResult
    from tdd.study.runner import run
    from tdd.study.sample import Design, Sample

__all__ = [
    "NAMES",
    "QUANTILES",
    "CorrelatedDetectors",
    "Design",
    "JointLabels",
    "Mixture",
    "NormalShift",
    "PairedScores",
    "Pool",
    "Sample",
    "SkewedShards",
    "StudyMethod",
    "StudyResult",
    "fresh_joint",
    "method",
    "resample",
    "resample_joint",
    "run",
]

_HOMES = {
    "designs": (
        "CorrelatedDetectors",
        "JointLabels",
        "Mixture",
        "NormalShift",
        "PairedScores",
        "Pool",
        "SkewedShards",
    ),
    "joint_fresh": ("fresh_joint",),
    "joint_pool": ("resample_joint",),
    "methods": ("NAMES", "StudyMethod", "method"),
    "pool": ("resample",),
    "results": ("QUANTILES", "StudyResult"),
    "runner": ("run",),
    "sample": ("Design", "Sample"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, once."""
    if name not in _HOME:
        raise AttributeError(f"module 'tdd.study' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"tdd.study.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
