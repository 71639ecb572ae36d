"""Single detectors with a threshold of the highest validation accuracy, beside combinations that control the error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.methods.td4eval import td4eval
from tdd.study.baselines import auc
from tdd.study.methods import StudyMethod, method
from tdd.study.monte_carlo import simulate
from tdd.study.named import detectors
from tdd.study.named.pools import means, run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run
from tdd.study.sample import Sample

__all__ = ["STUDY"]

COMBINED = ("cauchy", "average", "bh_average", "bh_max", "pooled_rank")


def _methods(options: Options) -> dict[str, StudyMethod]:
    alone = {
        f"{name}, threshold": method("threshold/accuracy", detector=k)
        for k, name in enumerate(detectors.names(options))
    }
    return alone | {f"td4eval/{name}": method(f"td4eval/{name}") for name in COMBINED}


def _run(options: Options) -> StudyResult:
    design = detectors.design(options)
    result = run(design, _methods(options), **run_options(options))
    if options.shard is not None:
        return result  # the measures belong to the whole result
    areas = simulate(
        _areas(design, options.alphas), seed=options.seed, repetitions=int(np.max(result.repetitions)), batch=256
    )
    each = {"auc": np.stack([np.stack(rows, axis=-1) for rows in areas], axis=-2)}
    accuracy = {"accuracy": 1 - result.hamming, "accuracy_se": result.hamming_se}
    return dataclasses.replace(result, measures=accuracy | means(each))


def _areas(design: Any, alphas: tuple[float, ...]) -> Callable[[jax.Array], list[list[jax.Array]]]:
    """AUC of each detector's score and of each combination's p-value, [method][level], of draws of their own."""

    def one(key: jax.Array) -> list[list[jax.Array]]:
        sample: Sample = design.draw(key)
        alone = [[auc(row, sample.target)] * len(alphas) for row in sample.scores]
        return alone + [[_combined(sample, name, alpha) for alpha in alphas] for name in COMBINED]

    return one


def _combined(sample: Sample, name: Any, alpha: float) -> jax.Array:
    found = td4eval(
        sample.calibration, sample.scores, alpha=alpha, combine=name, calibration_mask=sample.calibration_mask
    )
    return auc(-jnp.asarray(found.p_values), sample.target)


STUDY = NamedStudy(
    name="td4eval-baselines",
    title="TD4Eval: thresholds of single detectors beside rules that combine them",
    design=lambda options: (
        f"{detectors.design_words(options)}; thresholds of the highest accuracy on the validation items, which are "
        + ("labelled" if options.columns is not None else "the calibration items and as many clean ones")
        + "; accuracy and AUC on the candidates"
    ),
    run=_run,
    figure=Figure(
        "bars",
        labels=detectors.METHOD_LABELS | {"accuracy": "ACC", "auc": "AUC"},
        measures=("accuracy", "auc"),
    ),
    promise=detectors.promise,
    repetitions=4_000,
    alphas=(0.15,),
    needs=Needs(scores="several"),
)
