"""Batches of token rows through a model: two in flight, results fetched as flat vectors, memory errors halved.

Each batch is two compiled programs: the trunk, compiled once a bucket, gathers the hidden states of the scored
positions into one buffer of fixed capacity; the head, compiled once for all buckets, makes statistics of it. A model
that only has `logits` is one program a bucket.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.scoring.buckets import Batch
from tdd.scoring.token_stats import Tiling, head_log_prob, head_statistics, model_statistics, trunk_rows
from tdd.scoring.tokenise import Window

__all__ = ["BatchRunner", "Rows"]

_logger = logging.getLogger("tdd")

IN_FLIGHT = 2


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one pass: windows over tokenised texts.

    Attributes:
      tokens: token ids of each text.
      text: [R] index of the text of each row.
      windows: [R] window of each row.
      statistics: fields that the pass must deliver.
    """

    tokens: tuple[np.ndarray, ...]
    text: np.ndarray
    windows: Sequence[Window]
    statistics: tuple[str, ...]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row: [R]."""
        return np.array([window.stop - window.start for window in self.windows], np.int64)

    def num_targets(self, rows: np.ndarray) -> np.ndarray:
        """Scored targets of the given rows."""
        return np.array([self.windows[row].stop - self.windows[row].first_target for row in rows], np.int64)


class BatchRunner:
    """Runs the batches of one model.

    Args:
      lm: the model.
      params: its parameters, on the device that computes.
      capacity: scored positions that a batch can have.
      tile: sizes of the head's tiles.
    """

    def __init__(self, lm: LanguageModel, params: Any, capacity: int, tile: Tiling) -> None:
        self.lm, self.params, self.tile = lm, params, tile
        self.capacity = -(-capacity // tile.chunk) * tile.chunk
        self.halvings = 0

    def run(
        self, batches: Sequence[tuple[int, Batch]], rows_of: Callable[[str], Rows]
    ) -> Iterator[tuple[int, Batch, np.ndarray]]:
        """Yield (number, batch, [fields, targets] float32) in order; targets row after row, left to right."""
        waiting = collections.deque(batches)
        in_flight: collections.deque[tuple[tuple[int, Batch], list[Any] | None]] = collections.deque()
        while waiting or in_flight:
            while waiting and len(in_flight) < IN_FLIGHT:
                entry = waiting.popleft()
                in_flight.append((entry, self._dispatch(entry[1], rows_of(entry[1].kind))))
            (number, batch), parts = in_flight.popleft()
            rows = rows_of(batch.kind)
            while True:
                try:
                    if parts is None:
                        raise MemoryError("RESOURCE_EXHAUSTED at dispatch")
                    values = np.concatenate([self._fetch(part, rows) for part in parts], axis=1)
                    break
                except (jax.errors.JaxRuntimeError, MemoryError) as error:
                    self._halve(batch, error)
                    waiting.extendleft(entry for entry, _ in reversed(in_flight))
                    in_flight.clear()
                    parts = self._dispatch(batch, rows)
            yield number, batch, values

    def _dispatch(self, batch: Batch, rows: Rows) -> list[Any] | None:
        """Start a batch, in pieces after memory errors; None where the device is out of memory at once."""
        size = max(1, batch.size >> self.halvings)
        pieces = [batch.rows[i : i + size] for i in range(0, len(batch.rows), size)]
        try:
            return [self._start(piece, size, batch.length, rows) for piece in pieces]
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if _is_memory(error) and size > 1:
                return None
            raise

    def _start(self, piece: np.ndarray, size: int, length: int, rows: Rows) -> tuple[Any, Any]:
        tokens = np.zeros((size, length), np.int32)
        positions, targets = [], []
        for i, row in enumerate(piece):
            window, text = rows.windows[row], rows.tokens[int(rows.text[row])]
            tokens[i, : window.stop - window.start] = text[window.start : window.stop]
            offset = i * length - window.start - 1
            positions.append(np.arange(offset + window.first_target, offset + window.stop, dtype=np.int32))
            targets.append(text[window.first_target : window.stop])
        position, target = np.concatenate(positions), np.concatenate(targets)
        only_log_prob = set(rows.statistics) <= {"log_prob"}
        if self.lm.hidden is None or self.lm.readout is None:
            place, scored = np.zeros((2, size * length), np.int32)
            place[position], scored[position] = target, 1
            return _from_logits(self.lm, self.params, tokens, place, scored, self.tile), position
        pad = (0, self.capacity - len(target))
        hidden = _trunk(self.lm, self.params, tokens, np.pad(position, pad))
        head = _head_log_prob if only_log_prob else _head
        out = head(self.lm, self.params, hidden, np.pad(target, pad), len(target), self.tile)
        return out, slice(len(target))

    def _fetch(self, part: tuple[Any, Any], rows: Rows) -> np.ndarray:
        out, where = part
        fields = [out] if isinstance(out, jax.Array) else [getattr(out, name) for name in rows.statistics]
        return np.stack([np.asarray(field)[where].astype(np.float32) for field in fields])

    def _halve(self, batch: Batch, error: BaseException) -> None:
        if not _is_memory(error) or batch.size >> self.halvings <= 1:
            raise error
        self.halvings += 1
        rows = max(1, batch.size >> self.halvings)
        _logger.warning(
            "out of memory: going on with batches of %d rows of %d tokens; a smaller token_budget avoids the retry",
            rows,
            batch.length,
        )


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


@functools.partial(jax.jit, static_argnames="lm")
def _trunk(lm: LanguageModel, params: Any, tokens: jax.Array, positions: jax.Array) -> jax.Array:
    return trunk_rows(lm, params, tokens, positions)


@functools.partial(jax.jit, static_argnames=("lm", "tile"))
def _head(lm: LanguageModel, params: Any, hidden: jax.Array, targets: jax.Array, count: jax.Array, tile: Tiling) -> Any:
    return head_statistics(lm, params, hidden, targets, jnp.arange(targets.size) < count, tile)


@functools.partial(jax.jit, static_argnames=("lm", "tile"))
def _head_log_prob(
    lm: LanguageModel, params: Any, hidden: jax.Array, targets: jax.Array, count: jax.Array, tile: Tiling
) -> Any:
    return head_log_prob(lm, params, hidden, targets, jnp.arange(targets.size) < count, tile)


@functools.partial(jax.jit, static_argnames=("lm", "tile"))
def _from_logits(
    lm: LanguageModel, params: Any, tokens: jax.Array, targets: jax.Array, scored: jax.Array, tile: Tiling
) -> Any:
    return model_statistics(lm, params, tokens, targets, scored > 0, tile)
