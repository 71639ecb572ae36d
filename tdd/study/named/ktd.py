"""KTD's studies: knockoff rules by the number of knockoffs, the signal and the law of the scores, or on a table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.procedures.ktd import ktd
from tdd.records import Null, pytree
from tdd.study.designs import PairedScores, Sample
from tdd.study.methods import method
from tdd.study.named.driver import GridRun
from tdd.study.named.record import Columns, ExpectedBound, Figure, NamedStudy, Needs, StudyOptions
from tdd.study.results import StudyResult

LAWS: tuple[Any, ...] = ("normal", "exponential", "negative_exponential")
NUM_TESTS, SIGNAL, NUM_VALIDATION = 200, 2.0, 100
RULES = ("ktd/ktd", "ktd/multi", "ktd/derandomized")
TEN, BASELINE_SIGNAL = 10, 1.5
VANILLA = "ktd/ktd, k = 1"
BASELINES = ("threshold/fdr", "threshold/fpr", VANILLA, "ktd/ktd")
LABELS = {
    "ktd/ktd": "averaged W (the paper)",
    "ktd/multi": "multiple knockoffs (exact)",
    "ktd/derandomized": "derandomized (exact)",
    "negative_exponential": "minus exponential",
    "num_knockoffs": "k",
    "signal": "signal",
}
ALL_LAWS = {"law": range(len(LAWS))}
_TO_ONE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


@pytree("num_knockoffs", "num_tests")
class AnyLaw:
    """`PairedScores` with the law as a number: one program for all of them. Labelled items of the same law validate."""

    null: ClassVar[Null] = "nonmember"

    law: Any = 0  # index into `LAWS`
    num_knockoffs: int = 1  # k
    signal: Any = SIGNAL  # shift of a member's own score to lower values
    ratio: Any = 1.0  # members for one non-member among the candidates
    num_tests: int = NUM_TESTS  # m

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        draws = [self._of(key, law) for law in LAWS]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.law], *draws)

    def _of(self, key: jax.Array, law: Any) -> Sample:
        sizes: dict[str, Any] = {"num_calibration": 1, "signal": self.signal, "law": law}
        mixed: dict[str, Any] = {"num_tests": self.num_tests, "target_share": self.ratio / (1 + self.ratio)}
        sample = PairedScores(num_knockoffs=self.num_knockoffs, **mixed, **sizes).draw(key)
        beside = jax.random.fold_in(key, 2**31)  # fold_in(key, i) is the i-th of split(key, n), which `draw` uses
        labelled = PairedScores(num_tests=NUM_VALIDATION, **sizes).draw(beside)
        validation = {"validation": labelled.scores, "validation_target": labelled.target}
        return sample._replace(extra=sample.extra | validation)


@pytree("num_knockoffs")
class KnockoffPool:
    """Half of the items, drawn anew each time, with the first k of their knockoffs; up to 100 others validate."""

    null: ClassVar[Null] = "nonmember"

    scores: Any  # [N] loss-like scores of the texts
    knockoffs: Any  # [N, at least k] of their knockoffs
    is_member: Any  # [N] bool
    num_knockoffs: int = 1  # k

    def draw(self, key: jax.Array) -> Sample:
        """One half, with `extra["knockoffs"]` [m, k]."""
        scores = jnp.asarray(self.scores, jnp.result_type(float))
        knockoffs = jnp.asarray(self.knockoffs, jnp.result_type(float))[:, : self.num_knockoffs]
        order, is_member = jax.random.permutation(key, scores.shape[0]), jnp.asarray(self.is_member)
        chosen, rest = jnp.split(order, [scores.shape[0] // 2])
        rest = rest[:NUM_VALIDATION]
        validation = {"validation": scores[rest], "validation_target": is_member[rest]}
        extra = {"knockoffs": knockoffs[chosen], **validation}
        return Sample(scores[:0], scores[chosen], is_member[chosen], extra=extra)


def from_table(columns: Columns) -> KnockoffPool:
    """The given table with all of its knockoffs."""
    return KnockoffPool(columns.scores[0], columns.knockoffs, columns.labels[0], columns.knockoffs.shape[1])


def _or_table(synthetic: Any) -> Callable[[StudyOptions], Any]:
    """`(options) -> design`: the given table, or a synthetic design."""
    return lambda options: synthetic if options.columns is None else from_table(options.columns)


def describe(
    options: StudyOptions,
    signal: str = f"{SIGNAL:g}",
    knockoffs: str = "k paraphrases",
    texts: str = f"{NUM_TESTS} texts, half of them members",
) -> str:
    """The design in full."""
    columns = options.columns
    if columns is not None:
        return f"{columns.source}, {columns.names[0]}: random halves of {columns.labels.shape[1]} items"
    return (
        f"{texts} with scores {signal} lower, and {knockoffs} of each; "
        "the scores of a text and its paraphrases follow one law"
    )


def bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    """The bounds for copies of one law; paraphrases of a table need not be exchangeable with their texts."""
    if options.columns is not None or not method.startswith("ktd/"):
        return ExpectedBound("none")
    exact = method != "ktd/ktd" or cell.get("num_knockoffs", 2) == 1
    return ExpectedBound("finite-sample" if exact else "none")


def with_laws(result: StudyResult, options: StudyOptions) -> StudyResult:
    """Name the law of each cell in place of its number."""
    if options.columns is not None:
        return result
    return dataclasses.replace(result, cells=tuple(cell | {"law": LAWS[cell["law"]]} for cell in result.cells))


def _up_to_all(columns: Columns, wanted: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """A grid over the numbers of knockoffs that a table has, up to all of them."""
    most = columns.knockoffs.shape[1]
    return {"num_knockoffs": tuple(sorted({k for k in wanted if k < most} | {most}))}


def _vanilla(key: jax.Array, scores: jax.Array, calibration: jax.Array, *, alpha: Any, extra: Any) -> jax.Array:
    """KTD with the first knockoff alone."""
    del key, calibration
    return ktd(scores, extra["knockoffs"][:, :1], alpha=alpha, rule="ktd").selected


_study = functools.partial(NamedStudy, bound=bound, repetitions=4_000, needs=Needs(knockoffs=True))


def _of_signals(*, kind: Any, signals: tuple[float, ...], **fields: Any) -> NamedStudy:
    """KTD's averaged W with ten knockoffs at many levels, a series for each signal and a panel for each law."""
    listed = f"{', '.join(f'{signal:g}' for signal in signals[:-1])} or {signals[-1]:g}"
    grid = ALL_LAWS | {"signal": signals}
    return _study(
        describe=functools.partial(describe, signal=listed, knockoffs=f"{TEN} paraphrases"),
        run=GridRun(_or_table(AnyLaw(num_knockoffs=TEN)), ("ktd/ktd",), grid, finish=with_laws),
        figure=Figure(kind, series="signal", panels="law", labels=LABELS),
        **fields,
    )


_NUMBERS, _MORE_NUMBERS = (1, 3, 5, 10, 50), (1, 3, 5, 10, 50, 100)

STUDIES = (
    _of_signals(
        name="ktd-alpha",
        title="KTD's averaged W at every level, by the signal and the law of the scores",
        kind="levels",
        signals=(1.0, 2.0, 3.0),
        alphas=(0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95),
    ),
    _of_signals(
        name="ktd-signal",
        title="KTD's averaged W: power against FDR over the levels, by the signal",
        kind="tradeoff",
        signals=(0.5, 1.0, 1.5, 2.0),
        alphas=_TO_ONE,
    ),
    _study(
        name="ktd-draws",
        title="Knockoffs, by their number an item and by the law of the scores",
        describe=describe,
        run=GridRun(
            _or_table(AnyLaw()),
            RULES,
            ALL_LAWS | {"num_knockoffs": _NUMBERS},
            table_grid=functools.partial(_up_to_all, wanted=_NUMBERS),
            finish=with_laws,
        ),
        figure=Figure("parameter", panels="law", x="num_knockoffs", x_label="knockoffs an item, k", labels=LABELS),
        alphas=(0.1, 0.2),
    ),
    _study(
        name="ktd-tradeoff",
        title="KTD's averaged W: power against FDR over the levels, by the number of knockoffs an item",
        describe=lambda options: f"{describe(options, '1, 1.5 or 2')}, the normal one",
        run=GridRun(
            _or_table(PairedScores(num_tests=NUM_TESTS, num_calibration=1)),
            ("ktd/ktd",),
            {"signal": (1.0, 1.5, 2.0), "num_knockoffs": _MORE_NUMBERS},
            table_grid=functools.partial(_up_to_all, wanted=_MORE_NUMBERS),
        ),
        figure=Figure("tradeoff", series="num_knockoffs", panels="signal", labels=LABELS),
        repetitions=2_000,
        alphas=_TO_ONE,
    ),
    _study(
        name="ktd-baselines",
        title="Thresholds from validation items beside knockoffs, by the law of the scores",
        describe=lambda options: (
            f"{describe(options, f'{BASELINE_SIGNAL:g}', f'{TEN} paraphrases')}; thresholds of the texts' own "
            f"scores, from at most {NUM_VALIDATION} other texts with known labels"
        ),
        run=GridRun(
            _or_table(AnyLaw(num_knockoffs=TEN, signal=BASELINE_SIGNAL)),
            {name: _vanilla if name == VANILLA else method(name) for name in BASELINES},
            ALL_LAWS,
            finish=with_laws,
        ),
        figure=Figure(
            "bars",
            panels="law",
            labels=LABELS
            | {
                "threshold/fdr": "threshold, validation FDP ≤ α",
                "threshold/fpr": "threshold, validation FPR ≤ α",
                VANILLA: "one knockoff (vanilla, exact)",
            },
        ),
        alphas=(0.1,),
    ),
)
