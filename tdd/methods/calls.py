"""What every public statistical call does with its arguments before a compiled kernel sees them.

Concrete values are checked on the host; tracers pass unchecked (their bad values become NaN). Scores matter through
their order alone, so concrete 64-bit scores are replaced by dense integer ranks where JAX runs in 32 bits: rounding
would create ties that the data do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import lattice
from tdd.validate import arrays

__all__ = ["Ordered", "level_operand", "order_preserving"]

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
      samples: arrays of scores that will be compared with one another.
      masks: bool arrays or None, one a sample.

    Returns:
      The samples and the masks as JAX arrays; NaN and masked-out items are False in the masks.
    """
    host = all(not isinstance(sample, jax.Array) for sample in samples)
    wide = host and jnp.result_type(float) == np.float32 and any(np.asarray(s).dtype.itemsize > 4 for s in samples)
    arrays_in = [np.asarray(sample) if host else jnp.asarray(sample) for sample in samples]
    filled = [
        jnp.ones(np.shape(sample), bool) if mask is None else jnp.asarray(mask, bool)
        for sample, mask in zip(arrays_in, masks, strict=True)
    ]
    if not wide:
        return [jnp.asarray(sample) for sample in arrays_in], filled
    real = [~np.isnan(sample) for sample in arrays_in]
    together = np.concatenate([np.ravel(sample) for sample in arrays_in])
    _, inverse = np.unique(np.where(np.isnan(together), np.inf, together), return_inverse=True)
    ends = np.cumsum([sample.size for sample in arrays_in])
    places = [
        jnp.asarray(part.reshape(np.shape(sample)), jnp.int32)
        for part, sample in zip(np.split(inverse, ends[:-1]), arrays_in, strict=True)
    ]
    return places, [mask & jnp.asarray(ok) for mask, ok in zip(filled, real, strict=True)]
