"""Thresholds from labelled validation items beside knockoffs, which need none."""

from __future__ import annotations

from typing import Any

import jax

from tdd.methods.ktd import ktd
from tdd.study.methods import method
from tdd.study.named.knockoff_pool import LABELS, LAWS, NUM_VALIDATION, AnyLaw, design_words, promise, table, with_laws
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

SIGNAL, NUM_KNOCKOFFS = 1.5, 10
VANILLA = "ktd/ktd, k = 1"
METHODS = ("threshold/fdr", "threshold/fpr", VANILLA, "ktd/ktd")


def _vanilla(key: jax.Array, scores: jax.Array, calibration: jax.Array, *, alpha: Any, extra: Any) -> jax.Array:
    """KTD with the first knockoff alone."""
    del key, calibration
    return ktd(scores, extra["knockoffs"][:, :1], alpha=alpha, rule="ktd").selected


def _run(options: Options) -> StudyResult:
    methods = {name: _vanilla if name == VANILLA else method(name) for name in METHODS}
    if options.columns is not None:
        return run(table(options), methods, **run_options(options))
    design = AnyLaw(num_knockoffs=NUM_KNOCKOFFS, signal=SIGNAL)
    return with_laws(run(design, methods, grid={"law": range(len(LAWS))}, **run_options(options)))


STUDY = NamedStudy(
    name="ktd-baselines",
    title="Thresholds from validation items beside knockoffs, by the law of the scores",
    design=lambda options: (
        f"{design_words(options, f'{SIGNAL:g}', f'{NUM_KNOCKOFFS} paraphrases')}; thresholds of the texts' own scores, "
        f"from at most {NUM_VALIDATION} other texts with known labels"
    ),
    run=_run,
    figure=Figure(
        "bars",
        panels="law",
        labels=LABELS
        | {
            "threshold/fdr": "threshold, validation FDP ≤ α",
            "threshold/fpr": "threshold, validation FPR ≤ α",
            VANILLA: "one knockoff (vanilla, exact)",
        },
    ),
    promise=lambda options, cell, name: promise(
        options, {**cell, "num_knockoffs": 1} if name == VANILLA else cell, "ktd/ktd" if name == VANILLA else name
    ),
    repetitions=4_000,
    alphas=(0.1,),
    needs=Needs(knockoffs=True),
)
