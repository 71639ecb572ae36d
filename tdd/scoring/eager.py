"""Calls outside `jit`, in programs that are compiled once and found again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tdd.procedures.calls import tracing


def called(function: Callable[..., Any], static: tuple[Any, ...], *trees: Any) -> Any:
    """`function(*static, *trees)`; outside `jit` compiled once for each function, static values and types of arrays.

    Leaves of the trees that are no arrays are static too. What cannot be hashed cannot be found again and is computed
    as it is. The programs of the last 64 are kept: a function that is made anew for each call leaves with its program.
    """
    if tracing():
        return function(*static, *trees)
    leaves, structure = jax.tree.flatten(trees)
    is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves)
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
