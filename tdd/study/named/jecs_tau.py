"""JECS with a fixed threshold of the right tail, and with the one that it chooses itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tdd.study.methods import method
from tdd.study.named import joint
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
SIGNAL = 3.0
FIXED, ADAPTIVE, BASELINE = "jecs, fixed", "jecs", "jmcs/bh"


def _run(options: Options) -> StudyResult:
    fixed = {f"{FIXED} {tau:g}": method("jecs", grid=(tau,)) for tau in THRESHOLDS}
    methods = {**fixed, ADAPTIVE: method(ADAPTIVE), BASELINE: method(BASELINE)}
    result = run(joint.design(options, signal=SIGNAL), methods, **run_options(options))
    return _by_threshold(result, [f"{FIXED} {tau:g}" for tau in THRESHOLDS])


def _by_threshold(result: StudyResult, fixed: Sequence[str]) -> StudyResult:
    """Thresholds as cells; what does not depend on them is the same in each."""
    rest = [result.methods.index(name) for name in (ADAPTIVE, BASELINE)]
    chosen = np.array([[result.methods.index(name), *rest] for name in fixed])
    arrays = {
        field.name: getattr(result, field.name)[chosen]
        for field in dataclasses.fields(result)
        if isinstance(getattr(result, field.name), np.ndarray)
    }
    return dataclasses.replace(
        result,
        **arrays,
        methods=(FIXED, ADAPTIVE, BASELINE),
        cells=tuple({"tau": tau} for tau in THRESHOLDS),
        repetitions=np.full(len(THRESHOLDS), int(result.repetitions), np.int64),
    )


STUDY = NamedStudy(
    name="jecs-tau",
    title="JECS, by the threshold τ of the right tail",
    design=lambda options: joint.design_words(
        options,
        f"five models, each trained on a quarter of 1,400 candidates, 600 calibration items, signal {SIGNAL:g}",
    ),
    run=_run,
    figure=Figure(
        "parameter",
        x="tau",
        x_label="threshold of the right tail, τ",
        level=0.2,
        error="GCR",
        labels=joint.METHOD_LABELS | {FIXED: "JECS, τ fixed", ADAPTIVE: "JECS, τ chosen", "tau": "τ"},
    ),
    promise=joint.promise,
    repetitions=4_000,
    alphas=(0.1, 0.2),
    needs=Needs(scores="several", labels="each"),
    example=joint.envelope_example,
)
