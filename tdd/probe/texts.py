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
from tdd.validate import probe as checks

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
    checks.check_canaries(given["canaries"], given["canary_reference"])
    roles = {
        name: _read_role(name, source, tokenizer, limit, truncate)
        for name, source in given.items()
        if source is not None or name in ("suspect", "reference")
    }
    if vocab_size:
        for name, role in roles.items():
            checks.check_vocabulary(name, role.ids, role.tokens, vocab_size)
    checks.check_apart({name: (role.ids, role.tokens) for name, role in roles.items()})
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
        tokens = checks.check_token_rows(name, rows)
        ids, origin = tuple(str(number) for number in range(1, len(tokens) + 1)), "memory"
    else:
        table: Texts = load_texts(source)
        if tokenizer is None:
            raise checks.no_tokenizer(name)
        tokens, ids, origin = (
            tuple(token_ids(tokenizer, table.texts, add_special_tokens=True)),
            table.ids,
            table.source,
        )
    checks.check_lengths(name, ids, tokens, limit, truncate)
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
