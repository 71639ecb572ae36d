"""A guard on the training stream: which watched texts are in it, how often, and which rows repeat."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import shingle
from tdd.probe.evidence import OneAtATime, as_bytes, as_step, as_text, check_same, one_at_a_time
from tdd.probe.inputs import read_tokens
from tdd.records import Texts
from tdd.validate import InputError
from tdd.validate.arrays import as_count, in_whole
from tdd.validate.settings import in_own_settings, on_own_devices

_NEVER = 2**31 - 1


class StreamMatches(NamedTuple):
    """Matches in one batch."""

    ngram: jax.Array  # [B, T - n + 1] int32, the watched n-gram that begins there; -1 none
    text: jax.Array  # [B, T - n + 1] int32, the watched text that it identifies, an index into `guard.ids`; -1 none
    num_texts: jax.Array  # [] int32, number of watched texts with an n-gram in this batch
    fingerprints: jax.Array  # [B, 2] uint32, of the rows
    real: jax.Array  # [B] bool, rows with a real token


class StreamState(NamedTuple):
    """State of the stream so far."""

    counts: jax.Array  # [S] int32, occurrences of each watched n-gram
    first_step: jax.Array  # [W] int32, step at which a text was first seen; 2^31 - 1 never
    rows: shingle.RowMemory


class WatchedText(NamedTuple):
    """A watched text that was seen in the stream."""

    id: str
    times: int  # duplication count: the largest number of copies that one of its n-grams was seen in
    covered: float  # fraction of its own n-grams that were seen; 1 if the whole text was
    first_step: int


@dataclasses.dataclass(frozen=True)
class StreamRecord:
    """The findings in one batch."""

    step: int
    texts: tuple[str, ...]  # identifiers of the watched texts in it
    new: tuple[str, ...]  # of those that were not seen before
    repeated_rows: tuple[tuple[int, int, int], ...]  # (row of the batch, times seen before, step of the first time)

    def scalars(self, prefix: str = "tdd/stream/") -> dict[str, float]:
        """Numbers for a metric writer."""
        counts = {"texts": self.texts, "new_texts": self.new, "repeated_rows": self.repeated_rows}
        return {prefix + name: float(len(entries)) for name, entries in counts.items()}


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What is static about a guard; guards that are alike share compiled programs."""

    ngram: int
    longest_run: int
    num_texts: int

    def matches(self, table: shingle.ShingleTable, tokens: jax.Array, mask: jax.Array | None) -> StreamMatches:
        """See `StreamGuard.evaluate`."""
        tokens, mask = in_whole(jnp.asarray(tokens)), None if mask is None else in_whole(jnp.asarray(mask))
        ngram = shingle.find(tokens, table, self.ngram, longest_run=self.longest_run, mask=mask)
        text = jnp.where(ngram >= 0, table.text[ngram], -1)
        present = jnp.zeros(self.num_texts + 1, bool).at[text].set(True)[:-1]  # -1 is the place beyond the last text
        real = jnp.ones(tokens.shape[:1], bool) if mask is None else jnp.any(mask, axis=1)
        fingerprints = shingle.row_fingerprints(tokens, mask)
        return StreamMatches(ngram, text, jnp.sum(present, dtype=jnp.int32), fingerprints, real)

    def count(
        self, table: shingle.ShingleTable, state: StreamState, step: jax.Array | int, matches: StreamMatches
    ) -> tuple[StreamState, jax.Array, jax.Array]:
        """See `StreamGuard.observe`."""
        nowhere = table.hashes.shape[0]
        counts = state.counts.at[jnp.where(matches.ngram >= 0, matches.ngram, nowhere)].add(1, mode="drop")
        target = jnp.where(matches.text >= 0, matches.text, self.num_texts)
        first_step = state.first_step.at[target].min(jnp.asarray(step, jnp.int32), mode="drop")
        rows, times, first = shingle.remember(state.rows, matches.fingerprints, step, matches.real)
        return StreamState(counts, first_step, rows), times, first

    def advance(
        self, state: StreamState, table: shingle.ShingleTable, step: jax.Array, tokens: jax.Array, mask: jax.Array
    ) -> tuple[StreamState, tuple[jax.Array, jax.Array, jax.Array]]:
        """Both, with the old state in the place of the new one."""
        matches = self.matches(table, tokens, mask)
        state, times, first = self.count(table, state, step, matches)
        return state, (matches.text, times, first)


_advance = jax.jit(_Rule.advance, static_argnums=0, donate_argnums=1)


class StreamGuard(OneAtATime):
    """Watch the batches of a training run for texts that must not be in them, and for rows that come again.

    A watched text is seen where `ngram` consecutive tokens of it stand in a row of a batch. Only n-grams that identify
    the text count: those of another watched text or of `reference` do not. Matches are compared token by token: none is
    a hash collision, and no occurrence of a counted n-gram is missed. There is no level and no p-value. The guard
    cannot see paraphrases, another tokenization of the same words (the n-grams at the ends of a text may be tokenized
    in another way in the middle of a document; those inside are not), copies that are cut into pieces of fewer than
    `ngram` tokens, and what other processes read.

    A row that repeats a whole earlier row is identified by 64 bits of its real tokens (a wrong match has a chance of
    about 2^-64 a pair). `capacity` rows are remembered, 16 bytes each; after j other rows a row is still remembered
    with probability (1 - 1/capacity)^j.

    Args:
      watched: benchmark items, canaries: strings, `Texts`, what `tdd.load_texts` reads, or rows of token ids. Equal
        texts count as one, the first.
      reference: texts that are known to be common (licences, prompts, instructions), likewise; their n-grams do not
        count.
      tokenizer: for strings, that of the training stream; called without special tokens.
      ngram: n, number of tokens that must agree; every watched text has as many.
      capacity: number of rows that are remembered.

    Attributes:
      ids: identifiers of the watched texts; numbers from 1 where none were given.
      unwatched: identifiers of texts without an n-gram of their own: they cannot be identified.
      history: a `StreamRecord` of each call that found something.

    Raises:
      InputError: no watched text, strings without a tokenizer, a text shorter than `ngram`, or none with an n-gram of
        its own.

    Cost: O(B T (log S + n)) a batch [B, T] for S n-grams of n tokens; memory is that of the watched tokens, 20 bytes an
    n-gram, and 16 bytes a remembered row.

    >>> guard = StreamGuard([[1, 2, 3, 4], [5, 6, 7, 8]], ngram=3)
    >>> guard(0, [[9, 5, 6, 7, 9]]).new, guard.seen()
    (('2',), (WatchedText(id='2', times=1, covered=0.5, first_step=0),))
    """

    @on_own_devices()
    def __init__(
        self,
        watched: Any,
        *,
        reference: Any = (),
        tokenizer: Any = None,
        ngram: int = 13,
        capacity: int = 65_536,
    ) -> None:
        self.ngram = as_count(ngram, "ngram")
        self.capacity = as_count(capacity, "capacity")
        self.ids, rows, _ = read_tokens("watched", watched, tokenizer, add_special_tokens=False)
        common: Sequence[np.ndarray] = ()
        if not isinstance(reference, (Texts, list, tuple)) or len(reference):
            _, common, _ = read_tokens("reference", reference, tokenizer, add_special_tokens=False)
        if short := [i for i, row in enumerate(rows) if len(row) < self.ngram]:
            first, more = short[0], f" (and {len(short) - 1} more)" if len(short) > 1 else ""
            raise InputError(
                f"watched text {self.ids[first]!r}{more} has {len(rows[first])} tokens, fewer than ngram={self.ngram}: "
                f"it could never be found; leave it out or pass ngram={min(map(len, rows))}"
            )
        place: dict[bytes, int] = {}
        distinct = [row if place.setdefault(row.tobytes(), i) == i else row[:0] for i, row in enumerate(rows)]
        table, longest_run = shingle.shingle_table(distinct, self.ngram, common)
        if not len(table.hashes):
            raise InputError(
                f"every n-gram of {self.ngram} tokens of the watched texts is shared by another watched text or by "
                "reference: none would identify a text; raise ngram, or leave out what they share (a prompt, for "
                "instance)"
            )
        identified = set(np.unique(table.text).tolist())
        self.unwatched = tuple(
            name for name, row in zip(self.ids, rows, strict=True) if place[row.tobytes()] not in identified
        )
        self.sha256 = hashlib.sha256(b"".join(part.tobytes() for part in table)).hexdigest()
        self._rule, self._table = _Rule(self.ngram, longest_run, len(self.ids)), table
        self._table_on_cpu = jax.device_put(table, _cpu())
        self._state, self._last_step = jax.device_put(self.init(), _cpu()), None
        self.history: list[StreamRecord] = []

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # another thread donates the state
            return {**super().__getstate__(), "_table_on_cpu": None, "_state": jax.device_get(self._state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._table_on_cpu, self._state = jax.device_put((self._table, self._state), _cpu())

    @in_own_settings()
    def init(self) -> StreamState:
        """The state before the first batch."""
        return StreamState(
            jnp.zeros(self._table.hashes.shape, jnp.int32),
            jnp.full(len(self.ids), _NEVER, jnp.int32),
            shingle.forget_all(self.capacity),
        )

    @in_own_settings()
    def evaluate(self, tokens: jax.Array, mask: jax.Array | None = None) -> StreamMatches:
        """Find the watched texts in a batch; pure, for use inside a compiled step.

        Args:
          tokens: [B, T] int32, T >= ngram.
          mask: [B, T] bool, True = real token (not padding).
        """
        return self._rule.matches(jax.tree.map(jnp.asarray, self._table), tokens, mask)

    @in_own_settings()
    def observe(
        self, state: StreamState, step: jax.Array | int, matches: StreamMatches
    ) -> tuple[StreamState, jax.Array, jax.Array]:
        """Count the matches of a batch; pure.

        Returns:
          (state, [B] int32 number of times that each row was seen before, [B] int32 step of the first time).
        """
        return self._rule.count(jax.tree.map(jnp.asarray, self._table), state, step, matches)

    @on_own_devices()
    @one_at_a_time
    def __call__(self, step: int, tokens: Any, mask: Any = None) -> StreamRecord:
        """Take in the batch of a training step; on the CPU, while an accelerator goes on with its work.

        Args:
          step: of training; several batches may have the same one, none an earlier one.
          tokens: [B, T] token ids, T >= ngram.
          mask: [B, T] bool, True = real token.

        Raises:
          InputError: another shape or type, or a step before the last one.
        """
        step = as_step(step, self._last_step)
        batch = _as_batch(tokens, self.ngram)
        real = _as_mask(mask, batch.shape)
        known = np.asarray(self._state.first_step) < _NEVER
        self._state, matches = _advance(self._rule, self._state, self._table_on_cpu, step, batch, real)
        self._last_step = step
        text, times, first = jax.device_get(matches)
        texts = np.unique(text[text >= 0]).tolist()
        record = StreamRecord(
            step,
            tuple(self.ids[i] for i in texts),
            tuple(self.ids[i] for i in texts if not known[i]),
            tuple((int(row), int(times[row]), int(first[row])) for row in np.flatnonzero(times)),
        )
        if record.texts or record.repeated_rows:
            self.history.append(record)
        return record

    @in_own_settings()
    @one_at_a_time
    def seen(self, state: StreamState | None = None) -> tuple[WatchedText, ...]:
        """The watched texts seen so far, in the order in which they were given; by `state`, or by the calls."""
        counts, first_step = (np.asarray(part) for part in (state or self._state)[:2])
        text, times = self._table.text, self._table.times
        copies, own, covered = (np.zeros(len(self.ids), np.int64) for _ in range(3))
        np.maximum.at(copies, text, -(-counts // times))
        np.add.at(own, text, 1)
        np.add.at(covered, text, counts > 0)
        return tuple(
            WatchedText(self.ids[i], int(copies[i]), float(covered[i] / own[i]), int(first_step[i]))
            for i in np.flatnonzero(copies)
        )

    @in_own_settings()
    @one_at_a_time
    def state_dict(self) -> dict[str, Any]:
        """Arrays and numbers to save with a checkpoint of the run."""
        counts, first_step, rows = jax.device_get(self._state)
        return {
            "sha256": as_bytes(self.sha256),
            "last_step": -1 if self._last_step is None else self._last_step,
            "counts": counts,
            "first_step": first_step,
            **{f"rows/{name}": part for name, part in rows._asdict().items()},
        }

    @on_own_devices()
    @one_at_a_time
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
          InputError: it is of a guard with other texts, another `ngram` or another `capacity`.
        """
        check_same("hash of the watched n-grams", as_text(saved["sha256"]), self.sha256)
        saved = _as_saved_today(saved) if "state" in saved else saved
        parts: list[Any] = [saved[f"rows/{name}"] for name in shingle.RowMemory._fields]
        rows = shingle.RowMemory(*parts)
        check_same("capacity", len(rows.times), self.capacity)
        state = StreamState(saved["counts"], saved["first_step"], rows)
        self._state, last_step = jax.device_put(state, _cpu()), int(saved["last_step"])
        self._last_step = last_step if last_step >= 0 else None


def _as_saved_today(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A state in the form of earlier versions: a `StreamState`, which flax makes a dict, under one name."""
    last_step, state = saved["last_step"], saved["state"]
    state = state if isinstance(state, Mapping) else dict(zip(StreamState._fields, state, strict=True))
    rows = state["rows"]
    rows = rows if isinstance(rows, Mapping) else dict(zip(shingle.RowMemory._fields, rows, strict=True))
    return {
        **state,
        **{f"rows/{name}": rows[name] for name in rows},
        "last_step": -1 if last_step is None else last_step,
    }


def _cpu() -> Any:
    """The host's own device, if JAX has it beside an accelerator."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def _as_batch(tokens: Any, ngram: int) -> np.ndarray:
    """A batch of token ids [B, T] with T >= ngram, on the host."""
    array = np.asarray(tokens)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"tokens must be a batch [B, T] of whole token ids, got shape {array.shape} of type {array.dtype}"
        )
    if array.shape[1] < ngram:
        raise InputError(
            f"tokens has rows of {array.shape[1]} tokens, shorter than ngram={ngram}: no n-gram fits; make the guard "
            "with a smaller ngram"
        )
    if array.dtype.itemsize > 4 and array.size and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise InputError(
            f"tokens holds {array.max() if array.max() >= 2**31 else array.min()}, beyond 32 bits; token ids are rows "
            "of a vocabulary"
        )
    return array.astype(np.int32)


def _as_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of the batch's own shape; all True by default."""
    if mask is None:
        return np.ones(shape, bool)
    array = np.asarray(mask)
    if array.shape != shape or array.dtype != bool:
        raise InputError(
            f"mask must be bool of the batch's shape {shape} (True = real token), got {array.dtype} {array.shape}"
        )
    return array
