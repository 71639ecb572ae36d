"""Values as plain data that are the same in every process: what tells one run or study from another."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.validate import InputError

_OF_OBJECTS = ("__dict__", "__weakref__")
_OF_CLASSES = (
    *_OF_OBJECTS, "__module__", "__qualname__", "__doc__", "__annotations__", "__firstlineno__",
    "__static_attributes__", "__slots__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__",
    "__dataclass_params__", "__repr__",
)  # fmt: skip
"""What a class holds that does not change what it computes; the fields of a dataclass count by their values."""
# told by their versions; no name that a user's own file may have
_LIBRARIES = ("builtins", "flax", "functools", "jax", "jaxlib", "numpy", "scipy", "tdd", "typing")


def described(value: Any) -> Any:
    """A design, function or option as plain values, the same in every process.

    Arrays count by hash; objects by the code of their class and what they hold; functions by their code, defaults and
    closure and by the values and functions of their own module that they name.

    Raises:
      InputError: an object whose content cannot be read, as that of `numpy.frompyfunc`.
    """
    return _described(value, ())


def _described(value: Any, outer: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if id(value) in outer:
        return "itself"
    outer = (*outer, id(value))

    def each(items: Any) -> list[Any]:
        return [_described(item, outer) for item in items]

    def named(items: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(name): _described(item, outer) for name, item in items.items()}

    if isinstance(value, type):
        return _class(value, outer)
    if dataclasses.is_dataclass(value):
        return _class(type(value), outer) | named({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return named(value)
    if isinstance(value, (list, tuple)):
        return each(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, each(value)))
    if isinstance(value, functools.partial):
        return {"partial": _described(value.func, outer), "args": each(value.args), "options": named(value.keywords)}
    if isinstance(value, types.FunctionType):
        return _function(value, outer)
    if isinstance(value, types.MethodType):
        return {"method": _described(value.__func__, outer), "of": _described(value.__self__, outer)}
    if isinstance(value, types.ModuleType):
        return value.__name__
    held = getattr(value, "__self__", None) if isinstance(value, types.BuiltinMethodType) else None
    if not isinstance(held, (types.ModuleType, type(None))):
        return {"method": value.__qualname__, "of": _described(held, outer)}
    if callable(value) and (inner := getattr(value, "__wrapped__", None)) is not None:  # of jax.jit and the like
        return {"wrapped": _described(inner, outer)}
    if hasattr(value, "__array__"):
        return _array(np.asarray(value))
    if isinstance(value, np.ufunc):
        return _ufunc(value)
    if hasattr(value, "__dict__"):
        return _class(type(value), outer) | {"state": named(vars(value) | _slots(value))}
    if type(value) is object:
        return "object"
    if (name := getattr(value, "__qualname__", None)) or " at 0x" not in (name := repr(value)):
        return name
    if not (slots := _slots(value)):
        raise _unreadable(value)
    return _class(type(value), outer) | {"state": named(slots)}


def _slots(value: Any) -> dict[str, Any]:
    """What an object of a class with `__slots__` holds."""
    own = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for slots in own for name in ((slots,) if isinstance(slots, str) else slots)]
    return {name: getattr(value, name) for name in names if hasattr(value, name) and name not in _OF_OBJECTS}


def _ufunc(value: np.ufunc) -> str:
    """NumPy's and SciPy's by name; one that was made of a function does not say of which."""
    if "(vectorized)" in value.__name__:
        raise _unreadable(value)
    return f"ufunc {value.__name__}"


def _unreadable(value: Any) -> InputError:
    return InputError(
        f"{value!r} cannot be told apart from others of its kind, and so cannot identify a run; write a function "
        "(def or lambda) that calls it"
    )


def _array(array: np.ndarray) -> Any:
    if array.ndim == 0:
        return array.item()
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"{array.dtype}{list(array.shape)} {digest}"


def _class(kind: type, outer: tuple[int, ...]) -> dict[str, Any]:
    """The name of a class, and what it and the classes that it inherits from define: functions, properties, values."""
    description: dict[str, Any] = {"kind": kind.__qualname__}
    users = [one for one in kind.__mro__ if not _is_known(one.__module__)]
    if users:
        outer = (*outer, id(kind))
        found = {
            f"{place} {name}": _attribute(value, outer)
            for place, one in enumerate(users)
            for name, value in vars(one).items()
            if name not in _OF_CLASSES
        }
        description["code"] = _digest({name: value for name, value in found.items() if value is not None})
    return description


def _attribute(value: Any, outer: tuple[int, ...]) -> Any:
    """What a class defines, of a property or method the functions; None of what `dataclasses` wrote and of slots."""
    if isinstance(value, property):
        value = [value.fget, value.fset]
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    written = isinstance(value, types.FunctionType) and value.__code__.co_filename == "<string>"
    if (written and value.__name__.startswith("__")) or isinstance(value, types.MemberDescriptorType):
        return None
    try:
        return _described(value, outer)
    except InputError:
        return type(value).__qualname__


def _function(function: types.FunctionType, outer: tuple[int, ...]) -> dict[str, Any]:
    code = function.__code__
    description = {"function": function.__qualname__, "code": _code(code, outer)}
    parts = {
        "defaults": [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()],
        "closure": [_held(cell) for cell in function.__closure__ or ()],
        "globals": {} if _is_known(function.__globals__.get("__name__")) else _named_values(function, code),
    }
    return description | {name: _described(part, outer) for name, part in parts.items() if part}


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _named_values(function: types.FunctionType, code: types.CodeType) -> dict[str, Any]:
    """The data and functions of its module that a function names."""
    values = {}
    for name in code.co_names:
        value = function.__globals__.get(name)
        local = isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__
        data = isinstance(value, (bool, int, float, str, list, tuple, dict)) or hasattr(value, "__array__")
        if local or (data and not isinstance(value, type)):
            values[name] = value
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            values |= _named_values(function, inner)
    return values


def _code(code: types.CodeType, outer: tuple[int, ...]) -> str:
    """Hash of what is executed: instructions, names and constants."""
    constants = [
        _code(each, outer) if isinstance(each, types.CodeType) else _described(each, outer) for each in code.co_consts
    ]
    return _digest([code.co_code.hex(), code.co_names, constants])


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _is_known(module: Any) -> bool:
    return str(module).partition(".")[0] in _LIBRARIES
