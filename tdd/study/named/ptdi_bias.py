"""Bias and mean squared error of the estimates of the share of members, beside the FDR and power that they give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.methods.ptdi import ptdi
from tdd.study.designs import Pool
from tdd.study.monte_carlo import simulate
from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
METHODS = ("subtraction", "storey", "moment")


def _run(options: Options) -> StudyResult:
    return pools.over_cells([{"test_members": share} for share in SHARES], options, _one)


def _one(options: Options, test_members: float) -> StudyResult:
    result = pools.resampled(options, methods=METHODS, test_members=test_members)
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
            for name in METHODS
        )
        return [each.proportion - jnp.mean(sample.target) for each in found]

    return one


STUDY = NamedStudy(
    name="ptdi-bias",
    title="Estimates of the share π of members: bias and mean squared error",
    design=lambda options: (
        f"Splits of {pools.pool_design(options)}; members that are not tested serve the moment estimate, 0 where "
        "tdd.ptdi does not trust it; the others are not cut at 0. Bias: the mean of the estimated less the true share, "
        "negative where it is conservative"
    ),
    run=_run,
    figure=Figure(
        "parameter",
        x="test_members",
        x_label="share of members among the candidates, π",
        fields=("bias", "mse"),
        measures=("bias", "mse"),
        labels={
            **{name: words.removeprefix("scaled (").removesuffix(")") for name, words in pools.METHOD_LABELS.items()},
            "test_members": "π",
            "bias": "bias",
            "mse": "MSE",
        },
    ),
    promise=pools.promise,
    repetitions=20_000,
    alphas=(0.1,),
)
