"""Sums of log-probabilities of token sequences that are compared with one another: all are computed alike.

Rows come in few shapes, rows that are the same are computed once, and so is the beginning that several rows share.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.runs.shards import Shard
from tdd.scoring.buckets import PRICE, STEP, Batch, bucket_lengths
from tdd.scoring.devices import Devices
from tdd.scoring.engine import BatchRunner, read_or_compute
from tdd.scoring.inputs import Model
from tdd.scoring.prefixes import PrefixSums, row_sums
from tdd.scoring.programs import Rows, TokenProgram
from tdd.scoring.store import ScoreStore
from tdd.scoring.store.address import address, fingerprint, row_key
from tdd.scoring.store.namespace import Namespace
from tdd.scoring.token_stats import tiling
from tdd.scoring.tokenise import Window

_HALVES = "high", "low"


class Row(NamedTuple):
    """Token ids that go through the model together; those from `first_target` on are scored.

    `num_shared` leading tokens, none of them scored, are common to several rows; 0 if they are not to be shared.
    """

    tokens: np.ndarray
    first_target: int
    num_shared: int = 0

    @property
    def prefix(self) -> np.ndarray:
        """The part that is computed once: all shared tokens but the last, which predicts the first scored one."""
        return self.tokens[: max(0, self.num_shared - 1)]


class Sums(NamedTuple):
    """Sums of sequences, and what they cost."""

    log_probs: np.ndarray  # [sequences] float64, nats
    num_rows: np.ndarray  # [sequences] rows that go through the model, here or in another shard
    num_tokens: np.ndarray  # [sequences] tokens of these rows that are computed (shared prefixes once), without padding


class LogProbSums:
    """Sums of log-probabilities, call after call. The same calls make the same batches, and so the same bits.

    Args:
      budget: Tokens a batch.
      limit: Longest row.
      most_sequences: Most sequences of a call, for the size of the batches.
      namespace: Where the sums of finished batches are stored, or None.
      shard: Compute its batches alone; the sums of the others are NaN.
      advance: Called after each batch with the sequences that it is worth: each new row of a call is worth the same
        fraction of its sequences.
    """

    def __init__(
        self,
        model: Model,
        devices: Devices,
        *,
        budget: int,
        limit: int | None,
        most_sequences: int,
        namespace: Namespace | None = None,
        shard: Shard | None = None,
        advance: Callable[[float], None] = lambda count: None,
    ) -> None:
        self.model, self.devices, self.budget, self.limit = model, devices, budget, limit
        self.most_sequences, self.namespace = most_sequences, namespace
        self.shard, self.advance = shard, advance
        self._num_batches = 0
        self._edges = np.zeros(0, np.int64)
        self._runner = BatchRunner(self._program, len(devices), halve=not devices.spans)
        self._known: dict[bytes, float] = {}

    def __call__(self, sequences: Sequence[Sequence[Row]]) -> Sums:
        """The sum over all scored tokens of each sequence, which is one row or several.

        Either all rows that are compared share a prefix or none: so rounding does not tell them apart.
        """
        fresh: dict[bytes, Row] = {}
        groups: dict[bytes, list[bytes]] = {}  # prefix -> keys of the rows that begin with it
        num_rows, num_tokens = np.zeros((2, len(sequences)), np.int64)
        keys_of = [[row_key(row.tokens, row.first_target) for row in rows] for rows in sequences]
        for place, rows in enumerate(sequences):
            for key, row in zip(keys_of[place], rows, strict=True):
                if key in self._known or key in fresh:
                    continue
                fresh[key] = row
                num_rows[place] += 1
                num_tokens[place] += len(row.tokens)
                if len(row.prefix) and self.model.lm.prefix is not None:
                    prefix = row.prefix.tobytes()
                    num_tokens[place] -= len(row.prefix) if prefix in groups else 0
                    groups.setdefault(prefix, []).append(key)
        worth = len(sequences) / max(1, len(fresh))
        sharing = {key for group in groups.values() for key in group}
        whole = {key: row for key, row in fresh.items() if key not in sharing}
        for keys, sums in itertools.chain(self._whole(whole), self._behind_prefixes([*groups.values()], fresh)):
            self._known.update(zip(keys, map(float, sums), strict=True))
            self.advance(len(keys) * worth)
        others = [key for key in fresh if key not in self._known]  # those of other shards
        self._known.update(dict.fromkeys(others, math.nan))
        self.advance(len(others) * worth if fresh else len(sequences))
        totals = np.array([sum(self._known[key] for key in keys) for keys in keys_of])
        return Sums(totals, num_rows, num_tokens)

    def _whole(self, rows: dict[bytes, Row]) -> Iterator[tuple[list[bytes], np.ndarray]]:
        """Sums of rows that share nothing, batch by batch."""
        if not rows:
            return
        keys = [*rows]
        table = Rows(
            tuple(row.tokens for row in rows.values()),
            np.arange(len(rows)),
            tuple(Window(0, row.first_target, len(row.tokens)) for row in rows.values()),
            ("log_prob",),
        )

        def compute(batches: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, list[np.ndarray]]]:
            for number, batch, values in self._runner.run(batches, lambda kind: table):
                yield number, batch, [_halves(row_sums(values[0], table.num_targets(batch.rows)))]

        def content(batch: Batch) -> tuple[Any, ...]:
            return "rows", batch.size, batch.length, [keys[row] for row in batch.rows]

        for batch, sums in self._stored(self._plan(table.lengths), compute, content):
            yield [keys[row] for row in batch.rows], sums

    def _behind_prefixes(
        self, groups: Sequence[list[bytes]], rows: dict[bytes, Row]
    ) -> Iterator[tuple[list[bytes], np.ndarray]]:
        """Sums of rows that share a prefix, group by group."""

        def compute(numbered: Iterator[tuple[int, list[bytes]]]) -> Iterator[tuple[int, list[bytes], list[np.ndarray]]]:
            for number, group in numbered:
                prefix = rows[group[0]].prefix
                sums = self._prefix_sums(prefix, [rows[key].tokens[len(prefix) :] for key in group])
                yield number, group, [_halves(sums)]

        yield from self._stored(groups, compute, lambda group: ("prefix", rows[group[0]].num_shared, group))

    def _stored(
        self,
        batches: Sequence[Any],
        compute: Callable[[Iterator[tuple[int, Any]]], Iterable[tuple[int, Any, list[np.ndarray]]]],
        content: Callable[[Any], tuple[Any, ...]],
    ) -> Iterator[tuple[Any, np.ndarray]]:
        """Batches with the sums of their rows, from the store or into it; the same bits with and without one.

        The key of a batch holds its shape and everything in it: a row that another run computed in a batch of another
        shape may be rounded otherwise, and these sums are compared.
        """
        numbered = [*enumerate(batches, self._num_batches)]
        self._num_batches += len(numbered)
        if self.shard is not None:
            numbered = [(number, batch) for number, batch in numbered if self.shard.owns(number)]
        for batch, (halves,) in read_or_compute(
            self.namespace,
            numbered,
            compute,
            lambda batch: [hashlib.blake2b(repr(content(batch)).encode(), digest_size=16).digest()],
            lambda batch: _HALVES,
            lockstep=self.devices.spans,
        ):
            yield batch, halves[0].astype(np.float64) + halves[1].astype(np.float64)

    def _plan(self, lengths: np.ndarray) -> list[Batch]:
        """Batches of the shapes of the first call; longer rows than any before open a shape of their own."""
        if not len(self._edges):
            self._edges = bucket_lengths(lengths, price=PRICE, limit=self.limit)
        if lengths.max() > self._edges[-1]:
            longest = int(lengths.max())  # no longer than a model of unknown length has to be
            if self.limit is not None:
                longest = min(-(-longest // (2 * STEP)) * 2 * STEP, self.limit)
            self._edges = np.append(self._edges, longest)
        bucket = np.searchsorted(self._edges, lengths)
        batches = []
        for index in np.unique(bucket)[::-1]:
            length, rows = int(self._edges[index]), np.flatnonzero(bucket == index)
            size = max(1, min(self.budget // length, self.most_sequences))
            batches += [Batch("rows", rows[i : i + size], size, length) for i in range(0, len(rows), size)]
        return batches

    def _program(self) -> TokenProgram:
        capacity = max(max(1, self.budget // int(edge)) * int(edge) for edge in self._edges)
        return TokenProgram(self.model.lm, self._params, self.devices, capacity, tiling(self.devices.platform))

    @functools.cached_property
    def _prefix_sums(self) -> PrefixSums:
        tile = tiling(self.devices.platform)
        return PrefixSums(self.model.lm, self._params, self.devices, tile, token_budget=self.budget)

    @functools.cached_property
    def _params(self) -> Any:
        return self.devices.put_params(self.model.params)


def sums_namespace(store: ScoreStore | None, model: Model, devices: Devices, budget: int) -> Namespace | None:
    """Where the sums under a model are stored; rounding depends on the budget, and on how parameters are sharded."""
    if store is None:
        return None
    parts = len(devices) if devices.shard_params else 1
    identity = fingerprint(model.lm.spec, model.params)
    return store.namespace(address("sums of orders", identity, devices, token_budget=budget, shares=parts))


def _halves(sums: np.ndarray) -> np.ndarray:
    """float64 [n] as two rows of float32: the rounded value, and what rounding took away."""
    high = sums.astype(np.float32)
    rest = np.where(np.isfinite(sums), sums - high.astype(np.float64), 0.0)
    return np.stack([high, rest.astype(np.float32)])
