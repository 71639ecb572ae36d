"""The studies of JMCS and JECS: joint selections for several models, synthetic or from a table with labels a model."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.jecs import jecs, jmcs
from tdd.records import Null, pytree
from tdd.study.baselines import COMPOSITIONS
from tdd.study.designs import JointLabels, Sample
from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named.driver import GridRun, dense_ranks, map_arrays, over_cells, run_options
from tdd.study.named.record import Columns, Example, ExpectedBound, Figure, NamedStudy, Needs, StudyOptions
from tdd.study.results import StudyResult
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed

SIGNAL = 3.0
NUM_MODELS, MEMBER_FRACTION = (2, 3, 5, 8), 0.1
THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
FIXED, ADAPTIVE, BASELINE = "jecs, fixed", "jecs", "jmcs/bh"
_OF_THRESHOLD = {tau: f"{FIXED} {tau:g}" for tau in THRESHOLDS}
JOINT = ("jmcs/bh", "jmcs/storey", "jecs")
COMPOSED = {
    f"{how}{', BH' if step == 'bh' else ''}": method(how, step=step)
    for how in COMPOSITIONS
    for step in ("storey", "bh")
}
LABELS = {
    "union": "union, Storey-BH each",
    "union, BH": "union, BH each",
    "intersection": "intersection, Storey-BH each",
    "intersection, BH": "intersection, BH each",
    "jmcs/bh": "JMCS",
    "jmcs/storey": "JMCS, Storey",
    "jecs": "JECS",
}
GCR = "GCR: mean fraction of the selected items that a model was trained on"
_BEYOND = 1e6


@pytree("num_shared")
class JointPool:
    """A given table, split anew: half of the items that all models were trained on calibrate, others are audited."""

    null: ClassVar[Null] = "member"

    scores: Any  # [K, N] loss-like scores, one row a model
    is_member: Any  # [K, N] bool
    num_shared: int | None = None  # number of shared items, counted from `is_member`; leave it out

    def __post_init__(self):
        if self.num_shared is None and isinstance(self.is_member, np.ndarray):
            object.__setattr__(self, "num_shared", int(np.all(self.is_member, axis=0).sum()))

    def draw(self, key: jax.Array) -> Sample:
        """One split."""
        scores, is_member = jnp.asarray(self.scores, jnp.result_type(float)), jnp.asarray(self.is_member)
        shared = jnp.all(is_member, axis=0)
        apart = jnp.argsort(~shared, stable=True)
        count = self.num_shared or 0
        mixed = jax.random.permutation(key, apart[:count])
        rest = jnp.concatenate([mixed[count // 2 :], apart[count:]])
        audited = is_member[:, rest]
        return Sample(
            scores[:, mixed[: count // 2]], scores[:, rest], ~jnp.any(audited, axis=0), extra={"member": audited}
        )


@pytree()
class SomeModels:
    """The first of eight models: one program for every K.

    A model beyond K has seen no candidate, and all candidates score above its calibration: its p-value is 1/(n + 1) for
    each, never the largest.
    """

    null: ClassVar[Null] = "member"

    num_models: Any = max(NUM_MODELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        most = max(NUM_MODELS)
        sample = JointLabels(num_models=most, signal=SIGNAL, member_share=MEMBER_FRACTION).draw(key)
        audited = jnp.arange(most) < self.num_models
        scores = jnp.where(audited[:, None], sample.scores, _BEYOND)
        member = sample.extra["member"] & audited[:, None]
        return sample._replace(scores=scores, target=~jnp.any(member, axis=0), extra={"member": member})


def _design(options: StudyOptions) -> JointLabels | JointPool:
    columns = options.columns
    return JointLabels(signal=SIGNAL) if columns is None else joint_pool(columns, len(columns.names))


def joint_pool(columns: Columns, num_models: int) -> JointPool:
    """The table of the first models."""
    shared = int(columns.labels.all(0).sum())
    if shared < 4 or columns.labels.all():
        raise InputError(
            f"{columns.source}: {shared} of {columns.labels.shape[1]} items are members of all models; at least 4 are "
            "needed to calibrate, and others to audit"
        )
    return JointPool(dense_ranks(columns.scores[:num_models]), columns.labels[:num_models])


def describe(options: StudyOptions, synthetic: str, given: str = "") -> str:
    """The design in full; `given` says what it does to a given table."""
    columns = options.columns
    if columns is None:
        return f"{synthetic}. {GCR}"
    given = given and f"; {given}"
    return (
        f"{columns.source}, {len(columns.names)} models, {columns.labels.shape[1]} items: a random half of the "
        f"{int(columns.labels.all(0).sum())} items that all were trained on calibrates, all others are audited{given}. "
        f"{GCR}"
    )


def bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    """The bounds for synthetic data, whose scores are independent over models.

    Nothing is known of a given table: the items that all models saw calibrate, and those that some saw may differ.
    """
    if options.columns is not None or method in COMPOSED:
        return ExpectedBound("none")
    return ExpectedBound("asymptotic" if method.startswith("jecs") else "finite-sample")


def _numbers_of_models(options: StudyOptions) -> StudyResult:
    columns = options.columns
    if columns is None:
        return run(SomeModels(), JOINT, grid={"num_models": NUM_MODELS}, **run_options(options))

    def run_cell(options: StudyOptions, num_models: int) -> StudyResult:
        return run(joint_pool(columns, num_models), JOINT, **run_options(options))

    cells: list[dict[str, Any]] = [{"num_models": k} for k in range(2, len(columns.names) + 1)]
    return over_cells(cells, options, run_cell)


def _by_threshold(result: StudyResult, options: StudyOptions | None = None) -> StudyResult:
    """Turn thresholds into cells; methods that do not depend on them are the same in each."""
    place = result.methods.index
    chosen = np.array([[place(name), place(ADAPTIVE), place(BASELINE)] for name in _OF_THRESHOLD.values()])
    return dataclasses.replace(
        result,
        **map_arrays(lambda array: array[chosen], result),
        methods=(FIXED, ADAPTIVE, BASELINE),
        cells=tuple({"tau": tau} for tau in THRESHOLDS),
        repetitions=np.full(len(THRESHOLDS), int(result.repetitions), np.int64),
    )


def _envelope_example(options: StudyOptions) -> Example:
    """The largest p-values of one draw, the envelope that JECS fits on them, and where each selection stops."""
    sample = jax.jit(_design(options).draw)(key_of_seed(options.seed))
    alpha = min(options.alphas, key=lambda level: abs(level - 0.3))
    both = jax.jit(lambda *scores: (jmcs(*scores, alpha=alpha), jecs(*scores, alpha=alpha)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few items: the caption says how many
        plain, fitted = both(sample.calibration, sample.scores)
    p_values, envelope = np.asarray(fitted.p_values), fitted.envelope
    cuts = {
        f"{name}: {int(chosen.num_selected)} selected": float(p_values[np.asarray(chosen.selected)].max(initial=0.0))
        for name, chosen in (("JMCS", plain), ("JECS", fitted))
    }
    words = describe(options, f"five models, signal {SIGNAL:g}").removesuffix(f". {GCR}")
    n, m = int(fitted.num_calibration), int(fitted.num_tests)
    return Example(
        "envelope",
        {
            "p_values": p_values,
            "false": ~np.asarray(sample.target),
            "x": np.asarray(envelope.x),
            "value": np.asarray(envelope.value),
            "tau": float(envelope.tau),
            "slope": float(envelope.slope),
            "cuts": cuts,
        },
        f"One draw of {words}; n = {n} calibration items, m = {m} candidates, α = {alpha:g}.",
        title="Joint selection on one draw: the largest p-values and the envelope of JECS",
    )


def joint_study(*, synthetic: str, given: str = "", **fields: Any) -> NamedStudy:
    """A study of joint selections; `synthetic` describes its design, and `given` what it does to a given table."""
    return NamedStudy(
        describe=functools.partial(describe, synthetic=synthetic, given=given),
        bound=bound,
        repetitions=4_000,
        needs=Needs(scores="several", labels="each"),
        **fields,
    )


STUDIES = (
    joint_study(
        name="jecs-compositions",
        title="Selections for several models at once, by how they are composed",
        synthetic="five models, each trained on a quarter of 1,400 candidates, 600 calibration items; signal in sd",
        run=GridRun(_design, COMPOSED | {name: method(name) for name in JOINT}, grid={"signal": (2.0, 3.0, 4.0)}),
        figure=Figure("bars", panels="signal", error="GCR", labels=LABELS | {"signal": "signal"}),
        alphas=(0.1, 0.2, 0.3),
        example=_envelope_example,
    ),
    joint_study(
        name="jecs-k",
        title="Selections for several models at once, by the number of models",
        synthetic=f"each trained on a tenth of 1,400 candidates, 600 calibration items, signal {SIGNAL:g}",
        run=_numbers_of_models,
        figure=Figure(
            "parameter", x="num_models", x_label="models K", error="GCR", labels=LABELS | {"num_models": "K"}
        ),
        alphas=(0.1, 0.2, 0.3),
    ),
    joint_study(
        name="jecs-tau",
        title="JECS, by the threshold τ of the right tail",
        synthetic="five models, each trained on a quarter of 1,400 candidates, 600 calibration items, "
        f"signal {SIGNAL:g}",
        run=GridRun(
            _design,
            {name: method("jecs", grid=(tau,)) for tau, name in _OF_THRESHOLD.items()}
            | {ADAPTIVE: method(ADAPTIVE), BASELINE: method(BASELINE)},
            finish=_by_threshold,
        ),
        figure=Figure(
            "parameter",
            x="tau",
            x_label="threshold of the right tail, τ",
            level=0.2,
            error="GCR",
            labels=LABELS | {FIXED: "JECS, τ fixed", ADAPTIVE: "JECS, τ chosen", "tau": "τ"},
        ),
        alphas=(0.1, 0.2),
        example=_envelope_example,
    ),
)
