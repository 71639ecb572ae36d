"""Statistics of many repetitions, in integers: the same numbers in any order, batch or number of devices.

Each proportion x in [0, 1] is rounded to a multiple of 2^-24 (the precision of float32), and those integers and those
of x^2 are summed exactly, as a high and a low part of 12 bits each, so that 2^19 repetitions fit into 32 bits. A
histogram of x rounded to multiples of 1/1024 carries the quantiles.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels.platforms import quotient

__all__ = ["Tally", "update", "zero"]

METRICS = ("fdp", "power", "hamming", "selected")
BINS = 1024
MAX_REPETITIONS = 2**19
UNIT = 2**24
LOW_BITS = 12
_COPIES = 32  # of a histogram on a GPU, the lanes of a warp
_MOST_NUMBERS = 2**24  # in all copies


class Tally(NamedTuple):
    """Sums over repetitions, for the metrics of `METRICS` in this order."""

    repetitions: jax.Array  # [] uint32
    # [..., 4, 4] uint32: high and low part of the sum of round(2^24 x), high and low part of that of round(2^24 x^2);
    # the value is high·2^12 + low
    sums: jax.Array
    histogram: jax.Array  # [..., 4, 1025] uint32, how often round(1024 x) was 0..1024


def zero(shape: tuple[int, ...]) -> Tally:
    """No repetition yet, for cells of this shape."""
    shape = (*shape, len(METRICS))
    return Tally(jnp.uint32(0), jnp.zeros((*shape, 4), jnp.uint32), jnp.zeros((*shape, BINS + 1), jnp.uint32))


def update(
    tally: Tally,
    false: jax.Array,
    selected: jax.Array,
    targets: jax.Array,
    items: jax.Array,
    *,
    real: jax.Array | None = None,
) -> Tally:
    """Add repetitions, which lie along the last axis.

    With V false among R selected, T items whose selection is right and M items,

        fdp = V / max(R, 1),  power = (R - V) / max(T, 1),
        hamming = (V + T - (R - V)) / max(M, 1),  selected = R / max(M, 1).

    Args:
      tally: So far; at most 2^19 repetitions in all, or the sums wrap.
      false: [..., L] int32 V, the leading axes those of the cells.
      selected: [..., L] int32 R.
      targets: [L] or [..., L] int32 T.
      items: [] or [L] or [..., L] int32 M.
      real: [L] bool, the repetitions that count (default: all).

    Returns: `Tally`. Each proportion has the error of one float32 division and of one rounding to 2^-24.
    """
    true = selected - false
    wrong = false + targets - true
    parts = jnp.stack([false, true, wrong, selected], axis=-2).astype(jnp.float32)
    wholes = [jnp.broadcast_to(jnp.asarray(w), false.shape) for w in (selected, targets, items, items)]
    # Hidden, or the compiler multiplies by the rounded reciprocal of a divisor that repetitions or cells share.
    wholes = jax.lax.optimization_barrier(jnp.stack(wholes, axis=-2).astype(jnp.float32))
    values = quotient(parts, jnp.maximum(wholes, 1))
    real = jnp.ones(values.shape[-1], bool) if real is None else real
    counted = real.astype(jnp.uint32)
    fixed = [jnp.rint(x * UNIT).astype(jnp.uint32) * counted for x in (values, values * values)]
    halves = [half for x in fixed for half in (x >> LOW_BITS, x & (2**LOW_BITS - 1))]
    sums = jnp.stack([jnp.sum(half, axis=-1, dtype=jnp.uint32) for half in halves], axis=-1)
    bins = jnp.rint(values * BINS).astype(jnp.int32)
    rows = bins.reshape(-1, bins.shape[-1])
    histogram = tally.histogram + _histogram(rows, counted).reshape(tally.histogram.shape)
    return Tally(tally.repetitions + jnp.sum(counted, dtype=jnp.uint32), tally.sums + sums, histogram)


def _histogram(bins: jax.Array, counted: jax.Array) -> jax.Array:
    """[rows, 1025] uint32 sums of `counted` [L] by the bins [rows, L].

    On a GPU repetitions take turns in adding to several copies: most of a row lie in few bins, whose additions would
    wait for one another.
    """
    copies = min(_COPIES, max(1, _MOST_NUMBERS // (bins.shape[0] * (BINS + 1))))
    once, spread = (functools.partial(_sums_by_bin, number) for number in (1, copies))
    return jax.lax.platform_dependent(bins, counted, cuda=spread, rocm=spread, default=once)


def _sums_by_bin(copies: int, bins: jax.Array, counted: jax.Array) -> jax.Array:
    rows, lanes = bins.shape
    place = jnp.arange(rows, dtype=jnp.int32)[:, None] * (BINS + 1) + bins
    place = place * copies + jnp.arange(lanes, dtype=jnp.int32) % copies
    weights = jnp.broadcast_to(counted, bins.shape).ravel()
    sums = jnp.zeros(rows * (BINS + 1) * copies, jnp.uint32).at[place.ravel()].add(weights)
    return sums.reshape(rows, BINS + 1, copies).sum(-1, dtype=jnp.uint32)
