"""Rows of unequal length → batches of few fixed shapes, with little padding.

Every row of tokens gets the length of its bucket; a bucket has one shape [B, T] for all passes, so that a model is
compiled once a bucket.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.validate import InputError

STEP = 8
"""Bucket lengths are multiples of this."""
MAX_BUCKETS = 8
PRICE = 512
"""Padded tokens that one more bucket, and so one more compilation, must save: those of 130 million parameters on a
CPU."""
_COMPILATION = {"cpu": 7e10}
_COMPILATION_ELSEWHERE = 1e15
"""Multiplications that take about as long as one compilation."""
_BESIDE = 2e6
"""Multiplications of one token beside those with parameters, about."""
_CALL = 16
"""A batch costs its tokens and the budget over this, however small it is."""
_MAX_CANDIDATES = 256
_ROWS_PER_CALL = 1
"""Overhead of one more batch, in rows: ties between batch sizes go to fewer batches."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows that go through the model together."""

    kind: str  # the pass
    rows: np.ndarray  # [<= size] indices of the rows of that pass
    size: int  # B, rows of the compiled shape; missing rows are padding
    length: int  # T, tokens of the compiled shape

    @property
    def shape(self) -> tuple[str, int, int]:
        """The pass and the compiled shape."""
        return self.kind, self.size, self.length

    @property
    def num_tokens(self) -> int:
        """Tokens of the compiled shape, padding included."""
        return self.size * self.length


def default_budget(platform: str) -> int:
    """Default tokens of a batch: 2,048 on CPU, 16,384 elsewhere."""
    return 2048 if platform == "cpu" else 16_384


def most_buckets(platform: str) -> int:
    """Most shapes of a run: 24 on CPU, 8 elsewhere, where compilers are slower and tokens cheaper."""
    return 3 * MAX_BUCKETS if platform == "cpu" else MAX_BUCKETS


def bucket_price(num_parameters: int, platform: str) -> int:
    """Padded tokens that take a model of so many parameters as long as one more compilation.

    A small model is compiled for few shapes, though they waste tokens, and a large one for many.
    """
    return max(1, round(_COMPILATION.get(platform, _COMPILATION_ELSEWHERE) / (num_parameters + _BESIDE)))


def gradient_budget(token_budget: int) -> int:
    """Tokens of a batch for gradients, half of the others': activations are kept for the backward pass."""
    return max(1, token_budget // 2)


def check_budget(value: Any) -> int:
    """Return a number of tokens a batch."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"token_budget={value!r} must be a whole number of tokens, at least 1")
    return int(value)


def check_max_length(value: Any, of_model: int | None) -> int | None:
    """Return the longest window: the model's own limit, or a shorter one that the user sets."""
    if value is None:
        return of_model
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 2:
        raise InputError(f"max_length={value!r} must be a whole number of tokens, at least 2")
    if of_model is not None and value > of_model:
        raise InputError(f"max_length={value} exceeds the {of_model} positions of the model; use at most that")
    return int(value)


def plan(
    lengths: Mapping[str, np.ndarray],
    *,
    token_budget: int,
    max_buckets: int = MAX_BUCKETS,
    price: int = PRICE,
    limit: int | None = None,
    compiled: Mapping[int, int] | None = None,
) -> list[Batch]:
    """Batches over the rows of several passes.

    Args:
      lengths: Pass -> [R] tokens of each row.
      token_budget: B T of a batch does not exceed this, unless one row alone does.
      max_buckets: Most different shapes.
      price: Padded tokens that one more shape must save; no more than the rows have tokens, for the time of a row
        grows faster than its tokens.
      limit: Longest sequence the model accepts; bucket lengths never exceed it.
      compiled: Shapes of earlier calls, length -> rows. They are taken again unless new ones cost less by a ninth.

    Returns:
      Batches pass by pass in the order of `lengths`, within a pass from long to short: what exceeds the memory shows at
      once.
    """
    everything = np.concatenate([np.asarray(rows, np.int64) for rows in lengths.values()])
    price = min(price, max(PRICE, int(everything.sum())))
    buckets = bucket_lengths(everything, max_buckets, price=price, limit=limit)
    bucket_of = {kind: np.searchsorted(buckets, rows) for kind, rows in lengths.items()}
    batches = []
    for bucket, length in enumerate(buckets):
        counts = [int((indices == bucket).sum()) for indices in bucket_of.values()]
        size = _rows_a_batch(counts, max(1, token_budget // int(length)))
        for kind, indices in bucket_of.items():
            rows = np.flatnonzero(indices == bucket)
            rows = rows[np.argsort(-lengths[kind][rows], kind="stable")]
            batches += [Batch(kind, rows[i : i + size], size, int(length)) for i in range(0, len(rows), size)]
    order = {kind: i for i, kind in enumerate(lengths)}
    batches.sort(key=lambda batch: (order[batch.kind], -batch.length))
    if not compiled:
        return batches
    longer = {batch.length: batch.size for batch in batches if batch.length > max(compiled)}
    again = _in_shapes(lengths, {**compiled, **longer})
    new, old = (sum(batch.num_tokens + token_budget // _CALL for batch in found) for found in (batches, again))
    return again if 8 * (old + price * len(longer)) <= 9 * (new + price * len(buckets)) else batches


def _in_shapes(lengths: Mapping[str, np.ndarray], shapes: Mapping[int, int]) -> list[Batch]:
    """Batches of given shapes, filled from long to short: only the last of a pass has rows of padding alone."""
    edges, batches = sorted(shapes), []
    for kind, counts in lengths.items():
        order, first = np.argsort(-counts, kind="stable"), 0
        while first < len(order):
            length = edges[int(np.searchsorted(edges, counts[order[first]]))]
            batches.append(Batch(kind, order[first : first + shapes[length]], shapes[length], length))
            first += shapes[length]
    return batches


def bucket_lengths(
    lengths: np.ndarray, max_buckets: int = MAX_BUCKETS, *, price: int = 0, limit: int | None = None
) -> np.ndarray:
    """At most `max_buckets` ascending lengths, none beyond `limit`, that cover rows of `lengths` [R] tokens.

    They need the fewest padded tokens if each further bucket costs `price` of them: an exact dynamic programme over the
    distinct lengths, rounded up to a common step. Cost O(max_buckets U^2) for at most 256 distinct lengths U.
    """
    step = STEP * max(1, -(-int(lengths.max()) // (STEP * _MAX_CANDIDATES)))
    rounded = -(-lengths // step) * step
    if limit is not None:
        rounded = np.minimum(rounded, limit)
    candidates, counts = np.unique(rounded, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    # best[j]: fewest tokens for the rows up to candidate j - 1, with the buckets used so far
    best = np.where(np.arange(len(candidates) + 1) == 0, 0.0, np.inf)
    choices, totals = [], []
    for _ in range(min(max_buckets, len(candidates))):
        # cost[i, j]: one bucket of length candidates[j] for the candidates i..j
        cost = best[:-1, None] + (below[None, 1:] - below[:-1, None]) * candidates[None, :]
        cost[np.tril_indices(len(candidates), -1)] = np.inf
        choices.append(cost.argmin(0))
        best = np.concatenate([[np.inf], cost.min(0)])
        totals.append(best[-1])
    num_buckets = int(np.argmin(np.array(totals) + price * np.arange(1, len(totals) + 1))) + 1
    ends, j = [], len(candidates) - 1
    for choice in reversed(choices[:num_buckets]):
        ends.append(int(candidates[j]))
        j = int(choice[j]) - 1
    return np.array(ends[::-1])


def _rows_a_batch(counts: list[int], most: int) -> int:
    """B <= most with the fewest padded rows over all passes, fewer batches if that is close."""
    sizes = np.arange(1, min(most, max(counts)) + 1)
    num_batches = sum(-(-count // sizes) for count in counts)
    return int(sizes[np.argmin((sizes + _ROWS_PER_CALL) * num_batches)])
