"""Find n-grams of a table in a batch of tokens, and rows of a batch that were seen before.

A window w of n tokens hashes to mix(sum_k mix(w_k) M^-k mod 2^32) with M odd: differences of one running sum, so the
cost does not depend on n. Windows whose hash is in the table are compared with it token by token: a match is no
collision, and no occurrence is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "RowMemory",
    "ShingleTable",
    "find",
    "forget_all",
    "remember",
    "row_fingerprints",
    "shingle_table",
    "window_hashes",
]

_WORD = 2**32
_ODD = (0x9E3779B1, 0x85EBCA77)  # one multiplier a hash function
_SALT = (0x2545F491, 0x7F4A7C15)


class ShingleTable(NamedTuple):
    """The n-grams that tell one text from all others."""

    hashes: Any  # [S] uint32, rising
    start: Any  # [S] int32, where the n-gram begins in `tokens`
    text: Any  # [S] int32, the text that has it
    times: Any  # [S] int32, how often that text has it
    tokens: Any  # [N] int32, the texts one after the other


class RowMemory(NamedTuple):
    """Rows seen so far, one in each of C places."""

    fingerprints: jax.Array  # [C, 2] uint32
    times: jax.Array  # [C] int32, how often the row was seen; 0 where the place is empty
    first_step: jax.Array  # [C] int32


def shingle_table(
    texts: Sequence[np.ndarray], size: int, common: Sequence[np.ndarray] = ()
) -> tuple[ShingleTable, int]:
    """The n-grams that exactly one of the texts (token ids) has, and none of the `common` ones. On the host.

    A text shorter than n = `size` has none. n-grams are told apart by 64 bits here: with a chance of about S^2 2^-65
    one of them is left out.

    Returns: The table, in NumPy, and the longest run of equal hashes in it, at least 1: what `find` needs.
    Cost: O(N log N) in the tokens N.
    """
    rows = [np.asarray(row, np.int32) for row in (*texts, *common)]
    joined = np.concatenate([*rows, np.zeros(size, np.int32)])
    lengths = np.array([len(row) for row in rows], np.int64)
    windows = np.maximum(lengths - size + 1, 0)
    text = np.repeat(np.arange(len(rows)), windows)
    start = np.arange(text.size) + np.repeat(np.cumsum(lengths) - lengths - np.cumsum(windows) + windows, windows)
    first, second = (window_hashes(joined, size, salt)[start] for salt in (0, 1))
    order = np.lexsort((text, second, first))
    text, start, first, second = text[order], start[order], first[order], second[order]
    new = np.ones(text.size, bool)
    new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    begins = np.flatnonzero(new)
    ends = np.append(begins[1:], text.size)
    in_one_text = (text[begins] == text[ends - 1]) & (text[begins] < len(texts)) if begins.size else np.zeros(0, bool)
    starts = begins[in_one_text]
    hashes = first[starts]
    table = ShingleTable(
        hashes,
        start[starts].astype(np.int32),
        text[starts].astype(np.int32),
        (ends - begins)[in_one_text].astype(np.int32),
        joined[: lengths[: len(texts)].sum()],
    )
    _, run = np.unique(hashes, return_counts=True)
    return table, int(run.max(initial=1))


def window_hashes(tokens: Any, size: int, salt: int = 0) -> Any:
    """32-bit hash of every window of `size` tokens: [..., T] integers -> [..., T - size + 1] uint32.

    NumPy's where the tokens are, without a compilation. `size` is n, from 1 to T; `salt` 0 or 1 tells which of two hash
    functions; both static. Cost: O(T) a row, whatever n is.
    """
    length = tokens.shape[-1]
    xp = np if isinstance(tokens, np.ndarray) else jnp
    sums = xp.cumsum(_words(tokens, salt), axis=-1, dtype=np.uint32)
    ahead = xp.concatenate([xp.zeros_like(sums[..., :1]), sums[..., : length - size]], axis=-1)
    return _mix((sums[..., size - 1 :] - ahead) * _powers(length - size + 1, _ODD[salt]))


def find(
    tokens: jax.Array, table: ShingleTable, size: int, *, longest_run: int, mask: jax.Array | None = None
) -> jax.Array:
    """Places of the n-grams of a table in a batch.

    Args:
      tokens, mask: [B, T] int32, and bool, True = real token; a window with another token in it is none.
      table: Result of `shingle_table` for n-grams of `size`; at least one.
      size: n, static, at most T.
      longest_run: Most entries of equal hash, static.

    Returns: [B, T - n + 1] int32: the entry of the n-gram that begins there, -1 where it is not in the table.
    Cost: O(B T (log S + n)).
    """
    count = tokens.shape[1] - size + 1
    hashes = window_hashes(tokens, size)
    place = jnp.searchsorted(jnp.asarray(table.hashes), hashes).astype(jnp.int32)
    starts, stored = jnp.asarray(table.start), jnp.asarray(table.tokens)
    entries = jnp.full(hashes.shape, -1, jnp.int32)
    for offset in range(longest_run):
        entry = jnp.minimum(place + offset, starts.shape[0] - 1)
        start = starts[entry]
        same = jnp.ones(hashes.shape, bool)
        for k in range(size):
            same &= stored[start + k] == tokens[:, k : k + count]
        entries = jnp.where(same, entry, entries)
    if mask is not None:
        real = jnp.cumsum(jnp.pad(mask, ((0, 0), (1, 0))), axis=1, dtype=jnp.int32)
        entries = jnp.where(real[:, size:] - real[:, :count] == size, entries, -1)
    return entries


def row_fingerprints(tokens: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """64 bits a row, of its real tokens and their places: [B, T] -> [B, 2] uint32. Cost: O(B T)."""
    real = jnp.ones(tokens.shape, bool) if mask is None else mask
    sums = [jnp.sum(jnp.where(real, _words(tokens, salt), 0), axis=1, dtype=jnp.uint32) for salt in (0, 1)]
    return _mix(jnp.stack(sums, axis=1))


def forget_all(capacity: int) -> RowMemory:
    """An empty memory of C = `capacity` places."""
    return RowMemory(
        jnp.zeros((capacity, 2), jnp.uint32), jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, jnp.int32)
    )


def remember(
    memory: RowMemory, fingerprints: jax.Array, step: jax.Array | int, real: jax.Array
) -> tuple[RowMemory, jax.Array, jax.Array]:
    """Rows that were seen before, in earlier batches or further up in this one; then remember them all.

    A row has one place, given by its fingerprint ([B, 2] of `row_fingerprints`); the last row that came there holds it.
    A row is remembered after j other rows with probability (1 - 1/C)^j, and taken for another one with probability
    about 2^-64 a pair. Rows with `real` [B] False are neither looked up nor taken in.

    Returns: (memory, times [B] int32 seen before, first_step [B] int32: where first, this step for a new row).
    Cost: O(B^2) comparisons of integers; nothing in C.
    """
    capacity = memory.times.shape[0]
    place = (fingerprints[:, 0] % jnp.uint32(capacity)).astype(jnp.int32)
    known = real & (memory.times[place] > 0) & jnp.all(memory.fingerprints[place] == fingerprints, axis=1)
    above = jnp.tril(jnp.ones((place.shape[0],) * 2, bool), -1) & real[:, None] & real
    same = jnp.all(fingerprints[:, None] == fingerprints, axis=2) & above
    times = jnp.where(known, memory.times[place], 0) + jnp.sum(same, axis=1, dtype=jnp.int32)
    first = jnp.where(known, memory.first_step[place], jnp.asarray(step, jnp.int32))
    displaced = jnp.any((place[:, None] == place) & above, axis=0)  # by a row further down
    target = jnp.where(real & ~displaced, place, capacity)
    taken = RowMemory(
        memory.fingerprints.at[target].set(fingerprints, mode="drop"),
        memory.times.at[target].set(times + 1, mode="drop"),
        memory.first_step.at[target].set(first, mode="drop"),
    )
    return taken, times, first


def _words(tokens: Any, salt: int) -> Any:
    """mix(token) M^-t at place t."""
    mixed = _mix(tokens.astype(np.uint32) + np.uint32(_SALT[salt]))
    return mixed * _powers(tokens.shape[-1], pow(_ODD[salt], -1, _WORD))


def _powers(length: int, base: int) -> np.ndarray:
    """base^0, base^1, ... mod 2^32, as a constant of the program."""
    factors = np.full(length, base, np.uint32)
    factors[:1] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


def _mix(words: Any) -> Any:
    """A bijection of 32-bit words in which every input bit moves every output bit (the finaliser of MurmurHash3)."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
