"""Fixed-pool Monte Carlo of conformal selection: split the pool, rank, estimate the proportion, decide.

A pool of labelled scores is sorted once (`resample_pool.prepare`). Each repetition draws, without replacement, n
non-members that calibrate and m items that are tested, and asks for every proportion estimate and level how many
items PTDI selects and how many of them are non-members. All of it is counting on the sorted pool. With C calibration
items, V tested non-members and R tested items strictly below the score of a non-member, the step-up rule there reads

    rho (1 + C) <= alpha R,    rho = pi0·m/(n+1),

and the largest place where it holds is the decision; only the first item of a tie group, and the end, can be it. No
score, rank or p-value of a single repetition is formed.

Repetitions are lanes. One pass over the members and one over the non-members, from the highest score down, draw the
split with a counter-based hash; what is still to be drawn is the count of what lies below. A third pass keeps the
smallest (1 + C)/R from above, which is monotone, so that a decision is a search in float32 against a bound that errs on
the side of selection; a place is accepted on integers, exactly, else the walk goes on below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import lattice, proportion
from tdd.kernels.fill_down import fill_down
from tdd.kernels.resample_pool import Pool, Split

__all__ = ["Decisions", "Drawn", "decide", "draw", "hashed_bits", "threefry_bits"]

PROPORTIONS = ("none", "storey", "subtraction", "moment", "moment_paper")
_SLACK = 1 + 2e-6  # more than the ten roundings of 2^-24 between a bound and a ratio
_TRACED = 1 + 4 * 2.0**-23  # tolerance of a decision on a floating-point estimate, as in `stepup`


class Drawn(NamedTuple):
    """Splits of a pool, one a lane; row j of a table counts what lies strictly below place j."""

    num_calibration: jax.Array  # [L] int32, n
    num_tests: jax.Array  # [L] int32, m
    test_members: jax.Array  # [L] int32, tested members
    calibration: jax.Array  # [N0 + 1, L] calibration items among the first j non-members
    # [N0 + 1, L] tested items among the first j non-members; [0, L] where all that do not calibrate are
    tested: jax.Array
    members: jax.Array  # [N1 + 1, L] tested items among the first i members


class Decisions(NamedTuple):
    """Numbers of selected items."""

    false: jax.Array  # [M, A, L] int32, selected non-members, by proportion, level and repetition
    selected: jax.Array  # [M, A, L] int32, selected items


def hashed_bits(words: Any, counter: jax.Array) -> jax.Array:
    """32 random bits a lane from 64-bit keys and a counter: two multiply-xorshift rounds, the key in both.

    Args:
      words: [2, L] uint32 keys, independent over lanes, or its two rows.
      counter: [] uint32.
    """
    x = words[0] + counter * jnp.uint32(0x9E3779B9)
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = ((x ^ (x >> 15)) ^ words[1]) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def threefry_bits(words: Any, counter: jax.Array) -> jax.Array:
    """`hashed_bits` by JAX's threefry, to compare with."""
    keys = jax.random.wrap_key_data(jnp.stack([words[0], words[1]], axis=1), impl="threefry2x32")
    return jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, counter)))(keys)


GENERATORS = {"hash": hashed_bits, "threefry": threefry_bits}


def draw(pool: Pool, split: Split, words: jax.Array, *, generator: str = "hash", unroll: int = 1) -> Drawn:
    """Draw one split a lane, uniform among those of its sizes.

    Going down the sorted pool, an item is taken with probability (still to be taken)/(items left): a 32-bit draw w
    decides floor(w·left / 2^32) < still to be taken, so that each probability is off by less than 2^-32.

    `words` [2, L] uint32 are independent keys: a repetition depends on its own only. `generator` is "hash", or
    "threefry" to compare with. `unroll` items are drawn in one step of the loops, as in `jax.lax.scan`; the numbers do
    not depend on it. A step is a launch of a program on an accelerator, where more items a step cost less.
    """
    bits = GENERATORS[generator]
    num_nonmembers, num_members = pool.nonmembers.shape[0], pool.members.shape[0]
    lanes = words.shape[1]
    size = num_nonmembers + num_members
    first = bits(words, jnp.uint32(size))
    n = split.least + jnp.sum(split.steps[:, None] <= first, axis=0, dtype=jnp.int32)
    m = jnp.broadcast_to(split.num_tests, (lanes,))
    halves = split.steps.shape[0] > 0
    test_members = m - (num_nonmembers - n) if halves else jnp.broadcast_to(split.test_members, (lanes,))
    kind = jnp.int16 if size < 2**15 else jnp.int32

    def take(need: Any, words: Any, item: jax.Array, offset: int, count: int) -> tuple[jax.Array, ...]:
        """Numbers still to be taken below an item of `count`, for each of the kinds that it can become."""
        chosen = _scaled_draw(bits(words, (item + offset).astype(jnp.uint32)), item + 1, count)
        start, still = jnp.zeros((), jnp.int32), []
        for wanted in need:
            still.append(wanted - ((chosen >= start) & (chosen < start + wanted)).astype(jnp.int32))
            start = start + wanted
        return tuple(still)

    def going_down(need: tuple[jax.Array, ...], offset: int, count: int) -> tuple[jax.Array, ...]:
        """Numbers still to be taken below each place: tables [count + 1, L], of which row 0 is 0."""

        def item(place: jax.Array, need: Any, words: Any, _: Any) -> tuple[Any, Any]:
            return need, take(need, words, place - 1, offset, count)

        return fill_down(
            item, need, (words[0], words[1]), (), rows=count + 1, kinds=(kind,) * len(need), unroll=unroll
        )[1]

    (members,) = going_down((test_members,), num_nonmembers, num_members)
    tables = going_down((n,) if halves else (n, m - test_members), 0, num_nonmembers)
    return Drawn(n, m, test_members, tables[0], jnp.zeros((0, lanes), kind) if halves else tables[1], members)


def decide(
    pool: Pool, drawn: Drawn, levels: lattice.Level, *, proportions: Sequence[str], tails: jax.Array, unroll: int = 1
) -> Decisions:
    """Decide every split at every level with every proportion estimate.

    Args:
      pool: Result of `resample_pool.prepare`.
      drawn: Result of `draw`.
      levels: Exact levels with fields [A].
      proportions: M names of `PROPORTIONS`; those of moments take the members that are not tested as the known ones.
      tails: [N0 + 1] int32 of `resample_pool.tails`, the calibration scores in the region of presumed non-members.
      unroll: As in `draw`.

    Returns: `Decisions`, the same as those of `tdd.ptdi` on the split (those of moments: up to the rounding of the
    estimate). A split without calibration items selects nothing.
    Raises ValueError: an unknown proportion.
    Cost: O(N) a repetition for the counts, O(sqrt(N)) for each decision; about 8·N·L bytes.
    References: PTDI, algorithm 1; `proportion` for the estimates.
    """
    for name in proportions:
        if name not in PROPORTIONS:
            raise ValueError(f"proportions must be among {PROPORTIONS}, got {name!r}")
    below_region = drawn.num_calibration - tails[drawn.num_calibration]
    ratios, kth = _smallest_ratios(pool, drawn, below_region, unroll)
    scales = _scales(pool, drawn, proportions, below_region, kth)
    above = jnp.asarray(levels.above32, jnp.float32)[:, None]
    bounds = jnp.stack([above * scale.inverse * (_SLACK if scale.exact else _TRACED) for scale in scales])
    shape = bounds.shape
    place = _last_at_most(ratios, bounds.reshape(-1, shape[-1]), unroll).reshape(shape)
    left, right = (
        [jnp.stack(factors)[:, None, :] for factors in zip(*side, strict=True)]
        for side in ([scale.numerator for scale in scales], [scale.denominator for scale in scales])
    )
    # Of a small pool the product of two counts stays below 2^31: fewer digits.
    small = pool.nonmembers.shape[0] + pool.members.shape[0] < 2**15

    def product(count: jax.Array, level: jax.Array, factors: list[jax.Array]) -> tuple[jax.Array, ...]:
        first, second, third = factors
        return (count * first, level, second * third) if small else (count, level, first, second, third)

    inexact = jnp.asarray([not scale.exact for scale in scales])[:, None, None]
    a, b = (jnp.asarray(part)[:, None] for part in (levels.numerator, levels.denominator))

    def refuse(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Count at the places, and walk down from those that the rule does not hold at."""
        place = state[0]
        at = jnp.maximum(place, 0)
        calibration, false, selected = _counts(pool, drawn, at)
        holds = lattice.product_le(product(1 + calibration, b, left), product(selected, a, right))
        settled = (place < 0) | inexact | ((pool.group[at] == at) & holds)
        none = jnp.where(place < 0, 0, 1)
        return jnp.where(settled, place, place - 1), jnp.all(settled), none * false, none * selected

    start = (place, jnp.asarray(False), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32))
    _, _, false, selected = jax.lax.while_loop(lambda state: ~state[1], refuse, start)
    return Decisions(false, selected)


def _scaled_draw(word: jax.Array, left: jax.Array, bound: int) -> jax.Array:
    """floor(word·left / 2^32) for left <= bound < 2^24, by products of half words."""
    left = left.astype(jnp.uint32)
    high, low = word >> 16, word & jnp.uint32(0xFFFF)
    if bound < 2**16:
        return ((high * left + (low * left >> 16)) >> 16).astype(jnp.int32)
    upper, lower = left >> 16, left & jnp.uint32(0xFFFF)
    middle = high * lower + (low * lower >> 16)
    rest = (middle & jnp.uint32(0xFFFF)) + low * upper
    return (high * upper + (middle >> 16) + (rest >> 16)).astype(jnp.int32)


class _Scale(NamedTuple):
    """rho = pi0·m/(n+1) as a ratio of products of three integers, where it is one; and 1/rho [L] float32."""

    numerator: tuple[jax.Array, ...]
    denominator: tuple[jax.Array, ...]
    inverse: jax.Array
    exact: bool


def _scales(
    pool: Pool, drawn: Drawn, proportions: Sequence[str], below_region: jax.Array, kth: jax.Array
) -> list[_Scale]:
    """rho of every split; `proportion` defines the estimates."""
    n, m = drawn.num_calibration, drawn.num_tests
    one = jnp.ones_like(n)
    some, tail = below_region > 0, n - below_region

    def ratio(numerator: tuple[jax.Array, ...], denominator: tuple[jax.Array, ...]) -> _Scale:
        top, bottom = jnp.float32(1), jnp.float32(1)
        for x, y in zip(denominator, numerator, strict=True):
            top, bottom = top * x.astype(jnp.float32), bottom * y.astype(jnp.float32)
        return _Scale((*numerator, one, one)[:3], (*denominator, one, one)[:3], top / bottom, True)

    def storey() -> _Scale:
        """From the tests at tau and above."""
        _, _, below = _counts(pool, drawn, pool.group[kth])
        return ratio((1 + m - jnp.where(some, below, 0),), (tail,))

    scales = []
    for name in proportions:
        if name == "none":
            scales.append(ratio((m,), (n + 1,)))
        elif name == "storey":
            scales.append(storey())
        elif name == "subtraction":  # tests and calibration items above tau
            calibration, false, _ = _counts(pool, drawn, pool.behind[kth])
            tested = false + _row(drawn.members, pool.up_to[kth])
            inside = n - calibration
            usable = some & (inside > 0)
            top = (jnp.where(usable, 1 + m - tested, 1), jnp.where(usable, n, 1), m)
            scales.append(ratio(top, (jnp.where(usable, m + 1, 1), jnp.where(usable, inside, 1), n + 1)))
        else:
            theta, usable = _moment(pool, drawn)
            if name == "moment":
                inverse = jnp.where(usable, (n + 1) * jnp.minimum(theta, m) / m, storey().inverse)
            else:
                pi0 = jnp.where(jnp.isnan(theta), 1, jnp.clip(1 / theta, 1 - proportion.MOST_MEMBERS, 1))
                inverse = (n + 1) / (pi0 * m)
            scales.append(ratio((one,), (one,))._replace(inverse=inverse.astype(jnp.float32), exact=False))
    return scales


def _moment(pool: Pool, drawn: Drawn) -> tuple[jax.Array, jax.Array]:
    """[L] theta of PTDI's adjusted moment estimate, from sums over the drawn items, and whether it shows members."""

    def sums(values: jax.Array, table: jax.Array) -> jax.Array:
        """[3, L] count, sum and sum of squares of the items that a table of running counts marks."""
        taken = (table[1:] - table[:-1]).astype(jnp.float32)
        moments = jnp.stack([jnp.ones_like(values), values, values * values])
        return jnp.dot(moments, taken, precision="highest")

    calibration = sums(pool.nonmembers, drawn.calibration)
    every = [
        jnp.stack([jnp.float32(v.shape[0]), jnp.sum(v), jnp.sum(v * v)])[:, None]
        for v in (pool.nonmembers, pool.members)
    ]
    tested = sums(pool.nonmembers, drawn.tested) if drawn.tested.shape[0] else every[0] - calibration
    members = sums(pool.members, drawn.members)

    def mean_and_variance(total: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        count, first, second = total
        return count, first / count, (second - first * first / count) / (count - 1)

    n1, mu1, var1 = mean_and_variance(every[1] - members)
    n0, mu0, var0 = mean_and_variance(calibration)
    m, mu, var = mean_and_variance(tested + members)
    gap = mu1 - mu0
    raw = (mu1 - mu) / gap
    variance = (raw**2 * var0 / n0 + (1 - raw) ** 2 * var1 / n1 + var / m) / gap**2
    theta = 1 / raw - variance / raw**3
    return theta, (gap < 0) & (raw > 0) & (theta > 1)


def _counts(pool: Pool, drawn: Drawn, place: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """C, V and R strictly below places [..., L]."""
    calibration = _row(drawn.calibration, place)
    false = _row(drawn.tested, place) if drawn.tested.shape[0] else place - calibration
    return calibration, false, false + _row(drawn.members, pool.below[place])


def _row(table: jax.Array, place: jax.Array) -> jax.Array:
    """table[place[..., l], l]."""
    flat = place.reshape(-1, place.shape[-1])
    counts = jnp.take_along_axis(table, flat, axis=0, mode="promise_in_bounds")
    return counts.astype(jnp.int32).reshape(place.shape)


def _smallest_ratios(pool: Pool, drawn: Drawn, below_region: jax.Array, unroll: int) -> tuple[jax.Array, jax.Array]:
    """The smallest (1 + C)/R at each place or above it, where a decision can be, and the K-th place.

    Returns: [N0 + 1, L] float32; [L] int32, 0 where K = `below_region` is below 1.
    """
    tables = {"calibration": drawn.calibration, "members": drawn.members, "below": jnp.asarray(pool.below)}
    tables["group"] = jnp.asarray(pool.group)
    if drawn.tested.shape[0]:
        tables["tested"] = drawn.tested

    def item(place: jax.Array, state: Any, below_region: Any, tables: Any) -> tuple[Any, Any]:
        smallest, below = state
        calibration = tables["calibration"][place].astype(jnp.int32)
        false = tables["tested"][place].astype(jnp.int32) if "tested" in tables else place - calibration
        selected = false + tables["members"][tables["below"][place]].astype(jnp.int32)
        ratio = (1 + calibration).astype(jnp.float32) / selected.astype(jnp.float32)
        smallest = jnp.where(tables["group"][place] == place, jnp.minimum(smallest, ratio), smallest)
        return (smallest,), (smallest, below + (calibration < below_region).astype(jnp.int32))

    start = jnp.full(below_region.shape, jnp.inf, jnp.float32), jnp.full(below_region.shape, -1, jnp.int32)
    rows = pool.nonmembers.shape[0] + 1
    (_, below), (table,) = fill_down(item, start, below_region, tables, rows=rows, kinds=(jnp.float32,), unroll=unroll)
    return table, jnp.maximum(below, 0)


def _last_at_most(table: jax.Array, bounds: jax.Array, unroll: int) -> jax.Array:
    """[c, L] the last row of a table [rows, L], rising along its rows, with value <= bounds [c, L]; -1 if none."""
    rows, lanes = table.shape
    stride = 1 << max(0, (rows - 1).bit_length() // 2)

    def coarse(i: jax.Array, count: jax.Array) -> jax.Array:
        row = jax.lax.dynamic_slice(table, (i * stride, 0), (1, lanes))
        return count + (row <= bounds).astype(jnp.int32)

    count = jax.lax.fori_loop(0, -(-rows // stride), coarse, jnp.zeros(bounds.shape, jnp.int32), unroll=unroll)

    def halve(i: jax.Array, place: jax.Array) -> jax.Array:
        ahead = place + (stride >> (i + 1))
        inside = (place >= 0) & (ahead < rows)
        value = jnp.take_along_axis(table, jnp.where(inside, ahead, 0), axis=0, mode="promise_in_bounds")
        return jnp.where(inside & (value <= bounds), ahead, place)

    place = jax.lax.fori_loop(0, stride.bit_length() - 1, halve, (count - 1) * stride)
    return jnp.maximum(place, -1)
