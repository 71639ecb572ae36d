"""PTDI by the estimate of the share of members: none, subtraction, Storey's, the adjusted moments."""

from __future__ import annotations

from tdd.study.designs import Pool
from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

METHODS = ("ptdi/none", "ptdi/subtraction", "ptdi/storey", "ptdi/moment")


def _run(options: Options) -> StudyResult:
    scores, is_member = pools.pool(options)
    return run(Pool(scores, is_member), METHODS, **pools.run_options(options))


STUDY = NamedStudy(
    name="ptdi-estimators",
    title="PTDI on random half splits of a pool, by the estimate of the share of members",
    design=lambda options: (
        f"Half splits of {pools.pool_design(options)}; the members of the calibration half serve the moment estimate"
    ),
    run=_run,
    figure=Figure("levels", labels={f"ptdi/{name}": label for name, label in pools.METHOD_LABELS.items()}),
    promise=pools.promise,
    repetitions=5_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
)
