"""Orders of shards → rows of tokens: joined texts, windows of the context, beginning-of-sequence tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.exchange.data import Shards
from tdd.scoring.sums import Row
from tdd.scoring.tokenise import Window, check_token_ids, token_ids
from tdd.validate import InputError

__all__ = ["Context", "OrderRows", "bos_tokens", "context_windows"]

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
