"""The studies of canonical order: one test over numbers of shards and shuffles, and five tests against each other.

Each cell has the error rate of the null beside the power of the alternative.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.exchangeability import exchangeability
from tdd.records import Null, pytree
from tdd.study.designs import Sample, SkewedShards
from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named.driver import map_arrays, run_options, stacked
from tdd.study.named.record import ExpectedBound, Figure, NamedStudy, Needs, StudyOptions
from tdd.study.results import StudyResult

TESTS = ("combined", "rank_sum", "exact", "t", "permutation")
NUM_DRAWS = 999
NUM_EXAMPLES, GAIN = 1_000, 0.1
NUM_SHARDS, NUM_SHUFFLES = (5, 10, 20, 50, 100, 200), (1, 2, 10, 25, 50)
SHARDS, SHUFFLES = 20, 25
SIZES = ((10, 25), (50, 25), (50, 50))
MOST_FOR_POWER = 4_000
DENSE, FEW, FEW_FRACTION = 0.4, 6.0, 0.06
LABELS = {
    "num_shards": "shards r",
    "num_shuffles": "shuffles k",
    "exchangeability/combined": "combined",
    "exchangeability/rank_sum": "rank sum",
    "exchangeability/exact": "exact",
    "exchangeability/t": "t (the paper)",
    "exchangeability/permutation": "permutation",
}
_TABLE_NULL = "the null puts one of its orders at random in the place of each canonical one"
_POWER = ("power", "power_se", "power_quantiles")


SETTINGS: tuple[tuple[str, Any, float, float], ...] = (
    ("normal", "normal", DENSE, 1.0),
    ("exponential", "exponential", DENSE, 1.0),
    ("lognormal", "lognormal", DENSE, 1.0),
    ("few shards", "normal", FEW, FEW_FRACTION),
)
"""(panel, law of the log-probabilities, shift of the canonical order, fraction of the shards that show it)"""


# --- designs ----------------------------------------------------------------------------------------------------------


@pytree("max_shards", "num_shuffles")
class OrderedShards:
    """N examples in r shards of s = N/r; an example gains where it follows its canonical neighbour.

    The log-probability of a shard of s examples in some order is normal with variance s, about `gain` times the number
    of canonical neighbours: s - 1 in the canonical order, and (s - 1)/s on average in a random one. Few shards leave
    few degrees of freedom, many shards cut through many neighbours.
    """

    null: ClassVar[Null] = "nonmember"

    max_shards: int = 20  # bound of r; a mask says which shards are real
    num_shuffles: int = 25  # k
    num_shards: Any = 20  # r
    num_examples: Any = 1_000  # N
    gain: Any = 0.0  # gain of an example, in standard deviations of its log-probability; 0 is the null

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra` as `_decide_in_some` reads it."""
        size = jnp.asarray(self.num_examples, jnp.result_type(float)) / self.num_shards
        gain = jnp.asarray(self.gain, jnp.result_type(float))
        own, others = jax.random.split(key)
        canonical = jax.random.normal(own, (self.max_shards,)) * jnp.sqrt(size) + gain * (size - 1)
        shuffled = jax.random.normal(others, (self.max_shards, self.num_shuffles)) * jnp.sqrt(size)
        shuffled = shuffled + gain * (size - 1) / size
        return _sample(canonical, shuffled, jnp.arange(self.max_shards) < self.num_shards, gain > 0)


@pytree("num_shuffles")
class ShardPool:
    """Some shards of a given table, drawn anew, with the first k of their shuffles."""

    null: ClassVar[Null] = "nonmember"

    canonical: Any  # [at least r] log-probabilities
    shuffled: Any  # [as many, at least k]
    num_shuffles: int = 1  # k
    num_shards: Any = 2  # r
    # 1 keeps the canonical orders where they are; 0 puts in the place of each one of its k + 1 orders at random, which
    # makes the null true
    gain: Any = 1.0

    def draw(self, key: jax.Array) -> Sample:
        """One choice of shards, with `extra` as `_decide_in_some` reads it."""
        which, mixing = jax.random.split(key)
        canonical, shuffled = (jnp.asarray(x, jnp.result_type(float)) for x in (self.canonical, self.shuffled))
        chosen = jax.random.permutation(which, canonical.shape[0])
        orders = jnp.concatenate([canonical[:, None], shuffled[:, : self.num_shuffles]], axis=1)[chosen]
        mixed = jax.random.permutation(mixing, orders, axis=1, independent=True)
        shown = jnp.asarray(self.gain) > 0
        orders = jnp.where(shown, orders, mixed)
        return _sample(orders[:, 0], orders[:, 1:], jnp.arange(canonical.shape[0]) < self.num_shards, shown)


@pytree("num_draws")
class TestedShards:
    """Data sets of another design with the p-value of every test on them, so that no test is carried out twice."""

    null: ClassVar[Null] = "nonmember"
    __test__: ClassVar[bool] = False

    # draws `extra["canonical"]` [r] and `extra["shuffled"]` [r, k], and optionally `extra["shards"]` [r] bool
    design: Any
    num_draws: int = NUM_DRAWS  # number of random relabellings of "exact"

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["p"]`: test -> [] p-value."""
        own, drawing = jax.random.split(key)
        sample = self.design.draw(own)
        orders = sample.extra["canonical"], sample.extra["shuffled"]
        options: dict[str, Any] = {"mask": sample.extra.get("shards"), "num_draws": self.num_draws}
        keys: dict[Any, Any] = {"rank_sum": None, "exact": drawing, "t": None, "permutation": None}
        p = {test: exchangeability(*orders, test=test, key=key, **options).p_value for test, key in keys.items()}
        p["combined"] = jnp.minimum(2 * jnp.minimum(p["rank_sum"], p["exact"]), 1)
        extra = {name: value for name, value in sample.extra.items() if name != "shards"}
        return sample._replace(extra={**extra, "p": p})


def _sample(canonical: jax.Array, shuffled: jax.Array, real: jax.Array, target: jax.Array) -> Sample:
    extra = {"canonical": canonical, "shuffled": shuffled, "shards": real}
    return Sample(jnp.zeros(1), jnp.zeros(1), target[None], extra=extra)


def _decide_in_some(key: jax.Array, scores: Any, calibration: Any, *, alpha: float, extra: Any, test: Any) -> jax.Array:
    """[1] bool, whether a test is significant in the shards that are real, `extra["shards"]`."""
    del scores, calibration
    orders = extra["canonical"], extra["shuffled"]
    outcome = exchangeability(*orders, test=test, key=key, num_draws=NUM_DRAWS, mask=extra["shards"])
    return (outcome.p_value <= alpha)[None]


def _decide_tested(key: jax.Array, scores: Any, calibration: Any, *, alpha: float, extra: Any, test: str) -> jax.Array:
    """[1] bool, whether a test of `TestedShards` is significant."""
    del key, scores, calibration
    return (extra["p"][test] <= alpha)[None]


def _methods(decide: Any) -> dict[str, Any]:
    return {f"exchangeability/{test}": method(decide, test=test) for test in TESTS}


def _bound(options: StudyOptions, cell: Mapping[str, Any], method: str) -> ExpectedBound:
    return ExpectedBound("asymptotic" if method.endswith("/t") else "finite-sample")


# --- numbers of shards and shuffles -----------------------------------------------------------------------------------


def _run_shards(options: StudyOptions) -> StudyResult:
    columns = options.columns
    most, most_shuffles = (max(NUM_SHARDS), max(NUM_SHUFFLES)) if columns is None else columns.knockoffs.shape
    shards, shuffles = min(SHARDS, most), min(SHUFFLES, most_shuffles)
    start = time.perf_counter()
    parts = []
    for panel, max_shards, field, values, largest, fixed in (
        (f"k = {shuffles} shuffles", most, "num_shards", NUM_SHARDS, most, {"num_shuffles": shuffles}),
        (f"r = {shards} shards", shards, "num_shuffles", NUM_SHUFFLES, most_shuffles, {"num_shards": shards}),
    ):
        if columns is None:
            design: Any = OrderedShards(max_shards, num_examples=NUM_EXAMPLES, gain=GAIN, **fixed)
        else:
            design = ShardPool(-columns.scores[0], -columns.knockoffs, **fixed)
        values = [value for value in values if value <= largest] or [largest]
        grid = {field: values, "gain": (0.0, float(design.gain))}
        both = run(design, _methods(_decide_in_some), grid=grid, **run_options(options.within(field)))
        parts.append(halves(both, [{"varied": panel, "value": value, **fixed, field: value} for value in values]))
    return dataclasses.replace(joined(parts), seconds=time.perf_counter() - start)


def halves(both: StudyResult, cells: Sequence[dict[str, Any]]) -> StudyResult:
    """Join cells that come in pairs: the errors of the first, the null, and the power of the second."""
    arrays = map_arrays(lambda array: array[::2], both)
    arrays |= {name: getattr(both, name)[1::2] for name in _POWER}
    return dataclasses.replace(both, **arrays, cells=tuple(cells))


def joined(parts: Sequence[StudyResult]) -> StudyResult:
    """The cells of several results, one after the other."""
    cells = tuple(cell for part in parts for cell in part.cells)
    provenance = {**parts[0].provenance, "parts": [part.provenance for part in parts[1:]]}
    arrays = map_arrays(lambda *values: np.concatenate(values), *parts)
    return dataclasses.replace(parts[0], **arrays, cells=cells, provenance=provenance)


def _describe_shards(options: StudyOptions) -> str:
    if options.columns is not None:
        return f"{options.columns.source}: random choices of {len(options.columns.knockoffs)} shards; {_TABLE_NULL}"
    return (
        f"{NUM_EXAMPLES:,} examples in r shards with k shuffles each; an example gains {GAIN:g} sd "
        "where it follows its canonical neighbour"
    )


# --- five tests -------------------------------------------------------------------------------------------------------


def _run_tests(options: StudyOptions) -> StudyResult:
    start = time.perf_counter()
    cells, results, nulls = [], [], {}
    for cell, null, alternative in _designs(options):
        same = cell["num_shards"], cell["num_shuffles"], getattr(null, "law", "")
        if same not in nulls:
            nulls[same] = _run_tested(options, f"null-{len(nulls):02d}", null, options.repetitions)
        cells.append(cell)
        power = _run_tested(options, f"power-{len(cells):02d}", alternative, _for_power(options))
        seconds = nulls[same].seconds + power.seconds
        fields = {name: getattr(power, name) for name in _POWER}
        results.append(dataclasses.replace(nulls[same], **fields, seconds=seconds))
    whole = stacked(cells, results)
    provenance = {**whole.provenance, "power_repetitions": _for_power(options)}
    return dataclasses.replace(whole, seconds=time.perf_counter() - start, provenance=provenance)


def _designs(options: StudyOptions) -> list[tuple[dict[str, Any], Any, Any]]:
    """(cell, null, alternative) of every cell."""
    columns = options.columns
    if columns is not None:
        r, k = columns.knockoffs.shape
        pool = ShardPool(-columns.scores[0], -columns.knockoffs, num_shuffles=k, num_shards=r)
        return [(_cell("the table", r, k), dataclasses.replace(pool, gain=0.0), pool)]
    designs = []
    for (panel, law, signal, shifted_share), (r, k) in itertools.product(SETTINGS, SIZES):
        null = SkewedShards(num_shards=r, num_shuffles=k, signal=0.0, shifted_share=1.0, law=law)
        shown = dataclasses.replace(null, signal=signal, shifted_share=shifted_share)
        designs.append((_cell(panel, r, k), null, shown))
    return designs


def _cell(panel: str, r: int, k: int) -> dict[str, Any]:
    return {"panel": panel, "num_shards": r, "num_shuffles": k, "calls": r * (k + 1)}


def _run_tested(options: StudyOptions, name: str, design: Any, repetitions: int) -> StudyResult:
    options = options.within(name, repetitions=repetitions)
    return run(TestedShards(design), _methods(_decide_tested), **run_options(options))


def _for_power(options: StudyOptions) -> int:
    """A size is known to a thousandth only after many repetitions; a power to a hundredth is enough."""
    return min(options.repetitions, MOST_FOR_POWER)


def _describe_tests(options: StudyOptions) -> str:
    if options.columns is not None:
        return f"{options.columns.source}: all its shards; {_TABLE_NULL}"
    return (
        "log-probabilities of standard deviation 1, independent over the orders of a shard: normal, -Exp(1) or "
        f"-exp(N(0, 1)). Power, from {_for_power(options):,} repetitions: every canonical order {DENSE:g} sd more "
        f'likely; under "few shards" (normal) {FEW_FRACTION:.0%} of them {FEW:g} sd. exact: {NUM_DRAWS} draws'
    )


_study = functools.partial(NamedStudy, bound=_bound, repetitions=1_000, needs=Needs(labels="none", knockoffs=True))
_figure = functools.partial(Figure, "parameter", error="size", counts=False)

STUDIES = (
    _study(
        name="exchange-shards",
        title="Exchangeability of a data set, by the numbers of shards and shuffles",
        describe=_describe_shards,
        run=_run_shards,
        figure=_figure(
            panels="varied",
            x="value",
            level=0.05,
            labels=LABELS
            | {f"x: k = {SHUFFLES} shuffles": "shards r", f"x: r = {SHARDS} shards": "shuffles a shard, k"},
            x_label="shards r or shuffles k",
            columns=("num_shards", "num_shuffles"),
        ),
        alphas=(0.05,),
    ),
    _study(
        name="exchange-tests",
        title="Five tests of canonical order on normal and on skewed shards",
        describe=_describe_tests,
        run=_run_tests,
        figure=_figure(
            panels="panel",
            x="calls",
            x_label="model calls r (k + 1)",
            level=0.01,
            labels=LABELS,
            columns=("panel", "num_shards", "num_shuffles"),
        ),
        alphas=(0.01, 0.05),
    ),
)
