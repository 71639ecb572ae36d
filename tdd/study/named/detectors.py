"""TD4Eval's study of single detectors: BH on the p-values of each alone, beside rules that combine them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.study.methods import StudyMethod, method
from tdd.study.named import td4eval as studies
from tdd.study.named.driver import GridRun
from tdd.study.named.record import ExpectedBound, Figure, NamedStudy, Needs, StudyOptions

TOGETHER = ("td4eval/cauchy", "td4eval/average", "td4eval/random", "td4eval/max", "td4eval/pooled_rank")


def _alone(options: StudyOptions) -> dict[str, StudyMethod]:
    """BH on each detector, by label."""
    columns = options.columns
    names = [f"{signal:g} sd" for signal in studies.SIGNALS] if columns is None else columns.names
    return {f"BH, detector {name}": method("bh", detector=k) for k, name in enumerate(names)}


def _with_combinations(options: StudyOptions) -> dict[str, StudyMethod]:
    return _alone(options) | {name: method(name) for name in TOGETHER}


def bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    """BH on the conformal p-values of one detector holds its level, and so do pooled ranks."""
    if method.startswith("BH, detector") or method == "td4eval/pooled_rank":
        return ExpectedBound()
    return ExpectedBound("none")


STUDIES = (
    NamedStudy(
        name="td4eval-single",
        title="TD4Eval: BH on each detector alone beside rules that combine them",
        describe=studies.describe,
        run=GridRun(studies.design, _with_combinations, {"clean": (0.5, 0.05)}),
        figure=Figure("bars", panels="clean", labels=studies.LABELS | {"clean": "clean fraction"}),
        bound=bound,
        repetitions=2_000,
        alphas=(0.15,),
        needs=Needs(scores="several"),
    ),
)
