"""Checks of models of other libraries: modules, their methods, parameters and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.validate.checkpoints import check_callable
from tdd.validate.errors import InputError

__all__ = [
    "check_hashable",
    "check_is_array",
    "check_method",
    "check_module",
    "check_params_and_state",
    "no_output",
    "wants_randomness",
    "writes_state",
    "wrong_variables",
]


# What is adapted.


def check_module(argument: str, value: Any, kind: str, fits: bool) -> None:
    """A model of the library that the adapter is for."""
    if not fits:
        raise InputError(
            f"{argument} must be a {kind}, got {type(value).__name__}; adapters: tdd.from_linen, tdd.from_nnx, "
            "tdd.from_haiku, tdd.from_equinox, and tdd.from_function for everything else"
        )


def check_hashable(what: str, value: Any) -> None:
    """Part of a spec: compiled programs are found again by it."""
    try:
        hash(value)
    except TypeError as error:
        raise InputError(
            f"{what} cannot be hashed ({error}), so programs compiled for it could not be found again; hold such "
            "values as tuples or functions, and arrays as parameters"
        ) from error


def check_method(method: Any, function: Any, kind: str) -> None:
    """A method that the module has, or a function of it."""
    if function is None:
        raise InputError(f"{kind} has no method {method!r}")
    check_callable("hidden", function)


# What it returns.


def no_output(name: str, output: Any, result: Any) -> InputError:
    """A place in the result that is not there."""
    return InputError(f"{name!r} returned {_shape_of(result)}, in which there is no output={output!r}")


def check_is_array(name: str, found: Any) -> None:
    """One array, not several."""
    if not hasattr(found, "shape") or not hasattr(found, "dtype"):
        raise InputError(
            f"{name!r} returned {_shape_of(found)}, not one array of logits [B, T, V]; say where they are with "
            "output=: an index, a key, an attribute's name, or a function"
        )


# Parameters.


def check_params_and_state(params: Any, name: str) -> tuple[Any, Any]:
    """What `init` of a Haiku transform with state returns."""
    if not isinstance(params, tuple) or len(params) != 2:
        found = _shape_of(params)
        raise InputError(f"params of {name!r} must be the pair (params, state) that init returned, got {found}")
    return params


# Errors of the libraries.


def wants_randomness(name: str, error: BaseException) -> InputError:
    """A model that is still in training mode."""
    return InputError(
        f"{name!r} asks for random numbers, and scores must not depend on chance: switch dropout off, for example "
        f"with arguments={{'deterministic': True}} or {{'is_training': False}} ({_first_line(error)})"
    )


def writes_state(name: str, error: BaseException) -> InputError:
    """A collection that is written."""
    return InputError(
        f"{name!r} writes into a collection while it is evaluated; name it in mutable=, and what is written is "
        f"dropped ({_first_line(error)})"
    )


def wrong_variables(name: str, error: BaseException) -> InputError:
    """Variables of another module."""
    return InputError(
        f"params do not fit {name!r}; pass the variables that module.init returned ({_first_line(error)})"
    )


# Causality.


def _shape_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
