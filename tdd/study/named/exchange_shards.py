"""The test for contaminated data sets over its numbers of shards and shuffles: size under the null, power beside it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.study.engine import run
from tdd.study.methods import method
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options, Promise
from tdd.study.named.shards import OrderedShards, ShardPool, decide
from tdd.study.results import StudyResult

__all__ = ["STUDY"]

NUM_EXAMPLES, GAIN = 1_000, 0.1
NUM_SHARDS, NUM_SHUFFLES = (5, 10, 20, 50, 100, 200), (1, 2, 10, 25, 50)
SHARDS, SHUFFLES = 20, 25
TESTS = ("combined", "rank_sum", "exact", "t", "permutation")
_POWER = ("power", "power_se", "power_quantiles")


def _run(options: Options) -> StudyResult:
    columns = options.columns
    most, most_shuffles = (max(NUM_SHARDS), max(NUM_SHUFFLES)) if columns is None else columns.knockoffs.shape
    shards, shuffles = min(SHARDS, most), min(SHUFFLES, most_shuffles)
    start = time.perf_counter()
    parts = [
        _part(options, f"k = {shuffles} shuffles", most, "num_shards", NUM_SHARDS, most, {"num_shuffles": shuffles}),
        _part(
            options, f"r = {shards} shards", shards, "num_shuffles", NUM_SHUFFLES, most_shuffles, {"num_shards": shards}
        ),
    ]
    return dataclasses.replace(joined(parts), seconds=time.perf_counter() - start)


def _part(
    options: Options, name: str, max_shards: int, field: str, wanted: Sequence[int], most: int, fixed: Mapping[str, int]
) -> StudyResult:
    """One of r and k varied: the error rate is that of the null, the power that of the alternative."""
    columns = options.columns
    if columns is None:
        design: Any = OrderedShards(max_shards, num_examples=NUM_EXAMPLES, gain=GAIN, **fixed)
    else:
        design = ShardPool(-columns.scores[0], -columns.knockoffs, **fixed)
    values = tuple(value for value in wanted if value <= most) or (most,)
    methods = {f"exchangeability/{test}": method(decide, test=test) for test in TESTS}
    folder = None if options.folder is None else options.folder / field
    settings = run_options(dataclasses.replace(options, folder=folder))
    both = run(design, methods, grid={field: values, "gain": (0.0, float(design.gain))}, **settings)
    cells = [{"varied": name, "value": int(value), **fixed, field: int(value)} for value in values]
    return halves(both, cells)


def halves(both: StudyResult, cells: Sequence[dict[str, Any]]) -> StudyResult:
    """Of cells that come in pairs, null and alternative: the errors of the first and the power of the second."""
    fields = {
        field.name: getattr(both, field.name)[int(field.name in _POWER) :: 2]
        for field in dataclasses.fields(both)
        if isinstance(getattr(both, field.name), np.ndarray)
    }
    return dataclasses.replace(both, **fields, cells=tuple(cells))


def joined(parts: Sequence[StudyResult]) -> StudyResult:
    """The cells of several results, one after the other."""
    fields = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in dataclasses.fields(StudyResult)
        if isinstance(getattr(parts[0], field.name), np.ndarray)
    }
    cells = tuple(cell for part in parts for cell in part.cells)
    provenance = {**parts[0].provenance, "parts": [part.provenance for part in parts[1:]]}
    return dataclasses.replace(parts[0], **fields, cells=cells, provenance=provenance)


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
            "num_shards": "shards r",
            "num_shuffles": "shuffles k",
            "exchangeability/combined": "combined",
            "exchangeability/rank_sum": "rank sum",
            "exchangeability/exact": "exact",
            "exchangeability/t": "t (the paper)",
            "exchangeability/permutation": "permutation",
            f"x: k = {SHUFFLES} shuffles": "shards r",
            f"x: r = {SHARDS} shards": "shuffles a shard, k",
        },
        x_label="shards r or shuffles k",
        columns=("num_shards", "num_shuffles"),
        counts=False,
    ),
    promise=_promise,
    repetitions=1_000,
    alphas=(0.05,),
    needs=Needs(labels="none", knockoffs=True),
)
