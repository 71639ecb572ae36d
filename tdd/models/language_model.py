"""The decoder as a `LanguageModel`, with its gradient norms, and with a prefix that many sequences share.

Keys and values of the first tokens do not depend on what follows, so orders of a data set with a common beginning need
them once. Results equal those of the whole sequence up to float32 rounding (sums over the keys are in two parts).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.models.attention import PrefixCache
from tdd.models.decoder import as_bits, embed, hidden, hidden_at, logits, readout, trunk, trunk_with_cache
from tdd.models.spec import DecoderSpec
from tdd.records import GradSqNorms, LanguageModel
from tdd.validate import InputError


@functools.cache
def language_model(spec: DecoderSpec) -> LanguageModel:
    """The decoder as a `LanguageModel`: the same object for equal specs, so nothing retraces."""
    return LanguageModel(
        spec=spec,
        vocab_size=spec.vocab_size,
        max_length=spec.max_length,
        logits=functools.partial(logits, spec),
        hidden=functools.partial(hidden, spec),
        readout=functools.partial(readout, spec),
        soft_cap=spec.soft_cap,
        grad_sqnorm=functools.partial(_grad_sqnorm, spec),
        prefix=functools.partial(prefix, spec),
        hidden_after=functools.partial(hidden_after, spec),
        on_cpu=functools.partial(_on_cpu, spec),
        hidden_at=functools.partial(_hidden_at, spec),
    )


def _on_cpu(spec: DecoderSpec, lm: LanguageModel, params: Any) -> Any:
    """`as_bits`, unless a function of `lm` is another than the decoder's, which knows no bits."""
    ours = language_model(spec)
    same = all(getattr(lm, name) is getattr(ours, name) for name in ("hidden", "readout", "prefix", "hidden_after"))
    return as_bits(spec, params) if same else params


def _hidden_at(spec: DecoderSpec, lm: LanguageModel, params: Any, tokens: jax.Array, places: jax.Array) -> jax.Array:
    """The decoder's `hidden_at`, or the rows of `hidden` where that is another function."""
    if lm.hidden is language_model(spec).hidden:
        return hidden_at(spec, params, tokens, places)
    assert lm.hidden is not None
    states = lm.hidden(params, tokens)
    return jnp.take(states.reshape(-1, states.shape[-1]), places, axis=0, mode="clip")


def _grad_sqnorm(spec: DecoderSpec, params: Any, tokens: jax.Array, mask: jax.Array, **options: Any) -> GradSqNorms:
    from tdd.models.gradients import grad_sqnorm  # most audits want no gradient

    return grad_sqnorm(spec, params, tokens, mask, **options)


def prefix(spec: DecoderSpec, params: Any, tokens: jax.Array, num_real: int | jax.Array | None = None) -> PrefixCache:
    """Keys and values of the first tokens of a sequence.

    Args:
      spec, params: See `tdd.models.decoder`.
      tokens: [1, P] integer token ids.
      num_real: [] integer in 1..P, number of real tokens; the rest is padding with any valid id, so that one compiled
        program serves prefixes of many lengths. None: all.

    Returns:
      `PrefixCache` of [L, 1, P, G, d]: 8 L P G d bytes.

    Raises:
      InputError: Tokens are not a [1, P] integer array, P is 0 or exceeds the model's positions, or num_real is known
        and not in 1..P.

    Cost: One forward pass of the trunk over P tokens.
    """
    embedded = embed(spec, params, tokens)
    if tokens.shape[0] != 1:
        raise InputError(
            f"tokens of a prefix must be one row [1, P], got {tuple(tokens.shape)}; rows that differ share nothing"
        )
    if num_real is not None and not isinstance(num_real, Tracer):
        if np.shape(num_real) != () or not np.issubdtype(np.asarray(num_real).dtype, np.integer):
            raise InputError(f"num_real must be one integer, got {num_real!r}")
        if not 1 <= int(num_real) <= tokens.shape[1]:
            raise InputError(f"num_real must be in 1..{tokens.shape[1]}, the tokens given, got {int(num_real)}")
    _, key, value = trunk_with_cache(spec, params, embedded)
    return PrefixCache(key, value, None if num_real is None else jnp.asarray(num_real, jnp.int32))


def hidden_after(spec: DecoderSpec, params: Any, cache: PrefixCache, tokens: jax.Array) -> jax.Array:
    """`hidden` of tokens whose rows all follow one prefix.

    Args:
      spec, params: See `tdd.models.decoder`.
      cache: As `prefix` returned it.
      tokens: [B, T] integer token ids; the first of each row directly follows the prefix.

    Returns:
      [B, T, D], equal to `hidden(concatenated)[:, P:]` up to float32 rounding. If the length of the prefix is not known
      while tracing, positions beyond the model's last are NaN.

    Raises:
      InputError: Tokens are not a [B, T] integer array, T is 0, or prefix and tokens exceed the model's positions.

    Cost: One forward pass of the trunk over B T tokens, whose attention also reads the P keys of the prefix. Temporary
    memory of the scores: B H (P + T) floats for each of a block of at least 128 queries.
    """
    embedded = embed(spec, params, tokens)
    length, limit = tokens.shape[1], spec.max_length
    traced = isinstance(cache.first, Tracer)
    if not traced and int(cache.first) + length > limit:
        num_before = int(cache.first)
        raise InputError(
            f"a prefix of {num_before} tokens and {length} tokens after it make {num_before + length}, but the model "
            f"accepts at most {limit}; share a shorter prefix or score in windows"
        )
    stream = trunk(spec, params, embedded, past=cache)
    if traced:
        within = cache.first + jnp.arange(length) < limit
        stream = jnp.where(within[None, :, None], stream, jnp.nan)
    return stream.astype(readout(spec, params).dtype)
