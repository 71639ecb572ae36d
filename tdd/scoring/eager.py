"""Calls outside `jit`, in programs that are compiled once and found again."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tdd.procedures.calls import tracing
from tdd.validate.arrays import check_there


def called(function: Callable[..., Any], static: tuple[Any, ...], *trees: Any) -> Any:
    """`function(*static, *trees)`; outside `jit` compiled once for each function, static values and types of arrays.

    Leaves of the trees that are no arrays are static too. Functions of the user are compiled at every call, as they may
    read what has changed since; so is what cannot be hashed. The last 64 programs are kept.
    """
    if tracing():
        return function(*static, *trees)
    check_there(trees)
    leaves, structure = jax.tree.flatten(trees)
    is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves)
    # 1, 1.0 and True are equal
    rest = tuple((type(leaf), leaf) for leaf, array in zip(leaves, is_array, strict=True) if not array)
    parts = (function, static, structure, is_array, rest)
    try:
        program = _program(*parts) if _found_again(static) else _program.__wrapped__(*parts)
    except TypeError:  # what cannot be hashed
        program = _program.__wrapped__(*parts)
    return program([leaf for leaf, array in zip(leaves, is_array, strict=True) if array])


def as_array(values: Any) -> Any:
    """The values as an operand of `called`."""
    return values if isinstance(values, jax.Array) else np.asarray(values)


@functools.lru_cache(maxsize=64)
def _program(
    function: Callable[..., Any], static: tuple[Any, ...], structure: Any, is_array: tuple[bool, ...], rest: Any
) -> Callable[..., Any]:
    def run(arrays: list[Any]) -> Any:
        given, others = iter(arrays), iter(rest)
        leaves = [next(given) if array else next(others)[1] for array in is_array]
        return function(*static, *jax.tree.unflatten(structure, leaves))

    return jax.jit(run)


_COMPILED = type(jax.jit(lambda: None))


def _found_again(value: Any) -> bool:
    """Whether what is equal to it computes the same at every call.

    So do the functions of this package, with values that are compared by what they hold; modules of Flax and Equinox,
    whose code is constant by their rules; and what `jax.jit` has wrapped, by the rules of JAX. A function of the user
    may read anything.
    """
    if isinstance(value, functools.partial):
        value = (value.func, value.args, *value.keywords.values())
    if type(value) is tuple:
        return all(map(_found_again, value))
    if value is None or isinstance(value, _COMPILED):
        return True
    if isinstance(value, types.FunctionType):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        return str(value.__globals__.get("__name__")).startswith("tdd.") and _found_again(cells)
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("tdd."):
        if callable(value):  # an adapter's, of a method by its name or of a function of the user
            return isinstance(getattr(value, "method", None), str)
        return all(_found_again(getattr(value, field.name)) for field in dataclasses.fields(value))
    return not callable(value) and type(value).__hash__ not in (object.__hash__, None)
