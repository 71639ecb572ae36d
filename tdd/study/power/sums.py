"""Exact sums over the repetitions of a planned audit: the tallies of a study, and how often anything is found."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import resample, tally
from tdd.study import blocks
from tdd.study.engine import repetition
from tdd.study.methods import StudyMethod
from tdd.study.results import Totals

__all__ = ["Outcome", "design_sums", "outcome", "pool_sums"]

QUANTILES = (0.1, 0.5, 0.9)


class _Sums(NamedTuple):
    """A tally [A], and [A] uint32 how many repetitions select anything, and anything rightly."""

    tally: tally.Tally
    any_selected: jax.Array
    any_true: jax.Array


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one planned audit may expect, by level; arrays [A] or [A, quantile] for 10, 50 and 90 %.

    Attributes:
      repetitions: how many.
      power: mean share of the targets that are selected.
      power_se: standard error of that mean, as if two repetitions more had had 0 and 1.
      power_quantiles: to multiples of 1/1024.
      fdp: mean false discovery proportion.
      fdp_se: likewise.
      num_selected: mean number of selections.
      num_selected_se: its standard error.
      num_selected_quantiles: exact up to 1,023 candidates, within m/2048 beyond.
      any_selected: share of the repetitions with a selection.
      any_true: share of the repetitions in which a target is selected.
      any_true_se: likewise.
    """

    repetitions: int
    power: np.ndarray
    power_se: np.ndarray
    power_quantiles: np.ndarray
    fdp: np.ndarray
    fdp_se: np.ndarray
    num_selected: np.ndarray
    num_selected_se: np.ndarray
    num_selected_quantiles: np.ndarray
    any_selected: np.ndarray
    any_true: np.ndarray
    any_true_se: np.ndarray


@functools.lru_cache(maxsize=32)
def design_sums(rule: StudyMethod, levels: tuple[float, ...], lanes: int, devices: tuple[Any, ...]) -> blocks.BlockSums:
    """The compiled sums of a design under one method; operands are design, exact levels and key."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: _Sums) -> _Sums:
        design, exact, key = operands
        counts = jax.vmap(lambda i: repetition(design, (rule,), levels, exact, jax.random.fold_in(key, i)))(index)
        return _added(totals, counts.false[:, 0].T, counts.selected[:, 0].T, counts.targets, counts.items, real)

    return blocks.sum_over_blocks(one_block, lambda: _zero(len(levels)), lanes=lanes, devices=devices)


@functools.lru_cache(maxsize=32)
def pool_sums(proportion: str, num_levels: int, lanes: int, devices: tuple[Any, ...]) -> blocks.BlockSums:
    """The compiled sums of PTDI on a pool, drawn without replacement: the fixed-pool engine of `tdd.study.resample`.

    Operands are the prepared pool, the split, exact levels, tails and two words of a key.
    """

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: _Sums) -> _Sums:
        pool, split, levels, tails, words = operands
        root = jax.random.wrap_key_data(words, impl="threefry2x32")
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(index)
        drawn = resample.draw(pool, split, keys.T)
        decided = resample.decide(pool, drawn, levels, proportions=(proportion,), tails=tails)
        return _added(totals, decided.false[0], decided.selected[0], drawn.test_members, drawn.num_tests, real)

    return blocks.sum_over_blocks(one_block, lambda: _zero(num_levels), lanes=lanes, devices=devices)


def outcome(parts: Sequence[Any], num_levels: int, num_tests: int) -> Outcome:
    """The outcome of the sums that the calls for ranges of repetitions returned."""
    totals, anything = Totals.zero((num_levels,)), np.zeros((2, num_levels), np.int64)
    for part in parts:
        totals = totals.add(part.tally)
        anything += [np.asarray(x).astype(np.int64).sum(axis=0) for x in (part.any_selected, part.any_true)]
    means, errors = totals.means(), totals.standard_errors(cautious=True)
    spread_of_count = np.nan_to_num(totals.standard_errors()[:, 3])
    count = totals.repetitions
    reached = np.cumsum(totals.histogram, axis=-1)
    needed = np.maximum(np.ceil(np.array(QUANTILES) * count - 1e-9), 1)
    spread = (reached[..., None] < needed).sum(axis=-2) / (totals.histogram.shape[-1] - 1)
    share = anything / count
    cautious = (anything[1] + 1) / (count + 2)
    return Outcome(
        repetitions=count,
        power=means[:, 1],
        power_se=errors[:, 1],
        power_quantiles=spread[:, 1],
        fdp=means[:, 0],
        fdp_se=errors[:, 0],
        num_selected=means[:, 3] * num_tests,
        num_selected_se=spread_of_count * num_tests,
        num_selected_quantiles=np.rint(spread[:, 3] * num_tests),
        any_selected=share[0],
        any_true=share[1],
        any_true_se=np.sqrt(cautious * (1 - cautious) / (count + 2)),
    )


def _zero(num_levels: int) -> _Sums:
    none = jnp.zeros(num_levels, jnp.uint32)
    return _Sums(tally.zero((num_levels,)), none, none)


def _added(totals: _Sums, false: Any, selected: Any, targets: Any, items: Any, real: jax.Array) -> _Sums:
    """With the repetitions of one block: false and selected [A, L], targets and items [L]."""
    counted = [jnp.sum(x & real, axis=-1, dtype=jnp.uint32) for x in (selected > 0, selected > false)]
    return _Sums(
        tally.update(totals.tally, false, selected, targets, items, real=real),
        totals.any_selected + counted[0],
        totals.any_true + counted[1],
    )
