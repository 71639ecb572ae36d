"""KTD's studies: knockoff rules by the number of knockoffs, the signal and the law of the scores."""

from __future__ import annotations

import functools
from typing import Any

import jax

from tdd.procedures.ktd import ktd
from tdd.study.designs import PairedScores
from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named.knockoff_pool import (
    LABELS,
    LAWS,
    NUM_TESTS,
    NUM_VALIDATION,
    AnyLaw,
    design_words,
    promise,
    table,
    with_laws,
)
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult

__all__ = ["STUDIES"]

AVERAGED, RULES = ("ktd/ktd",), ("ktd/ktd", "ktd/multi", "ktd/derandomized")
TEN, BASELINE_SIGNAL = 10, 1.5
VANILLA = "ktd/ktd, k = 1"
BASELINES = ("threshold/fdr", "threshold/fpr", VANILLA, "ktd/ktd")

_study = functools.partial(NamedStudy, promise=promise, repetitions=4_000, needs=Needs(knockoffs=True))


def _of_signals(
    name: str, title: str, *, kind: Any, signals: tuple[float, ...], alphas: tuple[float, ...]
) -> NamedStudy:
    """KTD's averaged W with ten knockoffs at many levels, a series for each signal and a panel for each law."""

    def measured(options: Options) -> StudyResult:
        if options.columns is not None:
            return run(table(options), AVERAGED, **run_options(options))
        grid = {"law": range(len(LAWS)), "signal": signals}
        return with_laws(run(AnyLaw(num_knockoffs=TEN), AVERAGED, grid=grid, **run_options(options)))

    listed = f"{', '.join(f'{signal:g}' for signal in signals[:-1])} or {signals[-1]:g}"
    return _study(
        name=name,
        title=title,
        design=lambda options: design_words(options, listed, f"{TEN} paraphrases"),
        run=measured,
        figure=Figure(kind, series="signal", panels="law", labels=LABELS),
        alphas=alphas,
    )


def _numbers(options: Options, wanted: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Numbers of knockoffs that a table has, up to all of them."""
    assert options.columns is not None
    most = options.columns.knockoffs.shape[1]
    return {"num_knockoffs": tuple(sorted({k for k in wanted if k < most} | {most}))}


def _draws(options: Options) -> StudyResult:
    wanted, settings = (1, 3, 5, 10, 50), run_options(options)
    if options.columns is not None:
        return run(table(options), RULES, grid=_numbers(options, wanted), **settings)
    return with_laws(run(AnyLaw(), RULES, grid={"law": range(len(LAWS)), "num_knockoffs": wanted}, **settings))


def _tradeoff(options: Options) -> StudyResult:
    wanted, settings = (1, 3, 5, 10, 50, 100), run_options(options)
    if options.columns is not None:
        return run(table(options), AVERAGED, grid=_numbers(options, wanted), **settings)
    design = PairedScores(num_tests=NUM_TESTS, num_calibration=1)
    return run(design, AVERAGED, grid={"signal": (1.0, 1.5, 2.0), "num_knockoffs": wanted}, **settings)


def _vanilla(key: jax.Array, scores: jax.Array, calibration: jax.Array, *, alpha: Any, extra: Any) -> jax.Array:
    """KTD with the first knockoff alone."""
    del key, calibration
    return ktd(scores, extra["knockoffs"][:, :1], alpha=alpha, rule="ktd").selected


def _baselines(options: Options) -> StudyResult:
    methods = {name: _vanilla if name == VANILLA else method(name) for name in BASELINES}
    if options.columns is not None:
        return run(table(options), methods, **run_options(options))
    design = AnyLaw(num_knockoffs=TEN, signal=BASELINE_SIGNAL)
    return with_laws(run(design, methods, grid={"law": range(len(LAWS))}, **run_options(options)))


STUDIES = (
    _of_signals(
        "ktd-alpha",
        "KTD's averaged W at every level, by the signal and the law of the scores",
        kind="levels",
        signals=(1.0, 2.0, 3.0),
        alphas=(0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95),
    ),
    _of_signals(
        "ktd-signal",
        "KTD's averaged W: power against FDR over the levels, by the signal",
        kind="tradeoff",
        signals=(0.5, 1.0, 1.5, 2.0),
        alphas=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99),
    ),
    _study(
        name="ktd-draws",
        title="Knockoffs, by their number an item and by the law of the scores",
        design=design_words,
        run=_draws,
        figure=Figure("parameter", panels="law", x="num_knockoffs", x_label="knockoffs an item, k", labels=LABELS),
        alphas=(0.1, 0.2),
    ),
    _study(
        name="ktd-tradeoff",
        title="KTD's averaged W: power against FDR over the levels, by the number of knockoffs an item",
        design=lambda options: design_words(options, "1, 1.5 or 2", "k paraphrases") + ", the normal one",
        run=_tradeoff,
        figure=Figure("tradeoff", series="num_knockoffs", panels="signal", labels=LABELS),
        repetitions=2_000,
        alphas=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99),
    ),
    _study(
        name="ktd-baselines",
        title="Thresholds from validation items beside knockoffs, by the law of the scores",
        design=lambda options: (
            f"{design_words(options, f'{BASELINE_SIGNAL:g}', f'{TEN} paraphrases')}; thresholds of the texts' own "
            f"scores, from at most {NUM_VALIDATION} other texts with known labels"
        ),
        run=_baselines,
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
        alphas=(0.1,),
    ),
)
