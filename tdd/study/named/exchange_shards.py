"""The test for contaminated data sets over its numbers of shards and shuffles: size under the null, power beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.study.named.pools import over_cells, run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options, Promise
from tdd.study.named.shards import OrderedShards, ShardPool
from tdd.study.results import StudyResult
from tdd.study.runner import run

__all__ = ["STUDY"]

NUM_EXAMPLES, GAIN = 1_000, 0.1
NUM_SHARDS, NUM_SHUFFLES = (5, 10, 20, 50, 100, 200), (1, 2, 10, 25, 50)
SHARDS, SHUFFLES = 20, 25
METHODS = tuple(f"exchangeability/{test}" for test in ("combined", "rank_sum", "exact", "t", "permutation"))
_POWER = ("power", "power_se", "power_quantiles")


def _run(options: Options) -> StudyResult:
    return over_cells(_cells(options), options, _one)


def _cells(options: Options) -> list[dict[str, Any]]:
    most = (10**9, 10**9) if options.columns is None else options.columns.knockoffs.shape
    shards, shuffles = min(SHARDS, most[0]), min(SHUFFLES, most[1])
    by_shards = [
        {"varied": f"k = {shuffles} shuffles", "value": r, "shards": r, "shuffles": shuffles}
        for r in NUM_SHARDS
        if r <= most[0]
    ]
    by_shuffles = [
        {"varied": f"r = {shards} shards", "value": k, "shards": shards, "shuffles": k}
        for k in NUM_SHUFFLES
        if k <= most[1]
    ]
    return [*by_shards, *by_shuffles]


def _one(options: Options, varied: str, value: int, shards: int, shuffles: int) -> StudyResult:
    """One choice of r and k: the error rate is that of the null, the power that of the alternative."""
    if options.columns is None:
        design: Any = OrderedShards(shards, shuffles, NUM_EXAMPLES, GAIN)
    else:
        columns = options.columns
        design = ShardPool(-columns.scores[0], -columns.knockoffs, shards, shuffles)
    both = run(design, METHODS, grid={"gain": (0.0, float(design.gain))}, **run_options(options))
    fields = {
        field.name: getattr(both, field.name)[int(field.name in _POWER)]
        for field in dataclasses.fields(both)
        if isinstance(getattr(both, field.name), np.ndarray) and field.name != "repetitions"
    }
    return dataclasses.replace(both, **fields, cells=({},), repetitions=int(np.min(both.repetitions)))


def _promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    del options, cell
    return Promise("asymptotic" if method.endswith("/t") else "finite-sample")


def _design(options: Options) -> str:
    if options.columns is not None:
        columns = options.columns
        return (
            f"{columns.source}: random choices of {len(columns.knockoffs)} shards; the null "
            "puts one of its orders at random in the place of each canonical one"
        )
    return (
        f"{NUM_EXAMPLES:,} examples in r shards with k shuffles each; an example gains {GAIN:g} sd "
        "where it follows its canonical neighbour"
    )


STUDY = NamedStudy(
    name="exchange-shards",
    title="Exchangeability of a data set, by the numbers of shards and shuffles",
    design=_design,
    run=_run,
    figure=Figure(
        "parameter",
        panels="varied",
        x="value",
        level=0.05,
        error="size",
        labels={
            "exchangeability/combined": "combined",
            "exchangeability/rank_sum": "rank sum",
            "exchangeability/exact": "exact",
            "exchangeability/t": "t (the paper)",
            "exchangeability/permutation": "permutation",
            f"x: k = {SHUFFLES} shuffles": "shards r",
            f"x: r = {SHARDS} shards": "shuffles a shard, k",
        },
        x_label="shards r or shuffles k",
    ),
    promise=_promise,
    repetitions=1_000,
    alphas=(0.05,),
    needs=Needs(labels="none", knockoffs=True),
)
