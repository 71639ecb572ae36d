"""How many knockoff statistics lie beyond every threshold, on both sides.

A threshold t > 0 matters only where it equals some |W_j|, and there it counts the whole group of equal |W|. One sort of
integers serves: the bits of |W| order as |W| does, and the sign fits below them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["Path", "path"]


class Path(NamedTuple):
    """Counts at the n places of the increasing order of |W|; zeros and masked items come first.

    Attributes:
      start: [n] bool, True at the first place of each group of equal |W| > 0; the counts are meant there.
      favourable: [n] int32, #{W >= t}, t the |W| at the place.
      against: [n] int32, #{W <= -t}.
      cut: [n] t in floating point.
      place: [n] int32, in input order: the first place of the item's own group.
      positive: [n] bool, in input order: W > 0, neither masked nor NaN.
      valid: [n] bool, in input order: neither masked nor NaN.
    """

    start: jax.Array
    favourable: jax.Array
    against: jax.Array
    cut: jax.Array
    place: jax.Array
    positive: jax.Array
    valid: jax.Array


def path(w: jax.Array, *, mask: jax.Array | None = None) -> Path:
    """The counts behind every knockoff threshold.

    Args:
      w: [n] statistics, large = member.
      mask: [n] bool, True = real item; NaN is left out besides.

    Returns:
      `Path`. -0.0 is 0.

    Cost: one sort of n integers, and n binary searches for `place`.
    """
    size = w.shape[0]
    valid = ~jnp.isnan(w) if jnp.issubdtype(w.dtype, jnp.inexact) else jnp.ones(w.shape, bool)
    valid = valid if mask is None else valid & mask
    if jnp.issubdtype(w.dtype, jnp.inexact):
        w = w.astype(jnp.promote_types(w.dtype, jnp.float32))
        unsigned = jnp.uint64 if w.dtype.itemsize == 8 else jnp.uint32
        bits = jax.lax.bitcast_convert_type(w, unsigned)
        negative = bits >> (8 * w.dtype.itemsize - 1) == 1
        bits = bits << 1  # the sign leaves at the top, room for it below
    else:
        unsigned = jnp.uint64 if w.dtype.itemsize == 8 else jnp.uint32
        negative = w < 0
        bits = jnp.abs(jnp.maximum(w, -jnp.iinfo(w.dtype).max)).astype(unsigned) << 1
    bits = jnp.where(valid, bits, 0)
    keys = jnp.sort(bits | jnp.where(bits > 0, negative, False).astype(unsigned))
    magnitude = keys >> 1
    start = (magnitude > 0) & jnp.concatenate([jnp.ones(min(size, 1), bool), magnitude[1:] != magnitude[:-1]])
    loses = (keys & 1).astype(jnp.int32)
    up_to = jnp.cumsum(loses)
    against = (up_to[-1] if size else 0) - up_to + loses
    beyond = size - jnp.arange(size, dtype=jnp.int32)
    floating = jnp.issubdtype(w.dtype, jnp.inexact)
    cut = jax.lax.bitcast_convert_type(magnitude, w.dtype) if floating else magnitude.astype(jnp.result_type(float))
    place = jnp.searchsorted(keys, bits).astype(jnp.int32) if size else jnp.zeros(0, jnp.int32)
    return Path(start, beyond - against, against, cut, place, (bits > 0) & ~negative, valid)
