"""What unions and intersections of selections do to the joint error rate, beside the joint procedures."""

from __future__ import annotations

from tdd.study.named import joint
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

SIGNALS = (2.0, 3.0, 4.0)


def _run(options: Options) -> StudyResult:
    grid = {"signal": SIGNALS} if options.columns is None else None
    return run(joint.design(options, signal=3.0), tuple(joint.METHOD_LABELS), grid=grid, **run_options(options))


STUDY = NamedStudy(
    name="jecs-compositions",
    title="Selections for several models at once, by how they are composed",
    design=lambda options: joint.design_words(
        options,
        "five models, each trained on a quarter of 1,400 candidates, 600 calibration items; signal in sd",
    ),
    run=_run,
    figure=Figure("bars", panels="signal", error="GCR", labels=joint.METHOD_LABELS | {"signal": "signal"}),
    promise=joint.promise,
    repetitions=4_000,
    alphas=(0.1, 0.2, 0.3),
    needs=Needs(scores="several", labels="each"),
    example=joint.envelope_example,
)
