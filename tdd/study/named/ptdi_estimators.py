"""PTDI by the estimate of the share of members: none, subtraction, Storey's, the adjusted moments."""

from __future__ import annotations

from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

METHODS = ("none", "subtraction", "storey", "moment")


def _run(options: Options) -> StudyResult:
    return pools.resampled(options, methods=METHODS)


STUDY = NamedStudy(
    name="ptdi-estimators",
    title="PTDI on random half splits of a pool, by the estimate of the share of members",
    design=lambda options: (
        f"Half splits of {pools.pool_design(options)}; the members of the calibration half serve the moment estimate"
    ),
    run=_run,
    figure=Figure("levels", labels=pools.METHOD_LABELS),
    promise=pools.promise,
    repetitions=200_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
)
