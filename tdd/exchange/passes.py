"""The orders of all data sets under one model: wave after wave, until each data set has seen enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tdd.exchange.options import check_count
from tdd.exchange.orders import Shards
from tdd.exchange.rows import Context, OrderRows, bos_tokens
from tdd.exchange.sequential import SequentialTest, waves
from tdd.runs.shards import Shard
from tdd.scoring.buckets import check_max_length
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import Model
from tdd.scoring.store.store import ScoreStore
from tdd.scoring.sums import LogProbSums, sums_namespace
from tdd.validate.errors import InputError

__all__ = ["Calls", "Layout", "SetPass", "context_of", "rows_of", "run_sets"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of the orders of shards for a model.

    Attributes:
      separator: The text between two examples.
      bos: "auto", "always" or "never".
      max_length: Longest window in tokens, or None for the model's own limit.
      stride: Tokens that a further window adds, or None for all but one.
      budget: Tokens a batch.
    """

    separator: str
    bos: str
    max_length: int | None
    stride: int | None
    budget: int


@dataclasses.dataclass
class Calls:
    """The cost of scoring a data set.

    Attributes:
      asked: Orders that were asked for.
      sequences: Orders of which at least one window went through the model.
      windows: Rows that went through the model.
      tokens: Tokens of these rows that were computed (shared prefixes once), without padding.
      tokens_asked: Tokens of all windows of all orders that were asked for.
    """

    asked: int = 0
    sequences: int = 0
    windows: int = 0
    tokens: int = 0
    tokens_asked: int = 0


@dataclasses.dataclass
class SetPass:
    """One data set under one model.

    Attributes:
      shards: Its orders.
      rows: Makes token rows of them.
      num_shuffles: Most shuffles of a shard.
      sequence: The sequential test, or None for all shuffles.
      log_probs: [r, shuffles so far + 1], the canonical order first.
      calls: The cost so far.
    """

    shards: Shards
    rows: OrderRows
    num_shuffles: int
    sequence: SequentialTest | None
    log_probs: np.ndarray
    calls: Calls = dataclasses.field(default_factory=Calls)

    @property
    def going_on(self) -> bool:
        """Whether more shuffles are wanted."""
        done = self.log_probs.shape[1] - 1 >= self.num_shuffles
        return not done and (self.sequence is None or self.sequence.stopped is None)

    @property
    def max_windows(self) -> int:
        """Most windows of a shard."""
        return max(self.rows.windows_of(shard) for shard in range(len(self.shards)))


def context_of(model: Model, layout: Layout) -> Context:
    """The context that a layout gives a model.

    Raises:
      InputError: a window longer than the model's positions or too short, a stride too long, no token to begin with.
    """
    bos = bos_tokens(model.tokenizer, layout.bos)
    window = check_max_length(layout.max_length, model.lm.max_length)
    if window is not None and window < 2 + len(bos):
        raise InputError(
            f"max_length={window} leaves no room beside the beginning-of-sequence token; use at least {2 + len(bos)}"
        )
    room = None if window is None else window - len(bos)
    stride = None if layout.stride is None else check_count("stride", layout.stride)
    if stride is not None and room is not None and stride > room - 1:
        raise InputError(
            f"stride={stride} leaves tokens without a window: a window of {room} tokens scores at most {room - 1}; "
            f"use at most {room - 1}"
        )
    return Context(bos, room, stride)


def rows_of(model: Model, sets: Sequence[Shards], layout: Layout) -> list[OrderRows]:
    """The rows of all data sets for a model; computes nothing of the model.

    Raises:
      InputError: a context that the examples do not fit into, another model's tokenizer.
    """
    context = context_of(model, layout)
    return [
        OrderRows(shards, model.tokenizer, model.lm.vocab_size, separator=layout.separator, context=context)
        for shards in sets
    ]


def run_sets(
    model: Model,
    devices: Devices,
    sets: Sequence[Shards],
    num_shuffles: Sequence[int],
    layout: Layout,
    *,
    sequences: Sequence[SequentialTest | None],
    store: ScoreStore | None,
    shard: Shard | None = None,
    advance: Callable[[float], None] = lambda count: None,
) -> list[SetPass]:
    """Log-probabilities of the canonical order and the shuffles of every shard.

    Args:
      model: The model.
      devices: Its devices.
      sets: The orders of each data set.
      num_shuffles: Most shuffles a shard, for each data set.
      layout: How texts are laid out.
      sequences: The sequential test of each data set, or None for all its shuffles.
      store: Where finished batches are stored, or None.
      shard: Compute its batches alone; the log-probabilities of the others are NaN.
      advance: Called with the number of orders that a batch is worth.
    """
    passes = [
        SetPass(shards, rows, most, sequence, np.zeros((len(shards), 0)))
        for shards, rows, most, sequence in zip(
            sets, rows_of(model, sets, layout), num_shuffles, sequences, strict=True
        )
    ]
    sums = LogProbSums(
        model,
        devices,
        budget=layout.budget,
        limit=passes[0].rows.context.limit,
        most_sequences=sum(len(one.shards) * (one.num_shuffles + 1) for one in passes),
        namespace=sums_namespace(store, model, devices, layout.budget),
        shard=shard,
        advance=advance,
    )
    looks = {look for sequence in sequences if sequence is not None for look in sequence.looks}
    num_tokens = sum(int(one.rows.num_tokens.sum()) for one in passes)
    for first, stop in waves(max(num_shuffles), looks=tuple(sorted(looks)), num_tokens=num_tokens):
        active = [one for one in passes if one.going_on]
        if not active:
            break
        wave = []
        for one in active:
            canonical = [0] if first == 1 else []
            wave.append(one.rows.orders([*canonical, *range(first, min(stop, one.num_shuffles + 1))]))
        scored = sums([rows for orders in wave for rows in orders])
        ends = np.cumsum([len(orders) for orders in wave])
        for one, orders, place in zip(active, wave, map(slice, [0, *ends[:-1]], ends), strict=True):
            log_probs = scored.log_probs[place]
            finite = np.where(np.isfinite(log_probs), log_probs, np.nan)  # a probability of 0 cannot be compared
            one.log_probs = np.concatenate([one.log_probs, finite.reshape(-1, len(one.shards)).T], axis=1)
            one.calls.asked += len(orders)
            one.calls.sequences += int((scored.num_rows[place] > 0).sum())
            one.calls.windows += int(scored.num_rows[place].sum())
            one.calls.tokens += int(scored.num_tokens[place].sum())
            one.calls.tokens_asked += sum(len(row.tokens) for rows in orders for row in rows)
            if one.sequence is not None:
                one.sequence.look(one.log_probs[:, 0], one.log_probs[:, 1:], one.calls.sequences)
    return passes
