"""Knockoffs: error and power over how many paraphrases an item has, by the law of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.study.designs import PairedScores
from tdd.study.named.knockoff_pool import KnockoffPool
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options, Promise
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

NUM_KNOCKOFFS = (1, 3, 5, 10, 50)
LAWS = ("normal", "exponential", "negative_exponential")
NUM_TESTS, SIGNAL = 200, 2.0
METHODS = ("ktd/ktd", "ktd/multi", "ktd/derandomized")


def _run(options: Options) -> StudyResult:
    if options.columns is None:
        design: Any = PairedScores(num_tests=NUM_TESTS, num_calibration=1, signal=SIGNAL)
        grid = {"law": LAWS, "num_knockoffs": NUM_KNOCKOFFS}
    else:
        columns = options.columns
        most = columns.knockoffs.shape[1]
        design = KnockoffPool(columns.scores[0], columns.knockoffs, columns.labels[0])
        grid = {"num_knockoffs": tuple(sorted({k for k in NUM_KNOCKOFFS if k < most} | {most}))}
    return run(design, METHODS, grid=grid, **run_options(options))


def _promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    if options.columns is not None:
        return Promise("none")  # paraphrases are as exchangeable with their texts as they are
    return Promise("none" if method == "ktd/ktd" and cell["num_knockoffs"] > 1 else "finite-sample")


def _design(options: Options) -> str:
    if options.columns is not None:
        columns = options.columns
        return f"{columns.source}, {columns.names[0]}: random halves of {columns.labels.shape[1]} items"
    return (
        f"{NUM_TESTS} texts, half of them members with scores {SIGNAL:g} lower, and k paraphrases of each; "
        "the scores of a text and its paraphrases follow one law"
    )


STUDY = NamedStudy(
    name="ktd-draws",
    title="Knockoffs, by their number an item and by the law of the scores",
    design=_design,
    run=_run,
    figure=Figure(
        "parameter",
        panels="law",
        x="num_knockoffs",
        x_label="knockoffs an item, k",
        labels={
            "ktd/ktd": "averaged W (the paper)",
            "ktd/multi": "multiple knockoffs (exact)",
            "ktd/derandomized": "derandomized (exact)",
            "negative_exponential": "minus exponential",
            "num_knockoffs": "k",
        },
    ),
    promise=_promise,
    repetitions=1_000,
    alphas=(0.1, 0.2),
    needs=Needs(knockoffs=True),
)
