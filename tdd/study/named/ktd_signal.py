"""KTD's power against its error over all levels, by how far members stand apart: the larger a model, the further."""

from __future__ import annotations

from tdd.study.named.knockoff_pool import LABELS, LAWS, AnyLaw, design_words, promise, table, with_laws
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

SIGNALS, NUM_KNOCKOFFS = (0.5, 1.0, 1.5, 2.0), 10
METHODS = ("ktd/ktd",)


def _run(options: Options) -> StudyResult:
    if options.columns is not None:
        return run(table(options), METHODS, **run_options(options))
    grid = {"law": range(len(LAWS)), "signal": SIGNALS}
    return with_laws(run(AnyLaw(num_knockoffs=NUM_KNOCKOFFS), METHODS, grid=grid, **run_options(options)))


STUDY = NamedStudy(
    name="ktd-signal",
    title="KTD's averaged W: power against FDR over the levels, by the signal",
    design=lambda options: design_words(options, "0.5, 1, 1.5 or 2", f"{NUM_KNOCKOFFS} paraphrases"),
    run=_run,
    figure=Figure("tradeoff", series="signal", panels="law", labels=LABELS),
    promise=promise,
    repetitions=4_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99),
    needs=Needs(knockoffs=True),
)
