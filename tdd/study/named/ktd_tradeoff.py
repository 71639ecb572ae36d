"""KTD's power against its error over all levels, by the number of knockoffs an item."""

from __future__ import annotations

from tdd.study.designs import PairedScores
from tdd.study.named.knockoff_pool import LABELS, NUM_TESTS, design_words, promise, table
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

NUM_KNOCKOFFS, SIGNALS = (1, 3, 5, 10, 50, 100), (1.0, 1.5, 2.0)
METHODS = ("ktd/ktd",)


def _run(options: Options) -> StudyResult:
    if options.columns is None:
        design, grid = PairedScores(num_tests=NUM_TESTS, num_calibration=1), {"signal": SIGNALS}
        return run(design, METHODS, grid=grid | {"num_knockoffs": NUM_KNOCKOFFS}, **run_options(options))
    most = options.columns.knockoffs.shape[1]
    grid = {"num_knockoffs": tuple(sorted({k for k in NUM_KNOCKOFFS if k < most} | {most}))}
    return run(table(options), METHODS, grid=grid, **run_options(options))


STUDY = NamedStudy(
    name="ktd-tradeoff",
    title="KTD's averaged W: power against FDR over the levels, by the number of knockoffs an item",
    design=lambda options: design_words(options, "1, 1.5 or 2", "k paraphrases") + ", the normal one",
    run=_run,
    figure=Figure("tradeoff", series="num_knockoffs", panels="signal", labels=LABELS),
    promise=promise,
    repetitions=2_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99),
    needs=Needs(knockoffs=True),
)
