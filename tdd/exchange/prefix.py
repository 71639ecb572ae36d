"""Log-probabilities of sequences that begin alike: the beginning goes through the model once.

Three programs: the prefix (once a prefix), the trunk over a batch of suffixes, and the head. Prefixes are padded to
few lengths, of which the program is told the real one; suffixes to few lengths and batch sizes. So shards of all
lengths share a handful of compiled programs, and the head is compiled once.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.scoring.devices import Devices, out_of_memory_in_step
from tdd.scoring.passes import IN_FLIGHT
from tdd.scoring.programs import head_log_probs, padded
from tdd.scoring.token_stats import Tiling
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_budget, is_memory_error

__all__ = ["PrefixProgram", "padded_length", "padded_size"]


class _Piece(NamedTuple):
    """What one device works at: suffixes [B, T], flat positions whose next token is scored, those tokens, whose they
    are."""

    tokens: np.ndarray
    positions: np.ndarray
    targets: np.ndarray
    num_targets: np.ndarray


class PrefixProgram:
    """Sums of log-probabilities of suffixes that follow a common prefix.

    Args:
      lm: a model with `prefix`, `hidden_after` and `readout`.
      params: its parameters, where they are computed with (`Devices.put_params`).
      where: the devices. Each holds the cache of the prefix and takes whole batches of its suffixes; batches have the
        shapes that one device would have, so the numbers do not depend on how many there are.
      tile: sizes of the head's tiles.
      token_budget: tokens of a batch of suffixes; one longer suffix is a batch of its own. Halved, and the run goes
        on, where memory does not suffice.

    Raises:
      InputError: the model does not share prefixes.
    """

    def __init__(
        self, lm: LanguageModel, params: Any, where: Devices, tile: Tiling, *, token_budget: int = 2048
    ) -> None:
        _check_shares(lm)
        check_budget(token_budget)
        self.lm, self.params, self.where, self.tile = lm, params, where, tile
        self.budget = int(token_budget)
        self._known: tuple[bytes, Any] | None = None

    def log_prob_sums(self, prefix: np.ndarray, suffixes: Sequence[np.ndarray], first_target: int = 1) -> np.ndarray:
        """Sums over t >= first_target of log p(suffix[t] | prefix, suffix[:t]).

        Args:
          prefix: [P] token ids before every suffix; of length 0 where there are none. The prefix of the call before is
            kept on the devices: the same one costs nothing.
          suffixes: token ids, of equal length or not; with first_target = 1, `suffix[0]` is the last token that all
            have in common.
          first_target: first scored token of each, at least 1.

        Returns:
          [number of suffixes] float64, nats, added up in float64.

        Raises:
          InputError: a suffix without a scored token, or prefix and suffix exceed the model's positions.

        Cost: one pass of the trunk over P tokens, one over the suffixes' (padded by at most an eighth in length and a
        third in number), and the readout for scored tokens. 8 L P G d bytes a device for the prefix.
        """
        prefix = np.asarray(prefix, np.int32)
        suffixes = [np.asarray(one, np.int32) for one in suffixes]
        _check_suffixes(len(prefix), [len(one) for one in suffixes], first_target, self.lm.max_length)
        while True:
            try:
                return np.concatenate([np.zeros(0), *self._sums(prefix, suffixes, first_target)])
            except (jax.errors.JaxRuntimeError, MemoryError) as error:
                if not is_memory_error(error) or self.budget <= max(map(len, suffixes)):
                    raise
                if self.where.spans:
                    raise out_of_memory_in_step(len(suffixes), len(prefix) + max(map(len, suffixes))) from error
                self.budget //= 2

    def _sums(self, prefix: np.ndarray, suffixes: Sequence[np.ndarray], first: int) -> Iterator[np.ndarray]:
        """Sums, group after group of one batch a device; two groups in flight."""
        if not suffixes:
            return
        length = padded_length(max(map(len, suffixes)), self.lm.max_length)
        size = padded_size(len(suffixes), max(1, self.budget // length))
        cache = self._cache(prefix)
        pieces = [_lay_out(suffixes[i : i + size], size, length, first) for i in range(0, len(suffixes), size)]
        groups = collections.deque(pieces[i : i + len(self.where)] for i in range(0, len(pieces), len(self.where)))
        in_flight: collections.deque[tuple[list[_Piece], jax.Array]] = collections.deque()
        while groups or in_flight:
            while groups and len(in_flight) < IN_FLIGHT:
                group = groups.popleft()
                in_flight.append((group, self._start(cache, group)))
            group, started = in_flight.popleft()
            for piece, values in zip(group, self.where.fetch(started), strict=False):
                parts = np.split(values[: len(piece.targets)], np.cumsum(piece.num_targets)[:-1])
                yield np.array([part.sum(dtype=np.float64) for part in parts])

    def _cache(self, prefix: np.ndarray) -> Any:
        """What the prefix leaves behind, on every device."""
        if not len(prefix):
            return None
        if self._known is None or self._known[0] != prefix.tobytes():
            self._known = None  # two would be held at once
            length = padded_length(len(prefix), self.lm.max_length, steps=2, least=32)
            lanes = len(self.where)
            tokens = self.where.put([padded(prefix, length)[None]] * lanes)
            counts = self.where.put([np.int32(len(prefix))] * lanes)
            self._known = prefix.tobytes(), _prefix(self.lm, self.where, self.params, tokens, counts)
        return self._known[1]

    def _start(self, cache: Any, group: Sequence[_Piece]) -> jax.Array:
        """Log-probabilities of the targets of a group, [capacity] a device."""
        shape = group[0].tokens.shape
        nothing = _Piece(np.zeros(shape, np.int32), *[np.zeros(0, np.int32)] * 3)
        pieces = [*group, *[nothing] * (len(self.where) - len(group))]
        capacity = max(self.budget, shape[0] * shape[1])
        capacity = -(-capacity // self.tile.chunk) * self.tile.chunk
        put = self.where.put
        hidden = _trunk(
            self.lm,
            self.where,
            self.params,
            cache,
            put([piece.tokens for piece in pieces]),
            put([padded(piece.positions, capacity) for piece in pieces]),
        )
        targets = put([padded(piece.targets, capacity) for piece in pieces])
        counts = put([np.int32(len(piece.targets)) for piece in pieces])
        return head_log_probs(self.lm, self.where, self.params, hidden, targets, counts, tile=self.tile)


def padded_length(length: int, limit: int | None, *, steps: int = 8, least: int = 8) -> int:
    """The next of `steps` lengths an octave, multiples of `least`; never beyond the limit.

    >>> [padded_length(n, 1024) for n in (5, 65, 500, 1000)]
    [8, 72, 512, 1024]
    """
    step = max(least, (1 << (max(length, 1) - 1).bit_length()) // (2 * steps))
    rounded = -(-length // step) * step
    return rounded if limit is None else min(rounded, limit)


def padded_size(count: int, most: int) -> int:
    """Rows of a batch: `count` rows in as few batches of at most `most` as possible, alike in size, then rounded up to
    1, 2, 3, 4, 6, 8, 12, ...

    >>> [padded_size(n, 16) for n in (1, 5, 16, 17, 51)]
    [1, 6, 16, 12, 16]
    """
    num_batches = -(-count // most)
    size = -(-count // num_batches)
    top = 1 << (size - 1).bit_length()
    return min(top * 3 // 4 if top >= 4 and size <= top * 3 // 4 else top, most)


def _lay_out(suffixes: Sequence[np.ndarray], size: int, length: int, first: int) -> _Piece:
    """Suffixes as one array, padded on the right and below."""
    tokens = np.zeros((size, length), np.int32)
    positions = []
    for i, suffix in enumerate(suffixes):
        tokens[i, : len(suffix)] = suffix
        positions.append(np.arange(first - 1, len(suffix) - 1, dtype=np.int32) + i * length)
    return _Piece(
        tokens,
        np.concatenate(positions),
        np.concatenate([suffix[first:] for suffix in suffixes]),
        np.array([len(suffix) - first for suffix in suffixes]),
    )


@functools.partial(jax.jit, static_argnames=("lm", "where"))
def _prefix(lm: LanguageModel, where: Devices, params: Any, tokens: jax.Array, num_real: jax.Array) -> Any:
    assert lm.prefix is not None
    return where.each(lm.prefix, params, tokens, num_real)


@functools.partial(jax.jit, static_argnames=("lm", "where"))
def _trunk(
    lm: LanguageModel, where: Devices, params: Any, cache: Any, tokens: jax.Array, positions: jax.Array
) -> jax.Array:
    assert lm.hidden is not None
    assert lm.hidden_after is not None
    before, after = lm.hidden, lm.hidden_after

    def own(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        hidden = before(params, tokens) if cache is None else after(params, cache, tokens)
        return jnp.take(hidden.reshape(-1, hidden.shape[-1]), positions, axis=0, mode="clip")

    return where.each(own, params, cache, tokens, positions)


def _check_shares(lm: Any) -> None:
    """The model computes a prefix apart from what follows it."""
    absent = [name for name in ("prefix", "hidden_after", "hidden", "readout") if getattr(lm, name) is None]
    if absent:
        raise InputError(
            f"the model does not share prefixes: it has no {', '.join(absent)}; score whole sequences instead"
        )


def _check_suffixes(num_before: int, lengths: Sequence[int], first_target: int, limit: int | None) -> None:
    """Every suffix has a scored token and fits behind the prefix."""
    if first_target < 1:
        raise InputError(f"first_target must be at least 1, got {first_target}: nothing in a suffix precedes its first")
    for i, length in enumerate(lengths):
        if length <= first_target:
            raise InputError(
                f"suffix {i} has {length} token(s), none from first_target = {first_target} on; share fewer tokens"
            )
        if limit is not None and num_before + length > limit:
            raise InputError(
                f"suffix {i} of {length} tokens after a prefix of {num_before} makes {num_before + length}, but the "
                f"model accepts at most {limit}; score in windows"
            )
