"""Rows of unequal length → batches of few fixed shapes, with little padding.

Every row of tokens gets the length of its bucket; a bucket has one shape [B, T] for all passes, so that a model is
compiled once a bucket. A model that can leave out the padding of a batch, all but attention, computes C of its B T
tokens; C belongs to the shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

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
_TRIED = 4
"""Numbers of batches that are compared."""
_OF_ATTENTION = 1 / 3
"""Time of a token of padding in attention alone, as a share of that of a token; less in short rows."""
_GATHERING = 1.05
"""Time of a token whose batch is taken apart for attention, as a multiple of another's."""
_ROWS_OF_BUDGET = 2
"""B T of a batch without padding outside attention, at most so many times the budget."""
_ROWS_PER_CALL = 1
"""Overhead of one more batch, in rows: ties between batch sizes go to fewer batches."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows that go through the model together."""

    kind: str  # the pass
    rows: np.ndarray  # [<= size] indices of the rows of that pass
    size: int  # B, rows of the compiled shape; missing rows are padding
    length: int  # T, tokens of the compiled shape
    capacity: int | None = None  # C, tokens that are computed outside attention; None: all B T

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """The pass and the compiled shape."""
        return self.kind, self.size, self.length, self.num_tokens

    @property
    def num_tokens(self) -> int:
        """Tokens of the compiled shape, padding included."""
        return self.size * self.length if self.capacity is None else self.capacity

    def num_real(self, lengths: np.ndarray) -> int:
        """Tokens of the compiled shape that are no padding, of rows with `lengths` [R]."""
        of_rows = lengths[self.rows]
        return int((of_rows if self.capacity is None else computed(of_rows)).sum())


def computed(lengths: np.ndarray) -> np.ndarray:
    """Tokens of rows that a batch without padding computes: all but the last, after which nothing is scored."""
    return np.maximum(lengths - 1, 1)


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


Shape: TypeAlias = tuple[int, int | None]
"""Rows and tokens of the batches of a bucket: B and C."""


def plan(
    lengths: Mapping[str, np.ndarray],
    *,
    token_budget: int,
    max_buckets: int = MAX_BUCKETS,
    price: int = PRICE,
    limit: int | None = None,
    compiled: Mapping[int, Shape] | None = None,
    compact: bool = False,
) -> list[Batch]:
    """Batches over the rows of several passes.

    Args:
      lengths: Pass -> [R] tokens of each row.
      token_budget: The tokens of a batch do not exceed this, unless one row alone does.
      max_buckets: Most different shapes.
      price: Padded tokens that one more shape must save; no more than the rows have tokens, for the time of a row
        grows faster than its tokens.
      limit: Longest sequence the model accepts; bucket lengths never exceed it.
      compiled: Shapes of earlier calls by their lengths. They are taken again unless new ones cost less by a ninth.
      compact: Whether the model can leave out the padding of a batch, all but attention.

    Returns:
      Batches pass by pass in the order of `lengths`, within a pass from long to short: what exceeds the memory shows at
      once.
    """
    everything = np.concatenate([np.asarray(rows, np.int64) for rows in lengths.values()])
    price = min(price, max(PRICE, int(everything.sum())))
    of_padding = round(price / _OF_ATTENTION) if compact else price
    buckets = bucket_lengths(everything, max_buckets, price=of_padding, limit=limit)
    bucket_of = {kind: np.searchsorted(buckets, rows) for kind, rows in lengths.items()}
    batches = []
    for bucket, length in enumerate(buckets.tolist()):
        members = {kind: np.flatnonzero(indices == bucket) for kind, indices in bucket_of.items()}
        members = {kind: rows[np.argsort(-lengths[kind][rows], kind="stable")] for kind, rows in members.items()}
        forms = [_in_order(members, length, token_budget)]
        if compact:
            forms.append(_balanced(members, lengths, length, token_budget))
        batches += min(forms, key=lambda form: sum(_cost(batch, token_budget) for batch in form))
    order = {kind: i for i, kind in enumerate(lengths)}
    batches.sort(key=lambda batch: (order[batch.kind], -batch.length))
    if not compiled:
        return batches
    longer = {batch.length: (batch.size, batch.capacity) for batch in batches if batch.length > max(compiled)}
    again = _in_shapes(lengths, {**compiled, **longer})
    new, old = (sum(_cost(batch, token_budget) for batch in found) for found in (batches, again))
    return again if 8 * (old + price * len(longer)) <= 9 * (new + price * len(buckets)) else batches


def _cost(batch: Batch, token_budget: int) -> float:
    """Time of a batch, in tokens."""
    if batch.capacity is None:
        return batch.num_tokens + token_budget // _CALL
    in_attention = _OF_ATTENTION * (batch.size * batch.length - batch.capacity)
    return _GATHERING * batch.capacity + in_attention + token_budget // _CALL


def _in_order(members: Mapping[str, np.ndarray], length: int, token_budget: int) -> list[Batch]:
    """Batches of neighbours, padded to the length."""
    size = _rows_a_batch([*map(len, members.values())], max(1, token_budget // length))
    return [
        Batch(kind, rows[i : i + size], size, length)
        for kind, rows in members.items()
        for i in range(0, len(rows), size)
    ]


def _balanced(
    members: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray], length: int, token_budget: int
) -> list[Batch]:
    """Batches with about equally many tokens, whose padding is left out."""
    tokens = {kind: computed(lengths[kind][rows]) for kind, rows in members.items() if len(rows)}
    most_rows = max(1, _ROWS_OF_BUDGET * token_budget // length)
    largest = max(tokens, key=lambda kind: int(tokens[kind].sum()))
    most_tokens, count = max(token_budget, length), len(tokens[largest])
    fewest = max(-(-int(tokens[largest].sum()) // most_tokens), -(-count // most_rows))
    found: list[list[Batch]] = []
    number = fewest
    while number <= count and len(found) < _TRIED:
        size, capacity = -(-count // number), _most_tokens(tokens[largest], number)
        capacity = min(max(-(-capacity // STEP) * STEP, length), size * length)  # every row of the bucket fits
        if capacity <= most_tokens:
            shape = size, length, capacity
            found.append([one for kind, mine in tokens.items() for one in _in_shape(kind, members[kind], mine, shape)])
        number = number + 1 if found else _next(number, count)
    return min(found, key=lambda form: sum(_cost(batch, token_budget) for batch in form))


def _in_shape(kind: str, rows: np.ndarray, tokens: np.ndarray, shape: tuple[int, int, int]) -> Iterator[Batch]:
    """Rows [R] from long to short, with their tokens [R], in few batches of a shape [B, T] with C tokens."""
    size, length, capacity = shape
    number = max(-(-int(tokens.sum()) // capacity), -(-len(rows) // size))
    while _most_tokens(tokens, number) > capacity:
        number = _next(number, len(rows))
    batch = _serpentine(len(rows), number)
    for mine in np.split(rows[np.argsort(batch, kind="stable")], np.cumsum(np.bincount(batch))[:-1]):
        # every second row first: where the memory ends, each half of a batch has half of its tokens
        yield Batch(kind, np.concatenate([mine[::2], mine[1::2]]), size, length, capacity)


def _next(number: int, count: int) -> int:
    """A larger number of batches, in growing steps: rows that fill a batch alone need as many as there are rows."""
    return number + 1 if number >= count else min(count, number + 1 + number // 64)


def _serpentine(count: int, number: int) -> np.ndarray:
    """The batch of each row, [count]: batches 0 to `number` - 1, back again, and so on."""
    turn, place = np.divmod(np.arange(count), number)
    return np.where(turn % 2 == 0, place, number - 1 - place)


def _most_tokens(tokens: np.ndarray, number: int) -> int:
    """Tokens of the batch that has most, of rows in serpentine order."""
    return int(np.bincount(_serpentine(len(tokens), number), weights=tokens).max())


def _in_shapes(lengths: Mapping[str, np.ndarray], shapes: Mapping[int, Shape]) -> list[Batch]:
    """Batches of given shapes, filled from long to short; where all have padding, only the last of a pass has rows of
    nothing else."""
    edges, batches = sorted(shapes), []
    for kind, counts in lengths.items():
        order, first = np.argsort(-counts, kind="stable"), 0
        while first < len(order):
            edge = int(np.searchsorted(edges, counts[order[first]]))
            length, (size, capacity) = edges[edge], shapes[edges[edge]]
            if capacity is None:
                stop = first + size
                batches.append(Batch(kind, order[first:stop], size, length))
            else:
                stop = len(order) if edge == 0 else int((counts > edges[edge - 1]).sum())
                mine = order[first:stop]
                batches += _in_shape(kind, mine, computed(counts[mine]), (size, length, capacity))
            first = stop
    return batches


def bucket_lengths(
    lengths: np.ndarray, max_buckets: int = MAX_BUCKETS, *, price: int = 0, limit: int | None = None
) -> np.ndarray:
    """At most `max_buckets` ascending lengths that cover rows of `lengths` [R] tokens, none beyond `limit`, or beyond
    the longest row where there is none.

    They need the fewest padded tokens if each further bucket costs `price` of them: an exact dynamic programme over the
    distinct lengths, rounded up to a common step. Cost O(max_buckets U^2) for at most 256 distinct lengths U.
    """
    step = STEP * max(1, -(-int(lengths.max()) // (STEP * _MAX_CANDIDATES)))
    rounded = -(-lengths // step) * step
    # no longer than a model of unknown length has to be
    rounded = np.minimum(rounded, int(lengths.max()) if limit is None else limit)
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
