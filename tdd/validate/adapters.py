"""Checks of models of other libraries: modules, their methods, parameters and results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tdd.validate.checkpoints import check_callable
from tdd.validate.errors import InputError

__all__ = [
    "check_finite_logits",
    "check_floating",
    "check_hashable",
    "check_head",
    "check_hidden_shape",
    "check_is_array",
    "check_method",
    "check_module",
    "check_num_leaves",
    "check_params_and_state",
    "check_readout_shape",
    "check_same_logits",
    "check_two_tokens",
    "check_unchanged",
    "check_variables",
    "no_output",
    "translated",
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


def check_head(hidden: Any, readout: Any, soft_cap: Any) -> None:
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


def check_floating(name: str, what: str, dtype: Any) -> None:
    """Numbers with a fraction."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(f"the {what} of {name!r} are {dtype}; they must be floating")


def check_hidden_shape(name: str, shape: Sequence[int], tokens: Sequence[int]) -> None:
    """Hidden states [B, T, D]."""
    if len(shape) != 3 or tuple(shape[:2]) != tuple(tokens):
        raise InputError(
            f"the hidden states of {name!r} have shape {tuple(shape)}, expected [B, T, D] = "
            f"({tokens[0]}, {tokens[1]}, D)"
        )


def check_readout_shape(name: str, shape: Sequence[int], vocab_size: int) -> None:
    """A readout [V, D]."""
    if len(shape) != 2 or shape[0] != vocab_size:
        hint = "; transpose it" if len(shape) == 2 and shape[1] == vocab_size else ""
        raise InputError(f"the readout of {name!r} has shape {tuple(shape)}, expected [V, D] = ({vocab_size}, D){hint}")


# Parameters.


def check_variables(variables: Any, name: str) -> None:
    """Linen's collections, not the parameters alone."""
    if not isinstance(variables, Mapping) or "params" not in variables:
        found = ", ".join(map(str, variables)) if isinstance(variables, Mapping) else type(variables).__name__
        raise InputError(
            f"params of {name} must be the variables that module.init returned, {{'params': ...}}; they hold {found}"
        )


def check_params_and_state(params: Any, name: str) -> tuple[Any, Any]:
    """What `init` of a Haiku transform with state returns."""
    if not isinstance(params, tuple) or len(params) != 2:
        found = _shape_of(params)
        raise InputError(f"params of {name!r} must be the pair (params, state) that init returned, got {found}")
    return params


def check_num_leaves(key: str, found: int, expected: int) -> None:
    """As many arrays as the model has."""
    if found != expected:
        raise InputError(f"params[{key!r}] has {found} arrays, the model has {expected}; pass what from_nnx returned")


# Errors of the libraries.


@contextlib.contextmanager
def translated(errors: Mapping[type[BaseException], Callable[[BaseException], InputError]]) -> Iterator[None]:
    """Turn the named errors of a library into ours."""
    try:
        yield
    except tuple(errors) as error:
        make = next(make for kind, make in errors.items() if isinstance(error, kind))
        raise make(error) from error


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


def check_two_tokens(shape: Sequence[int]) -> None:
    """Something to change and something before it."""
    if shape[1] < 2:
        raise InputError(f"tokens have shape {tuple(shape)}; causality is tested on two tokens or more")


def check_finite_logits(name: str, logits: np.ndarray) -> None:
    """No NaN; infinite only where a token is excluded on purpose (minus infinity)."""
    if np.isnan(logits).any() or np.isposinf(logits).any():
        raise InputError(f"the logits of {name!r} hold NaN or infinity; check its parameters")


def check_unchanged(name: str, change: np.ndarray, cut: int, tolerance: float) -> None:
    """Logits before the cut do not depend on tokens behind it; `change` is relative, one a position."""
    position = int(np.argmax(change > tolerance))
    if change[position] > tolerance:
        raise InputError(
            f"{name!r} is not causal: its logits at position {position} change by {change[position]:.1e} of the "
            f"largest logit when tokens {cut} and later are replaced; give it a causal attention mask, and shift "
            "nothing: logits at position t describe token t + 1"
        )


def check_same_logits(name: str, difference: float, tolerance: float) -> None:
    """hidden @ readout.T, capped, is the logits."""
    if not difference <= tolerance:
        raise InputError(
            f"hidden and readout of {name!r} do not reproduce its logits (relative difference {difference:.1e}): "
            "hidden must include the final norm, readout is [V, D], a bias or scale of the head is not part of it"
        )


def _shape_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
