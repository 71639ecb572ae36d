"""JMCS and JECS as a cut on the ranks, from the cumulative histogram alone.

Both procedures select the items whose largest rank is at most a cut, so that a simulation needs no item once it has
counted the ranks: how many are selected, and how many of those wrongly, is read off cumulative histograms at the cut.
Decisions are those of `stepup.bh_ranks` and of `envelope.adaptive_bh`, between integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import envelope_anchor, lattice

__all__ = ["bh_cut", "jecs_cuts", "storey_scale"]

_ROUNDING = 4e-6  # more than thirty roundings of 2^-24, upwards

_Factors = tuple[Any, ...]


def bh_cut(
    at_most: jax.Array,
    level: lattice.Level,
    *,
    scale: tuple[_Factors, _Factors],
    limit: Any = None,
    max_tests: int = 2**30,
) -> jax.Array:
    """The largest rank that BH on the lattice rejects.

    Args:
      at_most: [max_rank + 1] int32, #{ranks <= r} for r = 0..max_rank, max_rank >= n + 1.
      level: Exact (`lattice.as_level` of a number), its digits traced or not.
      scale: rho as in `stepup.bh_ranks`; m/(n+1) for BH.
      limit: [] int32, items of a larger rank are left out (default: none).
      max_tests: Static upper bound of their number; a small one saves digits.

    Returns: [] int32, 0 where nothing is rejected; `rank <= cut` is `stepup.bh_ranks(...).reject`.
    Raises ValueError: a level that is only known as a float.
    Cost: a few scalar divisions and look-ups, at most one of each a rank.
    """
    if not lattice.is_exact(level):
        raise ValueError("level must be exact: use lattice.as_level of a number, not of a JAX array")
    top = at_most.shape[0] - 1
    limit = jnp.int32(top) if limit is None else jnp.minimum(limit, top)
    numerator, denominator = scale

    def allowed(cut: jax.Array) -> jax.Array:
        """The largest rank that as many rejections as there are ranks up to `cut` allow."""
        some = lattice.narrow(at_most[cut], max_tests)
        largest = lattice.floor_ratio((level.numerator, some, *denominator), (level.denominator, *numerator), top)
        return jnp.minimum(largest, limit)

    start = _from_above(at_most, level, numerator, denominator, limit)
    cut = _descend(allowed, start)
    return jnp.where(at_most[cut] > 0, cut, 0)


def jecs_cuts(
    at_most: jax.Array, num_calibration: Any, levels: lattice.Level, grid: Sequence[Any], *, max_tests: int = 2**30
) -> jax.Array:
    """The largest rank that JECS selects, at several levels on one envelope.

    Guarantee: As `envelope.fit`; asymptotic.

    `levels` are exact, with fields [A]; other arguments and errors as `envelope_anchor.candidates` and `bh_cut`.

    Returns: [A] int32, 0 where nothing is selected; `rank <= cut` is `envelope.adaptive_bh(...).reject`.
    References: JECS, eq. 13-17 and appendix D.1.
    """
    candidates = envelope_anchor.candidates(at_most, num_calibration, grid, max_tests=max_tests)
    anchor = candidates.chosen
    scale = envelope_anchor.line_scale(anchor, candidates.fitted, num_calibration, at_most[-1], max_tests=max_tests)
    on_line = at_most[anchor.limit]

    def one(level: lattice.Level) -> jax.Array:
        line = bh_cut(at_most, level, scale=scale, limit=anchor.limit, max_tests=max_tests)
        tail = envelope_anchor.largest_tail_count(level, anchor, num_calibration, on_line)
        last = jnp.searchsorted(at_most, on_line + tail, side="right").astype(jnp.int32) - 1
        # Whole tie groups of the tail up to the cut; if there are any, everything on the line passes too.
        return jnp.where(at_most[last] > on_line, last, line)

    return jax.vmap(one)(levels)


def storey_scale(at_most: jax.Array, num_calibration: Any, tail: Any) -> tuple[_Factors, _Factors]:
    """rho = (1 + #{ranks >= n - tail + 1}) / tail, as `proportion.storey` gives it on the ranks themselves.

    `tail` [] is the number of calibration items in the region of presumed nulls (`proportion.tail_size`).
    """
    below = at_most[jnp.asarray(num_calibration, jnp.int32) - tail]
    return (1 + at_most[-1] - below,), (jnp.asarray(tail, jnp.int32),)


def _from_above(
    at_most: jax.Array, level: lattice.Level, numerator: _Factors, denominator: _Factors, limit: jax.Array
) -> jax.Array:
    """A cut at or just above that of BH: the iteration in float32, quotients rounded up."""
    single = jnp.float32
    ratio = jnp.asarray(level.numerator).astype(single) / jnp.asarray(level.denominator).astype(single)
    for factor in denominator:
        ratio = ratio * jnp.asarray(factor).astype(single)
    for factor in numerator:
        ratio = ratio / jnp.asarray(factor).astype(single)
    ratio = ratio * (1 + _ROUNDING)
    most = limit.astype(single)

    def allowed(cut: jax.Array) -> jax.Array:
        largest = jnp.minimum(jnp.floor(at_most[cut].astype(single) * ratio), most)
        return jnp.where(jnp.isnan(largest), most, largest).astype(jnp.int32)

    return _descend(allowed, limit)


def _descend(step: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """The largest fixed point of a monotone `step` that is at most `start`, where step(start) <= start."""
    state = (start, start + 1)
    return jax.lax.while_loop(lambda cuts: cuts[0] != cuts[1], lambda cuts: (step(cuts[0]), cuts[0]), state)[0]
