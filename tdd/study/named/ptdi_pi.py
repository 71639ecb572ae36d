"""PTDI with a given share of members among the candidates."""

from __future__ import annotations

from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


def _run(options: Options) -> StudyResult:
    return pools.over_cells([{"test_members": share} for share in SHARES], options, pools.resampled)


STUDY = NamedStudy(
    name="ptdi-pi",
    title="PTDI on random splits of a pool, by the share π of members among the candidates",
    design=lambda options: f"Splits of {pools.pool_design(options)}",
    run=_run,
    figure=Figure("levels", series="test_members", panels="method", labels=pools.METHOD_LABELS | {"test_members": "π"}),
    promise=pools.promise,
    repetitions=200_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
)
