"""Texts of every role → rows of tokens → micro-batches of few fixed shapes, in which the roles are mixed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tdd.records import Texts
from tdd.scoring.buckets import plan
from tdd.scoring.tokenise import token_ids
from tdd.texts import load_texts
from tdd.validate.errors import InputError

__all__ = ["ROLES", "Bucket", "Layout", "Role", "lay_out", "num_texts", "read_roles"]

ROLES = ("suspect", "reference", "canaries", "canary_reference")
"""In this order their rows follow one another."""

_MAX_BUCKETS = 4
"""Most shapes: each is one more copy of the model in the compiled program."""


@dataclasses.dataclass(frozen=True)
class Role:
    """The texts of one role as tokens.

    Attributes:
      ids: identifiers, one a text.
      tokens: int32 token ids of each text.
      source: where the texts came from.
      sha256: of ids and tokens.
      num_cut: texts whose end was cut off.
    """

    ids: tuple[str, ...]
    tokens: tuple[np.ndarray, ...]
    source: str
    sha256: str
    num_cut: int

    def __len__(self) -> int:
        return len(self.ids)


class Bucket(NamedTuple):
    """Micro-batches of one shape.

    Attributes:
      tokens: [G, B, T] int32, padded on the right with 0.
      lengths: [G, B] int32 tokens of each row; 0 where there is none.
    """

    tokens: np.ndarray
    lengths: np.ndarray


class Layout(NamedTuple):
    """All rows in micro-batches.

    Attributes:
      buckets: from long to short.
      place: [N] int32, where the number of row i stands among the numbers of all buckets, one after another.
    """

    buckets: tuple[Bucket, ...]
    place: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Tokens of all micro-batches, padding included."""
        return sum(bucket.tokens.size for bucket in self.buckets)


def read_roles(
    sources: tuple[Any, Any, Any, Any], tokenizer: Any, limit: int | None, truncate: bool, vocab_size: int
) -> dict[str, Role]:
    """The texts of every role that there is, in the order of `ROLES`.

    Args:
      sources: of each role: strings, `Texts`, a table or path (`load_texts`), or rows of token ids; None for canaries
        and their references where there are none.
      tokenizer: makes tokens of strings; not used for rows of token ids.
      limit: most tokens of a text, or None.
      truncate: whether longer texts are cut to the limit; otherwise they are an error.
      vocab_size: V, or 0 where it is not known yet.
    """
    given = dict(zip(ROLES, sources, strict=True))
    _check_canaries(given["canaries"], given["canary_reference"])
    roles = {
        name: _read_role(name, source, tokenizer, limit, truncate)
        for name, source in given.items()
        if source is not None or name in ("suspect", "reference")
    }
    if vocab_size:
        for name, role in roles.items():
            _check_vocabulary(name, role.ids, role.tokens, vocab_size)
    _check_apart({name: (role.ids, role.tokens) for name, role in roles.items()})
    return roles


def num_texts(roles: Mapping[str, Role]) -> tuple[int, int, int, int]:
    """m suspects, n references, c canaries and k canary references."""
    m, n, c, k = (len(roles[name]) if name in roles else 0 for name in ROLES)
    return m, n, c, k


def lay_out(rows: Sequence[np.ndarray], *, budget: int, limit: int | None, seed: int) -> Layout:
    """Micro-batches of rows of any roles, in an order that knows nothing of the roles.

    Args:
      rows: N rows of token ids.
      budget: B T of a micro-batch does not exceed this, unless one row alone does.
      limit: longest sequence that the model accepts.
      seed: of the order.
    """
    order = np.random.default_rng(seed).permutation(len(rows))
    lengths = np.array([len(rows[i]) for i in order], np.int64)
    batches = plan({"probe": lengths}, token_budget=budget, max_buckets=_MAX_BUCKETS, limit=limit)
    place, buckets, before = np.zeros(len(rows), np.int32), [], 0
    for length in sorted({batch.length for batch in batches}, reverse=True):
        group = [batch for batch in batches if batch.length == length]
        size = group[0].size
        tokens, counts = np.zeros((len(group), size, length), np.int32), np.zeros((len(group), size), np.int32)
        for g, batch in enumerate(group):
            for b, row in enumerate(order[batch.rows]):
                tokens[g, b, : len(rows[row])], counts[g, b] = rows[row], len(rows[row])
                place[row] = before + g * size + b
        buckets.append(Bucket(tokens, counts))
        before += counts.size
    return Layout(tuple(buckets), place)


def _read_role(name: str, source: Any, tokenizer: Any, limit: int | None, truncate: bool) -> Role:
    rows = _token_rows(source)
    if rows is not None:
        tokens = _check_token_rows(name, rows)
        ids, origin = tuple(str(number) for number in range(1, len(tokens) + 1)), "memory"
    else:
        table: Texts = load_texts(source)
        if tokenizer is None:
            raise _no_tokenizer(name)
        tokens, ids, origin = (
            tuple(token_ids(tokenizer, table.texts, add_special_tokens=True)),
            table.ids,
            table.source,
        )
    _check_lengths(name, ids, tokens, limit, truncate)
    num_cut = sum(limit is not None and len(row) > limit for row in tokens)
    tokens = tuple(row[:limit] for row in tokens)
    digest = hashlib.sha256()
    for identifier, row in zip(ids, tokens, strict=True):
        for part in (identifier.encode(), row.astype("<i4").tobytes()):
            digest.update(len(part).to_bytes(8, "little") + part)
    return Role(ids, tokens, origin, digest.hexdigest(), num_cut)


def _token_rows(source: Any) -> Sequence[Any] | None:
    """Rows of token ids, or None where the source holds texts."""
    if isinstance(source, (np.ndarray, jax.Array)) and source.dtype.kind in "iuf":
        return list(np.asarray(source))
    if not isinstance(source, (list, tuple)):
        return None
    first = source[0] if source else None
    return source if isinstance(first, (list, tuple, np.ndarray, jax.Array)) or not source else None


_NAMED = 3


def _no_tokenizer(role: str) -> InputError:
    """Strings, and nothing that makes tokens of them."""
    return InputError(
        f"{role} holds strings but no tokenizer is given; pass tokenizer=, or rows of token ids instead of strings"
    )


def _check_token_rows(role: str, rows: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Rows of token ids as int32 arrays."""
    found = []
    for index, row in enumerate(rows):
        try:
            ids = np.asarray(row)
        except ValueError:
            ids = np.zeros((0, 0))
        if ids.ndim != 1 or not (ids.size == 0 or np.issubdtype(ids.dtype, np.integer)):
            raise InputError(
                f"{role}: row {index} is no row of token ids (shape {ids.shape}, type {ids.dtype}); give strings, "
                "Texts, or one sequence of whole numbers a text"
            )
        if ids.size and not -(2**31) <= ids.min() <= ids.max() < 2**31:
            raise InputError(f"{role}: row {index} holds a token id beyond 32 bits; token ids are rows of a vocabulary")
        if ids.size and ids.min() < 0:
            raise InputError(
                f"{role}: row {index} holds the token id {ids.min()}; token ids are not negative: give each row "
                "without its padding"
            )
        found.append(ids.astype(np.int32))
    if not found:
        raise InputError(f"{role} is empty; it needs at least one text")
    return tuple(found)


def _check_lengths(role: str, ids: Sequence[str], rows: Sequence[np.ndarray], limit: int | None, cut: bool) -> None:
    """Every text has a scored token, and none is longer than what the model takes unless it is to be cut."""
    for name, row in zip(ids, rows, strict=True):
        if len(row) < 2:
            raise InputError(
                f"{role}: text {name!r} has {len(row)} token{'' if len(row) == 1 else 's'}; scoring needs at least two,"
                " because the first has no context: remove the text or lengthen it"
            )
    long = [(name, len(row)) for name, row in zip(ids, rows, strict=True) if limit is not None and len(row) > limit]
    if long and not cut:
        more = f" ({len(long) - 1} further texts of {role} are too long as well)" if len(long) > 1 else ""
        raise InputError(
            f"{role}: text {long[0][0]!r} has {long[0][1]} tokens, more than the limit of {limit}{more}; pass "
            f"long_texts='truncate', which scores the first {limit} tokens of each text, or split the texts"
        )


def _check_vocabulary(role: str, ids: Sequence[str], rows: Sequence[np.ndarray], vocab_size: int) -> None:
    """Every token id has a row in the readout."""
    for name, row in zip(ids, rows, strict=True):
        if not 0 <= row.min() <= row.max() < vocab_size:
            worst = row.max() if row.max() >= vocab_size else row.min()
            raise InputError(
                f"{role}: text {name!r} has token id {worst}, but the model has a vocabulary of {vocab_size}; pass the "
                "tokenizer, or the token ids, that the model is trained with"
            )


def _check_apart(roles: Mapping[str, tuple[Sequence[str], Sequence[np.ndarray]]]) -> None:
    """No two texts have the same tokens.

    In two roles it would stand on both sides of a comparison. Twice in one role it moves the whole set as if two texts
    had moved, and the random labellings, which part the two, do not: the alarm would have no level.
    """
    seen: dict[bytes, tuple[str, str]] = {}
    shared: list[str] = []
    again: list[str] = []
    for role, (ids, rows) in roles.items():
        for name, row in zip(ids, rows, strict=True):
            other = seen.setdefault(row.tobytes(), (role, name))
            if other[0] != role:
                shared.append(f"{name!r} of {role} is {other[1]!r} of {other[0]}")
            elif other[1] != name:
                again.append(f"{name!r} of {role} is {other[1]!r} again")
    for found, where, fix in (
        (shared, "stand in two roles", "every text may have one role, so remove it from one of them"),
        (again, "stand in one role twice", "copies score alike, which would void the level: keep one of each"),
    ):
        if found:
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            raise InputError(f"the same tokens {where}: {'; '.join(found[:_NAMED])}{more}; {fix}")


def _check_canaries(canaries: Any, references: Any) -> None:
    """Canaries and sequences to rank them among, or neither."""
    if (canaries is None) != (references is None):
        names = ("canaries", "canary_reference") if references is None else ("canary_reference", "canaries")
        raise InputError(
            f"{names[0]} is given without {names[1]}: the rank of a canary is its place among sequences of the same "
            "kind that are never trained on; pass both or neither"
        )
