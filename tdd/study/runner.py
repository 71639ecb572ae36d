"""The general engine: any design, any methods, many repetitions in one compiled program."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.audit.progress import progress_bar
from tdd.audit.run_folder import versions
from tdd.kernels import lattice, tally
from tdd.study import blocks
from tdd.study.methods import StudyMethod, as_methods
from tdd.study.results import StudyResult, Totals
from tdd.study.sample import Sample
from tdd.study.store import TotalsStore, described
from tdd.validate import studies as checks

__all__ = ["run"]

STEP = 1024
"""Repetitions are run, saved and judged in multiples of this; the lanes of a block divide it."""
_LARGEST = 64 * STEP  # repetitions a call: far from where the sums of a tally would wrap
_LANE_NUMBERS = 2**18  # numbers that the samples of one block hold, about: 1 MB
_PATIENCE = 1.0  # seconds after which totals are saved


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
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> StudyResult:
    """Measure error rates and power of methods over repetitions of a design.

    Repetition i draws one data set with a key that depends on `seed` and i alone, and gives it to every method at every
    level; every grid point uses the same keys (common random numbers), so that differences between methods, levels and
    grid points are better known than each number by itself. Sums are integers: the numbers do not depend on the
    devices, nor on how the run is cut into calls or interrupted.

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
      devices: to share the repetitions out over (default: all).
      progress: shows a bar on standard error, if that is a terminal.

    Returns:
      `StudyResult`; `repetitions` and `provenance["stopping"]` say what `target_se` did.

    Raises:
      InputError: options out of range, an unknown field or method, a method that does not fit what the design draws or
        does not return one bool an item, a folder of another study.

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
    points = checks.as_grid(design, grid)
    cells = _prepared(design, points or [{}])
    devices = list(jax.devices() if devices is None else devices)
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
    }
    store = TotalsStore(folder, setting)
    key = jax.random.key(seed, impl="threefry2x32")
    operands_of = [(cell, _stacked(levels), key) for cell in cells]
    found = []
    name = type(design).__name__
    with progress_bar(name, repetitions * len(cells), enabled=progress, unit="repetitions") as advance:
        for i, operands in enumerate(operands_of):
            num_tests, lanes = _shape(operands[0], key)
            sums = _engine(rules, levels, lanes, tuple(devices))
            totals = store.read(i) or Totals.zero((len(rules), len(levels)))
            advance(totals.repetitions)
            totals = _one_cell(
                sums, operands, totals, repetitions, target_se, functools.partial(store.write, i), advance
            )
            advance(repetitions - totals.repetitions)
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
            "devices": [str(device) for device in devices],
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    if folder is not None:
        result.save(folder)
    return result


def _one_cell(
    sums: blocks.BlockSums,
    operands: Any,
    totals: Totals,
    repetitions: int,
    target_se: float | None,
    save: Callable[[Totals], None],
    advance: Callable[[int], None],
) -> Totals:
    """Repetitions of one grid point until there are enough, saved now and then."""
    step, done = STEP, totals.repetitions
    while done < repetitions and not (target_se is not None and _is_checkpoint(done) and _worst(totals) <= target_se):
        last = min(done + step, repetitions)
        if target_se is not None:
            last = min(last, _next_checkpoint(done))
        began = time.perf_counter()
        totals = totals.add(sums(operands, done, last))
        advance(last - done)
        done = last
        save(totals)
        if time.perf_counter() - began < _PATIENCE / 2:
            step = min(2 * step, _LARGEST)
    return totals


def _next_checkpoint(done: int) -> int:
    """The first number of repetitions beyond `done` at which a run may stop."""
    at = STEP
    while at <= done:
        at += max(STEP, at // 4 // STEP * STEP)
    return at


def _is_checkpoint(done: int) -> bool:
    return done > 0 and _next_checkpoint(done - 1) == done


def _worst(totals: Totals) -> float:
    """The largest standard error of FDR and power, of all methods and levels."""
    return float(np.max(totals.standard_errors(cautious=True)[..., :2]))


@functools.lru_cache(maxsize=64)
def _engine(
    rules: tuple[StudyMethod, ...], levels: tuple[float, ...], lanes: int, devices: tuple[Any, ...]
) -> blocks.BlockSums:
    """The compiled sums for these methods; the design, the levels and the key are operands."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        design, exact, key = operands
        counts = jax.vmap(lambda i: _repetition(design, rules, levels, exact, jax.random.fold_in(key, i)))(index)
        false, selected = jnp.moveaxis(counts.false, 0, -1), jnp.moveaxis(counts.selected, 0, -1)
        whole = [jnp.broadcast_to(count, false.shape) for count in (counts.targets, counts.items, counts.places)]
        # Hidden, or the compiler multiplies by the rounded reciprocal of what methods or repetitions share.
        targets, items, places = jax.lax.optimization_barrier(whole)
        added = tally.update(totals, false, selected, targets, items, real=real)
        # The number selected is counted in shares of all m places, masked or not: the same number in every repetition.
        shares = tally.update(totals, false, selected, targets, places, real=real)
        return added._replace(
            sums=added.sums.at[..., 3, :].set(shares.sums[..., 3, :]),
            histogram=added.histogram.at[..., 3, :].set(shares.histogram[..., 3, :]),
        )

    shape = (len(rules), len(levels))
    return blocks.sum_over_blocks(one_block, lambda: tally.zero(shape), lanes=lanes, devices=devices)


class _Counts(NamedTuple):
    """What is counted in one repetition: false and selected [method, alpha]; targets, items and places []."""

    false: jax.Array
    selected: jax.Array
    targets: jax.Array
    items: jax.Array
    places: jax.Array


def _repetition(
    design: Any, rules: tuple[StudyMethod, ...], levels: tuple[float, ...], exact: lattice.Level, key: jax.Array
) -> _Counts:
    """One data set, every method, every level."""
    drawing, deciding = jax.random.split(key)
    sample = design.draw(drawing)
    name = _name(design)
    checks.check_sample(name, sample, Sample)
    null, size = getattr(design, "null", None), sample.target.shape[0]
    real = jnp.ones(size, bool) if sample.mask is None else sample.mask
    false, chosen = [], []
    for rule in rules:
        _check_fit(rule, sample, null, name)
        select = functools.partial(rule.select, null=null) if rule.directed else rule.select
        if rule.exact_levels:
            decided = jax.vmap(lambda level: select(deciding, sample, level))(exact)  # noqa: B023 - called at once
        else:
            each = [select(deciding, sample, level) for level in levels]
            for one in each:
                checks.check_selected(rule.name, one, size)
            decided = jnp.stack(each)
        decided = decided & real
        chosen.append(jnp.sum(decided, axis=-1, dtype=jnp.int32))
        false.append(jnp.sum(decided & ~sample.target, axis=-1, dtype=jnp.int32))
    return _Counts(
        jnp.stack(false),
        jnp.stack(chosen),
        jnp.sum(sample.target & real, dtype=jnp.int32),
        jnp.sum(real, dtype=jnp.int32),
        jnp.int32(size),
    )


def _check_fit(rule: StudyMethod, sample: Sample, null: str | None, name: str) -> None:
    held = [mask for mask in ("mask", "calibration_mask") if getattr(sample, mask) is not None]
    checks.check_fits(
        rule.name,
        name,
        null=null,
        needs_null=rule.null,
        rows=sample.scores.shape[0] if sample.scores.ndim == 2 else None,
        panel=rule.panel,
        missing=[field for field in rule.needs if field not in sample.extra],
        unread=[mask for mask in held if mask not in rule.masks],
    )


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["design"])
@dataclasses.dataclass(frozen=True)
class _Closed:
    """A design that is no pytree: a constant of the program."""

    design: Any

    @property
    def null(self) -> str | None:
        """Of the design."""
        return getattr(self.design, "null", None)

    def draw(self, key: jax.Array) -> Sample:
        """Of the design."""
        return self.design.draw(key)


def _name(design: Any) -> str:
    return type(design.design if isinstance(design, _Closed) else design).__name__


def _prepared(design: Any, points: list[dict[str, Any]]) -> list[Any]:
    """The design of each grid point with arrays for leaves, of one type wherever a grid runs over them."""
    checks.check_design(design)
    made = [dataclasses.replace(design, **point) if point else design for point in points]
    if jax.tree_util.all_leaves([design]):
        return [_Closed(each) for each in made]
    flat = [jax.tree.flatten(each) for each in made]
    same = all(treedef == flat[0][1] for _, treedef in flat)
    out = []
    for leaves, treedef in flat:
        arrays = [_as_array(leaf) for leaf in leaves]
        if same:
            kinds = [np.result_type(*(_as_array(other[i]) for other, _ in flat)) for i in range(len(arrays))]
            arrays = [array.astype(kind) for array, kind in zip(arrays, kinds, strict=True)]
        out.append(jax.tree.unflatten(treedef, arrays))
    return out


def _as_array(leaf: Any) -> Any:
    """A leaf in JAX's own types."""
    if isinstance(leaf, jax.Array):
        return leaf
    array = np.asarray(leaf)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def _stacked(levels: tuple[float, ...]) -> lattice.Level:
    """Exact levels with a leading axis."""
    return jax.tree.map(
        lambda *fields: np.stack([np.asarray(field) for field in fields]), *map(lattice.as_level, levels)
    )


def _shape(design: Any, key: jax.Array) -> tuple[int, int]:
    """m, and how many repetitions run side by side, by how many numbers one sample holds."""
    sample = jax.eval_shape(design.draw, key)
    checks.check_sample(_name(design), sample, Sample)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(sample))
    lanes = STEP
    while lanes > 8 and lanes * numbers > _LANE_NUMBERS:
        lanes //= 2
    return sample.target.shape[0], lanes
