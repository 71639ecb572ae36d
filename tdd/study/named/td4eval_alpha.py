"""Combinations of detectors at every level, and where nearly every candidate is contaminated."""

from __future__ import annotations

from tdd.study.named import detectors
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

CLEAN_SHARES = (0.5, 0.05)


def _run(options: Options) -> StudyResult:
    grid = {"clean": CLEAN_SHARES} if options.columns is None else None
    return run(detectors.design(options), tuple(detectors.METHOD_LABELS), grid=grid, **run_options(options))


STUDY = NamedStudy(
    name="td4eval-alpha",
    title="TD4Eval: rules that combine detectors, by the level and the share of clean candidates",
    design=lambda options: detectors.design_words(options),
    run=_run,
    figure=Figure("levels", panels="clean", labels=detectors.METHOD_LABELS | {"clean": "clean share"}),
    promise=detectors.promise,
    repetitions=4_000,
    alphas=(0.02, 0.06, 0.1, 0.14, 0.18),
    needs=Needs(scores="several"),
)
