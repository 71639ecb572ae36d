"""Shared by the adapters: models in evaluation mode, the logits in what a model returns, and checks of both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax

from tdd.validate.errors import InputError

__all__ = [
    "EVALUATION",
    "Arguments",
    "Output",
    "arguments_of",
    "check_callable",
    "check_hashable",
    "check_module",
    "describe",
    "first_line",
    "frozen_state",
    "method_arguments",
    "pick",
    "wants_randomness",
]

Output = int | str | Callable[[Any], Any] | None
"""Place of the logits in the result of a model."""

Arguments = tuple[tuple[str, Hashable], ...]
"""Keyword arguments as a hashable value."""

EVALUATION: Mapping[str, bool] = {
    "deterministic": True,
    "inference": True,
    "is_training": False,
    "train": False,
    "training": False,
}
"""Libraries' names of the switch between training and evaluation, with its setting for evaluation."""


def arguments_of(given: Mapping[str, Any] | None) -> Arguments:
    """Keyword arguments that a user gave, checked to be hashable."""
    pairs = tuple(sorted((given or {}).items()))
    for name, value in pairs:
        check_hashable(f"arguments[{name!r}]", value)
    return pairs


def method_arguments(
    kind: type, method: str | Callable[..., Any], given: Arguments, *, only_known: bool = False
) -> Arguments:
    """`given`, and the evaluation switches among the parameters of a method of `kind` or of a function.

    `only_known` drops what it has no parameter for: arguments are given for the logits, and `hidden` gets those that it
    shares with them.
    """
    function = getattr(kind, method, None) if isinstance(method, str) else method
    if function is None:
        raise InputError(f"{kind.__name__} has no method {method!r}")
    check_callable("hidden", function)
    names = list(inspect.signature(function).parameters)
    switches = {name: value for name, value in EVALUATION.items() if name in names}
    chosen = {name: value for name, value in given if name in names or not only_known}
    return tuple(sorted({**switches, **chosen}.items()))


def frozen_state(tree: Any) -> Any:
    """Leaves that take part but are not trained: their gradient is 0."""
    return jax.tree.map(jax.lax.stop_gradient, tree)


def pick(name: str, output: Output, result: Any) -> Any:
    """The logits in what a model returned."""
    if callable(output):
        return output(result)
    if output is not None:
        try:
            return result[output] if isinstance(output, int) or isinstance(result, Mapping) else getattr(result, output)
        except (LookupError, AttributeError, TypeError) as error:
            raise InputError(f"{name!r} returned {describe(result)}, in which there is no output={output!r}") from error
    if isinstance(result, Mapping) and "logits" in result:
        return result["logits"]
    logits = getattr(result, "logits", result)
    if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
        raise InputError(
            f"{name!r} returned {describe(logits)}, not one array of logits [B, T, V]; say where they are with "
            "output=: an index, a key, an attribute's name, or a function"
        )
    return logits


def check_module(argument: str, value: Any, kind: str, fits: bool) -> None:
    """A model of the adapter's library."""
    if not fits:
        raise InputError(
            f"{argument} must be a {kind}, got {type(value).__name__}; adapters: tdd.from_linen, tdd.from_nnx, "
            "tdd.from_haiku, tdd.from_equinox, and tdd.from_function for everything else"
        )


def check_callable(name: str, value: Any) -> None:
    """`value` can be called and hashed."""
    if not callable(value):
        raise InputError(f"{name} must be a function, got {value!r}")
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"{name} must be hashable, {type(value).__name__} is not; pass a function") from error


def check_hashable(what: str, value: Any) -> None:
    """A part of a spec, by which compiled programs are found again."""
    try:
        hash(value)
    except TypeError as error:
        raise InputError(
            f"{what} cannot be hashed ({error}), so programs compiled for it could not be found again; hold such "
            "values as tuples or functions, and arrays as parameters"
        ) from error


def wants_randomness(name: str, error: BaseException) -> InputError:
    """The error for a model that is still in training mode."""
    return InputError(
        f"{name!r} asks for random numbers, and scores must not depend on chance: switch dropout off, for example "
        f"with arguments={{'deterministic': True}} or {{'is_training': False}} ({first_line(error)})"
    )


def describe(value: Any) -> str:
    """The kind and size of a result, for messages."""
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
