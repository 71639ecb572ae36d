"""Joint selections over the number of models audited together."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import JointLabels
from tdd.study.named import joint
from tdd.study.named.pools import over_cells, run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options
from tdd.study.results import StudyResult
from tdd.study.runner import run
from tdd.study.sample import Sample

__all__ = ["STUDY"]

NUM_MODELS = (2, 3, 5, 8)
SIGNAL, MEMBER_SHARE = 3.0, 0.1
_BEYOND = 1e6
METHODS = ("jmcs/bh", "jmcs/storey", "jecs")


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


def _run(options: Options) -> StudyResult:
    columns = options.columns
    if columns is None:
        return run(SomeModels(), METHODS, grid={"num_models": NUM_MODELS}, **run_options(options))
    joint.design(options, signal=SIGNAL)  # checks the table

    def one(options: Options, num_models: int) -> StudyResult:
        return run(joint.first_models(columns, num_models), METHODS, **run_options(options))

    cells: list[dict[str, Any]] = [{"num_models": k} for k in range(2, len(columns.names) + 1)]
    return over_cells(cells, options, one)


STUDY = NamedStudy(
    name="jecs-k",
    title="Selections for several models at once, by the number of models",
    design=lambda options: joint.design_words(
        options, f"each trained on a tenth of 1,400 candidates, 600 calibration items, signal {SIGNAL:g}"
    ),
    run=_run,
    figure=Figure(
        "parameter", x="num_models", x_label="models K", error="GCR", labels=joint.METHOD_LABELS | {"num_models": "K"}
    ),
    promise=joint.promise,
    repetitions=4_000,
    alphas=(0.1, 0.2, 0.3),
    needs=Needs(scores="several", labels="each"),
)
