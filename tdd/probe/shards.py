"""Shards of a benchmark, as published and in other orders of the same items; evidence that one order is preferred."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.exchange.data import shard_bounds
from tdd.kernels.trajectories import Evidence
from tdd.probe.evidence import ProbeResult, ProbeState, SetEvidence
from tdd.probe.inputs import read_tokens, rows_of_ids
from tdd.scoring.tokenise import prepends_bos, token_ids
from tdd.validate import InputError

_SHARD_SIZE = 8
"""Most items of a shard where `num_shards` is not given."""


@dataclasses.dataclass(frozen=True)
class ShardEvidence(SetEvidence):
    """`SetEvidence` over orders of shards: scores are taken relative to the mean over the orders of their shard.

    The suspects are the canonical orders, references i k .. i k + k - 1 those of shard i.
    """

    num_shards: int

    def item_e_values(self, result: ProbeResult) -> jax.Array:
        """Zeros: shards of one benchmark are not draws from one law."""
        return jnp.zeros_like(result.suspect_scores)

    def observe(self, labels: jax.Array, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look. A shard with a score that is not finite is left out, under every labelling alike."""
        scores = by_shard(result, self.num_shards)
        centred = scores - jnp.mean(scores, axis=1, keepdims=True)  # not finite where one of them is not
        parts = {"suspect_scores": centred[:, 0], "reference_scores": centred[:, 1:].reshape(-1)}
        return super().observe(labels, state, dataclasses.replace(result, **parts))


def by_shard(result: ProbeResult, num_shards: int) -> jax.Array:
    """[r, k + 1] scores, the canonical order first."""
    return jnp.column_stack([result.suspect_scores, jnp.reshape(result.reference_scores, (num_shards, -1))])


def shard_labels(num_shards: int, num_shuffles: int, num_draws: int, seed: int) -> np.ndarray:
    """[B + 1, r (k + 1)] bool: one order of each shard; in row 0 the canonical one."""
    chosen = np.random.default_rng([seed, 1]).integers(0, num_shuffles + 1, (num_draws + 1, num_shards))
    chosen[0] = 0
    shard = np.arange(num_shards)
    column = np.where(chosen == 0, shard, num_shards + shard * num_shuffles + chosen - 1)
    labels = np.zeros((num_draws + 1, num_shards * (num_shuffles + 1)), bool)
    np.put_along_axis(labels, column, True, axis=1)
    return labels


def ordered_shards(
    benchmark: Any,
    tokenizer: Any,
    separator: Any,
    *,
    num_shards: int | None,
    num_shuffles: int,
    limit: int | None,
    seed: int,
) -> list[list[np.ndarray]]:
    """Token ids of each shard in its canonical order and in `num_shuffles` others; arguments as `contamination`."""
    _, items, _ = read_tokens("benchmark", benchmark, tokenizer, add_special_tokens=False)
    prefix, between = [], []
    if not isinstance(separator, str):
        between = rows_of_ids("separator", [separator])[0].tolist()
    elif tokenizer is not None:
        if separator:
            between = token_ids(tokenizer, [separator], add_special_tokens=False)[0].tolist()
        if prepends_bos(tokenizer):
            prefix = list(tokenizer(["a"], add_special_tokens=True)["input_ids"][0][:1])
    bounds = _bounds(items, len(prefix), len(between), num_shards, limit)
    rng = np.random.default_rng(seed)

    def joined(order: Sequence[int]) -> np.ndarray:
        parts = [prefix, items[order[0]], *(part for i in order[1:] for part in (between, items[i]))]
        return np.concatenate([np.asarray(part, np.int32) for part in parts])

    return [[joined(order) for order in _orders(items, *shard, num_shuffles, rng)] for shard in bounds]


def _bounds(
    items: Sequence[np.ndarray], prefix: int, between: int, num_shards: int | None, limit: int | None
) -> tuple[tuple[int, int], ...]:
    """First and last item of contiguous shards that fit the context."""
    count = len(items)
    if num_shards is not None:
        whole = isinstance(num_shards, (int, np.integer)) and not isinstance(num_shards, bool)
        if not whole or not 1 <= num_shards <= count // 2:
            raise InputError(
                f"num_shards={num_shards!r} must be a whole number from 1 to {count // 2}: a shard has two items or "
                f"more, and the benchmark has {count}"
            )
    if count < 2:
        raise InputError(f"benchmark has {count} item; the order of two or more can be tested, or give a reference")
    choices = [num_shards] if num_shards else sorted({-(-count // size) for size in range(2, _SHARD_SIZE + 1)})
    lengths = np.array([len(row) for row in items])
    longest = 0
    for shards in choices:
        if 2 * shards > count:
            continue
        bounds = shard_bounds(count, shards)
        longest = int(max(prefix + lengths[a:b].sum() + between * (b - a - 1) for a, b in bounds))
        if limit is None or longest <= limit:
            return bounds
    advice = "use more shards" if num_shards else "shorten the items, or give a reference"
    raise InputError(
        f"num_shards={num_shards}: a shard of the benchmark has {longest} tokens, more than the limit of {limit}; "
        f"{advice}"
    )


def _orders(
    items: Sequence[np.ndarray], first: int, stop: int, count: int, rng: np.random.Generator
) -> list[list[int]]:
    """The canonical order of a shard and `count` others, drawn uniformly from those that read differently."""
    content = [row.tobytes() for row in items]
    distinct = math.factorial(stop - first)
    for repeats in collections.Counter(content[first:stop]).values():
        distinct //= math.factorial(repeats)
    if distinct - 1 < count:
        raise InputError(
            f"the shard that begins at item {first + 1} of the benchmark has {stop - first} items and {distinct - 1} "
            f"other orders that read differently, fewer than num_shuffles={count}; use fewer shards or shuffles, or "
            "remove repeated items"
        )
    orders = {tuple(content[first:stop]): list(range(first, stop))}
    while len(orders) <= count:
        order = [int(i) for i in first + rng.permutation(stop - first)]
        orders.setdefault(tuple(content[i] for i in order), order)
    return list(orders.values())
