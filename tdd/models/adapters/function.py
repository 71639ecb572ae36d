"""Any function that returns logits, as a `LanguageModel`; what the other adapters are built on."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.models.adapters.evaluation import Output, pick
from tdd.records import LanguageModel
from tdd.validate import adapters as checks
from tdd.validate.checkpoints import check_callable, check_positive, check_tokens
from tdd.validate.errors import InputError

__all__ = ["FunctionSpec", "from_function"]


@dataclasses.dataclass(frozen=True)
class FunctionSpec:
    """Identity of an adapted model: equal only for equal functions and the same sizes.

    Attributes:
      name: shown in reports.
      logits_fn: the function.
      vocab_size: V.
      max_length: longest sequence, or None.
      hidden_fn: `(params, tokens) -> [B, T, D]`, or None.
      readout_fn: `(params) -> [V, D]`, or None.
      output: where the logits are in what `logits_fn` returns.
    """

    name: str
    logits_fn: Callable[[Any, jax.Array], Any]
    vocab_size: int
    max_length: int | None
    hidden_fn: Callable[[Any, jax.Array], Any] | None = None
    readout_fn: Callable[[Any], Any] | None = None
    output: Output = None
    _hash: int = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        fields = (field.name for field in dataclasses.fields(self) if field.compare)
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in fields)))

    def __hash__(self) -> int:
        """Computed once: every call of a compiled program asks for it, and a module of many layers takes a while."""
        return self._hash


def from_function(
    logits_fn: Callable[[Any, jax.Array], Any],
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str,
    hidden: Callable[[Any, jax.Array], Any] | None = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> LanguageModel:
    """Make a model of a function `logits(params, tokens [B, T]) -> [B, T, V]`.

    The function must be traceable by JAX and causal: logits at position t may depend on tokens 0..t only;
    `check_causal` tests it. Weights belong into `params`; closed over, they would be compiled into every program.
    Pass the same function object each time: a new closure is a new model and compiles again.

    Args:
      logits_fn: the function.
      vocab_size: V.
      max_length: longest sequence it accepts, None where there is no limit.
      name: shown in reports.
      hidden: `(params, tokens [B, T]) -> [B, T, D]`, what the readout multiplies; with it and `readout`, scoring
        never builds [B, T, V].
      readout: `(params) -> [V, D]`, so that logits = cap(hidden @ readout.T).
      soft_cap: c in logits = c tanh(z / c), where the model has it; for `hidden` and `readout` only.
      output: where the logits are, if the function returns more: an index, a key, an attribute's name or a
        function of the result. Without it: the result itself, or its `logits`.

    Raises:
      InputError: a function that cannot be called or hashed, a size that is not positive, `hidden` without
        `readout`; when traced, results of other shapes or types than these.
    """
    check_callable("logits_fn", logits_fn)
    check_positive(vocab_size=vocab_size, **({} if max_length is None else {"max_length": max_length}))
    _check_head(hidden, readout, soft_cap)
    checks.check_hashable("output", output)
    spec = FunctionSpec(name, logits_fn, vocab_size, max_length, hidden, readout, output)
    return LanguageModel(
        spec,
        vocab_size,
        max_length,
        logits=functools.partial(_logits, spec),
        hidden=None if hidden is None else functools.partial(_hidden, spec),
        readout=None if readout is None else functools.partial(_readout, spec),
        soft_cap=soft_cap,
    )


def _logits(spec: FunctionSpec, params: Any, tokens: jax.Array) -> jax.Array:
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    found = pick(spec.name, spec.output, spec.logits_fn(params, tokens))
    _check_logits_shape(spec.name, jnp.shape(found), (*tokens.shape, spec.vocab_size))
    _check_floating(spec.name, "logits", jnp.result_type(found))
    return jnp.asarray(found).astype(jnp.float32)


def _hidden(spec: FunctionSpec, params: Any, tokens: jax.Array) -> jax.Array:
    assert spec.hidden_fn is not None
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    found = spec.hidden_fn(params, tokens)
    _check_hidden_shape(spec.name, jnp.shape(found), tokens.shape)
    _check_floating(spec.name, "hidden states", found.dtype)
    return found


def _readout(spec: FunctionSpec, params: Any) -> jax.Array:
    assert spec.readout_fn is not None
    found = spec.readout_fn(params)
    _check_readout_shape(spec.name, jnp.shape(found), spec.vocab_size)
    _check_floating(spec.name, "readout", found.dtype)
    return found


def _check_head(hidden: Any, readout: Any, soft_cap: Any) -> None:
    """`hidden` and `readout` together or not at all; a soft cap for them only."""
    if (hidden is None) != (readout is None):
        given, missing = ("hidden", "readout") if readout is None else ("readout", "hidden")
        raise InputError(f"{given} is given without {missing}; the fast path needs both, plain logits need neither")
    for name, function in (("hidden", hidden), ("readout", readout)):
        if function is not None:
            check_callable(name, function)
    if soft_cap is not None and hidden is None:
        raise InputError(f"soft_cap={soft_cap!r} belongs to hidden and readout; logits are capped by their own model")
    if soft_cap is not None and not (isinstance(soft_cap, (int, float)) and 0 < soft_cap < float("inf")):
        raise InputError(f"soft_cap must be a positive number, got {soft_cap!r}")


def _check_floating(name: str, what: str, dtype: Any) -> None:
    """Numbers with a fraction."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(f"the {what} of {name!r} are {dtype}; they must be floating")


def _check_hidden_shape(name: str, shape: Sequence[int], tokens: Sequence[int]) -> None:
    """Hidden states [B, T, D]."""
    if len(shape) != 3 or tuple(shape[:2]) != tuple(tokens):
        raise InputError(
            f"the hidden states of {name!r} have shape {tuple(shape)}, expected [B, T, D] = "
            f"({tokens[0]}, {tokens[1]}, D)"
        )


def _check_readout_shape(name: str, shape: Sequence[int], vocab_size: int) -> None:
    """A readout [V, D]."""
    if len(shape) != 2 or shape[0] != vocab_size:
        hint = "; transpose it" if len(shape) == 2 and shape[1] == vocab_size else ""
        raise InputError(f"the readout of {name!r} has shape {tuple(shape)}, expected [V, D] = ({vocab_size}, D){hint}")


def _check_logits_shape(name: str, shape: Sequence[int], expected: Sequence[int]) -> None:
    """An adapted function returned [B, T, V]."""
    if tuple(shape) != tuple(expected):
        raise InputError(f"the logits of {name!r} have shape {tuple(shape)}, expected [B, T, V] = {tuple(expected)}")
