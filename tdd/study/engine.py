"""The general engine: any design, any methods, many repetitions in one compiled program of counts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, tally
from tdd.runs.described import described
from tdd.runs.folder import versions
from tdd.study import checks
from tdd.study.designs import Sample
from tdd.study.methods import StudyMethod, as_methods
from tdd.study.results import StudyResult
from tdd.study.runner import BlockSums, Cell, Plan, StudyRun, StudyRunOptions, run_study, sum_over_blocks
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed
from tdd.validate.settings import on_own_devices

STEP = 1024
"""Repetitions are run, saved and judged in multiples of this; the lanes of a block divide it."""
_LARGEST = 64 * STEP  # repetitions a call: far from where the sums of a tally would wrap
_SMALLEST = STEP // 8  # repetitions of a piece that a shard runs
_LANE_NUMBERS = 2**18  # numbers that the samples of one block hold, about: 1 MB


@on_own_devices()
def run(
    design: Any,
    methods: Any,
    *,
    alphas: Any,
    repetitions: int,
    seed: int = 0,
    grid: Mapping[str, Iterable[Any]] | None = None,
    target_se: float | None = None,
    **options: Unpack[StudyRunOptions],
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
      alphas: levels, taken as exact fractions.
      repetitions: largest number of repetitions of each grid point.
      seed: random seed.
      grid: field of the design -> values; all combinations are run. Fields that are data (all numbers but sizes) cost
        no compilation.
      target_se: stop a grid point once the standard errors of FDR and power of all methods and levels are at most this.
        They are checked after 1,024 repetitions and whenever these have grown by a quarter (in multiples of 1,024), on
        any devices, as if two further repetitions had given 0 and 1. Standard errors of a run that stops because they
        happen to be small are slightly too small.
      **options: where the repetitions run, and what is kept of them:

        - folder: keeps the totals, so that an interrupted run continues by the same call, and the result. A finished
          run is read from there. A folder of another study is refused.
        - shard: (i, n) or "i/n" runs part i (from 0) of n of the repetitions, leaves its totals in `folder`, and
          returns the result of its own repetitions, of which there may be none (NaN). Shards may run at the same time
          on machines that share the folder, in any order, and again. The same call without `shard` joins their totals,
          runs what is missing, and returns the whole result. Not with `target_se`.
        - devices: devices that share the repetitions (default: all).
        - progress: show a bar on standard error, if that is a terminal.

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
    >>> rules = ["ptdi/none", below_the_third]
    >>> result = run(design, rules, alphas=[0.1, 0.2], repetitions=500, grid={"signal": [1, 2]})
    >>> result.fdr.shape, bool((result.fdr[:, 0] < [0.12, 0.22]).all())
    ((2, 2, 2), True)
    >>> result.rows()[0]["method"], result.repetitions.tolist()
    ('ptdi/none', [500, 500])
    """
    started, how = time.perf_counter(), StudyRun(**options)
    checks.check_run(repetitions, seed, target_se)
    levels, rules = checks.as_levels(alphas), as_methods(methods)
    points = _as_grid(design, grid)
    designs = prepared(design, points or [{}])
    devices = how.find_devices()
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
    key = key_of_seed(seed)
    cells = []
    for drawn in designs:
        num_tests, lanes = shape(drawn, key)
        plan = Plan(int(repetitions), STEP, _LARGEST, max(_SMALLEST, lanes), target_se, _next_checkpoint)
        operands = (drawn, exact_levels(levels), key)
        cells.append(Cell(engine(rules, levels, lanes, devices), operands, num_tests, plan))
    return run_study(
        cells,
        methods=[rule.name for rule in rules],
        alphas=levels,
        points=points,
        how=how,
        fingerprint=setting,
        provenance={"engine": "tdd.study.run", **setting, "stopping": None},
        devices=devices,
        started=started,
        title=type(design).__name__,
    )


def _next_checkpoint(done: int) -> int:
    """The first number of repetitions beyond `done` at which a run may stop."""
    at = STEP
    while at <= done:
        at += max(STEP, at // 4 // STEP * STEP)
    return at


def _as_grid(design: Any, grid: Mapping[str, Iterable[Any]] | None) -> list[dict[str, Any]] | None:
    """Every combination of the values of a grid, the last field running fastest; None without a grid."""
    if grid is None:
        return None
    known = tuple(getattr(design, "__dataclass_fields__", {}))
    chosen: dict[str, list[Any]] = {}
    for name, values in dict(grid).items():
        if name not in known:
            raise InputError(
                f"grid: {type(design).__name__} has no field {name!r}; its fields are {', '.join(known) or 'none'}"
            )
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InputError(f"grid[{name!r}] must be a sequence of values, got {values!r}")
        chosen[name] = list(values)
        if not chosen[name]:
            raise InputError(f"grid[{name!r}] is empty; give at least one value")
    if not chosen:
        raise InputError("grid is empty; leave it out, or give it fields of the design with their values")
    return [dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values())]


@functools.lru_cache(maxsize=64)
def engine(
    rules: tuple[StudyMethod, ...], levels: tuple[float, ...], lanes: int, devices: tuple[Any, ...]
) -> BlockSums:
    """Compile the sums for these methods; the design, the levels and the key are operands."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        design, exact, key = operands
        counts = jax.vmap(lambda i: repetition(design, rules, levels, exact, jax.random.fold_in(key, i)))(index)
        false, selected = jnp.moveaxis(counts.false, 0, -1), jnp.moveaxis(counts.selected, 0, -1)
        whole = [jnp.broadcast_to(count, false.shape) for count in (counts.targets, counts.items, counts.places)]
        # Hidden, or the compiler multiplies by the rounded reciprocal of what methods or repetitions share.
        targets, items, places = jax.lax.optimization_barrier(whole)
        added = tally.update(totals, false, selected, targets, items, real=real)
        # The number selected is a fraction of all m places, masked or not: the same number in every repetition.
        fractions = tally.update(totals, false, selected, targets, places, real=real)
        return added._replace(
            sums=added.sums.at[..., 3, :].set(fractions.sums[..., 3, :]),
            histogram=added.histogram.at[..., 3, :].set(fractions.histogram[..., 3, :]),
        )

    cells = (len(rules), len(levels))
    return sum_over_blocks(one_block, lambda: tally.zero(cells), lanes=lanes, devices=devices)


class _Counts(NamedTuple):
    """Counts of one repetition: false and selected [method, alpha]; targets, items and places []."""

    false: jax.Array
    selected: jax.Array
    targets: jax.Array
    items: jax.Array
    places: jax.Array


def repetition(
    design: Any, rules: tuple[StudyMethod, ...], levels: tuple[float, ...], exact: lattice.Level, key: jax.Array
) -> _Counts:
    """Run every method at every level on one data set."""
    drawing, deciding = jax.random.split(key)
    sample = design.draw(drawing)
    name = _name(design)
    _check_sample(name, sample)
    null, size = getattr(design, "null", None), sample.target.shape[0]
    real = jnp.ones(size, bool) if sample.mask is None else sample.mask
    false, chosen = [], []
    for rule in rules:
        _check_fit(rule, sample, null, name)
        select = functools.partial(rule.select, null=null) if rule.directed else rule.select
        if rule.exact_levels:
            decided = jax.vmap(lambda level: select(deciding, sample, level))(exact)  # noqa: B023 - called at once
        else:
            decisions = [select(deciding, sample, level) for level in levels]
            for decision in decisions:
                _check_selected(rule.name, decision, size)
            decided = jnp.stack(decisions)
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


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["design"])
@dataclasses.dataclass(frozen=True)
class _Closed:
    """A design that is not a pytree, as a constant of the program."""

    design: Any

    @property
    def null(self) -> str | None:
        """See the design."""
        return getattr(self.design, "null", None)

    def draw(self, key: jax.Array) -> Sample:
        """See the design."""
        return self.design.draw(key)


def _name(design: Any) -> str:
    return type(design.design if isinstance(design, _Closed) else design).__name__


def prepared(design: Any, points: list[dict[str, Any]]) -> list[Any]:
    """The design of each grid point with arrays for leaves, of one type wherever a grid runs over them."""
    _check_design(design)
    designs = [dataclasses.replace(design, **point) if point else design for point in points]
    if jax.tree_util.all_leaves([design]):
        return [_Closed(design) for design in designs]
    flat = [jax.tree.flatten(design) for design in designs]
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


def exact_levels(levels: tuple[float, ...]) -> lattice.Level:
    """Exact levels with a leading axis."""
    return jax.tree.map(
        lambda *fields: np.stack([np.asarray(field) for field in fields]), *map(lattice.as_level, levels)
    )


def shape(design: Any, key: jax.Array) -> tuple[int, int]:
    """m, and the number of repetitions that run side by side, by the numbers that one sample holds."""
    sample = jax.eval_shape(design.draw, key)
    _check_sample(_name(design), sample)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(sample))
    lanes = STEP
    while lanes > 8 and lanes * numbers > _LANE_NUMBERS:
        lanes //= 2
    return sample.target.shape[0], lanes


def _check_design(design: Any) -> None:
    """Check that a design is a value that draws, not a class."""
    if isinstance(design, type) or not callable(getattr(design, "draw", None)):
        name = getattr(design, "__name__", "")
        got = f"the class {name}: make one, {name}(...)" if isinstance(design, type) else repr(design)
        raise InputError(f"design must be a value with a method draw(key) -> tdd.study.Sample, got {got}")


def _check_sample(name: str, sample: Any) -> None:
    """Check that a sample has the fields and shapes that the engine needs."""
    if not isinstance(sample, Sample):
        raise InputError(f"{name}.draw must return a tdd.study.Sample, got {type(sample).__name__}")
    calibration, scores = np.shape(sample.calibration), np.shape(sample.scores)
    if len(scores) not in (1, 2) or len(calibration) != len(scores) or calibration[:-1] != scores[:-1]:
        raise InputError(
            f"{name}.draw: calibration and scores must be [n] and [m], or [K, n] and [K, m]; got {calibration} and "
            f"{scores}"
        )
    for field, shape in (("target", scores[-1:]), ("mask", scores[-1:]), ("calibration_mask", calibration[-1:])):
        value: Any = getattr(sample, field)
        if value is None and field != "target":
            continue
        actual, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if actual != shape or dtype != np.bool_:
            raise InputError(f"{name}.draw: {field} must be bool of shape {shape}, got {dtype} of shape {actual}")
    if scores[-1] >= 2**24:
        raise InputError(f"{name} draws {scores[-1]:,} test items; the runner counts up to 2^24 - 1")


def _check_fit(rule: StudyMethod, sample: Sample, null: str | None, design: str) -> None:
    """Check that a method can be run on what a design draws, and that its answer means something there."""
    several = sample.scores.ndim == 2
    if rule.panel is True and not several:
        raise InputError(
            f"{rule.name} needs the scores of several detectors or models, [K, n] and [K, m]; {design} draws one score "
            "an item. CorrelatedDetectors and JointLabels draw several"
        )
    if rule.panel is False and several:
        raise InputError(
            f"{rule.name} needs one score an item; {design} draws {sample.scores.shape[0]} rows of scores. Use "
            "td4eval, jmcs or jecs, or a function of your own that combines them"
        )
    for field in rule.needs:
        if field not in sample.extra:
            raise InputError(f"{rule.name} needs extra[{field!r}], which {design} does not draw")
    if rule.null is not None and null is not None and null != rule.null:
        raise InputError(
            f'{rule.name} tests the null "{rule.null}" and calibrates on known {rule.null}s; {design} has '
            f"null={null!r}. Set null={rule.null!r} in the design where it can be, or choose another method"
        )
    for mask in ("mask", "calibration_mask"):
        if getattr(sample, mask) is not None and mask not in rule.masks:
            raise InputError(
                f"{rule.name} does not take {mask!r}, but {design} masks items with it: without it the function would "
                f"count items that are not there. Add a keyword argument {mask} (bool, True = real item)"
            )


def _check_selected(method: str, selected: Any, num_tests: int) -> None:
    """Check that a method returns one decision an item."""
    shape, dtype = getattr(selected, "shape", None), getattr(selected, "dtype", None)
    if shape is None or dtype is None:
        raise InputError(
            f"method {method!r} must return an array of {num_tests} decisions (bool), got {type(selected).__name__}; "
            "of a tdd selection return its field .selected, of a step-up procedure .reject"
        )
    if shape != (num_tests,):
        raise InputError(f"method {method!r} must return one decision a test item, shape ({num_tests},); got {shape}")
    if dtype != np.bool_:
        raise InputError(
            f"method {method!r} must return bool, True where an item is selected; got {dtype}. Compare scores or "
            "p-values with a threshold"
        )
