"""A flax.linen module as a `LanguageModel`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from tdd.models.adapters.function import (
    EVALUATION,
    Arguments,
    Output,
    as_constant,
    check_module,
    constant_value,
    first_line,
    from_methods,
    wants_randomness,
)
from tdd.records import LanguageModel
from tdd.validate import InputError


def from_linen(
    module: Any,
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str | None = None,
    method: str | Callable[..., Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    mutable: Sequence[str] = (),
    hidden: str | Callable[[Any, jax.Array], Any] | None = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> LanguageModel:
    """Make a model of a linen module `module(tokens [B, T]) -> [B, T, V]`.

    Its parameters are the module's *variables*, `{"params": ..., other collections ...}`, as `module.init` returns
    them. Only "params" is trained: gradients with respect to other collections are 0. Dropout is off: the switches
    `deterministic`, `train`, `training`, `is_training` and `inference` are set for evaluation, whether they are
    fields of the module or arguments of the method. Equal modules are the same model. The logits at position t must
    describe token t + 1, given tokens 0..t: `check_causal` tests it.

    Args:
      module: The module, unbound.
      vocab_size, max_length, soft_cap, output: See `from_function`.
      name: Shown in reports; by default the module's class.
      method: The method that returns logits, `__call__` unless given.
      arguments: Further keyword arguments of that method, and of `hidden` where it takes them; hashable.
      mutable: Collections that the method writes; what is written is dropped.
      hidden: a method's name, or a function of (module, tokens), for [B, T, D]; see `from_function`.
      readout: `(variables) -> [V, D]`.

    Raises:
      InputError: Not a linen module, unhashable arguments, or as in `from_function`; when traced, variables
        that do not fit, a collection that is written but not named in `mutable`, or a module that asks for randomness.
    """
    from flax import linen as nn

    check_module("module", module, "flax.linen module", isinstance(module, nn.Module))
    fields = {field.name for field in dataclasses.fields(module)}
    module = module.clone(**{switch: value for switch, value in EVALUATION.items() if switch in fields})
    return from_methods(
        type(module),
        functools.partial(_LinenCall, as_constant("module", module), tuple(mutable)),
        method=method or "__call__",
        arguments=arguments,
        hidden=hidden,
        vocab_size=vocab_size,
        max_length=max_length,
        name=name,
        readout=None if readout is None else _Readout(readout),
        soft_cap=soft_cap,
        output=output,
    )


@dataclasses.dataclass(frozen=True)
class _LinenCall:
    """`(variables, tokens) -> result` of one method of a module."""

    module: Any
    mutable: tuple[str, ...]
    method: str | Callable[..., Any]
    arguments: Arguments

    def __call__(self, variables: Any, tokens: jax.Array) -> Any:
        from flax import errors

        module = constant_value(self.module)
        name = type(module).__name__
        _check_variables(variables, name)
        try:
            result = module.apply(
                _trained_only(variables),
                tokens,
                method=self.method,
                mutable=list(self.mutable) or False,
                **dict(self.arguments),
            )
        except errors.InvalidRngError as error:
            raise wants_randomness(name, error) from error
        except errors.ModifyScopeVariableError as error:
            raise InputError(
                f"{name!r} writes into a collection while it is evaluated; name it in mutable=, and what is written is "
                "dropped, unless these are means of the batch: then use running averages, arguments="
                f"{{'use_running_average': True}} or as the module has it ({first_line(error)})"
            ) from error
        except (
            errors.ScopeCollectionNotFound,
            errors.ScopeParamNotFoundError,
            errors.ScopeParamShapeError,
        ) as error:
            raise InputError(
                f"params do not fit {name!r}; pass the variables that module.init returned ({first_line(error)})"
            ) from error
        return result[0] if self.mutable else result


@dataclasses.dataclass(frozen=True)
class _Readout:
    """`(variables) -> [V, D]`, with gradients for "params" only."""

    function: Callable[[Any], Any]

    def __call__(self, variables: Any) -> Any:
        return self.function(_trained_only(variables))


def _trained_only(variables: Any) -> dict[str, Any]:
    return {name: tree if name == "params" else jax.lax.stop_gradient(tree) for name, tree in variables.items()}


def _check_variables(variables: Any, name: str) -> None:
    """Linen's collections, not the parameters alone."""
    if not isinstance(variables, Mapping) or "params" not in variables:
        content = ", ".join(map(str, variables)) if isinstance(variables, Mapping) else type(variables).__name__
        raise InputError(
            f"params of {name} must be the variables that module.init returned, {{'params': ...}}; they hold {content}"
        )
