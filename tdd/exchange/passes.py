"""The orders of all data sets under one model: rows of tokens, wave after wave, until each data set has seen enough."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.exchange.data import Options, Shards
from tdd.runs.shards import Shard
from tdd.scoring.buckets import check_max_length
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import Model
from tdd.scoring.store import ScoreStore
from tdd.scoring.sums import LogProbSums, Row, sums_namespace
from tdd.scoring.tokenise import Window, check_token_ids, token_ids
from tdd.validate import InputError
from tdd.validate.arrays import as_count

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
    window = check_max_length(options.how.max_length, model.lm.max_length)
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
    budget = options.how.budget(devices.platform)
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


_logger = logging.getLogger("tdd")

_MIN_SHARED = 16
"""Fewer shared tokens are not worth a program of their own."""


class Context(NamedTuple):
    """The layout of texts in the model's context."""

    bos: tuple[int, ...]  # tokens that every window begins with
    room: int | None  # tokens of text that a window holds beside them, or None for unbounded positions
    stride: int | None  # tokens that a window adds to the one before it; by default all but one

    @property
    def limit(self) -> int | None:
        """Longest row."""
        return None if self.room is None else self.room + len(self.bos)


def bos_tokens(tokenizer: Any, policy: str) -> tuple[int, ...]:
    """The tokens that a window begins with: "auto" as the tokenizer begins a text, "always" its
    beginning-of-sequence token, "never" none."""
    if policy == "never":
        return ()
    if policy == "always":
        token = getattr(tokenizer, "bos_token_id", None)
        if token is None:
            raise InputError('bos="always" needs a tokenizer with a beginning-of-sequence token, and this one has none')
        return (int(token),)
    plain, special = (token_ids(tokenizer, ["a"], add_special_tokens=added)[0].tolist() for added in (False, True))
    if not plain:  # the probe is unknown to the tokenizer, which leaves it out
        return tuple(special[:1]) if special[:1] == [getattr(tokenizer, "bos_token_id", None)] else ()
    places = [i for i in range(len(special) - len(plain) + 1) if special[i : i + len(plain)] == plain]
    return tuple(special[: places[-1]]) if places else ()


def context_windows(num_tokens: int, room: int | None, stride: int | None, *, first: int) -> Iterator[Window]:
    """Windows that score every token from `first` on exactly once.

    The first window is full; each further one adds `stride` tokens, by default all but one, so that it begins with
    the last token of the window before it, and has as much context to their left as fits.

    Args:
      num_tokens: Tokens of the text.
      room: Tokens that a window holds, at least 2, or None for one window.
      stride: Tokens that a further window adds, at most room - 1.
      first: First scored token: 0 if something precedes the text in every window, else 1.

    >>> [*context_windows(7, 4, 2, first=1)]
    [Window(start=0, first_target=1, stop=4), Window(start=2, first_target=4, stop=6), Window(start=3, \
first_target=6, stop=7)]
    """
    room = max(num_tokens, 2) if room is None else room
    step = room - 1 if stride is None else stride
    stop, target = 0, first
    while target < num_tokens:
        stop = min(target + step if stop else room, num_tokens)
        yield Window(max(0, stop - room), target, stop)
        target = stop


class OrderRows:
    """Makes rows of the orders of one data set for one model.

    The text of an order is tokenised as a whole, as a crawler's document is. If only a suffix of each shard is
    permuted, the tokens before it are the same in all orders and are not scored: they would add the same number to
    each, and every test depends on differences alone.

    Attributes:
      num_long: Examples that are as long as the context.
      num_tokens: [r] tokens of each shard in canonical order, without beginning-of-sequence tokens.
    """

    def __init__(self, shards: Shards, tokenizer: Any, vocab_size: int, *, separator: str, context: Context) -> None:
        self.shards, self.tokenizer, self.vocab_size = shards, tokenizer, vocab_size
        self.separator, self.context = separator, context
        name, r = shards.data.name, len(shards)
        for token in getattr(tokenizer, "all_special_tokens", ()):
            if token and token in separator:
                _logger.warning("separator holds %r, which is tokenised as text and not as the special token", token)
        self.num_long = 0
        if context.room is not None:
            lengths = [len(ids) for ids in self._tokens(shards.data.examples)]
            self.num_long = _check_context(name, lengths, context.room)
        canonical = self._tokens([shards.text(shard, 0, separator) for shard in range(r)])
        check_token_ids(canonical, [f"{name}, shard {shard + 1}" for shard in range(r)], vocab_size, "model")
        fixed = self._tokens([shards.fixed_text(shard, separator) or " " for shard in range(r)])
        self.num_tokens = np.array([len(ids) for ids in canonical])
        self._shared = [
            max(0, _common(a, b) - 1) if shards.fixed_text(shard, separator) else 0
            for shard, (a, b) in enumerate(zip(canonical, fixed, strict=True))
        ]
        self._canonical = canonical

    def windows_of(self, shard: int) -> int:
        """Rows of the canonical order of a shard."""
        return len(self._rows(shard, self._canonical[shard]))

    def orders(self, numbers: Sequence[int]) -> list[tuple[Row, ...]]:
        """The rows of the given orders of every shard, order after order, as far as they hold a scored token."""
        wanted = [(shard, number) for number in numbers for shard in range(len(self.shards))]
        texts = [self.shards.text(shard, number, self.separator) for shard, number in wanted if number]
        tokens = iter(self._tokens(texts))
        rows = []
        for shard, number in wanted:
            ids = next(tokens) if number else self._canonical[shard]
            shared = self._shared[shard]
            if not np.array_equal(ids[:shared], self._canonical[shard][:shared]):
                raise InputError(
                    f"data set {self.shards.data.name!r}, shard {shard + 1}: the tokens of the part that is kept "
                    "depend on the order of the rest; use suffix=1, or a separator that the tokenizer does not join "
                    "with its neighbours, such as a line end"
                )
            rows.append(self._rows(shard, ids))
        return rows

    def _rows(self, shard: int, ids: np.ndarray) -> tuple[Row, ...]:
        """Windows of one order; a single one that holds it all shares what its orders have in common."""
        bos, shared = self.context.bos, self._shared[shard]
        head = np.array(bos, np.int32)
        rows = []
        for window in context_windows(len(ids), self.context.room, self.context.stride, first=0 if bos else 1):
            target = max(window.first_target, shared)
            if target < window.stop:
                tokens = np.concatenate([head, ids[window.start : window.stop]])
                rows.append(Row(tokens, target - window.start + len(bos)))
        whole = self.context.room is None or len(ids) <= self.context.room
        if len(rows) == 1 and shared >= _MIN_SHARED and whole:
            rows = [rows[0]._replace(num_shared=shared + len(bos))]
        return tuple(rows)

    def _tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return token_ids(self.tokenizer, texts, add_special_tokens=False)


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Leading tokens that two sequences have in common."""
    size = min(len(a), len(b))
    return int(np.append(a[:size] != b[:size], True).argmax())


def _check_context(name: str, lengths: Sequence[int], window: int) -> int:
    """Number of examples that are as long as the context; an error if they are more than half."""
    long = [index for index, length in enumerate(lengths) if length >= window]
    if 2 * len(long) > len(lengths):
        worst = max(long, key=lambda index: lengths[index])
        raise InputError(
            f"data set {name!r}: {len(long)} of {len(lengths)} examples are as long as the context of {window} tokens "
            f"(example {worst + 1}: {lengths[worst]} tokens), so the model never sees them together with a neighbour "
            "and their order cannot show. Use a larger max_length if the model allows it, a shorter template, or a "
            "data set of shorter examples"
        )
    return len(long)
