"""TD4Eval's studies: rules that combine detectors, with calibration labels that may be wrong."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.td4eval import td4eval
from tdd.records import Null, pytree
from tdd.study.baselines import auc
from tdd.study.designs import CorrelatedDetectors, Sample
from tdd.study.methods import StudyMethod, method
from tdd.study.named.driver import GridRun, dense_ranks, means
from tdd.study.named.record import ExpectedBound, Figure, NamedStudy, Needs, StudyOptions
from tdd.study.results import StudyResult
from tdd.study.runner import simulate

SIGNALS, CORRELATION, NUM_CALIBRATION, NUM_TESTS, CLEAN = (2.5, 1.5, 1.0, 0.5, 0.0), 0.3, 400, 200, 0.5
VALIDATION = 0.3
COMBINED = ("cauchy", "average", "bh_average", "bh_max", "pooled_rank")
NOISY = ("td4eval/cauchy", "td4eval/pooled_rank", "td4eval/split_weights", "td4eval/average")
WRONG = {"wrong": (0.0, 0.05, 0.1, 0.2, 0.3)}
LABELS = {
    "td4eval/cauchy": "Cauchy by rejections (the paper)",
    "td4eval/pooled_rank": "pooled ranks (exact)",
    "td4eval/split_weights": "split weights (exact)",
    "td4eval/average": "equal weights",
    "td4eval/max": "best detector",
    "td4eval/random": "random weights",
    "td4eval/bh_average": "BH-Average (mean p-value)",
    "td4eval/bh_max": "BH-Max (smallest p-value)",
}


@pytree("num_calibration", "num_tests")
class Mislabelled:
    """Several detectors; some calibration items that are taken for members are clean in truth."""

    null: ClassVar[Null] = "member"

    num_calibration: int = NUM_CALIBRATION  # n, including wrong ones
    num_tests: int = NUM_TESTS  # m
    clean: Any = CLEAN  # fraction of the test items that are clean: the targets
    wrong: Any = 0.0  # fraction of the calibration items that are clean
    signal: Any = SIGNALS  # [K] shift of clean items to higher scores, in standard deviations
    correlation: Any = CORRELATION  # correlation of any two detectors

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        signal = jnp.asarray(self.signal, jnp.result_type(float))
        own, which, beside = jax.random.split(key, 3)
        inner = CorrelatedDetectors(
            num_detectors=signal.shape[0],
            num_calibration=self.num_calibration,
            num_tests=self.num_tests,
            target_share=self.clean,
            signal=signal,
            correlation=self.correlation,
            labels="random",
        )
        sample = inner.draw(own)
        wrong = jax.random.bernoulli(which, self.wrong, (self.num_calibration,))
        calibration = sample.calibration + signal[:, None] * wrong
        # The validation set is the calibration items, taken for members, and as many that are known to be clean.
        clean = inner.draw(beside).calibration + signal[:, None]
        validation = {
            "validation": jnp.concatenate([calibration, clean], axis=1),
            "validation_target": jnp.arange(2 * self.num_calibration) >= self.num_calibration,
        }
        return sample._replace(calibration=calibration, extra=validation)


@pytree()
class DetectorPool:
    """A given table of detectors, split anew: 30% for validation, whose members calibrate, 70% for testing.

    References: TD4Eval, section 5.1 and figure 3.
    """

    null: ClassVar[Null] = "member"

    scores: Any  # [K, N] loss-like scores
    is_member: Any  # [N] bool
    wrong: Any = 0.0  # fraction of the validation labels that are inverted

    def draw(self, key: jax.Array) -> Sample:
        """One split, with a `calibration_mask`."""
        split, which = jax.random.split(key)
        scores, is_member = jnp.asarray(self.scores, jnp.result_type(float)), jnp.asarray(self.is_member)
        size = max(1, int(VALIDATION * scores.shape[1]))
        first, rest = jnp.split(jax.random.permutation(split, scores.shape[1]), [size])
        believed = is_member[first] ^ jax.random.bernoulli(which, self.wrong, (size,))
        validation = {"validation": scores[:, first], "validation_target": ~believed}
        return Sample(scores[:, first], scores[:, rest], ~is_member[rest], calibration_mask=believed, extra=validation)


def design(options: StudyOptions) -> Mislabelled | DetectorPool:
    """The given table, or synthetic detectors."""
    columns = options.columns
    return Mislabelled() if columns is None else DetectorPool(dense_ranks(columns.scores), columns.labels[0])


def describe(options: StudyOptions) -> str:
    """The design in full."""
    if options.columns is not None:
        columns = options.columns
        return (
            f"{columns.source}, {len(columns.names)} detectors, {columns.labels.shape[1]} items: 30% for validation, "
            "whose members calibrate, 70% for testing"
        )
    shifts = ", ".join(f"{signal:g}" for signal in SIGNALS)
    return (
        f"{len(SIGNALS)} detectors with correlation {CORRELATION:g} and clean items {shifts} sd higher; "
        f"{NUM_CALIBRATION} calibration items, {NUM_TESTS} candidates"
    )


def _describe_baselines(options: StudyOptions) -> str:
    labelled = "labelled" if options.columns is not None else "the calibration items and as many clean ones"
    return (
        f"{describe(options)}; thresholds of the highest accuracy on the validation items, which are {labelled}; "
        "accuracy and AUC on the candidates"
    )


def _bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    """The exact rules hold their level in finite samples if the labels are right."""
    exact = method in ("td4eval/pooled_rank", "td4eval/split_weights")
    return ExpectedBound("finite-sample" if exact and not cell.get("wrong") else "none")


def _thresholds(options: StudyOptions) -> dict[str, StudyMethod]:
    """The threshold of each detector, by label."""
    columns = options.columns
    names = [f"detector {signal:g} sd" for signal in SIGNALS] if columns is None else columns.names
    return {f"{name}, threshold": method("threshold/accuracy", detector=k) for k, name in enumerate(names)}


def _thresholds_and_combinations(options: StudyOptions) -> dict[str, StudyMethod]:
    return _thresholds(options) | {f"td4eval/{name}": method(f"td4eval/{name}") for name in COMBINED}


def _under_noise(options: StudyOptions) -> dict[str, StudyMethod]:
    return {name: method(name) for name in NOISY} | _thresholds(options)


def _with_accuracy_and_auc(result: StudyResult, options: StudyOptions) -> StudyResult:
    if options.shard is not None:
        return result  # the measures belong to the whole result
    drawn = design(options)

    def one(key: jax.Array) -> list[list[jax.Array]]:
        """AUC of each detector's score and of each combination's p-value, [method][level], of separate draws."""
        sample: Sample = drawn.draw(key)
        single = [[auc(row, sample.target)] * len(options.alphas) for row in sample.scores]
        return single + [[_combined(sample, name, alpha) for alpha in options.alphas] for name in COMBINED]

    draws = simulate(one, seed=options.seed, repetitions=int(np.max(result.repetitions)), batch=256)
    areas = {"auc": np.stack([np.stack(levels, axis=-1) for levels in draws], axis=-2)}
    accuracy = {"accuracy": 1 - result.hamming, "accuracy_se": result.hamming_se}
    return dataclasses.replace(result, measures=accuracy | means(areas))


def _combined(sample: Sample, name: Any, alpha: float) -> jax.Array:
    selection = td4eval(
        sample.calibration, sample.scores, alpha=alpha, combine=name, calibration_mask=sample.calibration_mask
    )
    return auc(-jnp.asarray(selection.p_values), sample.target)


_study = functools.partial(
    NamedStudy, describe=describe, bound=_bound, repetitions=4_000, needs=Needs(scores="several")
)

STUDIES = (
    _study(
        name="td4eval-alpha",
        title="TD4Eval: rules that combine detectors, by the level and the fraction of clean candidates",
        run=GridRun(design, tuple(LABELS), grid={"clean": (0.5, 0.05)}),
        figure=Figure("levels", panels="clean", labels=LABELS | {"clean": "clean fraction"}),
        alphas=(0.02, 0.06, 0.1, 0.14, 0.18),
    ),
    _study(
        name="td4eval-noise",
        repetitions=2_000,
        title="TD4Eval: combined detectors and single thresholds, by the fraction of wrong labels",
        describe=lambda options: f"{describe(options)}; thresholds of the highest accuracy on the validation items",
        run=GridRun(design, _under_noise, grid=WRONG, table_grid=lambda columns: WRONG),
        figure=Figure(
            "parameter",
            x="wrong",
            x_label="fraction of wrong labels in the calibration",
            labels=LABELS | {"wrong": "wrong labels"},
        ),
        alphas=(0.15,),
    ),
    _study(
        name="td4eval-baselines",
        repetitions=2_000,
        title="TD4Eval: thresholds of single detectors beside rules that combine them",
        describe=_describe_baselines,
        run=GridRun(design, _thresholds_and_combinations, finish=_with_accuracy_and_auc),
        figure=Figure("bars", labels=LABELS | {"accuracy": "ACC", "auc": "AUC"}, measures=("accuracy", "auc")),
        alphas=(0.15,),
    ),
)
