"""PTDI with few calibration items for the candidates: the mean stays, the spread grows."""

from __future__ import annotations

from tdd.study.named import pools
from tdd.study.named.record import Figure, NamedStudy, Options
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

RATIOS = (0.1, 0.5, 1.0)


def _run(options: Options) -> StudyResult:
    return pools.over_cells([{"calibration_ratio": ratio} for ratio in RATIOS], options, pools.resampled)


STUDY = NamedStudy(
    name="ptdi-rho",
    title="PTDI (scaled) on random splits of a pool, by the ratio ρ of calibration items to candidates",
    design=lambda options: f"Splits of {pools.pool_design(options)}",
    run=_run,
    figure=Figure(
        "bands", series="", panels="calibration_ratio", labels=pools.METHOD_LABELS | {"calibration_ratio": "ρ"}
    ),
    promise=pools.promise,
    repetitions=200_000,
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5),
)
