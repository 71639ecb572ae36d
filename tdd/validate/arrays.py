"""Checks of arrays and numbers given to the statistical calls. Tracers pass: their values are unknown."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from tdd.validate import InputError

_first_process: list[int] = []
"""Number of the first process that computed here; a child by fork finds its parent's."""


def check_process() -> None:
    """Check that this process is no fork of one that computed, in which JAX waits for ever for its parent's threads.

    Raises:
      InputError: it is.
    """
    number = os.getpid()
    if number != (_first_process or [number])[0]:
        raise InputError(
            "this process is a fork of one that has used JAX, which stops for ever in such a child; start children "
            "with multiprocessing.get_context('spawn'), or fork before the first call"
        )
    _first_process[:] = [number]


_LOWEST_LEVEL = 1e-9
_HIGHEST_LEVEL = 1 - 1e-6


def check_level(alpha: Any, name: str = "alpha") -> None:
    """Check a level, one number strictly between 0 and 1."""
    if isinstance(alpha, Tracer):
        return
    words = f"{name} must be one number strictly between 0 and 1"
    if isinstance(alpha, (bool, str, bytes)):
        raise InputError(f"{words}, got {alpha!r}")
    try:
        value = float(alpha) if np.ndim(alpha) == 0 else None
    except (TypeError, ValueError, ArithmeticError):
        value = None
    if value is None:
        raise InputError(f"{words}, got {alpha!r}")
    if not _LOWEST_LEVEL <= value <= _HIGHEST_LEVEL:
        raise InputError(
            f"{name} must lie strictly between 0 and 1 (from {_LOWEST_LEVEL:g} to {_HIGHEST_LEVEL}), got {value!r}; "
            "0.1 stands for 10%"
        )


def check_choice(value: Any, choices: Sequence[str], name: str) -> None:
    """Check that a value is one of a fixed set of names."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def as_count(value: Any, name: str, largest: int = 10**9, why: str = "") -> int:
    """Return a whole number from 1 to `largest`; `why` states in the message what it counts."""
    try:
        count = 0 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        count = 0
    if not 1 <= count <= largest:
        meaning = f" ({why})" if why else ""
        raise InputError(f"{name} must be a whole number from 1 to {largest:,}{meaning}, got {value!r}")
    return count


def as_vector(values: Any, name: str) -> jax.Array | np.ndarray:
    """Return a one-dimensional array of numbers, a JAX array unchanged, anything else copied into a NumPy array;
    unsigned integers become signed ones, floats of 8 bits float32.

    Raises:
      InputError: not numbers, or not one-dimensional.
    """
    array = _numbers(values, name, "a one-dimensional array of numbers")
    if array.size == 0 and array.ndim == 1 and not isinstance(array, jax.Array):
        array = array.astype(np.float32)
    if array.ndim != 1:
        raise InputError(
            f"{name} must be one-dimensional, got shape {tuple(array.shape)}; batch with jax.vmap over the leading axes"
        )
    return _real_type(array, name)


def as_matrix(values: Any, name: str, axes: str) -> jax.Array | np.ndarray:
    """Return a two-dimensional array of numbers; `axes` names the two axes in the message.

    Raises:
      InputError: not numbers, rows of different lengths, or not two-dimensional.
    """
    array = _numbers(values, name, f"a two-dimensional array of numbers, {axes}")
    if array.ndim != 2:
        hint = "; give one row or column even where there is a single one" if array.ndim == 1 else ""
        raise InputError(f"{name} must be two-dimensional, {axes}; got shape {tuple(array.shape)}{hint}")
    return _real_type(array, name)


def as_rows(values: Any, name: str) -> jax.Array | np.ndarray:
    """Return an array of numbers [..., m] with at least one axis, its type as that of `as_vector`.

    Raises:
      InputError: not numbers, rows of different lengths, or a single number.
    """
    array = _numbers(values, name, "an array of numbers, the items along its last axis")
    if array.size == 0 and not isinstance(array, jax.Array):
        array = array.astype(np.float32)
    if array.ndim == 0:
        raise InputError(f"{name} must have its items along a last axis, got a single number, {values!r}")
    return _real_type(array, name)


def num_axes(values: Any) -> int:
    """The number of axes; -1 for lists of unequal lengths, which the check of what is in them reports."""
    try:
        return np.ndim(values)
    except (ValueError, TypeError):  # TypeError: JAX's numbers of 16 bits in a list
        return -1


def own_copy(values: Any) -> np.ndarray:
    """Return a NumPy array that shares no memory with the values, its bytes in the order of the machine.

    JAX reads NumPy arrays where they lie while the caller goes on, who may write into his own; and it takes their bytes
    to be in this order.
    """
    array = np.asarray(values)  # torch's tensors know no copy
    return np.array(array, array.dtype.newbyteorder("="))


def spans_processes(array: jax.Array) -> bool:
    """Whether no process holds all of a concrete array."""
    return not (isinstance(array, Tracer) or array.is_fully_addressable or array.is_fully_replicated)


def in_whole(array: jax.Array) -> jax.Array:
    """The array, whole on every device of a mesh with explicit axes, where JAX would ask for a sharding at each gather,
    sort and loop; elsewhere unchanged, since the compiler decides."""
    mesh = jax.typeof(array).sharding.mesh
    return reshard(array, NamedSharding(mesh, PartitionSpec())) if AxisType.Explicit in mesh.axis_types else array


def _numbers(values: Any, name: str, what: str) -> Any:
    """Return a JAX array unchanged, anything else copied into a NumPy array, missing and masked values as NaN."""
    check_process()
    if isinstance(values, jax.Array):
        if spans_processes(values):
            raise InputError(
                f"{name} is spread over the devices of several processes; call this under jax.jit, or gather it first: "
                "jax.experimental.multihost_utils.process_allgather"
            )
        return in_whole(values)
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind not in "iuf":
            raise InputError(f"{name} must be {what}, got a masked array of dtype {values.dtype}")
        values = np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.nan)
    if _holds_bool(values):
        raise InputError(f"{name} must be {what}, and holds True or False among them")
    try:
        array = own_copy(values)
        if array.dtype == np.longdouble:  # JAX has no such type
            array = array.astype(np.float64)
        if array.dtype == object:  # nullable columns, decimals
            odd = [x for x in array.ravel() if isinstance(x, (bool, np.bool_, str, bytes))]
            if odd:
                raise TypeError(f"it holds {odd[0]!r}")
            array = np.array([np.nan if _is_missing(x) else x for x in array.ravel()], float).reshape(array.shape)
    except (TypeError, ValueError, ArithmeticError) as error:  # integers beyond float, signalling decimals
        raise InputError(f"{name} must be {what}: {error}") from error
    return array


def _holds_bool(values: Any) -> bool:
    """Whether a list, or a list in it, holds a boolean, which NumPy would make a 0 or a 1 beside other numbers."""
    if not isinstance(values, (list, tuple)):
        return False
    kinds = set(map(type, values))
    return bool(kinds & {bool, np.bool_}) or (bool(kinds & {list, tuple}) and any(map(_holds_bool, values)))


def _real_type(array: Any, name: str) -> Any:
    """Return numbers in a type that has negative ones, as differences need, and that JAX promotes."""
    dtype = array.dtype
    if dtype.kind == "m" or not (jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating)):
        raise InputError(f"{name} must hold numbers, got dtype {dtype}")
    if jnp.issubdtype(dtype, jnp.floating):
        return array.astype(np.float32) if dtype.itemsize < 2 else array
    if dtype.kind != "u":
        return array
    if dtype == np.uint64 and isinstance(array, np.ndarray):
        return array.astype(np.int64 if array.max(initial=0) < 2**63 else np.float64)
    signed = np.promote_types(dtype, np.int8)
    if isinstance(array, jax.Array) and (signed.kind == "f" or signed.itemsize > jnp.result_type(int).itemsize):
        raise InputError(
            f"{name} is a JAX array of {dtype}, for which JAX has no signed type here; give int32 or float32, or a "
            f"NumPy array of {dtype}"
        )
    return array.astype(signed)


def check_params(params: Any, where_traced: str = "") -> None:
    """Check that every leaf is an array that is there, or a number.

    Raises:
      InputError: a leaf of another kind; an array that was deleted, by donation; a traced one, if `where_traced` says
        what to call instead.
    """
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        place = f"params{jax.tree_util.keystr(path)}"
        if isinstance(leaf, Tracer):
            if where_traced:
                raise InputError(f"{place} is traced; inside jit call {where_traced}")
        elif not isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float, complex)):
            raise InputError(f"{place} must be an array, got {type(leaf).__name__}")
    check_there(params)


def check_there(arrays: Any) -> None:
    """Check that no array of a tree was deleted, as by donation."""
    for leaf in jax.tree.leaves(arrays):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
            raise InputError(
                f"an array of shape {leaf.shape} was deleted, as by donation to a compiled step (donate_argnums); pass "
                "the parameters that the step returned"
            )


def negated(values: Any) -> Any:
    """Return checked numbers in the reverse order: -x of floats, -x - 1 of integers, whose types lack one negative.

    Only numbers of one type remain comparable; see `negated_together`.
    """
    return -values if jnp.issubdtype(values.dtype, jnp.floating) else ~values


def negated_together(*samples: Any) -> list[Any]:
    """Return checked samples in the reverse order and comparable with each other; those of several types are floats."""
    if len({sample.dtype for sample in samples}) > 1:
        samples = tuple(
            sample
            if jnp.issubdtype(sample.dtype, jnp.floating)
            else sample.astype(np.float64 if isinstance(sample, np.ndarray) else float)
            for sample in samples
        )
    return [negated(sample) for sample in samples]


def as_mask(mask: Any, values: Any, name: str) -> jax.Array | np.ndarray | None:
    """Return a boolean mask with the shape of the values that it masks, or None; copied where it is NumPy's."""
    if mask is None:
        return None
    if isinstance(mask, np.ma.MaskedArray):
        raise InputError(f"{name} must be an array of True and False, got a masked array; mask.filled(False) is one")
    array: Any = in_whole(mask) if isinstance(mask, jax.Array) else own_copy(mask)
    if array.dtype != np.bool_:
        raise InputError(f"{name} must be boolean (True = real item), got dtype {array.dtype}")
    if array.shape != np.shape(values):
        raise InputError(f"{name} has shape {array.shape}, but what it masks has shape {np.shape(values)}")
    return array


def check_some(values: Any, mask: Any, name: str, why: str) -> None:
    """Check that at least one item is neither NaN nor masked out."""
    if np.shape(values)[0] == 0:
        raise InputError(f"{name} is empty; {why}")
    if isinstance(values, Tracer) or isinstance(mask, Tracer):
        return
    host = np.asarray(values)
    real = ~np.isnan(host) if jnp.issubdtype(host.dtype, jnp.floating) else np.ones(host.shape, bool)
    if not (real if mask is None else real & np.asarray(mask)).any():
        raise InputError(f"{name} has no real item: all {host.size} are NaN or masked out; {why}")


def refuse(values: np.ndarray, invalid: np.ndarray, name: str, why: str) -> None:
    """Raise an `InputError` about the first entry of an argument that is `invalid` (bool, of the shape of the values).

    In `why`, the rest of the message, "{count}" and "{size}" stand for the numbers of invalid and of all entries.
    """
    places = np.argwhere(invalid)
    if len(places):
        where = tuple(int(i) for i in places[0])
        reason = why.format(count=len(places), size=values.size)
        raise InputError(f"{name}[{', '.join(map(str, where))}] is {values[where].item()!r}; {reason}")


def check_finite(
    values: Any,
    name: str,
    why: str = "{count} of {size} values are infinite. Scores must be finite; use NaN for a missing score, which is "
    "left out and counted",
) -> None:
    """Check that no entry is infinite (NaN is allowed: it is masked out and counted)."""
    if not isinstance(values, Tracer) and jnp.issubdtype(values.dtype, jnp.floating):
        host = np.asarray(values)
        refuse(host, np.isinf(host), name, why)


def check_p_values(p_values: Any, name: str = "p_values") -> None:
    """Check that every p-value is in [0, 1] or NaN."""
    if not isinstance(p_values, Tracer):
        host = np.asarray(p_values)
        refuse(host, (host < 0) | (host > 1), name, "p-values must lie in [0, 1] ({count} of {size} do not)")


def check_e_values(e_values: Any, name: str = "e_values") -> None:
    """Check that no e-value is below 0."""
    if not isinstance(e_values, Tracer):
        host = np.asarray(e_values)
        refuse(host, host < 0, name, "e-values are not negative ({count} of {size} are)")


def check_weights(weights: Any, name: str = "weights", why: str = "weights are proportions") -> None:
    """Check that weights are finite, not negative, and not all zero (along the last axis)."""
    if isinstance(weights, Tracer):
        return
    host = np.asarray(weights)
    refuse(host, ~np.isfinite(host) | (host < 0), name, f"{why}, so each must be finite and not negative")
    if host.size == 0 or not (host.sum(axis=-1) > 0).all():
        raise InputError(f"{name} are all zero; {why}, so at least one must be positive")


def check_seed(seed: Any) -> int:
    """Return a whole number that can seed a PRNG key."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be a whole number from 0 to 2^32 - 1, got {seed!r}")
    return int(seed)


def key_of_seed(seed: Any) -> jax.Array:
    """The PRNG key of a whole number; a seed gives the same numbers whatever generator JAX is set to.

    Raises:
      InputError: it is no whole number, or out of range.
    """
    return jax.random.key(check_seed(seed), impl="threefry2x32")


def check_key(key: Any, why: str) -> None:
    """Check a required PRNG key; `why` states what draws."""
    if key is None:
        raise InputError(f"key is missing: {why} draws random numbers; pass key=jax.random.key(seed)")
    if not isinstance(key, jax.Array):
        raise InputError(f"key must be a PRNG key from jax.random.key(seed), got {key!r}")
    config: Any = jax.config
    words = 2 if config.jax_default_prng_impl.startswith("threefry") else 4
    legacy = key.dtype == jnp.uint32 and key.shape == (words,)
    if not legacy and not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()):
        raise InputError(
            f"key must be a PRNG key from jax.random.key(seed), one of them, got an array of {key.dtype} of shape "
            f"{key.shape}"
        )


def _is_missing(value: Any) -> bool:
    """True for None and markers such as pandas.NA, which equals nothing."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")
