"""Many repetitions of a design under several methods as one compiled program of counts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, tally
from tdd.study import blocks
from tdd.study.methods import StudyMethod
from tdd.study.sample import Sample
from tdd.validate.errors import InputError

__all__ = ["STEP", "engine", "exact_levels", "prepared", "repetition", "shape"]

STEP = 1024
"""Repetitions are run, saved and judged in multiples of this; the lanes of a block divide it."""
_LANE_NUMBERS = 2**18  # numbers that the samples of one block hold, about: 1 MB


@functools.lru_cache(maxsize=64)
def engine(
    rules: tuple[StudyMethod, ...], levels: tuple[float, ...], lanes: int, devices: tuple[Any, ...]
) -> blocks.BlockSums:
    """The compiled sums for these methods; the design, the levels and the key are operands."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        design, exact, key = operands
        counts = jax.vmap(lambda i: repetition(design, rules, levels, exact, jax.random.fold_in(key, i)))(index)
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

    cells = (len(rules), len(levels))
    return blocks.sum_over_blocks(one_block, lambda: tally.zero(cells), lanes=lanes, devices=devices)


class _Counts(NamedTuple):
    """What is counted in one repetition: false and selected [method, alpha]; targets, items and places []."""

    false: jax.Array
    selected: jax.Array
    targets: jax.Array
    items: jax.Array
    places: jax.Array


def repetition(
    design: Any, rules: tuple[StudyMethod, ...], levels: tuple[float, ...], exact: lattice.Level, key: jax.Array
) -> _Counts:
    """One data set, every method, every level."""
    drawing, deciding = jax.random.split(key)
    sample = design.draw(drawing)
    name = _name(design)
    _check_sample(name, sample, Sample)
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
                _check_selected(rule.name, one, size)
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
    _check_fits(
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


def prepared(design: Any, points: list[dict[str, Any]]) -> list[Any]:
    """The design of each grid point with arrays for leaves, of one type wherever a grid runs over them."""
    _check_design(design)
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


def exact_levels(levels: tuple[float, ...]) -> lattice.Level:
    """Exact levels with a leading axis."""
    return jax.tree.map(
        lambda *fields: np.stack([np.asarray(field) for field in fields]), *map(lattice.as_level, levels)
    )


def shape(design: Any, key: jax.Array) -> tuple[int, int]:
    """m, and how many repetitions run side by side, by how many numbers one sample holds."""
    sample = jax.eval_shape(design.draw, key)
    _check_sample(_name(design), sample, Sample)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(sample))
    lanes = STEP
    while lanes > 8 and lanes * numbers > _LANE_NUMBERS:
        lanes //= 2
    return sample.target.shape[0], lanes


def _check_design(design: Any) -> None:
    """A value that draws, not a class."""
    if isinstance(design, type) or not callable(getattr(design, "draw", None)):
        words = (
            f"the class {design.__name__}: make one, {design.__name__}(...)"
            if isinstance(design, type)
            else repr(design)
        )
        raise InputError(f"design must be a value with a method draw(key) -> tdd.study.Sample, got {words}")


def _check_sample(name: str, sample: Any, kind: Any) -> None:
    """What a design draws has the fields and shapes that the runner needs."""
    if not isinstance(sample, kind):
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
        found, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
        if found != shape or kind != np.bool_:
            raise InputError(f"{name}.draw: {field} must be bool of shape {shape}, got {kind} of shape {found}")
    if scores[-1] >= 2**24:
        raise InputError(f"{name} draws {scores[-1]:,} test items; the runner counts up to 2^24 - 1")


def _check_fits(
    method: str, design: str, *, null: str | None, needs_null: str | None, rows: int | None, panel: bool | None,
    missing: Sequence[str], unread: Sequence[str],
) -> None:  # fmt: skip
    """A method that can be run on what a design draws, and for which it means something."""
    if panel is True and rows is None:
        raise InputError(
            f"{method} needs the scores of several detectors or models, [K, n] and [K, m]; {design} draws one score "
            "an item. CorrelatedDetectors and JointLabels draw several"
        )
    if panel is False and rows is not None:
        raise InputError(
            f"{method} needs one score an item; {design} draws {rows} rows of scores. Use td4eval, jmcs or jecs, or a "
            "function of your own that combines them"
        )
    if missing:
        raise InputError(f"{method} needs extra[{missing[0]!r}], which {design} does not draw")
    if needs_null is not None and null is not None and null != needs_null:
        raise InputError(
            f'{method} tests the null "{needs_null}" and calibrates on known {needs_null}s; {design} has '
            f"null={null!r}. Set null={needs_null!r} in the design where it can be, or choose another method"
        )
    if unread:
        raise InputError(
            f"{method} does not take {unread[0]!r}, but {design} masks items with it: without it the function would "
            f"count items that are not there. Add a keyword argument {unread[0]} (bool, True = real item)"
        )


def _check_selected(method: str, selected: Any, num_tests: int) -> None:
    """What a method returns is one decision an item."""
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
