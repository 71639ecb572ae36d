"""The studies of JMCS and JECS: joint selections for several models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Null, pytree
from tdd.study.designs import JointLabels
from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named import joint
from tdd.study.named.pools import over_cells, run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.sample import Sample

__all__ = ["STUDIES"]

SIGNAL = 3.0
NUM_MODELS, MEMBER_SHARE = (2, 3, 5, 8), 0.1
_BEYOND = 1e6
JOINT = ("jmcs/bh", "jmcs/storey", "jecs")
THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
FIXED, ADAPTIVE, BASELINE = "jecs, fixed", "jecs", "jmcs/bh"

_study = functools.partial(
    NamedStudy, promise=joint.promise, repetitions=4_000, needs=Needs(scores="several", labels="each")
)


def _compositions(options: Options) -> StudyResult:
    grid = {"signal": (2.0, 3.0, 4.0)} if options.columns is None else None
    return run(joint.design(options, signal=3.0), tuple(joint.METHOD_LABELS), grid=grid, **run_options(options))


@pytree()
class SomeModels:
    """The first of eight models: one program for every K.

    A model beyond K has seen no candidate, and all candidates score above its calibration: its p-value is 1/(n + 1) for
    each, never the largest.

    Attributes:
      num_models: K.
    """

    null: ClassVar[Null] = "member"

    num_models: Any = max(NUM_MODELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        sample = JointLabels(num_models=max(NUM_MODELS), signal=SIGNAL, member_share=MEMBER_SHARE).draw(key)
        audited = jnp.arange(max(NUM_MODELS)) < self.num_models
        scores = jnp.where(audited[:, None], sample.scores, _BEYOND)
        member = sample.extra["member"] & audited[:, None]
        return sample._replace(scores=scores, target=~jnp.any(member, axis=0), extra={"member": member})


def _numbers_of_models(options: Options) -> StudyResult:
    columns = options.columns
    if columns is None:
        return run(SomeModels(), JOINT, grid={"num_models": NUM_MODELS}, **run_options(options))
    joint.design(options, signal=SIGNAL)  # checks the table

    def one(options: Options, num_models: int) -> StudyResult:
        return run(joint.first_models(columns, num_models), JOINT, **run_options(options))

    cells: list[dict[str, Any]] = [{"num_models": k} for k in range(2, len(columns.names) + 1)]
    return over_cells(cells, options, one)


def _thresholds(options: Options) -> StudyResult:
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


STUDIES = (
    _study(
        name="jecs-compositions",
        title="Selections for several models at once, by how they are composed",
        design=lambda options: joint.design_words(
            options,
            "five models, each trained on a quarter of 1,400 candidates, 600 calibration items; signal in sd",
        ),
        run=_compositions,
        figure=Figure("bars", panels="signal", error="GCR", labels=joint.METHOD_LABELS | {"signal": "signal"}),
        alphas=(0.1, 0.2, 0.3),
        example=joint.envelope_example,
    ),
    _study(
        name="jecs-k",
        title="Selections for several models at once, by the number of models",
        design=lambda options: joint.design_words(
            options, f"each trained on a tenth of 1,400 candidates, 600 calibration items, signal {SIGNAL:g}"
        ),
        run=_numbers_of_models,
        figure=Figure(
            "parameter",
            x="num_models",
            x_label="models K",
            error="GCR",
            labels=joint.METHOD_LABELS | {"num_models": "K"},
        ),
        alphas=(0.1, 0.2, 0.3),
    ),
    _study(
        name="jecs-tau",
        title="JECS, by the threshold τ of the right tail",
        design=lambda options: joint.design_words(
            options,
            f"five models, each trained on a quarter of 1,400 candidates, 600 calibration items, signal {SIGNAL:g}",
        ),
        run=_thresholds,
        figure=Figure(
            "parameter",
            x="tau",
            x_label="threshold of the right tail, τ",
            level=0.2,
            error="GCR",
            labels=joint.METHOD_LABELS | {FIXED: "JECS, τ fixed", ADAPTIVE: "JECS, τ chosen", "tau": "τ"},
        ),
        alphas=(0.1, 0.2),
        example=joint.envelope_example,
    ),
)
