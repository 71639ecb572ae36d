"""PTDI's studies on random splits of one pool of scores."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.ptdi import ptdi
from tdd.study.designs import Pool
from tdd.study.monte_carlo import simulate
from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDIES"]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5)
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
ESTIMATES = ("subtraction", "storey", "moment")


def _half_splits(options: Options) -> str:
    return f"Half splits of {pools.pool_design(options)}"


def _splits(options: Options) -> str:
    return f"Splits of {pools.pool_design(options)}"


def _over(field: str, values: Sequence[float], **fixed: Any) -> Callable[[Options], StudyResult]:
    """A cell for each value of an argument of `pools.resampled`."""
    one = functools.partial(pools.resampled, **fixed)
    return lambda options: pools.over_cells([{field: value} for value in values], options, one)


def _with_errors(options: Options, test_members: float) -> StudyResult:
    result = pools.resampled(options, methods=ESTIMATES, test_members=test_members)
    if options.shard is not None:
        return result  # the measures belong to the whole result
    design = Pool(*pools.pool(options), test_members=test_members)
    errors = simulate(_errors(design), seed=options.seed, repetitions=int(result.repetitions), batch=256)
    measured = pools.means({"bias": np.stack(errors, axis=-1), "mse": np.stack(errors, axis=-1) ** 2})
    shape = result.fdr.shape
    everywhere = {name: np.broadcast_to(value[:, None], shape) for name, value in measured.items()}
    return dataclasses.replace(result, measures=everywhere)


def _errors(design: Pool) -> Callable[[jax.Array], list[jax.Array]]:
    """Estimated less true share of members of one split, for each estimate; no level enters."""

    def one(key: jax.Array) -> list[jax.Array]:
        sample = design.draw(key)
        known: dict[str, Any] = {"moment": {"members": sample.extra["members"]}}
        found = (
            ptdi(sample.calibration, sample.scores, alpha=0.1, proportion=name, **known.get(name, {}))
            for name in ESTIMATES
        )
        return [each.proportion - jnp.mean(sample.target) for each in found]

    return one


_study = functools.partial(NamedStudy, promise=pools.promise, repetitions=200_000, alphas=LEVELS)

STUDIES = (
    _study(
        name="ptdi-alpha",
        title="PTDI on random half splits of a pool, by the level",
        design=_half_splits,
        run=pools.resampled,
        figure=Figure("levels", labels=pools.METHOD_LABELS),
        repetitions=1_000_000,
        example=pools.split_example,
    ),
    _study(
        name="ptdi-pi",
        title="PTDI on random splits of a pool, by the share π of members among the candidates",
        design=_splits,
        run=_over("test_members", SHARES),
        figure=Figure(
            "levels", series="test_members", panels="method", labels=pools.METHOD_LABELS | {"test_members": "π"}
        ),
    ),
    _study(
        name="ptdi-rho",
        title="PTDI (scaled) on random splits of a pool, by the ratio ρ of calibration items to candidates",
        design=_splits,
        run=_over("calibration_ratio", (0.1, 0.5, 1.0)),
        figure=Figure(
            "bands", series="", panels="calibration_ratio", labels=pools.METHOD_LABELS | {"calibration_ratio": "ρ"}
        ),
    ),
    _study(
        name="ptdi-eta",
        title="PTDI (scaled) on random half splits of a pool, by the region η of presumed non-members",
        design=_half_splits,
        run=_over("eta", (0.01, 0.05, 0.1, 0.5), methods=("subtraction",)),
        figure=Figure("levels", series="eta", labels=pools.METHOD_LABELS | {"eta": "η"}),
    ),
    _study(
        name="ptdi-estimators",
        title="PTDI on random half splits of a pool, by the estimate of the share of members",
        design=lambda options: (
            f"{_half_splits(options)}; the members of the calibration half serve the moment estimate"
        ),
        run=functools.partial(pools.resampled, methods=("none", *ESTIMATES)),
        figure=Figure("levels", labels=pools.METHOD_LABELS),
    ),
    _study(
        name="ptdi-bias",
        title="Estimates of the share π of members: bias and mean squared error",
        design=lambda options: (
            f"{_splits(options)}; members that are not tested serve the moment estimate, 0 where "
            "tdd.ptdi does not trust it; the others are not cut at 0. Bias: the mean of the estimated less the true "
            "share, negative where it is conservative"
        ),
        run=lambda options: pools.over_cells([{"test_members": share} for share in SHARES], options, _with_errors),
        figure=Figure(
            "parameter",
            x="test_members",
            x_label="share of members among the candidates, π",
            fields=("bias", "mse"),
            measures=("bias", "mse"),
            labels={
                **{
                    name: words.removeprefix("scaled (").removesuffix(")")
                    for name, words in pools.METHOD_LABELS.items()
                },
                "test_members": "π",
                "bias": "bias",
                "mse": "MSE",
            },
        ),
        repetitions=20_000,
        alphas=(0.1,),
    ),
)
