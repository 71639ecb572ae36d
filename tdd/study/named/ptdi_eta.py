"""PTDI over the size of the region of presumed non-members: few scores in it make the estimate noisy."""

from __future__ import annotations

from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

REGIONS = (0.01, 0.05, 0.1, 0.5)


def _run(options: Options) -> StudyResult:
    return pools.over_cells(
        [{"eta": eta} for eta in REGIONS],
        options,
        lambda options, eta: pools.resampled(options, methods=("subtraction",), eta=eta),
    )


STUDY = NamedStudy(
    name="ptdi-eta",
    title="PTDI (scaled) on random half splits of a pool, by the region η of presumed non-members",
    design=lambda options: f"Half splits of {pools.pool_design(options)}",
    run=_run,
    figure=Figure("levels", series="eta", labels=pools.METHOD_LABELS | {"eta": "η"}),
    promise=pools.promise,
    repetitions=200_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
)
