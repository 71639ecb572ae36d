"""How often each test of canonical order rejects: one compiled program for each number of shuffles."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import betting, permutation, randomization, rank_sum, sequential, student
from tdd.study import blocks

__all__ = ["TESTS", "Rejections", "log10_floor", "num_draws", "shard_sums", "survival_table"]

TESTS = ("combined", "rank_sum", "exact", "t", "permutation", "e_process")
_FEWEST_DRAWS = 999
_NUMBERS = 2**18  # log-probabilities of one block, about
_STEP = 256


class Rejections(NamedTuple):
    """Sums over repetitions.

    Attributes:
      count: [tests, A] uint32, rejections.
      shuffles: [A] uint32, shuffles that the e-process read until it stopped; 0 where it is not asked for.
      repetitions: [] uint32.
    """

    count: jax.Array
    shuffles: jax.Array
    repetitions: jax.Array


def num_draws(alphas: Sequence[float]) -> int:
    """Random relabellings of "exact": fifty times as many as the smallest level asks for; more would find little."""
    return max(_FEWEST_DRAWS, math.ceil(50 / min(alphas)) - 1)


def survival_table(num_shards: int, num_shuffles: int, most: int) -> np.ndarray:
    """[most·k + 1] float32 log P(sum of ranks >= s); -inf beyond what r shards can reach."""
    table = np.full(most * num_shuffles + 1, -np.inf, np.float32)
    reach = np.arange(num_shards * num_shuffles + 1)
    table[: reach.size] = rank_sum.log_survival(reach, num_shards=num_shards, num_shuffles=num_shuffles)
    return table


def log10_floor(test: str, num_shards: int, num_shuffles: int, draws: int) -> float:
    """The decimal logarithm of the smallest p-value that a test can give; -inf for "t"."""
    ranks, drawn = -num_shards * math.log10(num_shuffles + 1), -math.log10(draws + 1)
    return {
        "rank_sum": ranks,
        "exact": max(ranks, drawn),
        "combined": min(0.0, min(ranks, max(ranks, drawn)) + math.log10(2)),
        "permutation": -math.log10(num_shuffles + 1),
        "t": -math.inf,
        "e_process": -betting.largest_log_e(num_shards, num_shuffles) / math.log(10),
    }[test]


@functools.lru_cache(maxsize=32)
def shard_sums(
    tests: tuple[str, ...], num_levels: int, draws: int, numbers: int, devices: tuple[Any, ...]
) -> blocks.BlockSums:
    """The compiled sums; operands are design, number of shards, survival table, levels [A] and key.

    Args:
      tests: out of `TESTS`.
      num_levels: A.
      draws: relabellings of "exact".
      numbers: that one sample of the design holds; decides how many repetitions run side by side.
      devices: to share the blocks out over.
    """
    lanes = _STEP
    while lanes > 8 and lanes * numbers > _NUMBERS:
        lanes //= 2

    def one(design: Any, num_shards: jax.Array, table: jax.Array, levels: jax.Array, key: jax.Array) -> Any:
        drawing, deciding = jax.random.split(key)
        extra = design.draw(drawing).extra
        canonical, shuffled = extra["canonical"], extra["shuffled"]
        mask = jnp.arange(canonical.shape[0]) < num_shards
        p: dict[str, Any] = {}
        if {"combined", "rank_sum"} & {*tests}:
            ranks = rank_sum.shard_ranks(canonical, shuffled, mask=mask)
            p["rank_sum"] = jnp.exp(table[jnp.sum(jnp.maximum(ranks, 0))])
        if {"combined", "exact"} & {*tests}:
            options = {"num_draws": draws, "key": deciding, "mask": mask}
            p["exact"] = randomization.shard_randomization(canonical, shuffled, **options).p_value
        if "combined" in tests:
            p["combined"] = jnp.minimum(1, 2 * jnp.minimum(p["rank_sum"], p["exact"]))
        if "permutation" in tests:
            p["permutation"] = randomization.shard_permutation(canonical, shuffled, mask=mask).p_value
        if "t" in tests:
            s = -jnp.mean(shuffled - canonical[:, None], axis=1)
            largest = jnp.max(
                jnp.maximum(jnp.abs(canonical), jnp.max(jnp.abs(shuffled), axis=1)), where=mask, initial=0
            )
            p["t"] = student.one_sample(s, mask=mask, noise=permutation.tie_tolerance(s.dtype) * largest).p_value
        used = jnp.zeros(num_levels, jnp.uint32)
        bound = levels * (1 + 1e-6)  # levels and p-values are rounded to single precision
        if "e_process" in tests:
            path = betting.e_process(sequential.exceedances(canonical, shuffled, mask=mask)).p_value
            reached = path[None, :] <= bound[:, None]
            k = path.shape[0]
            used = jnp.where(reached.any(axis=1), 1 + jnp.argmax(reached, axis=1), k).astype(jnp.uint32)
            p["e_process"] = path[-1]
        return jnp.stack([p[name] <= bound for name in tests]), used

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: Rejections) -> Rejections:
        design, num_shards, table, levels, key = operands
        rejected, used = jax.vmap(lambda i: one(design, num_shards, table, levels, jax.random.fold_in(key, i)))(index)
        return Rejections(
            totals.count + jnp.sum(rejected & real[:, None, None], axis=0, dtype=jnp.uint32),
            totals.shuffles + jnp.sum(used * real[:, None], axis=0, dtype=jnp.uint32),
            totals.repetitions + jnp.sum(real, dtype=jnp.uint32),
        )

    def zero() -> Rejections:
        counts = jnp.zeros((len(tests), num_levels), jnp.uint32)
        return Rejections(counts, jnp.zeros(num_levels, jnp.uint32), jnp.uint32(0))

    return blocks.sum_over_blocks(one_block, zero, lanes=lanes, devices=devices)
