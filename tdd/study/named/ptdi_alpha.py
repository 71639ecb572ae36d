"""PTDI at every level on random half splits of one pool: vanilla and scaled p-values."""

from __future__ import annotations

from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]


def _run(options: Options) -> StudyResult:
    return pools.resampled(options)


STUDY = NamedStudy(
    name="ptdi-alpha",
    title="PTDI on random half splits of a pool, by the level",
    design=lambda options: f"Half splits of {pools.pool_design(options)}",
    run=_run,
    figure=Figure("levels", labels=pools.METHOD_LABELS),
    promise=pools.promise,
    repetitions=1_000_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
    example=pools.split_example,
)
