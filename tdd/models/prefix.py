"""A decoder's prefix that many sequences share: computed once, read by all of them.

Keys and values of the first tokens do not depend on what follows, so the orders of a data set that begin alike need
them once. Numbers are those of the whole sequence up to float32 rounding (sums over the keys are in two parts).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.models.attention import PrefixCache
from tdd.models.decoder import embed, keys_and_values, readout, trunk
from tdd.models.spec import DecoderSpec
from tdd.validate.errors import InputError

__all__ = ["PrefixCache", "hidden_after", "prefix"]


def prefix(spec: DecoderSpec, params: Any, tokens: jax.Array, num_real: int | jax.Array | None = None) -> PrefixCache:
    """Keys and values of the first tokens of a sequence.

    Args:
      spec: the architecture (static).
      params: nested dict of parameters.
      tokens: [1, P] integer token ids.
      num_real: [] integer in 1..P, how many of them there really are; the rest is padding with any valid id. So one
        compiled program serves prefixes of many lengths. None: all.

    Returns:
      `PrefixCache` of [L, 1, P, G, d]: 8 L P G d bytes.

    Raises:
      InputError: tokens are not a [1, P] integer array, P is 0 or exceeds the model's positions, or num_real is known
        and not in 1..P.

    Cost: one forward pass of the trunk over P tokens.
    """
    embedded = embed(spec, params, tokens)
    _check_one_row(tokens.shape)
    if num_real is not None and not isinstance(num_real, Tracer):
        _check_num_real(num_real, tokens.shape[1])
    key, value = keys_and_values(spec, params, embedded)
    return PrefixCache(key, value, None if num_real is None else jnp.asarray(num_real, jnp.int32))


def hidden_after(spec: DecoderSpec, params: Any, cache: PrefixCache, tokens: jax.Array) -> jax.Array:
    """`hidden` of tokens that all follow one prefix.

    Args:
      spec: the architecture (static).
      params: nested dict of parameters.
      cache: as `prefix` returned it.
      tokens: [B, T] integer token ids; the first of each row comes right behind the prefix.

    Returns:
      [B, T, D], equal to `hidden(concatenated)[:, P:]` up to float32 rounding. Where the prefix's length is not known
      while tracing, positions beyond the model's last are NaN.

    Raises:
      InputError: tokens are not a [B, T] integer array, T is 0, or prefix and tokens exceed the model's positions.

    Cost: one forward pass of the trunk over B T tokens, whose attention also reads the P keys of the prefix. Temporary
    memory of the scores: B H (P + T) floats for each of a block of at least 128 queries.
    """
    embedded = embed(spec, params, tokens)
    length, limit = tokens.shape[1], spec.max_length
    traced = isinstance(cache.first, Tracer)
    if not traced:
        _check_after_prefix(int(cache.first), length, limit)
    stream = trunk(spec, params, embedded, past=cache)
    if traced:
        within = cache.first + jnp.arange(length) < limit
        stream = jnp.where(within[None, :, None], stream, jnp.nan)
    return stream.astype(readout(spec, params).dtype)


def _check_one_row(shape: Sequence[int]) -> None:
    """A prefix is one row of token ids, [1, P]."""
    if shape[0] != 1:
        raise InputError(
            f"tokens of a prefix must be one row [1, P], got {tuple(shape)}; rows that differ share nothing"
        )


def _check_num_real(num_real: Any, length: int) -> None:
    """How many tokens of a padded prefix are real."""
    if np.shape(num_real) != () or not np.issubdtype(np.asarray(num_real).dtype, np.integer):
        raise InputError(f"num_real must be one integer, got {num_real!r}")
    if not 1 <= int(num_real) <= length:
        raise InputError(f"num_real must be in 1..{length}, the tokens given, got {int(num_real)}")


def _check_after_prefix(num_before: int, length: int, max_length: int) -> None:
    """Prefix and tokens together fit the model's positions."""
    if num_before + length > max_length:
        raise InputError(
            f"a prefix of {num_before} tokens and {length} tokens after it make {num_before + length}, but the model "
            f"accepts at most {max_length}; share a shorter prefix or score in windows"
        )
