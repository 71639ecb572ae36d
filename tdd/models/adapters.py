"""Any function that returns logits, as a `LanguageModel`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tdd.records import LanguageModel
from tdd.validate.checkpoints import check_callable, check_logits_shape, check_positive, check_tokens

__all__ = ["FunctionSpec", "from_function"]


@dataclasses.dataclass(frozen=True)
class FunctionSpec:
    """Identity of an adapted model: equal only for the same function object and the same sizes.

    Attributes:
      name: shown in reports.
      logits_fn: the function.
      vocab_size: V.
      max_length: longest sequence, or None.
    """

    name: str
    logits_fn: Callable[[Any, jax.Array], jax.Array]
    vocab_size: int
    max_length: int | None


def from_function(
    logits_fn: Callable[[Any, jax.Array], jax.Array],
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str,
) -> LanguageModel:
    """Make a model of a function `logits(params, tokens [B, T]) -> [B, T, V]`.

    The function must be traceable by JAX and causal: logits at position t may depend on tokens 0..t only.
    Weights belong into `params`; closed over, they would be compiled into every program. Pass the same
    function object each time: a new closure is a new model and compiles again.

    Args:
      logits_fn: the function.
      vocab_size: V.
      max_length: longest sequence it accepts, None where there is no limit.
      name: shown in reports.

    Raises:
      InputError: `logits_fn` is not callable or not hashable, or a size is not positive; when traced,
        logits of another shape than [B, T, V].
    """
    check_callable("logits_fn", logits_fn)
    check_positive(vocab_size=vocab_size, **({} if max_length is None else {"max_length": max_length}))
    spec = FunctionSpec(name, logits_fn, vocab_size, max_length)
    return LanguageModel(spec, vocab_size, max_length, logits=functools.partial(_logits, spec))


def _logits(spec: FunctionSpec, params: Any, tokens: jax.Array) -> jax.Array:
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    output = spec.logits_fn(params, tokens)
    check_logits_shape(spec.name, jnp.shape(output), (*tokens.shape, spec.vocab_size))
    return output.astype(jnp.float32)
