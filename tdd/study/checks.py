"""Checks of the options of a run (repetitions, levels, methods by name, devices) and of the fields of designs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from tdd.kernels import lattice
from tdd.validate import InputError
from tdd.validate.arrays import check_choice, check_level, check_process, check_seed

NULLS = ("nonmember", "member")

_MOST_REPETITIONS = 2**31 - 1
_LARGEST = 2**24


def check_run(repetitions: Any, seed: Any, target_se: Any) -> None:
    """Check the options that all runs have."""
    if isinstance(repetitions, bool) or not isinstance(repetitions, (int, np.integer)):
        raise InputError(f"repetitions must be a whole number, got {repetitions!r}")
    if not 1 <= repetitions <= _MOST_REPETITIONS:
        raise InputError(f"repetitions must lie from 1 to {_MOST_REPETITIONS:,}, got {repetitions!r}")
    check_seed(seed)
    if target_se is not None and not (isinstance(target_se, (int, float)) and 0 < target_se < 1):
        raise InputError(
            f"target_se must be a number between 0 and 1, or None to run all repetitions; got {target_se!r}"
        )


def as_devices(devices: Any) -> tuple[Any, ...]:
    """The devices to run on; None is all of this process."""
    check_process()
    if devices is None:
        return tuple(jax.local_devices())
    chosen = tuple(devices) if isinstance(devices, Iterable) else ()
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise InputError(f"devices must be some of jax.devices(), for example jax.devices()[:1]; got {devices!r}")
    process = jax.process_index(chosen[0].platform)
    distant = [str(device) for device in chosen if device.process_index != process]
    if distant:
        raise InputError(
            f"devices must be of this process, number {process}: some of jax.local_devices(); got "
            f"{', '.join(distant[:3])}. For several machines give each a shard=(i, n) of the study"
        )
    return chosen


def as_number(level: Any) -> float:
    """Convert a level to double precision; 0.7 in single precision is 7/10 too."""
    kind = getattr(level, "dtype", None)
    if kind is None or kind == np.float64:
        return float(level)
    exact = lattice.as_level(np.asarray(level)[()])
    return int(exact.numerator) / int(exact.denominator)


def as_levels(alphas: Any) -> tuple[float, ...]:
    """Distinct levels, as numbers."""
    given = [alphas] if np.ndim(alphas) == 0 else list(alphas)
    if not given:
        raise InputError("alphas is empty; give at least one level, for example 0.1")
    for i, alpha in enumerate(given):
        check_level(alpha, f"alphas[{i}]")
    levels = tuple(as_number(alpha) for alpha in given)
    if len(set(levels)) < len(levels):
        raise InputError(f"alphas holds a level twice: {levels}")
    return levels


def as_names(methods: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Names of methods of a fused engine, without repeats; one may stand alone."""
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise InputError(f"methods is empty; choose among {', '.join(known)}")
    for name in names:
        if name not in known:
            raise InputError(
                f"methods must be among {', '.join(known)}, got {name!r}; tdd.study.run takes any other method"
            )
        if names.count(name) > 1:
            raise InputError(f"methods names {name!r} twice")
    return names


# --- fields of designs ------------------------------------------------------------------------------------------------


def is_known(value: Any) -> bool:
    """Whether a field holds values, rather than a tracer or a stand-in for a leaf of a pytree."""
    if isinstance(value, (list, tuple)):
        return all(is_known(item) for item in value)
    return isinstance(value, (bool, int, float, str, np.ndarray, np.generic))


def check_counts(design: Any, *names: str) -> None:
    """Check sizes of a design: whole numbers of at least 1."""
    for name in names:
        value = getattr(design, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(
                f"{type(design).__name__}: {name} must be a whole number of at least 1, got {value!r}; sizes are "
                "static, a change of them compiles anew"
            )


def check_numbers(design: Any, **ranges: tuple[float | None, float | None]) -> None:
    """Check numbers of a design against closed ranges; None is no limit, and None as a value is left alone."""
    for name, (low, high) in ranges.items():
        value = getattr(design, name)
        if value is None or not is_known(value) or np.ndim(value) > 0:
            continue
        check_number(f"{type(design).__name__}: {name}", value, low, high)


def check_number(name: str, value: Any, low: float | None, high: float | None) -> None:
    """Check for a finite number within a closed range."""
    number = as_float(value)
    if math.isfinite(number) and (low is None or number >= low) and (high is None or number <= high):
        return
    span = {
        (True, True): "",
        (False, True): f" of at least {low}",
        (True, False): f" of at most {high}",
        (False, False): f" from {low} to {high}",
    }[low is None, high is None]
    raise InputError(f"{name} must be a finite number{span}, got {value!r}")


def check_names(design: Any, **choices: Sequence[str]) -> None:
    """Check names against fixed sets."""
    for name, allowed in choices.items():
        check_choice(getattr(design, name), allowed, f"{type(design).__name__}: {name}")


def as_float(value: Any) -> float:
    """A number, or NaN, which fails every comparison, for what is not one."""
    return math.nan if isinstance(value, (bool, str)) else float(value)


def as_counts(name: str, value: Any) -> tuple[int, ...]:
    """One whole number of at least 1, or several, each once, in order."""
    counts = [value] if np.ndim(value) == 0 else list(value)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise InputError(f"{name} must be whole numbers of at least 1, got {count!r}")
        if count >= _LARGEST:
            raise InputError(f"{name} must be below {_LARGEST:,}, got {count:,}")
    if not counts:
        raise InputError(f"{name} is empty; give at least one number, for example 1000")
    return tuple(dict.fromkeys(int(count) for count in counts))


def as_probability(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = as_float(value)
    if not 0 < number < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number
