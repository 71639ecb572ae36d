"""The orders of all data sets under one model: wave after wave, until each data set has seen enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tdd.exchange.data import Shards
from tdd.exchange.options import Options
from tdd.exchange.rows import Context, OrderRows, bos_tokens
from tdd.runs.shards import Shard
from tdd.scoring.buckets import check_max_length
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import Model
from tdd.scoring.store import ScoreStore
from tdd.scoring.sums import LogProbSums, sums_namespace
from tdd.validate import InputError
from tdd.validate.arrays import as_count

__all__ = ["SequentialTest", "SetPass", "as_double", "rows_of", "run_sets", "waves"]

_WAVE = 50
"""Most shuffles of a shard that are tokenised at a time."""

_LEAST, _WAVE_TOKENS = 8, 2**25
"""Fewest, and tokens of a wave beyond which it has fewer: they are held in memory."""

_ENOUGH = 10
"""Shuffles of the whole data set that reach the canonical order before a run gives up."""


@dataclasses.dataclass
class SequentialTest:
    """The sequential test of one data set."""

    rule: str  # "e_process", "spending" or "besag_clifford"
    looks: tuple[int, ...]  # numbers of shuffles at which the rule looks, fixed beforehand; the last is the horizon
    target: float  # level at which the run stops for evidence
    test: str  # that "spending" looks at
    key: Any  # PRNG key of its relabellings
    # one dict a look: shuffles, calls, p_value, log_e_value
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    stopped: str | None = None  # None while it runs, then "evidence", "futility" or "complete"
    result: Any = None  # what the rule said last

    def look(self, canonical: np.ndarray, shuffled: np.ndarray, calls: int) -> None:
        """Decide whether to go on, after a wave: [r] and [r, b] log-probabilities.

        The run stops for evidence once p <= target, for futility once shuffles of the whole data set have reached the
        canonical order ten times and p > target, and at the horizon. A p-value of "e_process" or "spending" is valid
        whichever it was, "besag_clifford" is defined by that number of times.
        """
        from tdd.procedures.sequential import exchangeability_sequence

        b = shuffled.shape[1]
        if b not in self.looks:
            return
        if not (np.isfinite(canonical) & np.isfinite(shuffled).all(axis=1)).any():
            self.stopped = "complete"  # no shard is left to compare
            return
        self.result = exchangeability_sequence(
            canonical,
            shuffled,
            rule=self.rule,  # type: ignore[arg-type]
            looks=self.looks,
            test=self.test,  # type: ignore[arg-type]
            num_exceedances=_ENOUGH,
            key=self.key,
        )
        p, log_e = as_double(self.result.p_value[-1]), float(self.result.log_e_value[-1])
        self.history.append(
            {"shuffles": b, "calls": calls, "p_value": p, "log_e_value": None if np.isnan(log_e) else log_e}
        )
        if p <= self.target and self.rule != "besag_clifford":
            self.stopped = "evidence"
        elif int(self.result.num_exceedances[-1]) >= _ENOUGH:
            self.stopped = "futility"
        elif b == self.looks[-1]:
            self.stopped = "complete"


@dataclasses.dataclass
class Calls:
    """The cost of scoring a data set."""

    asked: int = 0  # orders that were asked for
    sequences: int = 0  # orders of which at least one window went through the model
    windows: int = 0  # rows that went through the model
    tokens: int = 0  # tokens of these rows that were computed (shared prefixes once), without padding
    tokens_asked: int = 0  # tokens of all windows of all orders that were asked for


@dataclasses.dataclass
class SetPass:
    """One data set under one model."""

    shards: Shards  # its orders
    rows: OrderRows  # makes token rows of them
    num_shuffles: int  # most shuffles of a shard
    sequence: SequentialTest | None  # the sequential test, or None for all shuffles
    log_probs: np.ndarray  # [r, shuffles so far + 1], the canonical order first
    calls: Calls = dataclasses.field(default_factory=Calls)  # the cost so far

    @property
    def going_on(self) -> bool:
        """True while more shuffles are wanted."""
        done = self.log_probs.shape[1] - 1 >= self.num_shuffles
        return not done and (self.sequence is None or self.sequence.stopped is None)

    @property
    def max_windows(self) -> int:
        """Most windows of a shard."""
        return max(self.rows.windows_of(shard) for shard in range(len(self.shards)))


def rows_of(model: Model, sets: Sequence[Shards], options: Options) -> list[OrderRows]:
    """The rows of all data sets for a model, which is not run.

    Raises:
      InputError: a window longer than the model's positions or too short, a stride too long, no token to begin with,
        examples that do not fit into the context.
    """
    bos = bos_tokens(model.tokenizer, options.bos)
    window = check_max_length(options.max_length, model.lm.max_length)
    if window is not None and window < 2 + len(bos):
        raise InputError(
            f"max_length={window} leaves no room beside the beginning-of-sequence token; use at least {2 + len(bos)}"
        )
    room = None if window is None else window - len(bos)
    stride = None if options.stride is None else as_count(options.stride, "stride")
    if stride is not None and room is not None and stride > room - 1:
        raise InputError(
            f"stride={stride} leaves tokens without a window: a window of {room} tokens scores at most {room - 1}; "
            f"use at most {room - 1}"
        )
    context = Context(bos, room, stride)
    return [
        OrderRows(shards, model.tokenizer, model.lm.vocab_size, separator=options.separator, context=context)
        for shards in sets
    ]


def run_sets(
    model: Model,
    devices: Devices,
    sets: Sequence[Shards],
    num_shuffles: Sequence[int],
    options: Options,
    *,
    sequences: Sequence[SequentialTest | None],
    store: ScoreStore | None,
    shard: Shard | None = None,
    advance: Callable[[float], None] = lambda count: None,
) -> list[SetPass]:
    """Log-probabilities of the canonical order and the shuffles of every shard.

    Args:
      model, devices: The model, and where it runs.
      sets, num_shuffles, sequences: For each data set its orders, the most shuffles a shard, and the sequential test
        (None: all shuffles).
      options: The separator, the layout in the context, and the budget of a batch.
      store: The store of finished batches, or None.
      shard: Compute its batches alone; the log-probabilities of the others are NaN.
      advance: Called with the number of orders that a batch is worth.
    """
    passes = [
        SetPass(shards, rows, most, sequence, np.zeros((len(shards), 0)))
        for shards, rows, most, sequence in zip(
            sets, rows_of(model, sets, options), num_shuffles, sequences, strict=True
        )
    ]
    budget: Any = options.on(devices).token_budget
    sums = LogProbSums(
        model,
        devices,
        budget=budget,
        limit=passes[0].rows.context.limit,
        most_sequences=sum(len(one.shards) * (one.num_shuffles + 1) for one in passes),
        namespace=sums_namespace(store, model, devices, budget),
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


def waves(num_shuffles: int, *, looks: tuple[int, ...] = (), num_tokens: int = 0) -> tuple[tuple[int, int], ...]:
    """Shuffles (first, stop) of each wave, counted from 1; with looks, one wave ends at each of them.

    The more tokens an order of all shards has, the smaller the waves.

    >>> waves(120)
    ((1, 51), (51, 101), (101, 121))
    >>> waves(10, looks=(1, 2, 5, 10))
    ((1, 2), (2, 3), (3, 6), (6, 11))
    """
    step = min(_WAVE, max(_LEAST, _WAVE_TOKENS // max(1, num_tokens)))
    ends = sorted({*looks, *range(step, num_shuffles, step), num_shuffles})
    return tuple((first + 1, stop + 1) for first, stop in zip([0, *ends[:-1]], ends, strict=True))


def as_double(value: Any) -> float:
    """A number in double precision: of a float32 the shortest decimal that it stands for, so that 1/20 is .05 and not
    a little more, and p <= alpha is decided as it is on paper."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype == np.float32 else float(array)
