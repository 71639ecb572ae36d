"""Checks of arrays and levels given to the statistical calls. Tracers pass: their values are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.validate.errors import InputError

__all__ = [
    "check_choice",
    "check_finite",
    "check_key",
    "check_level",
    "check_mask",
    "check_nonempty",
    "check_p_values",
    "check_vector",
]


def check_level(alpha: Any, name: str = "alpha") -> None:
    """A level is one number strictly between 0 and 1."""
    if isinstance(alpha, Tracer):
        return
    if isinstance(alpha, (bool, str)) or np.ndim(alpha) != 0:
        raise InputError(f"{name} must be one number strictly between 0 and 1, got {alpha!r}")
    try:
        value = float(alpha)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be one number strictly between 0 and 1, got {alpha!r}") from error
    if not 0 < value < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}; 0.1 asks for at most 10 %")


def check_choice(value: Any, choices: Sequence[str], name: str) -> None:
    """One of a fixed set of names."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_vector(values: Any, name: str) -> None:
    """A one-dimensional array of numbers."""
    shape, dtype = np.shape(values), getattr(values, "dtype", None)
    if len(shape) != 1:
        raise InputError(
            f"{name} must be one-dimensional, got shape {tuple(shape)}; batch with jax.vmap over the leading axes"
        )
    kind = np.asarray(values).dtype if dtype is None else dtype
    if not (np.issubdtype(kind, np.integer) or jnp.issubdtype(kind, jnp.floating)):
        raise InputError(f"{name} must hold numbers, got dtype {kind}")


def check_nonempty(values: Any, name: str, why: str) -> None:
    """At least one item."""
    if np.shape(values)[0] == 0:
        raise InputError(f"{name} is empty; {why}")


def check_finite(values: Any, name: str) -> None:
    """No infinite entries (NaN is allowed: it is masked out and counted)."""
    if isinstance(values, Tracer):
        return
    host = np.asarray(values)
    if host.dtype.kind != "f":
        host = host.astype(np.float64)
    bad = np.flatnonzero(np.isinf(host))
    if bad.size:
        raise InputError(
            f"{name}[{bad[0]}] is {host[bad[0]]}; {bad.size} of {host.size} values are infinite. Scores must be "
            "finite; use NaN for a missing score, which is left out and counted"
        )


def check_p_values(p_values: Any, name: str = "p_values") -> None:
    """Every p-value in [0, 1] or NaN."""
    if isinstance(p_values, Tracer):
        return
    host = np.asarray(p_values)
    bad = np.flatnonzero((host < 0) | (host > 1))
    if bad.size:
        raise InputError(
            f"{name}[{bad[0]}] is {float(host[bad[0]])!r}; p-values must lie in [0, 1] "
            f"({bad.size} of {host.size} do not)"
        )


def check_mask(mask: Any, values: Any, name: str) -> None:
    """A boolean mask of the shape of what it masks."""
    if mask is None:
        return
    dtype = getattr(mask, "dtype", None)
    dtype = np.asarray(mask).dtype if dtype is None else dtype
    if dtype != np.bool_:
        raise InputError(f"{name} must be boolean (True = real item), got dtype {dtype}")
    if np.shape(mask) != np.shape(values):
        raise InputError(f"{name} has shape {np.shape(mask)}, but what it masks has shape {np.shape(values)}")


def check_key(key: Any, why: str) -> None:
    """A PRNG key where one is needed."""
    if key is None:
        raise InputError(f"key is missing: {why} draws random numbers; pass key=jax.random.key(seed)")
