"""The five tests of canonical order against each other: size on skewed shards, power where shifts are dense or rare."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tdd.procedures.exchangeability import exchangeability
from tdd.records import Null, pytree
from tdd.study.designs import SkewedShards
from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named.pools import run_options, stacked
from tdd.study.named.record import Figure, NamedStudy, Needs, Options, Promise
from tdd.study.named.shards import ShardPool
from tdd.study.results import StudyResult
from tdd.study.sample import Sample

__all__ = ["STUDY", "TestedShards", "decide"]

TESTS = ("combined", "rank_sum", "exact", "t", "permutation")
SIZES = ((10, 25), (50, 25), (50, 50))
NUM_DRAWS, MOST_FOR_POWER = 999, 4_000
DENSE, FEW, FEW_SHARE = 0.4, 6.0, 0.06


class _Setting(NamedTuple):
    """A law of the log-probabilities, and how the canonical orders differ under the alternative."""

    panel: str
    law: Any
    signal: float
    shifted_share: float


SETTINGS = (
    _Setting("normal", "normal", DENSE, 1.0),
    _Setting("exponential", "exponential", DENSE, 1.0),
    _Setting("lognormal", "lognormal", DENSE, 1.0),
    _Setting("few shards", "normal", FEW, FEW_SHARE),
)


@pytree("num_draws")
class TestedShards:
    """Data sets of another design with the p-value of every test on them, so that no test is carried out twice.

    Attributes:
      design: draws `extra["canonical"]` [r] and `extra["shuffled"]` [r, k], and `extra["shards"]` [r] bool if it likes.
      num_draws: random relabellings of "exact".
    """

    null: ClassVar[Null] = "nonmember"
    __test__: ClassVar[bool] = False

    design: Any
    num_draws: int = NUM_DRAWS

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["p"]`: test -> [] p-value."""
        own, drawing = jax.random.split(key)
        sample = self.design.draw(own)
        orders = sample.extra["canonical"], sample.extra["shuffled"]
        given: dict[str, Any] = {"mask": sample.extra.get("shards"), "num_draws": self.num_draws}
        p = {
            "rank_sum": exchangeability(*orders, test="rank_sum", **given).p_value,
            "exact": exchangeability(*orders, test="exact", key=drawing, **given).p_value,
            "t": exchangeability(*orders, test="t", **given).p_value,
            "permutation": exchangeability(*orders, test="permutation", **given).p_value,
        }
        p["combined"] = jnp.minimum(2 * jnp.minimum(p["rank_sum"], p["exact"]), 1)
        extra = {name: value for name, value in sample.extra.items() if name != "shards"}
        return sample._replace(extra={**extra, "p": p})


def decide(key: jax.Array, scores: Any, calibration: Any, *, alpha: float, extra: Any, test: str) -> jax.Array:
    """[1] bool, whether a test of `TestedShards` is significant.

    Args:
      key: unused.
      scores: unused.
      calibration: unused.
      alpha: level.
      extra: of the sample.
      test: which.
    """
    del key, scores, calibration
    return (extra["p"][test] <= alpha)[None]


def _run(options: Options) -> StudyResult:
    start = time.perf_counter()
    cells, results, nulls = [], [], {}
    for cell, null, alternative in _designs(options):
        same = cell["num_shards"], cell["num_shuffles"], getattr(null, "law", "")
        if same not in nulls:
            nulls[same] = _one(options, f"null-{len(nulls):02d}", null, options.repetitions)
        cells.append(cell)
        power = _one(options, f"power-{len(cells):02d}", alternative, _for_power(options))
        results.append(_size_and_power(nulls[same], power))
    whole = stacked(cells, results)
    told = {**whole.provenance, "power_repetitions": _for_power(options)}
    return dataclasses.replace(whole, seconds=time.perf_counter() - start, provenance=told)


def _designs(options: Options) -> list[tuple[dict[str, Any], Any, Any]]:
    """(cell, null, alternative) of every cell."""
    columns = options.columns
    if columns is not None:
        r, k = columns.knockoffs.shape
        pool = ShardPool(-columns.scores[0], -columns.knockoffs, num_shuffles=k, num_shards=r)
        return [(_cell("the table", r, k), dataclasses.replace(pool, gain=0.0), pool)]
    found = []
    for setting in SETTINGS:
        for r, k in SIZES:
            null = SkewedShards(num_shards=r, num_shuffles=k, signal=0.0, shifted_share=1.0, law=setting.law)
            shown = dataclasses.replace(null, signal=setting.signal, shifted_share=setting.shifted_share)
            found.append((_cell(setting.panel, r, k), null, shown))
    return found


def _cell(panel: str, r: int, k: int) -> dict[str, Any]:
    return {"panel": panel, "num_shards": r, "num_shuffles": k, "calls": r * (k + 1)}


def _one(options: Options, name: str, design: Any, repetitions: int) -> StudyResult:
    methods = {f"exchangeability/{test}": method(decide, test=test) for test in TESTS}
    folder = None if options.folder is None else options.folder / name
    told = dataclasses.replace(options, folder=folder, repetitions=repetitions)
    return run(TestedShards(design), methods, **run_options(told))


def _size_and_power(null: StudyResult, alternative: StudyResult) -> StudyResult:
    """The errors of the null with the power of the alternative."""
    power = {field: getattr(alternative, field) for field in ("power", "power_se", "power_quantiles")}
    return dataclasses.replace(null, **power, seconds=null.seconds + alternative.seconds)


def _for_power(options: Options) -> int:
    """A size is known to a thousandth only after many repetitions; a power to a hundredth is enough."""
    return min(options.repetitions, MOST_FOR_POWER)


def _promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    del options, cell
    return Promise("asymptotic" if method.endswith("/t") else "finite-sample")


def _design(options: Options) -> str:
    if options.columns is not None:
        return (
            f"{options.columns.source}: all its shards; the null puts one of its orders at random in the place of each "
            "canonical one"
        )
    return (
        "log-probabilities of standard deviation 1, independent over the orders of a shard: normal, -Exp(1) or "
        f"-exp(N(0, 1)). Power, from {_for_power(options):,} repetitions: every canonical order {DENSE:g} sd more "
        f'likely; under "few shards" (normal) {FEW_SHARE:.0%} of them {FEW:g} sd. exact: {NUM_DRAWS} draws'
    )


STUDY = NamedStudy(
    name="exchange-tests",
    title="Five tests of canonical order on normal and on skewed shards",
    design=_design,
    run=_run,
    figure=Figure(
        "parameter",
        panels="panel",
        x="calls",
        x_label="model calls r (k + 1)",
        level=0.01,
        error="size",
        labels={
            "num_shards": "shards r",
            "num_shuffles": "shuffles k",
            "exchangeability/combined": "combined",
            "exchangeability/rank_sum": "rank sum",
            "exchangeability/exact": "exact",
            "exchangeability/t": "t (the paper)",
            "exchangeability/permutation": "permutation",
        },
        columns=("panel", "num_shards", "num_shuffles"),
        counts=False,
    ),
    promise=_promise,
    repetitions=1_000,
    alphas=(0.01, 0.05),
    needs=Needs(labels="none", knockoffs=True),
)
