"""The general engine: any design, any methods, many repetitions in one compiled program."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.runs.folder import versions
from tdd.runs.progress import progress_bar
from tdd.study.accumulate import Plan, accumulate
from tdd.study.engine import STEP, engine, exact_levels, prepared, shape
from tdd.study.methods import as_methods
from tdd.study.results import StudyResult, Totals
from tdd.study.store import TotalsStore, described
from tdd.validate import studies as checks
from tdd.validate.errors import InputError

__all__ = ["run"]

_LARGEST = 64 * STEP  # repetitions a call: far from where the sums of a tally would wrap
_SMALLEST = STEP // 8  # repetitions of a piece that a shard runs


def run(
    design: Any,
    methods: Any,
    *,
    alphas: Any,
    repetitions: int,
    seed: int = 0,
    grid: Mapping[str, Iterable[Any]] | None = None,
    target_se: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> StudyResult:
    """Measure error rates and power of methods over repetitions of a design.

    Repetition i draws one data set with a key that depends on `seed` and i alone, and gives it to every method at every
    level; every grid point uses the same keys (common random numbers), so that differences between methods, levels and
    grid points are better known than each number by itself. Sums are integers: the numbers do not depend on the
    devices, nor on how the run is cut into calls, into shards, or interrupted.

    Args:
      design: an object of `tdd.study.designs`, or anything with `draw(key) -> tdd.study.Sample` in JAX.
      methods: a name, a function `(key, scores, calibration) -> selected`, a `tdd.study.method`, several of these, or
        a dict from labels to them.
      alphas: levels; taken as exact fractions.
      repetitions: of each grid point, at most.
      seed: of the run.
      grid: field of the design -> values; all combinations are run. A field that is data (any number that is no size)
        costs no compilation.
      target_se: a grid point stops once the standard errors of FDR and power of all methods and levels are at most
        this. That is looked at after 1,024 repetitions and whenever they have grown by a quarter (in multiples of
        1,024), whatever the devices, with standard errors as if two repetitions more had had 0 and 1. Standard errors
        of a run that stops where they happen to be small are slightly too small.
      folder: keeps the totals of the run, so that it can be interrupted and continued by the same call, and the result
        when it is done. A finished run is read from there. A folder of another study is refused.
      shard: (i, n) or "i/n" runs the part i (from 0) of n of the repetitions alone, leaves its totals in `folder`, and
        returns the result of its own repetitions, which may be none (NaN). Shards may run at the same time on
        machines that share the folder, in any order, and again. The same call without `shard` joins what they left,
        runs what is missing, and returns the whole result. Not with `target_se`.
      devices: to share the repetitions out over (default: all of them).
      progress: shows a bar on standard error, if that is a terminal.

    Returns:
      `StudyResult`; `repetitions` and `provenance["stopping"]` say what `target_se` did.

    Raises:
      InputError: options out of range, an unknown field or method, a method that does not fit what the design draws or
        does not return one bool an item, a folder of another study; a shard that does not exist, or without a
        folder.

    Cost: that of the methods. Memory does not grow with `repetitions`.

    >>> from tdd.study import NormalShift, run
    >>> design = NormalShift(num_calibration=49, num_tests=20)
    >>> def below_the_third(key, scores, calibration):
    ...     return scores < calibration.sort()[2]
    >>> rules = ["ptdi/none", "ptdi/storey", below_the_third]
    >>> result = run(design, rules, alphas=[0.1, 0.2], repetitions=500, grid={"signal": [1, 2]})
    >>> result.fdr.shape, bool((result.fdr[:, :2] < [0.12, 0.22]).all())
    ((2, 3, 2), True)
    >>> result.rows()[0]["method"], result.repetitions.tolist()
    ('ptdi/none', [500, 500])
    """
    started = time.perf_counter()
    checks.check_run(repetitions, seed, target_se)
    levels, rules = checks.as_levels(alphas), as_methods(methods)
    points = _as_grid(design, grid)
    cells = prepared(design, points or [{}])
    devices = checks.as_devices(devices)
    setting = {
        "design": described(design),
        "grid": described(points),
        "methods": {rule.name: described(rule.select) for rule in rules},
        "alphas": levels,
        "repetitions": int(repetitions),
        "seed": int(seed),
        "target_se": target_se,
        "versions": versions(),
        "platform": devices[0].platform,
        "precision": jax.dtypes.canonicalize_dtype(float).name,
    }
    store = TotalsStore(folder, setting, shard)
    key = jax.random.key(seed, impl="threefry2x32")
    operands_of = [(cell, exact_levels(levels), key) for cell in cells]
    found = []
    name = type(design).__name__
    total = repetitions * len(cells) // (store.shard.count if store.shard else 1)
    with progress_bar(name, total, enabled=progress, unit="repetitions") as advance:
        for i, operands in enumerate(operands_of):
            num_tests, lanes = shape(operands[0], key)
            sums = engine(rules, levels, lanes, devices)
            plan = Plan(
                int(repetitions),
                STEP,
                _LARGEST,
                max(_SMALLEST, lanes),
                None if target_se is None else _next_checkpoint,
                lambda totals: _worst(totals) <= (target_se or 0),
            )
            zero = Totals.zero((len(rules), len(levels)))
            totals = accumulate(plan, sums, operands, store, i, zero, advance)
            found.append((totals, num_tests))
    stopping = None
    if target_se is not None:
        worst = [_worst(totals) for totals, _ in found]
        stopping = {
            "target_se": target_se,
            "met": [bool(error <= target_se) for error in worst],
            "largest_se": worst,
            "early": [totals.repetitions < repetitions for totals, _ in found],
        }
    result = Totals.result(
        [totals for totals, _ in found],
        methods=[rule.name for rule in rules],
        alphas=levels,
        num_items=[items for _, items in found],
        cells=points,
        seconds=time.perf_counter() - started,
        provenance={
            "engine": "tdd.study.run",
            **setting,
            "stopping": stopping,
            "shard": None if store.shard is None else str(store.shard),
            "devices": [str(device) for device in devices],
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    if folder is not None and store.shard is None:
        result.save(folder)
    return result


def _next_checkpoint(done: int) -> int:
    """The first number of repetitions beyond `done` at which a run may stop."""
    at = STEP
    while at <= done:
        at += max(STEP, at // 4 // STEP * STEP)
    return at


def _worst(totals: Totals) -> float:
    """The largest standard error of FDR and power, of all methods and levels."""
    return float(np.max(totals.standard_errors(cautious=True)[..., :2]))


def _as_grid(design: Any, grid: Mapping[str, Iterable[Any]] | None) -> list[dict[str, Any]] | None:
    """Every combination of the values of a grid, the last field running fastest; None without a grid."""
    if grid is None:
        return None
    known = tuple(getattr(design, "__dataclass_fields__", {}))
    points: list[dict[str, Any]] = [{}]
    for name, values in dict(grid).items():
        if name not in known:
            raise InputError(
                f"grid: {type(design).__name__} has no field {name!r}; its fields are {', '.join(known) or 'none'}"
            )
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InputError(f"grid[{name!r}] must be a sequence of values, got {values!r}")
        chosen = list(values)
        if not chosen:
            raise InputError(f"grid[{name!r}] is empty; give at least one value")
        points = [{**point, name: value} for point in points for value in chosen]
    if points == [{}]:
        raise InputError("grid is empty; leave it out, or give it fields of the design with their values")
    return points
