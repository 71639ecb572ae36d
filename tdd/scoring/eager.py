"""Calls outside `jit`, in programs that are compiled once and found again."""

from __future__ import annotations

import dataclasses
import functools
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tdd.procedures.calls import tracing


def called(function: Callable[..., Any], static: tuple[Any, ...], *trees: Any) -> Any:
    """`function(*static, *trees)`; outside `jit` compiled once for each function, static values and types of arrays.

    Leaves of the trees that are no arrays are static too. What cannot be hashed, or reads what may change between two
    calls, is computed as it is. The last 64 programs are kept.
    """
    if tracing() or not _constant(static):
        return function(*static, *trees)
    leaves, structure = jax.tree.flatten(trees)
    is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
    # 1, 1.0 and True are equal
    rest = tuple((type(leaf), leaf) for leaf, array in zip(leaves, is_array, strict=True) if not array)
    try:
        program = _program(function, static, structure, is_array, rest)
    except TypeError:
        return function(*static, *trees)
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


def _constant(value: Any) -> bool:
    """Whether what is equal to it computes the same at every call, as far as can be seen.

    Not so are functions of the user with a closure, methods of objects that are compared by identity, and functions
    that read global values other than modules, classes and functions. Under `jax.jit` they are constant by its rules.
    """
    if isinstance(value, functools.partial):
        value = (value.func, value.args, *value.keywords.values())
    if isinstance(value, tuple):
        return all(map(_constant, value))
    if isinstance(value, types.MethodType):
        return _constant(value.__func__) and _constant(value.__self__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("tdd."):
        return all(_constant(getattr(value, field.name)) for field in dataclasses.fields(value))
    compiled = hasattr(value, "lower") and hasattr(value, "trace")
    if value is None or compiled or _installed(value) or isinstance(value, (type, types.ModuleType)):
        return True
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and all(map(_constant, _globals_of(value)))
    return type(value).__hash__ not in (object.__hash__, None)


_FOLDERS = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def _installed(value: Any) -> bool:
    """A function or an object of a library, or of this package: its own values are no one's to change."""
    module = getattr(value, "__module__", None)
    if not callable(value) or not isinstance(module, str) or isinstance(value, functools.partial):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module.startswith("tdd.") or file.startswith(_FOLDERS)


def _globals_of(function: types.FunctionType) -> list[Any]:
    """What a function reads of its module, those included that it calls there; numbers and text as lists."""
    found, waiting, seen = [], [function], set()
    while waiting:
        one = waiting.pop()
        codes = [one.__code__]
        for code in codes:
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in {name for code in codes for name in code.co_names} & one.__globals__.keys():
            value = one.__globals__[name]
            if not isinstance(value, types.FunctionType):
                found.append(value if callable(value) or isinstance(value, types.ModuleType) else [])
            elif id(value) not in seen and not _installed(value):
                seen.add(id(value))
                waiting.append(value)
                found += [[]] if value.__closure__ else []
    return found
