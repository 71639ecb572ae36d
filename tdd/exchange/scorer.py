"""Log-probabilities of orders under one model: few shapes, what is shared computed once, finished batches kept."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tdd.exchange.prefix import PrefixProgram
from tdd.exchange.rows import Order, Row
from tdd.runs.shards import Shard
from tdd.scoring.buckets import Batch, bucket_lengths
from tdd.scoring.devices import Devices
from tdd.scoring.in_step import ReadOrCompute
from tdd.scoring.inputs import Model
from tdd.scoring.passes import BatchRunner
from tdd.scoring.programs import Rows, TokenProgram
from tdd.scoring.store.address import row_key
from tdd.scoring.store.space import Space
from tdd.scoring.store.through import through
from tdd.scoring.token_stats import tiling
from tdd.scoring.tokenise import Window

__all__ = ["Calls", "Scorer"]

_MAX_BUCKETS, _PRICE, _STEP = 8, 512, 8
_KIND, _HALVES = "order", ("high", "low")

Key = bytes
"""What a row is known by: a digest of its tokens and its first target."""


@dataclasses.dataclass
class Calls:
    """What the scoring of a data set took.

    Attributes:
      asked: orders that were asked for.
      sequences: orders of which at least one window went through the model.
      windows: rows that went through the model.
      tokens: tokens of these rows that were computed (shared prefixes once), without padding.
      tokens_asked: tokens of all windows of all orders that were asked for.
    """

    asked: int = 0
    sequences: int = 0
    windows: int = 0
    tokens: int = 0
    tokens_asked: int = 0


class Scorer:
    """Sums of log-probabilities, wave after wave. The same waves give the same batches, and so the same bits.

    Args:
      model: the model.
      where: its devices.
      budget: tokens a batch.
      limit: longest row.
      num_orders: how many orders there will be at most, for the size of the batches.
      space: where the sums of finished batches are kept, or None.
      shard: compute its batches alone; the log-probabilities of the others are NaN.
      read_or_compute: decides for each batch.
      advance: called after each batch with the orders that it is worth: each row of a wave is worth the same share of
        the wave's orders, whatever the number of its windows and of what is known already.
    """

    def __init__(
        self,
        model: Model,
        where: Devices,
        *,
        budget: int,
        limit: int | None,
        num_orders: int,
        space: Space | None = None,
        shard: Shard | None = None,
        read_or_compute: ReadOrCompute = through,
        advance: Callable[[float], None] = lambda count: None,
    ) -> None:
        self.model, self.where, self.budget, self.limit = model, where, budget, limit
        self.num_orders, self.space, self.advance = num_orders, space, advance
        self.shard, self.read_or_compute = shard, read_or_compute
        self.number = 0
        self._params: Any = None
        self._edges = np.zeros(0, np.int64)
        self._runner: BatchRunner | None = None
        self._prefixes: PrefixProgram | None = None
        self._known: dict[Key, float] = {}

    def log_probs(self, orders: Sequence[tuple[int, Order]], calls: Sequence[Calls]) -> np.ndarray:
        """[orders] float64: sums of log p over the scored tokens of each order.

        Args:
          orders: (data set, order) pairs.
          calls: of each data set, added to.
        """
        shares = self._can_share(orders)
        groups: dict[tuple[int, int], list[Key]] = {}
        rows: dict[Key, Row] = {}
        keys_of: list[list[Key]] = []
        for place, (data, order) in enumerate(orders):
            keys = [row_key(row.tokens, row.first_target) for row in order.rows]
            keys_of.append(keys)
            fresh = [i for i, key in enumerate(keys) if key not in self._known and key not in rows]
            rows |= {keys[i]: order.rows[i] for i in fresh}
            calls[data].asked += 1
            calls[data].sequences += bool(fresh)
            calls[data].windows += len(fresh)
            calls[data].tokens_asked += sum(len(row.tokens) for row in order.rows)
            if place in shares and fresh:
                first = (data, order.shard) not in groups
                groups.setdefault((data, order.shard), []).append(keys[0])
                calls[data].tokens += len(order.rows[0].tokens) - (0 if first else order.num_shared - 1)
            else:
                calls[data].tokens += sum(len(order.rows[i].tokens) for i in fresh)
        shared = {key for group in groups.values() for key in group}
        plain = [key for key in rows if key not in shared]
        lengths = {place: order.num_shared for place, (_, order) in enumerate(orders) if place in shares}
        prefix_of = {keys_of[place][0]: shared_tokens for place, shared_tokens in lengths.items()}
        worth = len(orders) / max(1, len(rows))
        for keys, sums in itertools.chain(
            self._plain(plain, rows), self._with_prefixes([*groups.values()], rows, prefix_of)
        ):
            self._take(keys, sums, worth)
        others = [key for key in rows if key not in self._known]  # those of other shards
        self._known.update(dict.fromkeys(others, math.nan))
        self.advance(len(others) * worth if rows else len(orders))
        return np.array([sum(self._known[key] for key in keys) for keys in keys_of])

    def _take(self, keys: Sequence[Key], sums: np.ndarray, worth: float) -> None:
        self._known.update(zip(keys, map(float, sums), strict=True))
        self.advance(len(keys) * worth)

    def _can_share(self, orders: Sequence[tuple[int, Order]]) -> set[int]:
        """Places of the orders that go through the programs for shared beginnings: all of a shard or none, so that no
        rounding tells the canonical order from its shuffles."""
        if self.model.lm.prefix is None:
            return set()
        return {i for i, (_, order) in enumerate(orders) if order.num_shared}

    def _with_prefixes(
        self, groups: Sequence[list[Key]], rows: dict[Key, Row], num_shared: dict[Key, int]
    ) -> Iterator[tuple[list[Key], np.ndarray]]:
        """Sums of rows that begin alike, group by group."""

        def compute(todo: Iterator[tuple[int, list[Key]]]) -> Iterator[tuple[int, list[Key], list[np.ndarray]]]:
            for number, group in todo:
                sums = self._prefix_sums([rows[key] for key in group], num_shared[group[0]])
                yield number, group, [_halves(sums)]

        yield from self._through(groups, compute, lambda group: ("prefix", num_shared[group[0]], group))

    def _prefix_sums(self, rows: Sequence[Row], num_shared: int) -> np.ndarray:
        if self._prefixes is None:
            self._prefixes = PrefixProgram(
                self.model.lm, self._placed(), self.where, tiling(self.where.platform), token_budget=self.budget
            )
        cut = num_shared - 1  # the last shared token is where the first scored one is predicted
        return self._prefixes.log_prob_sums(rows[0].tokens[:cut], [row.tokens[cut:] for row in rows])

    def _plain(self, keys: Sequence[Key], rows: dict[Key, Row]) -> Iterator[tuple[list[Key], np.ndarray]]:
        """Sums of rows that share nothing, batch by batch."""
        if not keys:
            return
        chosen = [rows[key] for key in keys]
        table = Rows(
            tuple(row.tokens for row in chosen),
            np.arange(len(chosen)),
            tuple(Window(0, row.first_target, len(row.tokens)) for row in chosen),
            ("log_prob",),
        )

        def compute(todo: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, list[np.ndarray]]]:
            first = next(todo, None)
            if first is None:
                return
            computed = self._token_runner().run(itertools.chain([first], todo), lambda kind: table)
            for number, batch, values in computed:
                ends = np.cumsum(table.num_targets(batch.rows))
                sums = np.array([part.sum(dtype=np.float64) for part in np.split(values[0], ends[:-1])])
                yield number, batch, [_halves(sums)]

        def content(batch: Batch) -> tuple[Any, ...]:
            return "rows", batch.size, batch.length, [keys[row] for row in batch.rows]

        for batch, sums in self._through(self._plan(table.lengths), compute, content):
            yield [keys[row] for row in batch.rows], sums

    def _through(
        self, batches: Sequence[Any], compute: Callable[[Any], Any], content: Callable[[Any], tuple[Any, ...]]
    ) -> Iterator[tuple[Any, np.ndarray]]:
        """Batches with the sums of their rows, from the store or into it; the same bits with and without one.

        What is stored is a whole batch, known by its shape and everything in it. A row alone would do for a score; but
        here the canonical order is compared with shuffles, and rounding could tell one that another run computed, in
        a batch of another shape, from those that this run computes.
        """
        numbered = [*enumerate(batches, self.number)]
        self.number += len(numbered)
        if self.shard is not None:
            numbered = [(number, batch) for number, batch in numbered if self.shard.owns(number)]
        found = self.read_or_compute(
            self.space, numbered, compute, lambda one: [_digest(content(one))], lambda one: _HALVES
        )
        for batch, (halves,) in found:
            yield batch, _joined(halves)

    def _plan(self, lengths: np.ndarray) -> list[Batch]:
        """Batches of the run's shapes; longer rows than any before open a shape of their own."""
        if not len(self._edges):
            self._edges = bucket_lengths(lengths, _MAX_BUCKETS, price=_PRICE, limit=self.limit)
        if lengths.max() > self._edges[-1]:
            longest = -(-int(lengths.max()) // (2 * _STEP)) * 2 * _STEP
            longest = longest if self.limit is None else min(longest, self.limit)
            self._edges = np.append(self._edges, longest)
        bucket = np.searchsorted(self._edges, lengths)
        batches = []
        for index in np.unique(bucket)[::-1]:
            length, rows = int(self._edges[index]), np.flatnonzero(bucket == index)
            size = max(1, min(self.budget // length, self.num_orders))
            batches += [Batch(_KIND, rows[i : i + size], size, length) for i in range(0, len(rows), size)]
        return batches

    def _token_runner(self) -> BatchRunner:
        if self._runner is None:
            capacity = max(max(1, self.budget // int(edge)) * int(edge) for edge in self._edges)
            program = TokenProgram(self.model.lm, self._placed(), self.where, capacity, tiling(self.where.platform))
            self._runner = BatchRunner(program, len(self.where), halve=not self.where.spans)
        return self._runner

    def _placed(self) -> Any:
        if self._params is None:
            self._params = self.where.put_params(self.model.params)
        return self._params


def _digest(content: tuple[Any, ...]) -> bytes:
    """16 bytes that tell a batch from any other; what is in it is plain."""
    return hashlib.blake2b(repr(content).encode(), digest_size=16).digest()


def _halves(sums: np.ndarray) -> np.ndarray:
    """float64 [n] as two rows of float32: the rounded value, and what rounding took away."""
    high = sums.astype(np.float32)
    rest = np.where(np.isfinite(sums), sums - high.astype(np.float64), 0.0)
    return np.stack([high, rest.astype(np.float32)])


def _joined(halves: np.ndarray) -> np.ndarray:
    return halves[0].astype(np.float64) + halves[1].astype(np.float64)
