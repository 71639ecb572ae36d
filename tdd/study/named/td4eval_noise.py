"""Combinations of detectors where some labels of the calibration items are wrong."""

from __future__ import annotations

from tdd.study.named import detectors
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

WRONG = (0.0, 0.05, 0.1, 0.2, 0.3)
METHODS = ("td4eval/cauchy", "td4eval/pooled_rank", "td4eval/split_weights", "td4eval/average")


def _run(options: Options) -> StudyResult:
    return run(detectors.design(options), METHODS, grid={"wrong": WRONG}, **run_options(options))


STUDY = NamedStudy(
    name="td4eval-noise",
    title="TD4Eval: rules that combine detectors, by the share of wrong calibration labels",
    design=lambda options: detectors.design_words(options),
    run=_run,
    figure=Figure(
        "parameter",
        x="wrong",
        x_label="share of wrong labels in the calibration",
        labels=detectors.METHOD_LABELS | {"wrong": "wrong labels"},
    ),
    promise=detectors.promise,
    repetitions=4_000,
    alphas=(0.15,),
    needs=Needs(scores="several"),
)
