"""The orders of all data sets under one model: wave after wave, each data set until it has seen enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tdd.exchange.orders import Shards
from tdd.exchange.rows import Context, OrderRows, bos_tokens
from tdd.exchange.scorer import Calls, Scorer
from tdd.exchange.sequence import Sequence as Sequential
from tdd.exchange.sequence import waves
from tdd.runs.shards import Shard
from tdd.scoring.devices import Devices
from tdd.scoring.in_step import ReadOrCompute
from tdd.scoring.inputs import Model
from tdd.scoring.store.address import address, fingerprint
from tdd.scoring.store.store import ScoreStore
from tdd.scoring.store.through import through
from tdd.validate.errors import InputError
from tdd.validate.exchange import check_count
from tdd.validate.scoring import check_max_length

__all__ = ["Layout", "SetPass", "context_of", "rows_of", "run_sets"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the orders of shards are laid out for a model.

    Attributes:
      separator: between two examples.
      bos: "auto", "always" or "never".
      max_length: longest window in tokens, or None for the model's own limit.
      stride: tokens that a further window adds, or None.
      budget: tokens a batch.
    """

    separator: str
    bos: str
    max_length: int | None
    stride: int | None
    budget: int


@dataclasses.dataclass
class SetPass:
    """One data set under one model.

    Attributes:
      shards: its orders.
      rows: makes token rows of them.
      num_shuffles: most shuffles of a shard.
      log_probs: [r, shuffles so far + 1], the canonical order first.
      calls: what it took.
      sequence: the sequential test, or None where all shuffles are used.
      max_windows: most windows of a shard.
    """

    shards: Shards
    rows: OrderRows
    num_shuffles: int
    log_probs: np.ndarray
    calls: Calls
    sequence: Sequential | None
    max_windows: int

    @property
    def going_on(self) -> bool:
        """Whether more shuffles are wanted."""
        done = self.log_probs.shape[1] - 1 >= self.num_shuffles
        return not done and (self.sequence is None or self.sequence.stopped is None)


def context_of(model: Model, layout: Layout) -> Context:
    """How the model's context is used.

    Raises:
      InputError: no room, or a stride that leaves tokens out.
    """
    bos = bos_tokens(model.tokenizer, layout.bos)
    limit = check_max_length(layout.max_length, model.lm.max_length)
    _check_window(limit, len(bos))
    room = None if limit is None else limit - len(bos)
    return Context(bos, room, _check_stride(layout.stride, room))


def rows_of(model: Model, sets: Sequence[Shards], layout: Layout) -> list[OrderRows]:
    """What makes the token rows of each data set.

    Raises:
      InputError: the model cannot take them: no room, unknown tokens, examples as long as its context.
    """
    context = context_of(model, layout)
    return [
        OrderRows(shards, model.tokenizer, model.lm.vocab_size, separator=layout.separator, context=context)
        for shards in sets
    ]


def run_sets(
    model: Model,
    where: Devices,
    sets: Sequence[Shards],
    num_shuffles: Sequence[int],
    layout: Layout,
    *,
    sequences: Sequence[Sequential | None],
    store: ScoreStore | None,
    shard: Shard | None = None,
    read_or_compute: ReadOrCompute = through,
    advance: Callable[[float], None] = lambda count: None,
) -> list[SetPass]:
    """Log-probabilities of the canonical order and the shuffles of every shard.

    Args:
      model: the model.
      where: its devices.
      sets: the orders of each data set.
      num_shuffles: most shuffles a shard, for each data set.
      layout: how texts are laid out.
      sequences: the sequential test of each data set, or None for all its shuffles.
      store: where finished batches are kept, or None.
      shard: compute its batches alone; the log-probabilities of the others are NaN.
      read_or_compute: decides for each batch.
      advance: called with the number of orders that a batch is worth.
    """
    passes = []
    made = rows_of(model, sets, layout)
    for shards, rows, most, sequence in zip(sets, made, num_shuffles, sequences, strict=True):
        windows = max(rows.windows_of(shard) for shard in range(len(shards)))
        passes.append(SetPass(shards, rows, most, np.zeros((len(shards), 0)), Calls(), sequence, windows))
    scorer = Scorer(
        model,
        where,
        budget=layout.budget,
        limit=made[0].context.limit,
        num_orders=sum(len(one.shards) * (one.num_shuffles + 1) for one in passes),
        space=None if store is None else store.space(_about(model, where, layout)),
        shard=shard,
        read_or_compute=read_or_compute,
        advance=advance,
    )
    looks = {look for sequence in sequences if sequence is not None for look in sequence.looks}
    num_tokens = sum(int(one.rows.num_tokens.sum()) for one in passes)
    for first, stop in waves(max(num_shuffles), looks=tuple(sorted(looks)), num_tokens=num_tokens):
        active = [(i, one) for i, one in enumerate(passes) if one.going_on]
        if not active:
            break
        wave = []
        for i, one in active:
            numbers = [*([0] if first == 1 else []), *range(first, min(stop, one.num_shuffles + 1))]
            wave += [(i, order) for order in one.rows.orders(numbers)]
        found = scorer.log_probs(wave, [one.calls for one in passes])
        finite = np.where(np.isfinite(found), found, np.nan)  # a shard with a probability of 0 cannot be compared
        for i, one in active:
            mine = finite[[place for place, (owner, _) in enumerate(wave) if owner == i]]
            one.log_probs = np.concatenate([one.log_probs, mine.reshape(-1, len(one.shards)).T], axis=1)
            if one.sequence is not None:
                one.sequence.look(one.log_probs[:, 0], one.log_probs[:, 1:], one.calls.sequences)
    return passes


def _about(model: Model, where: Devices, layout: Layout) -> dict[str, Any]:
    """What the sums of a batch depend on, beside what is in it."""
    parts = len(where) if where.shard_params else 1
    return address(
        "sums of orders", fingerprint(model.lm.spec, model.params), where, token_budget=layout.budget, shares=parts
    )


def _check_stride(stride: Any, window: int | None) -> int | None:
    """Tokens that a window adds to the one before it."""
    if stride is None:
        return None
    stride = check_count("stride", stride)
    if window is not None and stride > window - 1:
        raise InputError(
            f"stride={stride} leaves tokens without a window: a window of {window} tokens scores at most {window - 1}; "
            f"use at most {window - 1}"
        )
    return stride


def _check_window(window: int | None, num_bos: int) -> None:
    """A context that has room for something beside the beginning-of-sequence token."""
    if window is not None and window < 2 + num_bos:
        raise InputError(
            f"max_length={window} leaves no room beside the beginning-of-sequence token; use at least {2 + num_bos}"
        )
