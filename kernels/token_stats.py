"""Per-token statistics of a language model's output distribution, from hidden states and the readout, in chunks.

The logits exist only as one float32 tile [chunk, V] at a time: z = hidden · readout^T, then tanh soft-capping if the
model has it. Rows that are not scored targets cost only a gather: the loop stops after the last scored row.

A tile takes two passes over the vocabulary. With m = max_v z_v, d = z - m, r = sum_{d<0} e^d, n = #{d = 0} and
s = n + r = sum_v e^d:

    log p_y = d_y - ln s       mu = sum p d - ln s          sigma^2 = sum p (d - sum p d)^2
    H_1/2   = 2 ln sum e^(d/2) - ln s      H_2 = 2 ln s - ln sum e^(2d)      H_inf = ln s
    M       = -(1 - p_y) ln p_y - sum_{v != y} p_v ln(1 - p_v)

The maxima are kept out of every sum, so that ln s = log1p(n - 1 + r) and 1 - p_max = (n - 1 + r) / s keep their
relative accuracy on peaked rows. On CPU the exponential of a block of columns is written once to cache (`stored`)
and shared by all sums, which would each compute it again. Maxima are found by comparing z with m: where
z is a product (soft-capping), the compiler may contract z - m, which then is not 0 at the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.kernels.platforms import product, stored

__all__ = [
    "TokenStatistics",
    "tile_log_prob",
    "tile_renyi",
    "tile_statistics",
    "token_log_prob",
    "token_renyi",
    "token_renyi_from_logits",
    "token_stats",
    "token_stats_from_logits",
]

_UNDERFLOW = 1e-30
"""Below this the sum of the non-maximal exponentials has lost digits and is computed again on its own scale."""

_LOG1P_SERIES = tuple(
    np.float32(c)
    for c in np.polynomial.Chebyshev.interpolate(lambda p: -np.log1p(-p) / p, 8, domain=[0.0, 0.5])
    .convert(kind=np.polynomial.Polynomial, domain=[-1.0, 1.0])
    .coef
)
"""Coefficients of g(p) = -ln(1 - p) / p on [0, 1/2], ascending; relative error below 1e-6."""


class TokenStatistics(NamedTuple):
    """Per-token statistics, each [N] float32 (`rank` int32), in nats; meanings as in `tdd.records.TokenStats`."""

    log_prob: jax.Array
    mu: jax.Array
    sigma: jax.Array
    renyi_half: jax.Array
    renyi_two: jax.Array
    renyi_inf: jax.Array
    m_entropy: jax.Array
    rank: jax.Array


_Tree = TypeVar("_Tree", TokenStatistics, jax.Array)


def token_stats(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    soft_cap: float | None = None,
    chunk: int = 256,
    block: int | None = 1024,
) -> TokenStatistics:
    """Statistics of p(. | context) and of the target token, one entry a row of `hidden`.

    Args:
      hidden: [N, D] what the readout multiplies.
      readout: [V, D]; products accumulate in float32 whatever the storage type.
      targets: [N] int32 token ids in 0..V-1.
      mask: [N] bool, True where the row is a scored target. Other entries of the result are 0.
      soft_cap: c in logits = c tanh(z / c), or None.
      chunk: Rows a tile: 256 on CPU (the readout is read once for each tile), 1,024 and more on accelerators. Static.
      block: Columns a step of the vocabulary sums; None (whole rows) on accelerators. Static.

    Returns: `TokenStatistics`, each field [N].
    Cost: 2 S D V flop for S = sum(mask), N without a block, rounded up to `chunk`; temporary memory of about
    4 chunk V + 4 N D bytes, never N V.
    """
    tile = _logits_of(readout, soft_cap)
    return _over_chunks(lambda h, y: tile_statistics(tile(h), y, block), hidden, targets, mask, chunk, block is None)


def token_log_prob(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    soft_cap: float | None = None,
    chunk: int = 256,
    block: int | None = 1024,
) -> jax.Array:
    """`token_stats(...).log_prob` alone, [N] float32: the cheaper pass for lowercase and reference scores."""
    tile = _logits_of(readout, soft_cap)
    return _over_chunks(lambda h, y: tile_log_prob(tile(h), y, block), hidden, targets, mask, chunk, block is None)


def token_renyi(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    order: float,
    soft_cap: float | None = None,
    chunk: int = 256,
    block: int | None = 1024,
) -> jax.Array:
    """The Renyi entropy of any finite order above 0 but 1, [N] float32; a pass of its own, as `token_log_prob`.

    Arguments as in `token_stats`; `order` is static.
    """
    tile = _logits_of(readout, soft_cap)
    return _over_chunks(lambda h, y: tile_renyi(tile(h), order, block), hidden, targets, mask, chunk, block is None)


def token_renyi_from_logits(
    logits: jax.Array, targets: jax.Array, mask: jax.Array, *, order: float, chunk: int = 256, block: int | None = 1024
) -> jax.Array:
    """`token_renyi` for a model that only gives logits [N, V]."""
    return _over_chunks(lambda z, y: tile_renyi(z, order, block), logits, targets, mask, chunk, block is None)


def token_stats_from_logits(
    logits: jax.Array, targets: jax.Array, mask: jax.Array, *, chunk: int = 256, block: int | None = 1024
) -> TokenStatistics:
    """`token_stats` for a model that only gives logits [N, V]; temporary memory of one float32 tile [chunk, V]."""
    return _over_chunks(
        lambda z, y: tile_statistics(z.astype(jnp.float32), y, block), logits, targets, mask, chunk, block is None
    )


def tile_statistics(logits: jax.Array, targets: jax.Array, block: int | None) -> TokenStatistics:
    """Every statistic of every row of a tile of logits [c, V], taken as float32; -inf is a token that cannot occur.

    `targets` are [c] int32 token ids, `block` as in `token_stats`. The relative error is of the order of 1e-6 except
    for what float32 logits have lost already.
    """
    logits = logits.astype(jnp.float32)
    top = logits.max(-1, keepdims=True)
    target = jnp.take_along_axis(logits, targets[:, None], -1)

    def first(z: jax.Array) -> tuple[jax.Array, ...]:
        d = z - top
        # the conditions are written so that NaN stays NaN: the maximum may have left it out
        half = jnp.where(z >= top, 0.0, stored(jnp.exp(0.5 * d)))
        full = half * half
        # 0 (-inf) = 0
        moment = jnp.where(full == 0, 0.0, full * d)
        return full, moment, half, full * full, _count(z >= top), _count(z > target)

    rest, moment, rest_half, rest_two, num_top, rank = _vocabulary_sums(first, logits, block)
    other = rest + (num_top - 1)
    log_sum = jnp.log1p(other)
    mean = moment / (1 + other)
    target_shift = jnp.minimum(target - top, 0.0)[:, 0]

    def second(z: jax.Array) -> tuple[jax.Array, ...]:
        d = z - top
        p = stored(jnp.exp(d - log_sum[:, None]))
        spread = jnp.where(p == 0, 0.0, p * jnp.square(d - mean[:, None]))
        return spread, _p_log1p(jnp.where(z >= top, 0.0, p))

    variance, rest_entropy = _vocabulary_sums(second, logits, block)
    log_prob = target_shift - log_sum
    is_top = (target >= top)[:, 0]
    of_target = jnp.where(is_top, 0.0, _p_log1p(jnp.exp(jnp.minimum(log_prob, -float(np.log(2.0))))))
    num_other_top = num_top - is_top.astype(num_top.dtype)
    log_other = _log_other(logits, top, other, num_other_top > 0)
    of_top = jnp.where(num_other_top > 0, num_other_top * jnp.exp(-log_sum) * (log_sum - log_other), 0.0)
    surprise = jnp.where(log_prob < 0, jnp.expm1(log_prob) * log_prob, 0.0)
    return TokenStatistics(
        log_prob=log_prob,
        mu=mean - log_sum,
        sigma=jnp.sqrt(variance),
        renyi_half=2 * jnp.log1p(rest_half + (num_top - 1)) - log_sum,
        renyi_two=2 * log_sum - jnp.log1p(rest_two + (num_top - 1)),
        renyi_inf=log_sum,
        m_entropy=surprise + jnp.maximum(rest_entropy - of_target, 0.0) + of_top,
        rank=rank.astype(jnp.int32),
    )


def tile_log_prob(logits: jax.Array, targets: jax.Array, block: int | None) -> jax.Array:
    """log p_y of every row of a tile, [c] float32, in one pass after the maximum; arguments as `tile_statistics`."""
    logits = logits.astype(jnp.float32)
    top = logits.max(-1, keepdims=True)
    target = jnp.take_along_axis(logits, targets[:, None], -1)

    def terms(z: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.where(z >= top, 0.0, jnp.exp(z - top)), _count(z >= top)  # NaN stays NaN

    rest, num_top = _vocabulary_sums(terms, logits, block)
    return (target - top)[:, 0] - jnp.log1p(rest + (num_top - 1))


def tile_renyi(logits: jax.Array, order: float, block: int | None) -> jax.Array:
    """Renyi entropy ln(sum_v p_v^g) / (1 - g) of every row of a tile of logits [c, V], g = `order`: [c] float32.

    Where |g - 1| <= 1/2 it is log1p(sum_v p_v (p_v^(g - 1) - 1)) / (1 - g), whose terms have one sign, so that nothing
    cancels as g tends to 1; elsewhere (ln sum e^(g d) - g ln s) / (1 - g), with the maxima kept out of both sums.
    """
    logits = logits.astype(jnp.float32)
    top = logits.max(-1, keepdims=True)

    def of_others(z: jax.Array) -> tuple[jax.Array, ...]:
        d = z - top
        is_top = z >= top
        return jnp.where(is_top, 0.0, jnp.exp(d)), jnp.where(is_top, 0.0, jnp.exp(order * d)), _count(is_top)

    rest, rest_of_order, num_top = _vocabulary_sums(of_others, logits, block)
    log_sum = jnp.log1p(rest + (num_top - 1))
    if abs(order - 1) > 0.5:
        return (jnp.log1p(rest_of_order + (num_top - 1)) - order * log_sum) / (1 - order)

    def change(log_p: jax.Array) -> jax.Array:
        """p^g - p."""
        power = (order - 1) * log_p
        p = jnp.exp(log_p)
        small = jnp.abs(power) < 1
        return jnp.where(small, p * jnp.expm1(jnp.where(small, power, 0.0)), jnp.exp(order * log_p) - p)

    def changes(z: jax.Array) -> tuple[jax.Array, ...]:
        return (jnp.where(z >= top, 0.0, change(z - top - log_sum[:, None])),)

    (total,) = _vocabulary_sums(changes, logits, block)
    return jnp.log1p(total + num_top * change(-log_sum)) / (1 - order)


def _logits_of(readout: jax.Array, soft_cap: float | None) -> Callable[[jax.Array], jax.Array]:
    """The map from hidden states [c, D] to a float32 tile of logits [c, V]."""

    def tile(hidden: jax.Array) -> jax.Array:
        logits = product("nd,vd->nv", hidden.astype(readout.dtype), readout)
        return logits if soft_cap is None else soft_cap * jnp.tanh(logits / soft_cap)

    return tile


def _over_chunks(
    statistics: Callable[[jax.Array, jax.Array], _Tree],
    rows: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    chunk: int,
    every: bool,
) -> _Tree:
    """Apply `statistics` to the rows where `mask` holds, `chunk` at a time, and put the results back in place.

    With `every`, all tiles are computed, those without such rows too: the host of a GPU waits in each step of a loop
    whose length the device counts.
    """
    num_rows = rows.shape[0]
    if num_rows == 0:
        one = jax.eval_shape(statistics, *(jnp.zeros((1, *x.shape[1:]), x.dtype) for x in (rows, targets)))
        return jax.tree.map(lambda s: jnp.zeros((0, *s.shape[1:]), s.dtype), one)
    chunk = max(1, min(chunk, num_rows))
    capacity = -(-num_rows // chunk) * chunk
    (index,) = jnp.nonzero(mask, size=capacity, fill_value=num_rows)
    num_chunks = capacity // chunk if every else -(-mask.sum(dtype=jnp.int32) // chunk)

    def of_chunk(i: jax.Array) -> _Tree:
        chosen = lax.dynamic_slice_in_dim(index, i * chunk, chunk)
        return statistics(jnp.take(rows, chosen, axis=0, mode="clip"), jnp.take(targets, chosen, axis=0, mode="clip"))

    def step(i: jax.Array, out: _Tree) -> _Tree:
        chosen = lax.dynamic_slice_in_dim(index, i * chunk, chunk)
        return jax.tree.map(lambda o, s: o.at[chosen].set(s, mode="drop"), out, of_chunk(i))

    shapes = jax.eval_shape(of_chunk, jnp.int32(0))
    empty = jax.tree.map(lambda s: jnp.zeros((num_rows, *s.shape[1:]), s.dtype), shapes)
    return lax.fori_loop(0, num_chunks, step, empty)


def _count(condition: jax.Array) -> jax.Array:
    return condition.astype(jnp.float32)


def _p_log1p(p: jax.Array) -> jax.Array:
    """-p ln(1 - p) for 0 <= p <= 1/2."""
    series = jnp.full_like(p, _LOG1P_SERIES[-1])
    for coefficient in _LOG1P_SERIES[-2::-1]:
        series = series * p + coefficient
    return p * p * series


def _log_other(logits: jax.Array, top: jax.Array, other: jax.Array, needed: jax.Array) -> jax.Array:
    """ln sum_{v != one maximum} e^d; where that sum underflows, once more relative to the second largest logit."""
    faint = needed & (other < _UNDERFLOW)

    def rescaled(_: jax.Array) -> jax.Array:
        d = jnp.where(logits < top, logits - top, -jnp.inf)
        second = d.max(-1)
        reachable = jnp.isfinite(second)
        sums = jnp.exp(d - jnp.where(reachable, second, 0.0)[:, None]).sum(-1)
        return jnp.where(faint, jnp.where(reachable, second, -jnp.inf) + jnp.log(sums), jnp.log(other))

    return lax.cond(faint.any(), rescaled, jnp.log, other)


def _vocabulary_sums(
    terms: Callable[[jax.Array], tuple[jax.Array, ...]], logits: jax.Array, block: int | None
) -> tuple[jax.Array, ...]:
    """Sum over the vocabulary of each of `terms(logits)`, a tuple of [c].

    Blocks are added lane by lane, [c, block] accumulators, and reduced once at the end: on CPU a sum along a row is a
    chain of scalar additions, slower and less accurate.
    """
    num_blocks = 0 if block is None else logits.shape[1] // block
    if block is None or num_blocks == 0:
        return tuple(term.sum(-1) for term in terms(logits))

    def step(i: jax.Array, lanes: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        columns = lax.dynamic_slice_in_dim(logits, i * block, block, axis=1)
        return tuple(lane + term for lane, term in zip(lanes, terms(columns), strict=True))

    shapes = jax.eval_shape(terms, jax.ShapeDtypeStruct((logits.shape[0], block), logits.dtype))
    lanes = lax.fori_loop(0, num_blocks, step, tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes))
    rest = terms(logits[:, num_blocks * block :])
    return tuple(lane.sum(-1) + term.sum(-1) for lane, term in zip(lanes, rest, strict=True))
