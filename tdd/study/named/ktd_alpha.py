"""KTD's rule at every level, by how far members stand apart and by the law of the scores."""

from __future__ import annotations

from tdd.study.named.knockoff_pool import LABELS, LAWS, AnyLaw, design_words, promise, table, with_laws
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["SIGNALS", "STUDY"]

SIGNALS, NUM_KNOCKOFFS = (1.0, 2.0, 3.0), 10
METHODS = ("ktd/ktd",)


def _run(options: Options) -> StudyResult:
    if options.columns is not None:
        return run(table(options), METHODS, **run_options(options))
    grid = {"law": range(len(LAWS)), "signal": SIGNALS}
    return with_laws(run(AnyLaw(num_knockoffs=NUM_KNOCKOFFS), METHODS, grid=grid, **run_options(options)))


STUDY = NamedStudy(
    name="ktd-alpha",
    title="KTD's averaged W at every level, by the signal and the law of the scores",
    design=lambda options: design_words(options, "1, 2 or 3", f"{NUM_KNOCKOFFS} paraphrases"),
    run=_run,
    figure=Figure("levels", series="signal", panels="law", labels=LABELS),
    promise=promise,
    repetitions=4_000,
    alphas=(0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95),
    needs=Needs(knockoffs=True),
)
