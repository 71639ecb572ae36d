"""What every public statistical call does with its arguments before a compiled kernel sees them.

Concrete values are checked on the host; tracers pass unchecked (their bad values become NaN). Scores matter through
their order alone, so concrete 64-bit scores are replaced by dense integer ranks where JAX runs in 32 bits: rounding
would create ties that the data do not have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import lattice
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = [
    "Ordered",
    "common_size",
    "first_items",
    "level_operand",
    "order_preserving",
    "ordered_panels",
    "to_common_size",
    "tracing",
]

Ordered = tuple[list[jax.Array], list[jax.Array]]


def level_operand(alpha: Any, name: str = "alpha") -> Any:
    """A level as an operand of a jitted function: an exact fraction where it is a number, else the array itself.

    A `lattice.Level` is one already; its digits may be traced, so that one compiled program serves many exact levels.
    """
    if isinstance(alpha, (Tracer, lattice.Level)):
        return alpha
    arrays.check_level(alpha, name)
    return alpha if isinstance(alpha, jax.Array) else jax.tree.map(jnp.asarray, lattice.as_level(alpha))


def common_size(size: int) -> int:
    """The least of 64, 72, 80, ..., 128, 144, ..., 256, 288, ... (eight a factor of two) that is at least `size`."""
    step = 2 ** max((size - 1).bit_length() - 4, 3)
    return max(64, -(-size // step) * step)


def to_common_size(sample: Any, mask: Any, *others: Any) -> tuple[Any, Any]:
    """Host values [..., n] lengthened to a common size, what is added masked out, so that data sets share programs.

    A program stays in memory for as long as the process lives: a service that meets a new size with each data set would
    fill it. JAX arrays, and values beside tracers (`others`), are left as they are: their owner compiles for them.

    Returns:
      The values [..., N] and their mask [N].
    """
    if not isinstance(sample, np.ndarray) or tracing(mask, *others):
        return sample, mask
    extra = common_size(sample.shape[-1]) - sample.shape[-1]
    if not extra:
        return sample, mask
    real = np.ones(sample.shape[-1], bool) if mask is None else np.asarray(mask)
    lengthened = np.concatenate([sample, np.zeros((*sample.shape[:-1], extra), sample.dtype)], axis=-1)
    return lengthened, np.concatenate([real, np.zeros(extra, bool)])


def first_items(selection: Any, number: int) -> Any:
    """A selection without what `to_common_size` added to its items."""
    if selection.selected.shape[0] == number:
        return selection
    cut = {name: jnp.asarray(np.asarray(getattr(selection, name))[:number]) for name in _BY_ITEM}
    least = jnp.minimum(selection.min_selections, jnp.int32(number + 1))
    return dataclasses.replace(selection, min_selections=least, **cut)


_BY_ITEM = ("selected", "p_values", "adjusted")


def order_preserving(samples: Sequence[Any], masks: Sequence[Any]) -> Ordered:
    """Scores that a 32-bit kernel orders as their owner did, with a mask for what is not a number.

    Args:
      samples: [.] arrays of scores, as `arrays.as_vector` returns them, that will be compared with one another.
      masks: bool arrays or None, one a sample.

    Returns:
      The samples and the masks as JAX arrays. NumPy scores of one type that JAX has come back as they are; all others
      as int32 places in their common order, with NaN False in the masks.

    Raises:
      InputError: JAX arrays of different integer types, whose common type could wrap around.
    """
    filled = [
        jnp.asarray(np.ones(np.shape(sample), bool) if mask is None else mask)
        for sample, mask in zip(samples, masks, strict=True)
    ]
    if not all(isinstance(sample, np.ndarray) for sample in samples):
        plain = [jnp.asarray(sample) for sample in samples]
        if len({sample.dtype for sample in plain}) > 1:
            common = functools.reduce(jnp.promote_types, [sample.dtype for sample in plain])
            if not jnp.issubdtype(common, jnp.floating):
                found = ", ".join(str(sample.dtype) for sample in plain)
                raise InputError(f"scores of different integer types ({found}); give them one type")
            plain = [sample.astype(common) for sample in plain]
        return plain, filled
    types = {sample.dtype for sample in samples}
    widest = 8 if jnp.result_type(float) == np.float64 else 4
    if len(types) == 1 and next(iter(types)).itemsize <= widest:
        return [jnp.asarray(sample) for sample in samples], filled
    return _shared_places(samples), [
        mask & ~np.isnan(sample) if sample.dtype.kind == "f" else mask
        for mask, sample in zip(filled, samples, strict=True)
    ]


def ordered_panels(
    calibration: Any,
    scores: Any,
    calibration_mask: Any = None,
    mask: Any = None,
    *,
    rows: str = "detectors",
    lengthen: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Scores of the same items by K detectors or models, checked, each row ordered as its owner ordered it.

    Args:
      calibration: [K, n] scores of the calibration items.
      scores: [K, m] scores of the test items.
      calibration_mask: [n] bool or None.
      mask: [m] bool or None.
      rows: what the K rows are, for messages.
      lengthen: to common sizes; see `to_common_size`.

    Returns:
      calibration [K, n], scores [K, m], calibration_mask [n], mask [m]: JAX arrays; an item with a NaN in any row is
      False in its mask.

    Raises:
      InputError: wrong shapes, different K, infinite scores, no calibration item that every row scored.
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
    given = (("calibration", calibration, calibration_mask), ("scores", scores, mask))
    masks = []
    for name, panel, own in given:
        arrays.check_finite(panel, name)
        own = arrays.as_mask(own, panel[0], "mask" if name == "scores" else "calibration_mask")
        host = isinstance(panel, np.ndarray) and not tracing(own)
        xp = np if host else jnp
        known = (
            ~xp.isnan(panel).any(axis=0) if jnp.issubdtype(panel.dtype, jnp.floating) else xp.ones(panel.shape[1], bool)
        )
        masks.append(known if own is None else known & own)
    why = f"at least one item for which the null holds and that has a score in each of the {rows} is needed"
    arrays.check_some(calibration[0], masks[0], "calibration", why)
    if lengthen and not tracing(*masks):
        calibration, masks[0] = to_common_size(calibration, masks[0])
        scores, masks[1] = to_common_size(scores, masks[1])
    ordered = [order_preserving((row, other), masks)[0] for row, other in zip(calibration, scores, strict=True)]
    first, second = (jnp.stack(parts) for parts in zip(*ordered, strict=True))
    return first, second, jnp.asarray(masks[0]), jnp.asarray(masks[1])


def _shared_places(samples: Sequence[np.ndarray]) -> list[jax.Array]:
    """Each value's place among the distinct values of all samples, int32; NaN comes last."""
    together = np.concatenate(samples)
    _, inverse = np.unique(together, return_inverse=True)
    ends = np.cumsum([sample.size for sample in samples])
    return [jnp.asarray(part, jnp.int32) for part in np.split(inverse, ends[:-1])]


def tracing(*values: Any) -> bool:
    """Whether one of the values, or everything, is being traced."""
    return any(isinstance(value, Tracer) for value in (*values, jnp.zeros(())))
