"""Preparation of arguments for compiled kernels and conversion of their results, shared by all statistical calls.

Concrete values are checked on the host; tracers pass unchecked (bad values become NaN). Where only the order of scores
matters, concrete 64-bit scores are replaced by dense integer ranks if JAX runs in 32 bits: rounding would create ties
that the data do not have. Where their differences matter, they are computed in double precision.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import conformal, lattice, stepup
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings as in_own_settings

_T = TypeVar("_T")

CHOSEN_BEFOREHAND = "the score, alpha and every other option were chosen before any result was seen"
"""An assumption of almost every guarantee."""


def tracing(*values: Any) -> bool:
    """Return whether one of the values, or everything, is being traced."""
    return any(isinstance(value, Tracer) for value in (*values, _constant()))


@jax.jit
def _constant() -> jax.Array:
    return jnp.zeros((), jnp.int32)


def known(scores: Any, mask: Any = None) -> jax.Array:
    """Return where scores are real: neither NaN nor masked out."""
    scores = jnp.asarray(scores)
    real = ~jnp.isnan(scores) if jnp.issubdtype(scores.dtype, jnp.inexact) else jnp.ones(scores.shape, bool)
    return real if mask is None else real & mask


def operand(values: Any, dtype: Any = None) -> Any:
    """Return the values as an operand of a compiled function, of `dtype` where it is given.

    JAX takes NumPy's arrays as they lie, at no cost: `jnp.asarray` compiles a program for each shape and type, and
    `jax.device_put` takes longer than many a call. So nobody else may write into them; the checks of
    `tdd.validate.arrays` copy what callers hold.
    """
    if isinstance(values, jax.Array):
        return values if dtype is None else values.astype(dtype)
    return np.asarray(values, dtype)


def as_floating(values: Any) -> Any:
    """Return the values as an operand of their own floating type, integers in JAX's default one."""
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    return operand(array, None if jnp.issubdtype(array.dtype, jnp.floating) else jnp.result_type(float))


def key_of(key: Any, *evidence: tuple[Any, Any]) -> jax.Array:
    """Return a key with a hash of the evidence folded in, so that one constant key draws anew for other evidence.

    A guarantee over the draw of a randomised rule holds for each audit if its key is random. Where people pass the same
    key in every audit, the hash varies the draw from one audit to the next. The same values give the same key, in any
    order of the items, under `jit`, and with further items that are masked out.

    Args:
      key: PRNG key.
      *evidence: (values [..., items], mask [items] or None); masked items and those with a NaN count as absent.
    """
    rows = [(arrays.as_rows(values, "evidence"), mask) for values, mask in evidence]
    rows = [(values, arrays.as_mask(mask, np.empty(values.shape[-1]), "mask")) for values, mask in rows]
    return _folded(key, [to_common_size(values, mask, key, coarse=True) for values, mask in rows])


@jax.jit
def _folded(key: jax.Array, evidence: list[tuple[jax.Array, jax.Array | None]]) -> jax.Array:
    total, row = jnp.uint32(0), 0
    for values, mask in evidence:
        values = jnp.asarray(values).astype(jnp.float32)
        values = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
        real = jnp.all(known(values, mask), axis=0)
        words = jax.lax.bitcast_convert_type(jnp.where(real & (values != 0), values, 0), jnp.uint32)
        salts = jnp.arange(row, row := row + len(words), dtype=jnp.uint32)[:, None] * jnp.uint32(0x9E3779B9)
        total += jnp.sum(jnp.where(real, _mixed(_mixed(words) ^ salts), 0), dtype=jnp.uint32)
    return jax.random.fold_in(key, total)


def _mixed(words: jax.Array) -> jax.Array:
    """MurmurHash3's finaliser (Appleby 2011): every bit of a word changes about half of the bits of the result."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ (words >> shift)) * jnp.uint32(factor)
    return words ^ (words >> 16)


def level_operand(alpha: Any, name: str = "alpha") -> Any:
    """Return a level as an operand of a jitted function: a number as an exact fraction, whose digits may be traced.

    Levels with a denominator below 2^16 share one program, and all others share another.
    """
    if isinstance(alpha, (Tracer, lattice.Level)):
        return alpha
    arrays.check_level(alpha, name)
    return alpha if isinstance(alpha, jax.Array) else lattice.as_level(alpha)


def exact_fraction(alpha: Any) -> Fraction:
    """Return a level that is known as a fraction."""
    level = lattice.as_level(alpha)
    return Fraction(int(level.numerator), int(level.denominator))


def half_level(alpha: Any) -> Any:
    """Return alpha/2, exact where alpha is: halving a float loses no digit."""
    if not isinstance(alpha, lattice.Level):
        return alpha / 2
    halved = jax.tree.map(lambda field: field / 2, alpha)
    return halved._replace(numerator=alpha.numerator, denominator=alpha.denominator.astype(np.int32) * 2)


_SEED_ERROR = 0.005  # standard error of a probability over data sets, given the draws of one seed


def draws_for(delta: float) -> int:
    """The fewest draws B with sqrt(delta (1 - delta)/B) at most .005, and delta (B + 1) about a whole number."""
    return math.ceil(math.ceil(delta**2 * (1 - delta) / _SEED_ERROR**2) / delta) - 1


_COARSE = 2**16


def common_size(size: int, *, coarse: bool = False) -> int:
    """Round up to one of 64, 72, 80, ..., 128, 144, ..., 256, 288, ... (eight for each factor of two).

    With `coarse` to a power of two, up to 65,536: two samples of these lengths meet in 121 programs at most, at no more
    than twice their length. What costs the square of a length is padded by an eighth at most instead.
    """
    if coarse and size <= _COARSE:
        return max(64, 2 ** (size - 1).bit_length())
    step = 2 ** max((size - 1).bit_length() - 4, 3)
    return max(64, -(-size // step) * step)


def to_common_size(sample: Any, mask: Any, *others: Any, coarse: bool = False) -> tuple[Any, Any]:
    """Pad host values [..., n] and their mask to a common size, so that data sets of many sizes share compiled
    programs.

    JAX arrays, values whose mask is one, and values beside tracers (`others`), stay unchanged: their owner compiles for
    them, on the device where they are.
    """
    if not isinstance(sample, np.ndarray) or isinstance(mask, jax.Array) or tracing(*others):
        return sample, mask
    extra = common_size(sample.shape[-1], coarse=coarse) - sample.shape[-1]
    if not extra:
        return sample, mask
    real = np.ones(sample.shape[-1], bool) if mask is None else np.asarray(mask)
    padded = np.concatenate([sample, np.zeros((*sample.shape[:-1], extra), sample.dtype)], axis=-1)
    return padded, np.concatenate([real, np.zeros(extra, bool)])


def at_common_size(run: Callable[[Any, Any], _T], sample: Any, mask: Any, *others: Any, coarse: bool = True) -> _T:
    """Return run(sample [n], mask), computed at a common size; see `to_common_size`. Leaves [n, ...] are cut back."""
    number = sample.shape[-1]
    sample, mask = to_common_size(sample, mask, *others, coarse=coarse)
    result, size = run(sample, mask), sample.shape[-1]
    if size == number:
        return result

    def cut(leaf: Any) -> Any:
        if not leaf.ndim or leaf.shape[0] != size:
            return leaf
        if isinstance(leaf, Tracer) or len(leaf.sharding.device_set) > 1:
            return leaf[:number]
        return jax.device_put(np.asarray(leaf)[:number], leaf.sharding if leaf.committed else None)

    return jax.tree.map(cut, result)


def first_items(selection: Any, number: int) -> Any:
    """Remove from a selection the items that `to_common_size` added."""
    if selection.selected.shape[0] == number:
        return selection

    def first(values: jax.Array) -> jax.Array:
        return jax.device_put(np.asarray(values)[:number])

    names = ("selected", "p_values", "adjusted", "statistic")
    cut: dict[str, Any] = {name: first(getattr(selection, name)) for name in names if hasattr(selection, name)}
    if fitted := getattr(selection, "envelope", None):
        cut["envelope"] = fitted._replace(x=first(fitted.x), value=first(fitted.value))
    min_selections = np.minimum(selection.min_selections, np.int32(number + 1))
    return dataclasses.replace(selection, min_selections=jax.device_put(min_selections), **cut)


def decided_by_rank(ranked: Any, alpha: Any, estimate: Any, *, max_rank: int, scale: Any = None) -> dict[str, Any]:
    """Return the decision of BH on scaled ranks, with the other arguments of `Selection.from_step` that follow."""
    n, scale = ranked.num_calibration, scale or (estimate.numerator, estimate.denominator)
    return {
        "step": stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank, scale=scale),
        "p_values": conformal.p_values(ranked),
        "proportion": 1 - estimate.null_proportion,
        "num_tests": ranked.num_tests,
        "num_calibration": n,
        "min_selections": stepup.min_rejections(alpha, ranked.rank.shape[0], scale=scale),
    }


def checked_scores(calibration: Any, scores: Any, calibration_mask: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Check the scores [n] and [m] and the masks of a call that ranks one among the other."""
    calibration, scores = arrays.as_vector(calibration, "calibration"), arrays.as_vector(scores, "scores")
    calibration_mask = arrays.as_mask(calibration_mask, calibration, "calibration_mask")
    mask = arrays.as_mask(mask, scores, "mask")
    arrays.check_finite(calibration, "calibration")
    arrays.check_finite(scores, "scores")
    why = "at least one item for which the null holds is needed"
    arrays.check_some(calibration, calibration_mask, "calibration", why)
    return calibration, scores, calibration_mask, mask


def ordered_scores(calibration: Any, scores: Any, calibration_mask: Any, mask: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return `checked_scores` as operands of a compiled function, and its masks by name; see `order_preserving`."""
    *samples, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    samples, masks = order_preserving(samples, (calibration_mask, mask))
    return samples, dict(zip(("calibration_mask", "mask"), masks, strict=True))


def order_preserving(samples: Sequence[Any], masks: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return scores that a 32-bit kernel orders as the given ones are ordered, and their masks.

    Scores of one type that JAX has are unchanged; all others become int32 places in their common order, with NaN False
    in the masks. Traced arrays of different integer types, whose common type could wrap around, are refused.
    """
    samples = in_numpy(samples, *masks)
    filled = [
        np.ones(np.shape(sample), bool) if mask is None else mask for sample, mask in zip(samples, masks, strict=True)
    ]
    if not all(isinstance(sample, np.ndarray) for sample in samples):
        for sample, mask in zip(samples, filled, strict=True):
            _check_held(sample, mask)
        plain = [jnp.asarray(sample) for sample in samples]
        if len({sample.dtype for sample in plain}) > 1:
            common = functools.reduce(jnp.promote_types, [sample.dtype for sample in plain])
            if not jnp.issubdtype(common, jnp.floating):
                types = ", ".join(str(sample.dtype) for sample in plain)
                raise InputError(f"scores of different integer types ({types}); give them one type")
            plain = [sample.astype(common) for sample in plain]
        return plain, [*map(operand, filled)]
    ordered = _ordered(samples)
    if ordered is not samples:
        filled = [
            mask & ~np.isnan(sample) if sample.dtype.kind == "f" else mask
            for mask, sample in zip(filled, samples, strict=True)
        ]
    return [*map(operand, ordered)], [*map(operand, filled)]


def in_numpy(samples: Sequence[Any], *others: Any) -> Sequence[Any]:
    """Return samples of several types as NumPy arrays, where no array is traced: JAX's types of 32 bits do not hold
    what NumPy's of 64 do, nor its floats all integers. Floats that its own hold stay where they are."""
    given = [sample for sample in samples if sample is not None]
    if all(isinstance(sample, np.ndarray) for sample in given) or tracing(*given, *others):
        return samples
    if not all(isinstance(sample, np.ndarray) or sample.is_fully_addressable for sample in given):
        return samples
    types, widest = {sample.dtype for sample in given}, jnp.result_type(float).itemsize
    comparable = len(types) == 1 or all(jnp.issubdtype(dtype, jnp.floating) for dtype in types)
    if comparable and max(dtype.itemsize for dtype in types) <= widest:
        return samples
    return [sample if sample is None else _plain(np.asarray(sample)) for sample in samples]


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array in a type of NumPy's own: it promotes bfloat16 with no integer."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _check_held(sample: Any, mask: Any) -> None:
    """Check that NumPy integers beside traced arrays fit into JAX's widest type."""
    if not isinstance(sample, np.ndarray) or sample.dtype.kind not in "iu":
        return
    if isinstance(mask, np.ndarray):
        sample = sample[mask]
    if sample.size:
        widest = np.iinfo(jnp.result_type(int))
        if sample.min() < widest.min or sample.max() > widest.max:
            raise InputError(
                f"scores from {sample.min()} to {sample.max()} beside traced ones do not fit into {widest.dtype}; "
                "give floats, or switch jax_enable_x64 on"
            )


def _ordered(samples: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Return scores of one type that JAX has unchanged, and all others as their places among the distinct values of all
    samples, int32; NaN comes last."""
    types = {sample.dtype for sample in samples}
    widest = 8 if jnp.result_type(float) == np.float64 else 4
    if len(types) == 1 and next(iter(types)).itemsize <= widest:
        return samples
    _, inverse = np.unique(np.concatenate(samples), return_inverse=True)
    ends = np.cumsum([sample.size for sample in samples])
    return [part.astype(np.int32) for part in np.split(inverse, ends[:-1])]


def ordered_panels(
    calibration: Any,
    scores: Any,
    calibration_mask: Any = None,
    mask: Any = None,
    *,
    rows: str = "detectors",
    pad: bool = False,
    coarse: bool = True,
    most: float = math.inf,
) -> tuple[Any, Any, Any, Any]:
    """Check scores of the same items by K detectors or models and return them as operands; see `order_preserving`.

    Args:
      calibration: [K, n] scores of the calibration items.
      scores: [K, m] scores of the test items.
      calibration_mask: [n] bool or None.
      mask: [m] bool or None.
      rows: name of the K rows in messages.
      pad, coarse: whether to pad to common sizes, and to which; see `common_size`.
      most: the most calibration items to which they may be padded.

    Returns:
      calibration [K, n], scores [K, m], calibration_mask [n], mask [m]; an item with a NaN in any row is False in its
      mask.
    """
    calibration = arrays.as_matrix(calibration, "calibration", f"[{rows}, calibration items]")
    scores = arrays.as_matrix(scores, "scores", f"[{rows}, test items]")
    if calibration.shape[0] != scores.shape[0]:
        raise InputError(
            f"calibration has {calibration.shape[0]} {rows} and scores has {scores.shape[0]}; both need the same "
            f"{rows} in the same order, one a row"
        )
    if calibration.shape[0] == 0:
        raise InputError(f"calibration and scores have no {rows}: at least one row is needed")
    masks = []
    for name, panel, given in (("calibration", calibration, calibration_mask), ("scores", scores, mask)):
        arrays.check_finite(panel, name)
        given = arrays.as_mask(given, panel[0], "mask" if name == "scores" else "calibration_mask")
        xp = np if isinstance(panel, np.ndarray) and not tracing(given) else jnp
        floating = jnp.issubdtype(panel.dtype, jnp.floating)
        known = ~xp.isnan(panel).any(axis=0) if floating else xp.ones(panel.shape[1], bool)
        masks.append(known if given is None else known & given)
    why = f"at least one item for which the null holds and that has a score in each of the {rows} is needed"
    arrays.check_some(calibration[0], masks[0], "calibration", why)
    if pad and not tracing(*masks) and common_size(calibration.shape[1], coarse=coarse) <= most:
        calibration, masks[0] = to_common_size(calibration, masks[0], coarse=coarse)
        scores, masks[1] = to_common_size(scores, masks[1], coarse=coarse)
    if all(isinstance(panel, np.ndarray) for panel in (calibration, scores)):
        ordered = [_ordered(pair) for pair in zip(calibration, scores, strict=True)]
        first, second = (np.stack(parts) for parts in zip(*ordered, strict=True))
    else:
        ordered = [order_preserving(pair, masks)[0] for pair in zip(calibration, scores, strict=True)]
        first, second = (jnp.stack(parts) for parts in zip(*ordered, strict=True))
    return operand(first), operand(second), operand(masks[0]), operand(masks[1])


def in_own_precision(run: Callable[[list[Any]], _T], samples: Sequence[Any], *others: Any) -> _T:
    """Return run(samples), in double precision (and NumPy arrays) if any sample is a NumPy array of 64 bits.

    Differences of scores, unlike their order, do not survive rounding. `run` makes its level operands itself, in the
    precision in which it is called; `others` are further values that it uses and that may be traced.
    """
    samples = in_numpy(samples, *others)
    given = [sample for sample in samples if sample is not None]
    wide = (
        jnp.result_type(float) == np.float32
        and all(isinstance(sample, np.ndarray) for sample in given)
        and any(sample.dtype.itemsize == 8 for sample in given)
        and not tracing(*others)
    )
    if not wide:
        return run([None if sample is None else operand(sample) for sample in samples])
    with jax.enable_x64(True):
        result = run([None if sample is None else operand(sample, np.float64) for sample in samples])
        return jax.tree.map(np.asarray, result)


def narrowed(decisions: _T, alpha: Any) -> _T:
    """Return decisions made in double precision (NumPy) in JAX's default type; rounding carries no `adjusted` across
    alpha, no value above 0 to 0, and no `threshold` of a step past the values that it rejects.

    All others are returned unchanged. `decisions` is a NamedTuple with `reject` or a record with `selected`.
    """
    result: Any = decisions
    if not isinstance(result.adjusted, np.ndarray):
        return decisions
    level = jax.tree.map(np.asarray, lattice.as_level(alpha))
    with np.errstate(over="ignore"):  # an e-value can be larger than any single-precision number
        single: Any = jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, result)
    is_step = hasattr(single, "reject")
    decided = single.reject if is_step else single.selected
    known = np.where(result.adjusted > 0, np.maximum(single.adjusted, np.finfo(np.float32).tiny), single.adjusted)
    below, above = np.minimum(known, level.below32), np.maximum(known, level.above32)
    adjusted = np.where(decided, below, above).astype(np.float32)
    if not is_step:
        return jax.device_put(dataclasses.replace(single, adjusted=adjusted))
    exact, end = result.threshold, single.threshold
    if isinstance(result, stepup.StepUp):  # the largest p-value that is rejected
        end = np.where(end < exact, np.nextafter(end, np.float32(np.inf)), end)
        end = np.where(exact > 0, np.maximum(end, np.finfo(np.float32).tiny), end)
    else:  # the smallest e-value
        end = np.where(end > exact, np.nextafter(end, np.float32(-np.inf)), end)
    return jax.device_put(single._replace(adjusted=adjusted, threshold=end.astype(np.float32)))
