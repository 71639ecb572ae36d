"""What every public statistical call does with its arguments before a compiled kernel sees them.

Concrete values are checked on the host; tracers pass unchecked (their bad values become NaN). Scores matter through
their order alone, so concrete 64-bit scores are replaced by dense integer ranks where JAX runs in 32 bits: rounding
would create ties that the data do not have.
"""

from __future__ import annotations

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

__all__ = ["Ordered", "level_operand", "order_preserving", "tracing"]

Ordered = tuple[list[jax.Array], list[jax.Array]]


def level_operand(alpha: Any, name: str = "alpha") -> Any:
    """A level as an operand of a jitted function: an exact fraction where it is a number, else the array itself."""
    if isinstance(alpha, Tracer):
        return alpha
    arrays.check_level(alpha, name)
    return alpha if isinstance(alpha, jax.Array) else jax.tree.map(jnp.asarray, lattice.as_level(alpha))


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
        jnp.ones(np.shape(sample), bool) if mask is None else jnp.asarray(mask)
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


def _shared_places(samples: Sequence[np.ndarray]) -> list[jax.Array]:
    """Each value's place among the distinct values of all samples, int32; NaN comes last."""
    together = np.concatenate(samples)
    _, inverse = np.unique(together, return_inverse=True)
    ends = np.cumsum([sample.size for sample in samples])
    return [jnp.asarray(part, jnp.int32) for part in np.split(inverse, ends[:-1])]


def tracing(*values: Any) -> bool:
    """Whether one of the values, or everything, is being traced."""
    return any(isinstance(value, Tracer) for value in (*values, jnp.zeros(())))
