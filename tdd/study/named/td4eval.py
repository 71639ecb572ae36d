"""TD4Eval's studies: rules that combine detectors."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.td4eval import td4eval
from tdd.study.baselines import auc
from tdd.study.engine import run
from tdd.study.methods import StudyMethod, method
from tdd.study.monte_carlo import simulate
from tdd.study.named import detectors
from tdd.study.named.pools import means, run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.sample import Sample

__all__ = ["STUDIES"]

COMBINED = ("cauchy", "average", "bh_average", "bh_max", "pooled_rank")
NOISY = ("td4eval/cauchy", "td4eval/pooled_rank", "td4eval/split_weights", "td4eval/average")

_study = functools.partial(NamedStudy, promise=detectors.promise, repetitions=4_000, needs=Needs(scores="several"))


def _levels(options: Options) -> StudyResult:
    grid = {"clean": (0.5, 0.05)} if options.columns is None else None
    return run(detectors.design(options), tuple(detectors.METHOD_LABELS), grid=grid, **run_options(options))


def _noise(options: Options) -> StudyResult:
    return run(detectors.design(options), NOISY, grid={"wrong": (0.0, 0.05, 0.1, 0.2, 0.3)}, **run_options(options))


def _methods(options: Options) -> dict[str, StudyMethod]:
    alone = {
        f"{name}, threshold": method("threshold/accuracy", detector=k)
        for k, name in enumerate(detectors.names(options))
    }
    return alone | {f"td4eval/{name}": method(f"td4eval/{name}") for name in COMBINED}


def _baselines(options: Options) -> StudyResult:
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


STUDIES = (
    _study(
        name="td4eval-alpha",
        title="TD4Eval: rules that combine detectors, by the level and the share of clean candidates",
        design=detectors.design_words,
        run=_levels,
        figure=Figure("levels", panels="clean", labels=detectors.METHOD_LABELS | {"clean": "clean share"}),
        alphas=(0.02, 0.06, 0.1, 0.14, 0.18),
    ),
    _study(
        name="td4eval-noise",
        title="TD4Eval: rules that combine detectors, by the share of wrong calibration labels",
        design=detectors.design_words,
        run=_noise,
        figure=Figure(
            "parameter",
            x="wrong",
            x_label="share of wrong labels in the calibration",
            labels=detectors.METHOD_LABELS | {"wrong": "wrong labels"},
        ),
        alphas=(0.15,),
    ),
    _study(
        name="td4eval-baselines",
        title="TD4Eval: thresholds of single detectors beside rules that combine them",
        design=lambda options: (
            f"{detectors.design_words(options)}; thresholds of the highest accuracy on the validation items, which are "
            + ("labelled" if options.columns is not None else "the calibration items and as many clean ones")
            + "; accuracy and AUC on the candidates"
        ),
        run=_baselines,
        figure=Figure(
            "bars",
            labels=detectors.METHOD_LABELS | {"accuracy": "ACC", "auc": "AUC"},
            measures=("accuracy", "auc"),
        ),
        alphas=(0.15,),
    ),
)
