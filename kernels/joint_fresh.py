"""New scores with one membership label a model in each repetition, without drawing a score: ranks from their law.

The model. n calibration items and m candidates under K models; a candidate is a member of each model with probability
p, independently; scores are independent N(-signal·member, 1), calibration items are members of every model. R_j is the
largest over the models of 1 + #{calibration scores of that model >= score of j}.

What is drawn instead, with the same law:

1. For model k let U_1 < ... < U_n be the probabilities that a member's score exceeds the largest, the second largest,
   ... calibration score. Members are distributed as the calibration items and the law is continuous, so these are the
   order statistics of n uniform numbers: (E_1 + ... + E_r)/(E_1 + ... + E_(n+1)), E_i independent exponentials
   (Renyi 1953). A non-member exceeds the same score with probability V_r = Phi(Phi^-1(U_r) + signal).
2. Given all calibration scores, candidates are independent and alike, and so are a candidate's labels and scores under
   the K models. Its rank under model k is at most r exactly if its score exceeds the r-th largest calibration score.
   Hence, with U_(n+1) = V_(n+1) = 1 and the product over the models,

       P(R_j <= r, member of none) = prod (1 - p) V_r,    P(R_j <= r) = prod (p U_r + (1 - p) V_r).

3. (R_j, contaminated or not) is drawn from this table of 2(n+1) cells by one random number a candidate.

So candidates share the calibration items, as they do in the data. Probabilities are computed in single precision and
rounded to multiples of 2^-24.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from tdd.kernels.joint_resample import RankCounts, by_lane
from tdd.kernels.resample import hashed_bits

__all__ = ["cell_probabilities", "count_ranks"]

_UNIT = 2**24


def count_ranks(
    words: jax.Array,
    signal: Any,
    member_share: Any,
    *,
    num_models: int,
    num_calibration: int,
    num_tests: int,
    unroll: int = 1,
) -> RankCounts:
    """Draw the ranks of L repetitions and count them.

    Args:
      words: [2, L] uint32 random words, independent over repetitions.
      signal: [] distance between the mean scores of non-members and members, in standard deviations.
      member_share: [] p, the probability that a candidate is a member of one model.
      num_models, num_calibration, num_tests: K, n and m, static.
      unroll: Steps of the loops that are taken at once; the counts do not depend on it. With 1 the look-ups are made
        repetition by repetition, which is faster on a CPU; with more, together for all repetitions.

    Cost: K (n + 1) exponentials and as many normal quantiles and distribution functions, m random numbers and as many
    look-ups by halving in a table of 2(n+1) cells.
    """
    sizes = {"num_models": num_models, "num_calibration": num_calibration}
    ends = jnp.rint(cell_probabilities(words, signal, member_share, unroll=unroll, **sizes) * _UNIT).astype(jnp.int32)
    numbers = jnp.arange(num_tests, dtype=jnp.uint32) + jnp.uint32(num_models * (num_calibration + 1))
    count = _count_together if unroll > 1 else _count_one_by_one
    pure, contaminated = count(ends, words, numbers).reshape(2, num_calibration + 1, -1)

    def add(sums: tuple[jax.Array, jax.Array], row: tuple[jax.Array, jax.Array]) -> Any:
        both, bad = sums[0] + row[0] + row[1], sums[1] + row[1]
        return (both, bad), RankCounts(both, bad)

    zero = jnp.zeros(words.shape[1], jnp.int32)
    sums = jax.lax.scan(add, (zero, zero), (pure, contaminated), unroll=unroll)[1]
    return RankCounts(*(jnp.concatenate([zero[None], rows]) for rows in sums))


def _count_together(ends: jax.Array, words: jax.Array, numbers: jax.Array) -> jax.Array:
    """[cells, L] how many random numbers of each repetition fall into each cell, whose ends are `ends` [cells, L]."""
    cells, lanes = ends.shape
    steps = cells.bit_length()
    rows = jnp.pad(ends, ((0, 2**steps - cells), (0, 0)), constant_values=_UNIT)
    draw = (hashed_bits(words[:, None, :], numbers[:, None]) >> 8).astype(jnp.int32)
    cell = jnp.zeros(draw.shape, jnp.int32)
    for step in reversed(range(steps)):
        end = jnp.take_along_axis(rows, cell + (2**step - 1), axis=0, mode="promise_in_bounds")
        cell = cell + jnp.where(end <= draw, 2**step, 0)
    slot = cell * lanes + jnp.arange(lanes, dtype=jnp.int32)
    counts = jnp.zeros(cells * lanes, jnp.int32).at[slot.reshape(-1)].add(1, mode="promise_in_bounds")
    return counts.reshape(cells, lanes)


def _count_one_by_one(ends: jax.Array, words: jax.Array, numbers: jax.Array) -> jax.Array:
    """`_count_together`, repetition by repetition: the table of one stays in the fastest memory of a host."""
    cells, lanes = ends.shape
    steps = cells.bit_length()
    beyond = jnp.full((lanes, 2**steps - cells), _UNIT)  # no search leaves it
    rows = jnp.concatenate([by_lane(ends), beyond], axis=1)

    def one(counts: jax.Array, lane: jax.Array) -> tuple[jax.Array, None]:
        row = rows[lane]
        draw = (hashed_bits(words[:, lane], numbers) >> 8).astype(jnp.int32)
        cell = jnp.zeros(numbers.shape, jnp.int32)
        for step in reversed(range(steps)):
            end = row.at[cell + (2**step - 1)].get(mode="promise_in_bounds")
            cell = cell + jnp.where(end <= draw, 2**step, 0)
        return counts.at[lane * cells + cell].add(1, mode="promise_in_bounds"), None

    counts = jax.lax.scan(one, jnp.zeros(lanes * cells, jnp.int32), jnp.arange(lanes, dtype=jnp.int32))[0]
    return counts.reshape(lanes, cells).T


def cell_probabilities(
    words: jax.Array, signal: Any, member_share: Any, *, num_models: int, num_calibration: int, unroll: int = 1
) -> jax.Array:
    """Draw the calibration items of L repetitions: the law of a candidate given them.

    Arguments as `count_ranks`.

    Returns: [2(n+1), L] float32, the cumulative probabilities of the cells (member of none, R = 1..n+1), then
    (contaminated, R = 1..n+1); the last is 1.
    """
    signal, share = (jnp.asarray(value, jnp.float32) for value in (signal, member_share))

    model = jnp.arange(num_models, dtype=jnp.uint32)[:, None]

    def step(sums: jax.Array, item: jax.Array) -> tuple[jax.Array, jax.Array]:
        sums = sums + _exponential(words, item * num_models + model)
        return sums, sums

    zero = jnp.zeros((num_models, words.shape[1]), jnp.float32)
    whole, sums = jax.lax.scan(step, zero, jnp.arange(num_calibration + 1, dtype=jnp.uint32), unroll=unroll)
    none = (1 - share) ** num_models

    # Row by row, as the output of loops: XLA repeats an array expression in everything that uses it.
    def shift(carry: None, row: jax.Array) -> tuple[None, jax.Array]:
        return carry, ndtr(ndtri(row / whole) + signal)

    other = jax.lax.scan(shift, None, sums[:-1], unroll=unroll)[1]

    def multiply(largest: jax.Array, rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        member, other = rows[0] / whole, rows[1]
        pure, both = jnp.ones((), jnp.float32), jnp.ones((), jnp.float32)
        for model in range(num_models):
            pure = pure * ((1 - share) * other[model])
            both = both * (share * member[model] + (1 - share) * other[model])
        pure = jnp.minimum(pure, none)
        largest = jnp.maximum(largest, jnp.minimum(both - pure, 1 - none))  # monotone but for rounding
        return largest, (pure, none + largest)

    start = jnp.zeros(words.shape[1], jnp.float32)
    _, (pure, rest) = jax.lax.scan(multiply, start, (sums[:-1], other), unroll=unroll)
    ends = jnp.ones((1, words.shape[1]), jnp.float32)
    return jnp.concatenate([pure, none * ends, rest, ends])


def _exponential(words: jax.Array, counter: jax.Array) -> jax.Array:
    """[models, L] exponential numbers, by the logarithm of a uniform one in (0, 1)."""
    uniform = ((hashed_bits(words, counter) >> 8).astype(jnp.float32) + np.float32(0.5)) * np.float32(1 / _UNIT)
    return -jnp.log(uniform)
