"""The knockoff filter: which items look more like members than their knockoffs do.

Scores are loss-like. The statistic W_j = mean_i(S~_j^(i)) - S_j of an item and its k knockoffs is large for a member.
The threshold is

    tau = min{t in {|W_j| > 0}: (offset + #{W <= -t}) / (k'·max(1, #{W >= t})) <= alpha},

k' = 1 for W, and +inf where no t qualifies: then nothing is selected. Each count takes whole groups of ties, and
W = 0 is never selected.

Several knockoffs without averaging (`multi_statistics`): which of the k + 1 copies is the most member-like, and by how
much. If the k + 1 copies of a non-member are exchangeable, each is the smallest with probability 1/(k + 1) whatever the
gap: a win of the original goes with k losses. An average over the knockoffs has no such symmetry.

One sort of integers serves: the bits of |W| order as |W| does, and the sign fits below them (`path`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import evalues, lattice, platforms, ranks, stepup_parts

__all__ = [
    "KnockoffBound",
    "KnockoffFilter",
    "MultiStatistics",
    "Path",
    "adjust",
    "derandomized_e_values",
    "fdp_bound",
    "first_place",
    "multi_statistics",
    "path",
    "select",
    "threshold",
    "w_statistics",
]


class KnockoffFilter(NamedTuple):
    """Decisions of one threshold."""

    reject: jax.Array  # [n] bool, in input order; False for masked items
    # [n] the smallest level at which the item is selected, in [0, 1] (1: at no level below 1), NaN for masked items;
    # `reject == (adjusted <= alpha)`
    adjusted: jax.Array
    threshold: jax.Array  # [] tau, +inf where nothing qualifies
    num_rejected: jax.Array  # [] int32
    num_tests: jax.Array  # [] int32, n without masked and NaN items


class KnockoffBound(NamedTuple):
    """Bounds that hold for every cut at once, with probability 1 - delta."""

    # [n] int32, #{W >= W_j}: the size of the selection whose cut is at the item; 0 where W_j <= 0
    num_selected: jax.Array
    false_bound: jax.Array  # [n] int32, at most this many of them are non-members
    fdp_bound: jax.Array  # [n] false_bound / num_selected; NaN where W_j <= 0 or the item is masked
    min_true: jax.Array  # [] int32, at least this many of all items are members


class MultiStatistics(NamedTuple):
    """Winner and gap of each item's k + 1 copies."""

    # [n] int32, the copy with the smallest score: 0 the original, i its i-th knockoff; -1 for masked items. In a tie
    # for the smallest (tau = 0, never selected) a knockoff, the first.
    kappa: jax.Array
    tau: jax.Array  # [n] gap between the smallest score and the second smallest; NaN for masked items
    statistic: jax.Array  # [n] tau where the original wins, -tau where a knockoff does; what `select` takes


class Path(NamedTuple):
    """Counts at the n places of the increasing order of |W|; zeros and masked items come first."""

    start: jax.Array  # [n] bool, True at the first place of each group of equal |W| > 0; the counts are meant there
    favourable: jax.Array  # [n] int32, #{W >= t}, t the |W| at the place
    against: jax.Array  # [n] int32, #{W <= -t}
    cut: jax.Array  # [n] t in floating point
    place: jax.Array  # [n] int32, in input order: the first place of the item's own group
    positive: jax.Array  # [n] bool, in input order: W > 0, neither masked nor NaN
    valid: jax.Array  # [n] bool, in input order: neither masked nor NaN


def w_statistics(original: jax.Array, knockoffs: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
    """W_j = mean over i of S~_j^(i) - S_j, computed as a mean of differences: equal copies give exactly 0.

    Guarantee: for k = 1 the signs of the W of non-members are fair coins given |W| if an item and its knockoff are
    exchangeable; for k > 1 they are so only where the law of a score within an item is symmetric.

    Args:
      original: [n] loss-like scores S of the items.
      knockoffs: [n, k] scores S~ of their knockoffs, k at least 1.
      mask: [n] bool, True = real item.

    Returns: [n] W, large = member; NaN for items that are masked out or have a NaN among their k + 1 scores.
    Raises ValueError: k = 0.
    References: KTD, eq. 5 and 8.
    """
    original, knockoffs = _copies(original, knockoffs)
    w = jnp.sum(knockoffs - original, axis=1) / knockoffs.shape[1]
    return w if mask is None else jnp.where(mask, w, jnp.nan)


def threshold(
    w: jax.Array, alpha: Any, *, offset: int = 1, num_knockoffs: int = 1, mask: jax.Array | None = None
) -> jax.Array:
    """The knockoff threshold tau alone; see `select`.

    Cost: one sort of n integers.

    >>> threshold(jnp.array([-2.0, -1, 1, 2, 3, 4, 5, 6, 7, 8]), 0.2)
    Array(3., dtype=float32)
    """
    along = path(w, mask=mask)
    first = first_place(along, lattice.as_level(alpha), offset, num_knockoffs)
    return _cut_at(along, first)


def select(
    w: jax.Array, alpha: Any, *, offset: int = 1, num_knockoffs: int = 1, mask: jax.Array | None = None
) -> KnockoffFilter:
    """Select W_j >= tau. For a static alpha each ratio is compared with it between integers, exactly.

    Guarantee: if the signs of the null statistics are independent given all |W| and the other signs, each positive with
    probability at most 1/(1 + k'): with offset 1 FDR <= alpha; with offset 0 E[V/(R + 1/(alpha k'))] <= alpha only.
    Finite-sample.

    Args:
      w, mask: [n] statistics, large = member, NaN masked out; bool, True = real item.
      alpha: Level in (0, 1); a Python number is a static level, a JAX array may be traced.
      offset: 1 (knockoff+) or 0.
      num_knockoffs: k'; more than 1 for the signed statistics of `multi_statistics` only.

    Returns: `KnockoffFilter`; adjusted_j is the minimum of the ratio over the t <= W_j. At least offset/(alpha k')
    items are selected, or none.
    Raises ValueError: alpha outside (0, 1) where it is static; offset other than 0 and 1; num_knockoffs below 1.
    Cost: one sort of n integers and n binary searches.
    References: Barber & Candès (2015), eq. 1.8-1.9 and theorems 1-2; KTD, eq. 7 and 10 (where no t
    qualifies the authors' code takes the best one, which no theorem covers).
    """
    along = path(w, mask=mask)
    level = lattice.as_level(alpha)
    first = first_place(along, level, offset, num_knockoffs)
    reject = along.positive & (along.place >= first)
    # Products of counts stay below 2^24 in small cases: one rounding.
    ratio = (offset + along.against).astype(along.cut.dtype) / (
        num_knockoffs * jnp.maximum(along.favourable, 1).astype(along.cut.dtype)
    )
    lowest = platforms.cummin(jnp.where(along.start, ratio, jnp.inf))
    smallest = lowest[along.place] if w.shape[0] else lowest
    adjusted = adjust(reject, jnp.where(along.positive, smallest, 1), along.valid, level)
    return KnockoffFilter(
        reject,
        adjusted,
        _cut_at(along, first),
        jnp.sum(reject, dtype=jnp.int32),
        jnp.sum(along.valid, dtype=jnp.int32),
    )


def multi_statistics(original: jax.Array, knockoffs: jax.Array, *, mask: jax.Array | None = None) -> MultiStatistics:
    """kappa_j and tau_j of Gimenez & Zou, for loss-like scores: the smallest score wins.

    Arguments and errors as `w_statistics`; items with a NaN among their k + 1 scores count as masked.

    Guarantee: given everything else, kappa of a non-member is uniform on 0..k where tau > 0, if its k + 1 copies are
    exchangeable.

    References: Gimenez & Zou (2019), section 3.2.
    """
    original, knockoffs = _copies(original, knockoffs)
    # Knockoffs first: argmin takes the first of equals, and a tie is never the original's.
    copies = jnp.concatenate([knockoffs, original], axis=1)
    winner = jnp.argmin(copies, axis=1).astype(jnp.int32)
    others = jnp.where(jnp.arange(copies.shape[1], dtype=jnp.int32)[None] == winner[:, None], jnp.inf, copies)
    tau = jnp.min(others, axis=1) - jnp.min(copies, axis=1)
    valid = ~jnp.isnan(copies).any(axis=1)
    valid = valid if mask is None else valid & mask
    original_wins = winner == knockoffs.shape[1]
    kappa = jnp.where(original_wins, 0, winner + 1)
    tau = jnp.where(valid, tau, jnp.nan)
    return MultiStatistics(jnp.where(valid, kappa, -1), tau, jnp.where(original_wins, tau, -tau))


def derandomized_e_values(w: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> jax.Array:
    """e_j = the mean over the k draws of p·1{W_j >= T} / (1 + #{W <= -T}), p the number of items.

    T is the knockoff+ threshold of the draw at `alpha`, for k > 1 half the level of the e-BH that follows (the same
    level leaves no power).

    Guarantee: the e-values of the non-members sum to at most p in expectation if, in each draw, the signs of their W
    are fair coins given everything else; the draws may depend on one another in any way. Finite-sample. That is what
    e-BH needs. Closed e-BH needs a sum of at most the number of non-members, which these can exceed.

    Args:
      w, mask: [n, k] statistics of each item against each knockoff, large = member, where a NaN masks the item in every
        draw; [n] bool, True = real item.
      alpha: Level in (0, 1) that places T; it costs no validity.

    Returns: [n] e-values; 0 where no draw selects, NaN for masked items and everywhere for a traced alpha out of range.
    Raises ValueError: k = 0; static alpha outside (0, 1).
    Cost: k sorts of n integers.
    References: Ren & Barber (2024), eq. 6-7 and theorem 1.
    """
    level = lattice.as_level(alpha)
    valid = ~jnp.isnan(w).any(axis=1)
    valid = valid if mask is None else valid & mask
    num_items = jnp.sum(valid, dtype=jnp.int32)

    def one(draw: jax.Array) -> jax.Array:
        along = path(draw, mask=valid)
        first = first_place(along, level)
        size = draw.shape[0]
        against = along.against[jnp.minimum(first, size - 1)] if size else jnp.int32(0)
        value = num_items.astype(along.cut.dtype) / (1 + against).astype(along.cut.dtype)
        return jnp.where(along.positive & (along.place >= first), value, 0)

    usable = valid & lattice.in_range(level)
    return jnp.where(usable, evalues.average(jax.vmap(one, in_axes=1)(w)), jnp.nan)


def fdp_bound(w: jax.Array, delta: Any, *, mask: jax.Array | None = None) -> KnockoffBound:
    """Non-members among {W >= t}: at most c·(1 + #{W <= -t}) for all t > 0, c = log(1/delta)/log(2 - delta).

    The bounds are sharpened by one another: members found beyond one cut are beyond every smaller one too.

    Guarantee: P(the bound holds for all cuts at once) >= 1 - delta if the signs of the null W are fair coins given
    everything else; finite-sample. The cut may be chosen after seeing everything.

    `delta` in (0, 1) is the probability of failure; a traced one out of range bounds nothing (fdp_bound NaN). Other
    arguments as `select`.

    Raises ValueError: static delta outside (0, 1).
    Cost: one sort of n integers and n binary searches.
    References: Katsevich & Ramdas (2020), theorem 2 and section 3.2.
    """
    delta = delta.value if isinstance(delta, lattice.Level) else delta
    if not isinstance(delta, jax.Array) and not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    along = path(w, mask=mask)
    dtype = along.cut.dtype
    chance = jnp.asarray(delta, dtype)
    chance = jnp.where((chance > 0) & (chance < 1), chance, jnp.nan)
    factor = -jnp.log(chance) / jnp.log1p(1 - chance)
    # Rounding may not take a whole item off the bound.
    raw = jnp.floor(factor * (1 + along.against).astype(dtype) * (1 + 16 * float(jnp.finfo(dtype).eps)))
    selections = along.favourable.astype(dtype)
    false = jnp.where(raw <= selections, raw, selections).astype(jnp.int32)  # NaN bounds nothing
    members = jnp.where(along.start, along.favourable - false, 0)
    members = platforms.cummax(members, reverse=True)
    if w.shape[0] == 0:
        nothing = jnp.zeros(0, jnp.int32)
        return KnockoffBound(nothing, nothing, jnp.zeros(0, dtype), jnp.int32(0))
    selected = jnp.where(along.positive, along.favourable[along.place], 0)
    false_bound = jnp.where(along.positive, selected - members[along.place], 0)
    fraction = false_bound.astype(dtype) / jnp.maximum(selected, 1).astype(dtype)
    known = along.positive & ~jnp.isnan(chance)
    return KnockoffBound(selected, false_bound, jnp.where(known, fraction, jnp.nan), members[0])


def path(w: jax.Array, *, mask: jax.Array | None = None) -> Path:
    """The counts behind every knockoff threshold, of w [n], large = member; `mask` as `select`. -0.0 is 0.

    Cost: one sort of n integers, and n binary searches for `place`.
    """
    size = w.shape[0]
    valid = ranks.real(w, mask)
    if jnp.issubdtype(w.dtype, jnp.inexact):
        w = ranks.at_least_single(w)
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
    up_to = platforms.cumsum(loses)
    against = (up_to[-1] if size else 0) - up_to + loses
    beyond = size - jnp.arange(size, dtype=jnp.int32)
    floating = jnp.issubdtype(w.dtype, jnp.inexact)
    cut = jax.lax.bitcast_convert_type(magnitude, w.dtype) if floating else magnitude.astype(jnp.result_type(float))
    place = jnp.searchsorted(keys, bits).astype(jnp.int32) if size else jnp.zeros(0, jnp.int32)
    return Path(start, beyond - against, against, cut, place, (bits > 0) & ~negative, valid)


def first_place(along: Path, level: lattice.Level, offset: int = 1, num_knockoffs: int = 1) -> jax.Array:
    """[] int32 place of tau in the path: the first group whose ratio is at most alpha; n where none is.

    Raises ValueError: offset other than 0 and 1; num_knockoffs below 1.
    """
    if offset not in (0, 1):
        raise ValueError(f"offset must be 0 or 1, got {offset!r}")
    if num_knockoffs < 1:
        raise ValueError(f"num_knockoffs must be at least 1, got {num_knockoffs!r}")
    selections = jnp.maximum(along.favourable, 1)
    if lattice.is_exact(level):
        most = 1 + along.start.shape[0]
        estimate, selected = lattice.narrow(offset + along.against, most), lattice.narrow(selections, most)
        passes = lattice.product_le((estimate, level.denominator), (level.numerator, num_knockoffs, selected))
    else:
        dtype = along.cut.dtype
        value = stepup_parts.critical(level, dtype)
        passes = (offset + along.against).astype(dtype) <= value * num_knockoffs * selections.astype(dtype)
    size = along.start.shape[0]
    return jnp.min(jnp.where(along.start & passes, jnp.arange(size, dtype=jnp.int32), size), initial=size)


def adjust(reject: jax.Array, adjusted: jax.Array, valid: jax.Array, level: lattice.Level) -> jax.Array:
    """Adjusted values in [0, 1] on the side of alpha where the decision put them; NaN where nothing was tested."""
    settled = lattice.settle(reject, jnp.minimum(adjusted, 1), level)
    return jnp.where(valid & lattice.in_range(level), settled, jnp.nan)


def _copies(original: jax.Array, knockoffs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[n, 1] and [n, k] scores of one floating type."""
    if knockoffs.shape[1] == 0:
        raise ValueError("knockoffs has no column: its shape must be [n, k] with k at least 1")
    dtype = ranks.common(original.dtype, knockoffs.dtype, jnp.float32)
    return original.astype(dtype)[:, None], knockoffs.astype(dtype)


def _cut_at(along: Path, place: jax.Array) -> jax.Array:
    size = along.cut.shape[0]
    if size == 0:
        return jnp.asarray(jnp.inf, along.cut.dtype)
    return jnp.where(place < size, along.cut[jnp.minimum(place, size - 1)], jnp.inf).astype(along.cut.dtype)
