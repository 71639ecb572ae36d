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
    calls, is compiled at every call. The last 64 programs are kept.
    """
    if tracing():
        return function(*static, *trees)
    leaves, structure = jax.tree.flatten(trees)
    is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
    # 1, 1.0 and True are equal
    rest = tuple((type(leaf), leaf) for leaf, array in zip(leaves, is_array, strict=True) if not array)
    parts = (function, static, structure, is_array, rest)
    try:
        program = _program(*parts) if _constant(static) else _program.__wrapped__(*parts)
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


def _constant(value: Any) -> bool:
    """Whether what is equal to it computes the same at every call, as far as can be seen.

    True of values that are compared by what they hold, of libraries, of functions that read nothing but these, and by
    the rules of JAX of what `jax.jit` has wrapped. Not so are functions of the user with a closure or with global
    values, and methods of objects that are compared by identity.
    """
    if isinstance(value, functools.partial):
        value = (value.func, value.args, *value.keywords.values())
    if isinstance(value, tuple):
        return all(map(_constant, value))
    if isinstance(value, types.MethodType):
        return _constant(value.__func__) and _constant(value.__self__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("tdd."):
        return all(_constant(getattr(value, field.name)) for field in dataclasses.fields(value))
    if value is None or _compiled(value) or _installed(value):
        return True
    if isinstance(value, types.FunctionType):
        return _reads_constants(value, set())
    return type(value).__hash__ not in (object.__hash__, None)


def _compiled(value: Any) -> bool:
    return hasattr(value, "lower") and hasattr(value, "trace")


_FOLDERS = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def _installed(value: Any) -> bool:
    """A module of a library or of this package, or a function, class or callable object of one."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    if isinstance(value, functools.partial) or not (callable(value) or isinstance(value, types.ModuleType)):
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return str(name) in sys.builtin_module_names or str(name).startswith("tdd.") or str(file).startswith(_FOLDERS)


def _reads_constants(function: types.FunctionType, seen: set[types.FunctionType]) -> bool:
    """Whether a function has no closure, and reads no global value, neither itself nor through those that it calls."""
    seen.add(function)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if function.__closure__ or not _constant(defaults):
        return False
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    names = {name for code in codes for name in code.co_names} & function.__globals__.keys()
    read = [function.__globals__[name] for name in names]
    others = [value for value in read if not (_compiled(value) or _installed(value))]
    return all(isinstance(value, types.FunctionType) for value in others) and all(
        value in seen or _reads_constants(value, seen) for value in others
    )
