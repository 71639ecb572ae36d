"""Checks of what a stream is tested with: levels of wealth, horizons, logarithms, what chance decides."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = [
    "as_size",
    "check_log_p_values",
    "check_mean_time",
    "check_share",
    "check_state",
    "check_step",
    "check_uniforms",
]

_LARGEST = 10**7


def as_size(value: Any, name: str, why: str) -> int:
    """A whole number from 1 to ten million: how much memory a stream has."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 1 <= value <= _LARGEST:
        raise InputError(f"{name} must be a whole number from 1 to {_LARGEST:,} ({why}), got {value!r}")
    return int(value)


def check_share(value: Any, name: str, method: str, only: tuple[str, ...]) -> None:
    """A number in (0, 1) or None for the methods that have one; None for the others."""
    if value is None:
        return
    if method not in only:
        raise InputError(f"{name} belongs to {' and '.join(map(repr, only))}; method={method!r} has none: leave it out")
    if isinstance(value, jax.Array):
        raise InputError(f"{name} must be a Python number here: the test is fixed when it is made; use float({name})")
    arrays.check_level(value, name)


def check_log_p_values(log_p_values: Any, name: str = "p_values") -> None:
    """Logarithms of p-values, at most 0, or NaN."""
    if isinstance(log_p_values, Tracer):
        return
    bad = np.flatnonzero(np.asarray(log_p_values) > 0)
    if bad.size:
        raise InputError(
            f"{name}[{bad[0]}] is {float(np.asarray(log_p_values)[bad[0]])!r}; with log=True they are natural "
            "logarithms of p-values, at most 0. Leave log out for p-values themselves"
        )


def check_mean_time(mean_time: Any) -> None:
    """One finite number of at least 1."""
    if isinstance(mean_time, Tracer):
        return
    number = np.ndim(mean_time) == 0 and not isinstance(mean_time, (bool, str, bytes))
    try:
        value = float(mean_time) if number else np.nan
    except (TypeError, ValueError):
        value = np.nan
    if not 1 <= value < np.inf:
        raise InputError(
            "mean_time must be one finite number of at least 1, the mean number of p-values between false alarms, "
            f"got {mean_time!r}"
        )


def check_uniforms(uniforms: Any, length: int) -> None:
    """[T] numbers in (0, 1]."""
    if uniforms.shape[0] != length:
        raise InputError(f"uniforms has {uniforms.shape[0]} entries and scores has {length}; give one for each score")
    if isinstance(uniforms, Tracer):
        return
    host = np.asarray(uniforms)
    bad = np.flatnonzero(~((host > 0) & (host <= 1)))
    if bad.size:
        raise InputError(
            f"uniforms[{bad[0]}] is {float(host[bad[0]])!r}; they must lie in (0, 1], so that no p-value is 0: "
            "1 - jax.random.uniform(key, scores.shape) does"
        )


def check_state(state: Any, kind: type, horizon: int, method: str) -> None:
    """A state of the same test."""
    if not isinstance(state, kind):
        raise InputError(f"state must come from init() or step() of this test, got {type(state).__name__}")
    found = jnp.shape(state.levels)[-1:], state.method  # type: ignore[attr-defined]
    if found != ((horizon,), method):
        raise InputError(
            f"state is of method={found[1]!r} with horizon={found[0][0] if found[0] else 0}, this test of "
            f"method={method!r} with horizon={horizon}; take the state of init()"
        )


def check_step(value: Any, mask: Any, *, e_value: bool) -> None:
    """One p-value or e-value, and whether it is real."""
    if np.ndim(value) != 0 or np.ndim(mask) != 0:
        raise InputError(
            f"value and mask must be single, got shapes {np.shape(value)} and {np.shape(mask)}; scan over step, or "
            "decide a whole array with tdd.lond and its neighbours"
        )
    if isinstance(value, Tracer):
        return
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"value must be a number, got {value!r}") from error
    if number < 0 or (number > 1 and not e_value):
        rule = "an e-value is not negative" if e_value else "a p-value lies in [0, 1]"
        raise InputError(f"value is {number!r}; {rule}")
