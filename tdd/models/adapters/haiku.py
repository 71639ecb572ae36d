"""A Haiku transform as a `LanguageModel`. Haiku is imported on use only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from tdd.models.adapters.function import (
    Arguments,
    Output,
    arguments_of,
    check_module,
    describe,
    from_function,
    wants_randomness,
)
from tdd.records import LanguageModel
from tdd.validate import InputError


def from_haiku(
    transformed: Any,
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    hidden: Any = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> LanguageModel:
    """Make a model of `hk.transform(f)` or `hk.transform_with_state(f)` with `f(tokens [B, T]) -> [B, T, V]`.

    Its parameters are what `transformed.init` returns: `params`, or the pair `(params, state)` of a transform with
    state, whose gradient with respect to the state is 0 and whose new state is dropped. `apply` gets no key: a
    function that draws random numbers is refused, so pass `arguments={"is_training": False}` or what it calls that
    switch. Pass the same transform each time: transforming again makes a new model, which compiles again. The logits
    must be causal, see `check_causal`.

    Args:
      transformed: The transform.
      vocab_size, max_length, soft_cap, output: See `from_function`.
      name: Shown in reports.
      arguments: Further keyword arguments of `f`, hashable.
      hidden: a second transform with the same parameters, or a function of (params, tokens), for [B, T, D]; see
        `from_function`. A transform of `hk.multi_transform` belongs here.
      readout: `(params) -> [V, D]`.

    Raises:
      InputError: Not a transform, unhashable arguments, or as in `from_function`; when traced, a function that draws
        random numbers, or parameters of another form.
    """
    with_state = _has_state("transformed", transformed)
    given = arguments_of(arguments)
    if hidden is not None and (hasattr(hidden, "apply") or not callable(hidden)):
        hidden = _HaikuCall(hidden.apply, _has_state("hidden", hidden), given, name)
    return from_function(
        _HaikuCall(transformed.apply, with_state, given, name),
        vocab_size=vocab_size,
        max_length=max_length,
        name=name,
        hidden=hidden,
        readout=readout,
        soft_cap=soft_cap,
        output=output,
    )


@dataclasses.dataclass(frozen=True)
class _HaikuCall:
    """`(params, tokens) -> result` of a transform."""

    apply: Callable[..., Any]
    with_state: bool
    arguments: Arguments
    name: str

    def __call__(self, params: Any, tokens: jax.Array) -> Any:
        try:
            if not self.with_state:
                return self.apply(params, None, tokens, **dict(self.arguments))
            if not isinstance(params, tuple) or len(params) != 2:
                raise InputError(
                    f"params of {self.name!r} must be the pair (params, state) that init returned, got "
                    f"{describe(params)}"
                )
            trained, state = params
            return self.apply(trained, jax.lax.stop_gradient(state), None, tokens, **dict(self.arguments))[0]
        except ValueError as error:
            if "PRNGKey" in str(error):  # the class of this error is not public
                raise wants_randomness(self.name, error) from error
            raise


def _has_state(argument: str, transformed: Any) -> bool:
    import haiku

    known = (haiku.Transformed, haiku.TransformedWithState)
    check_module(argument, transformed, "Haiku transform", isinstance(transformed, known))
    return isinstance(transformed, haiku.TransformedWithState)
