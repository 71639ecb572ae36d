"""Knockoffs: error and power over how many paraphrases an item has, by the law of the scores."""

from __future__ import annotations

from tdd.study.named.knockoff_pool import LABELS, LAWS, SIGNAL, AnyLaw, design_words, promise, table, with_laws
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["LAWS", "SIGNAL", "STUDY", "AnyLaw"]

NUM_KNOCKOFFS = (1, 3, 5, 10, 50)
METHODS = ("ktd/ktd", "ktd/multi", "ktd/derandomized")


def _run(options: Options) -> StudyResult:
    settings = run_options(options)
    if options.columns is None:
        result = run(AnyLaw(), METHODS, grid={"law": range(len(LAWS)), "num_knockoffs": NUM_KNOCKOFFS}, **settings)
        return with_laws(result)
    most = options.columns.knockoffs.shape[1]
    grid = {"num_knockoffs": tuple(sorted({k for k in NUM_KNOCKOFFS if k < most} | {most}))}
    return run(table(options), METHODS, grid=grid, **settings)


STUDY = NamedStudy(
    name="ktd-draws",
    title="Knockoffs, by their number an item and by the law of the scores",
    design=design_words,
    run=_run,
    figure=Figure("parameter", panels="law", x="num_knockoffs", x_label="knockoffs an item, k", labels=LABELS),
    promise=promise,
    repetitions=4_000,
    alphas=(0.1, 0.2),
    needs=Needs(knockoffs=True),
)
