"""Shards of planned tests of canonical order: their sources, draws, and the compiled counts of rejections."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import betting, permutation, randomization, rank_sum, sequential, student
from tdd.records import Null, pytree
from tdd.study.checks import as_float
from tdd.study.designs import SHARD_LAWS, Sample, SkewedShards
from tdd.study.runner import BlockSums, sum_over_blocks
from tdd.validate import InputError
from tdd.validate.arrays import check_choice

TESTS = ("combined", "rank_sum", "exact", "t", "permutation", "e_process")
_FEWEST_DRAWS = 999
_NUMBERS = 2**18  # log-probabilities of one block, about
_STEP = 256


@dataclasses.dataclass(frozen=True)
class ShardEffect:
    """Independent log-probabilities of one law, the canonical ones raised by an effect.

    Attributes:
      effect: Gain of the canonical order over the shuffles, in standard deviations of a shuffle.
      law: "normal", "exponential" (-Exp(1): a long left tail and a sharp upper end, which any gain exceeds) or
        "lognormal" (-exp(N(0, 1))).
      shard_tokens: Tokens of a shard, for the cost in tokens.

    Raises:
      InputError: A number out of range, or an unknown law.
    """

    num_shuffles: ClassVar[int] = 0

    effect: float
    law: str = "normal"
    shard_tokens: float | None = None

    def __post_init__(self) -> None:
        if not 0 < as_float(self.effect) <= 1_000:
            raise InputError(
                "effect must be positive (and at most 1000): by how many standard deviations of a shuffle the "
                f"canonical order is more likely; got {self.effect!r}"
            )
        check_choice(self.law, SHARD_LAWS, "law")
        _check_tokens(self.shard_tokens)

    def design(self, num_shards: int, num_shuffles: int, shown: float, effect: float | None = None) -> SkewedShards:
        """A design with this fraction of shards that show the effect, or another one."""
        law: Any = self.law
        signal = np.float32(self.effect if effect is None else effect)
        return SkewedShards(num_shards, num_shuffles, signal, np.float32(shown), law)

    def extrapolated(self, num_shuffles: int) -> bool:
        """False: a law does not run out of shuffles."""
        return False

    def measured_effect(self) -> None:
        """None: nothing was measured."""

    def words(self, share: float) -> str:
        """The source, in words."""
        shown = "every shard" if share == 1 else f"{share:.0%} of the shards"
        return f"an effect of {self.effect:g} sd in {shown}, {self.law} log-probabilities"


@dataclasses.dataclass(frozen=True, eq=False)
class ShardLogProbs:
    """Log-probabilities of the shards of a finished test of canonical order.

    Attributes:
      canonical: [r0] log-probabilities of the shards in canonical order.
      shuffled: [r0, k0] those of their shuffles, k0 >= 2.
      shard_tokens: Tokens of a shard, for the cost in tokens.
      name: Name of the test in the report.

    Raises:
      InputError: Shapes that do not fit, missing or infinite log-probabilities, a number of tokens out of range.
    """

    canonical: Any
    shuffled: Any
    shard_tokens: float | None = None
    name: str = "the shards"

    def __post_init__(self) -> None:
        canonical, shuffled = np.asarray(self.canonical, np.float64), np.asarray(self.shuffled, np.float64)
        if canonical.ndim != 1 or shuffled.ndim != 2 or len(canonical) != len(shuffled):
            raise InputError(
                f"canonical must be [shards] and shuffled [shards, shuffles], got shapes {canonical.shape} and "
                f"{shuffled.shape}"
            )
        if len(canonical) < 1 or shuffled.shape[1] < 2:
            raise InputError(
                f"at least one shard with two shuffles is needed, got {len(canonical)} shards with "
                f"{shuffled.shape[1]} shuffles"
            )
        bad = int((~np.isfinite(canonical) | ~np.isfinite(shuffled).all(axis=1)).sum())
        if bad:
            raise InputError(
                f"{bad} of {len(canonical)} shards have a missing or infinite log-probability; leave them out"
            )
        _check_tokens(self.shard_tokens)
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "shuffled", shuffled)

    @functools.cached_property
    def centred(self) -> tuple[np.ndarray, np.ndarray]:
        """[r0] and [r0, k0] float32, minus the mean of the shuffles of each shard."""
        middle = self.shuffled.mean(axis=1)
        return (self.canonical - middle).astype(np.float32), (self.shuffled - middle[:, None]).astype(np.float32)

    @property
    def num_shuffles(self) -> int:
        """k0."""
        return self.shuffled.shape[1]

    def design(self, num_shards: int, num_shuffles: int, shown: float, effect: float | None = None) -> ResampledShards:
        """A design with the effect that the shards show, or with another one in this fraction of them."""
        orders = np.bool_(effect is None), *self.centred
        if effect is None:
            return ResampledShards(num_shards, num_shuffles, *orders, np.float32(0), np.float32(1))
        return ResampledShards(num_shards, num_shuffles, *orders, np.float32(effect), np.float32(shown))

    def extrapolated(self, num_shuffles: int) -> bool:
        """Whether shuffles are drawn with replacement."""
        return num_shuffles > self.num_shuffles

    def measured_effect(self) -> dict[str, float]:
        """Mean and median over shards of the canonical order's gain, in standard deviations of the shuffles."""
        canonical, shuffled = self.centred
        spread = shuffled.std(axis=1, ddof=1)
        gain = canonical[spread > 0] / spread[spread > 0]
        if not gain.size:
            return {"mean": math.nan, "median": math.nan}
        return {"mean": float(gain.mean()), "median": float(np.median(gain))}

    def words(self, share: float) -> str:
        """The source, in words."""
        return f"{self.name}: {len(self.canonical)} shards with {self.num_shuffles} shuffles"


def _check_tokens(tokens: Any) -> None:
    if tokens is not None and not (math.isfinite(as_float(tokens)) and tokens > 0):
        raise InputError(f"shard_tokens must be a positive number of tokens, got {tokens!r}")


@pytree("num_shards", "num_shuffles")
class ResampledShards:
    """Shards drawn with replacement from those of a finished test, each with some of its shuffles.

    Shuffles are drawn without replacement where there are enough of them, with replacement otherwise. Where not
    `observed`, the canonical order of a drawn shard is another one of its shuffles, raised by `signal` standard
    deviations of them in the first round(shifted_share·r) shards.
    """

    null: ClassVar[Null] = "nonmember"

    num_shards: int
    num_shuffles: int
    observed: Any  # bool
    canonical: Any  # [r0] log-probability minus the mean of the shuffles of its shard
    shuffled: Any  # [r0, k0], likewise
    signal: Any = 0.0
    shifted_share: Any = 1.0

    def draw(self, key: jax.Array) -> Sample:
        """One data set: `extra["canonical"]` [r], `extra["shuffled"]` [r, k]; `scores` as in `SkewedShards`."""
        canonical, shuffled = jnp.asarray(self.canonical), jnp.asarray(self.shuffled)
        row_key, order_key, repeat_key = jax.random.split(key, 3)
        rows = jax.random.randint(row_key, (self.num_shards,), 0, canonical.shape[0])
        available = shuffled.shape[1]
        order = jnp.argsort(jax.random.bits(order_key, (self.num_shards, available)), axis=1)  # columns, random order
        columns = order[:, 1 : 1 + self.num_shuffles]  # without the one that may stand for the canonical order
        if self.num_shuffles >= available:
            lowest = jnp.where(self.observed, 0, 1)
            repeated = jax.random.randint(repeat_key, (self.num_shards, self.num_shuffles), lowest, available)
            columns = jnp.take_along_axis(order, repeated, axis=1)
            if self.num_shuffles == available:
                columns = jnp.where(self.observed, order, columns)
        shuffles = shuffled[rows[:, None], columns]
        share = jnp.asarray(self.shifted_share, shuffles.dtype)
        shown = jnp.arange(self.num_shards) < jnp.rint(share * self.num_shards)
        raised = shuffled[rows, order[:, 0]] + self.signal * jnp.std(shuffled, axis=1, ddof=1)[rows] * shown
        first = jnp.where(self.observed, canonical[rows], raised)
        orders = jnp.concatenate([first[:, None], shuffles], axis=1)
        sums = -jnp.sum(orders, axis=0)
        extra = {"canonical": orders[:, 0], "shuffled": orders[:, 1:]}
        return Sample(sums[1:], sums[:1], jnp.ones(1, bool), extra=extra)


class Rejections(NamedTuple):
    """Sums over repetitions."""

    count: jax.Array  # [tests, A] uint32, rejections
    shuffles: jax.Array  # [A] uint32, shuffles that the e-process read until it stopped; 0 without that test


def num_draws(alphas: Sequence[float]) -> int:
    """Random relabellings of "exact": fifty times as many as the smallest level needs; more would change little."""
    return max(_FEWEST_DRAWS, math.ceil(50 / min(alphas)) - 1)


def survival_table(num_shards: int, num_shuffles: int, most: int) -> np.ndarray:
    """[most·k + 1] float32 log P(sum of ranks >= s); -inf beyond the largest sum of r shards."""
    table = np.full(most * num_shuffles + 1, -np.inf, np.float32)
    sums = np.arange(num_shards * num_shuffles + 1)
    table[: sums.size] = rank_sum.log_survival(sums, num_shards=num_shards, num_shuffles=num_shuffles)
    return table


def log10_floor(test: str, num_shards: int, num_shuffles: int, draws: int) -> float:
    """The decimal logarithm of the smallest p-value that a test can give; -inf for "t"."""
    ranks, drawn = -num_shards * math.log10(num_shuffles + 1), -math.log10(draws + 1)
    return {
        "rank_sum": ranks,
        "exact": max(ranks, drawn),
        "combined": min(0.0, ranks + math.log10(2)),
        "permutation": -math.log10(num_shuffles + 1),
        "t": -math.inf,
        "e_process": -betting.largest_log_e(num_shards, num_shuffles) / math.log(10),
    }[test]


@functools.lru_cache(maxsize=32)
def shard_sums(
    tests: tuple[str, ...], num_levels: int, draws: int, numbers: int, devices: tuple[Any, ...]
) -> BlockSums:
    """The compiled sums; operands are design, number of shards, survival table, levels [A] and key.

    `draws` are the relabellings of "exact"; `numbers`, those that one sample of the design holds, decide how many
    repetitions run side by side.
    """
    lanes = _STEP
    while lanes > 8 and lanes * numbers > _NUMBERS:
        lanes //= 2

    def decide(design: Any, num_shards: jax.Array, table: jax.Array, levels: jax.Array, key: jax.Array) -> Any:
        draw_key, test_key = jax.random.split(key)
        extra = design.draw(draw_key).extra
        canonical, shuffled = extra["canonical"], extra["shuffled"]
        mask = jnp.arange(canonical.shape[0]) < num_shards
        p: dict[str, Any] = {}
        if {"combined", "rank_sum"} & {*tests}:
            ranks = rank_sum.shard_ranks(canonical, shuffled, mask=mask)
            p["rank_sum"] = jnp.exp(table[jnp.sum(jnp.maximum(ranks, 0))])
        if {"combined", "exact"} & {*tests}:
            drawn = randomization.shard_randomization(canonical, shuffled, num_draws=draws, key=test_key, mask=mask)
            p["exact"] = drawn.p_value
        if "combined" in tests:
            p["combined"] = jnp.minimum(1, 2 * jnp.minimum(p["rank_sum"], p["exact"]))
        if "permutation" in tests:
            p["permutation"] = randomization.shard_permutation(canonical, shuffled, mask=mask).p_value
        if "t" in tests:
            s = -jnp.mean(shuffled - canonical[:, None], axis=1)
            sizes = jnp.abs(jnp.column_stack([canonical, shuffled]))
            largest = jnp.max(sizes, where=mask[:, None], initial=0)
            p["t"] = student.one_sample(s, mask=mask, noise=permutation.tie_tolerance(s.dtype) * largest).p_value
        shuffles_read = jnp.zeros(num_levels, jnp.uint32)
        bound = levels * (1 + 1e-6)  # levels and p-values are rounded to single precision
        if "e_process" in tests:
            path = betting.e_process(sequential.exceedances(canonical, shuffled, mask=mask)).p_value
            reached = path[None, :] <= bound[:, None]
            first = 1 + jnp.argmax(reached, axis=1)
            shuffles_read = jnp.where(reached.any(axis=1), first, path.shape[0]).astype(jnp.uint32)
            p["e_process"] = path[-1]
        return jnp.stack([p[name] <= bound for name in tests]), shuffles_read

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: Rejections) -> Rejections:
        design, num_shards, table, levels, key = operands
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
        rejected, read = jax.vmap(lambda key: decide(design, num_shards, table, levels, key))(keys)
        return Rejections(
            totals.count + jnp.sum(rejected & real[:, None, None], axis=0, dtype=jnp.uint32),
            totals.shuffles + jnp.sum(read * real[:, None], axis=0, dtype=jnp.uint32),
        )

    def zero() -> Rejections:
        counts = jnp.zeros((len(tests), num_levels), jnp.uint32)
        return Rejections(counts, jnp.zeros(num_levels, jnp.uint32))

    return sum_over_blocks(one_block, zero, lanes=lanes, devices=devices)
