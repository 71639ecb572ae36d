"""What is computed in another way on an accelerator than on a CPU, with the same result.

The choice follows the platform that a program is lowered for, not the process's default backend.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = [
    "all_gpus_since_ampere",
    "cummax",
    "cummin",
    "cumsum",
    "fast_products",
    "full_precision",
    "fused_on",
    "one_device",
    "over_rows",
    "product",
    "quotient",
    "stored",
]

_FAST = "default"
_FRACTION_BITS = 23
_STEPS = 4
_SHIFT = 150  # a float32 with exponent field E is its 24-bit significand times 2^(E - 150)


def stored(values: jax.Array) -> jax.Array:
    """The same values, on CPU written once to memory instead of computed again wherever they are used.

    An accelerator's compiler shares them in registers, and the barrier would send them through its memory.
    """
    return lax.platform_dependent(values, cpu=lax.optimization_barrier, default=lambda values: values)


_JOINS = {jnp.sum: jnp.add, jnp.prod: jnp.multiply, jnp.max: jnp.maximum, jnp.min: jnp.minimum}
_ROWS_A_STEP = 64


def over_rows(reduce: Callable[..., jax.Array], values: jax.Array) -> jax.Array:
    """[...] the `jnp.sum`, `prod`, `max` or `min` of [K, ...] over K >= 1 rows.

    On a CPU one row after the other, from the first to the last; sums of many rows in groups of 64, whose sums are
    summed: the error grows with the logarithm of K.
    """
    join, size = _JOINS[reduce], values.shape[0]
    if reduce is jnp.sum and size > _ROWS_A_STEP:
        groups = -(-size // _ROWS_A_STEP)
        padded = jnp.pad(values, ((0, groups * _ROWS_A_STEP - size), *((0, 0),) * (values.ndim - 1)))
        in_groups = jnp.moveaxis(padded.reshape(groups, _ROWS_A_STEP, *values.shape[1:]), 1, 0)
        return over_rows(reduce, over_rows(reduce, in_groups))

    def one_by_one(values: jax.Array) -> jax.Array:
        step = lambda i, so_far: join(so_far, values[i])  # noqa: E731
        return lax.fori_loop(1, size, step, values[0], unroll=_ROWS_A_STEP)

    if size == 1:
        return values[0]
    return lax.platform_dependent(values, cpu=one_by_one, default=functools.partial(reduce, axis=0))


def product(subscripts: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """Einsum that returns float32, accurate to float32 where both factors are float32; see `fast_products`.

    NVIDIA GPUs have no matrix units for float32. There each factor is the sum of three parts in bfloat16, and the six
    largest products of parts leave an error of float32's order, in less time. TPUs do so by themselves.
    """
    precision = full_precision(left, right)
    exact = functools.partial(jnp.einsum, subscripts, precision=precision, preferred_element_type=jnp.float32)
    parts = precision is not None and left.dtype == right.dtype and all_gpus_since_ampere()
    if not parts or _has_one_row(subscripts, left, right):
        return exact(left, right)
    in_parts = functools.partial(
        jnp.einsum,
        subscripts,
        precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
        preferred_element_type=jnp.float32,
    )
    return lax.platform_dependent(left, right, cuda=in_parts, default=exact)


def _has_one_row(subscripts: str, left: jax.Array, right: jax.Array) -> bool:
    """Whether a factor is a vector beside the axes that both have.

    XLA makes such a product of parts without matrix units, and rounds each product of two numbers to bfloat16.
    """
    of_left, of_right = subscripts.partition("->")[0].split(",")
    free = [
        math.prod(size for axis, size in zip(own, factor.shape, strict=True) if axis not in other)
        for own, other, factor in ((of_left, of_right, left), (of_right, of_left, right))
    ]
    return 1 in free


def full_precision(*factors: jax.Array) -> lax.Precision | None:
    """The precision of a product of these factors: that of float32 if one of them is float32, else the default.

    By default an NVIDIA GPU rounds factors in float32 to TF32, 10 bits of fraction, and a TPU to bfloat16.
    """
    config: Any = jax.config
    wide = any(factor.dtype == jnp.float32 for factor in factors)
    return lax.Precision.HIGHEST if wide and config.jax_default_matmul_precision != _FAST else None


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Programs traced inside round the factors of `product`: for training, whose products are not reported.

    Also a decorator. It sets JAX's own option, which is a part of the keys of what JAX has traced.
    """
    with jax.default_matmul_precision(_FAST):
        yield


_one_device = contextvars.ContextVar("one_device", default=False)


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Programs traced inside run on one device, or are one device's part of `jax.shard_map`. Also a decorator."""
    before = _one_device.set(True)
    try:
        yield
    finally:
        _one_device.reset(before)


def fused_on(platform: str) -> bool:
    """Whether a fused kernel may be traced for "gpu" or "tpu": XLA cannot divide one between devices.

    Those for GPUs are written in Triton, which compiles for none before Ampere.
    """
    known = platform != "gpu" or all_gpus_since_ampere()
    return known and _one_device.get() and platform in _accelerators()


@functools.lru_cache(maxsize=1)
def _accelerators() -> frozenset[str]:
    """The platforms of this process, which alone are compiled for."""
    return frozenset(device.platform for device in jax.local_devices()) - {"cpu"}


@functools.lru_cache(maxsize=1)
def all_gpus_since_ampere() -> bool:
    """Whether no GPU of this process is older than NVIDIA's Ampere, the first with products of bfloat16."""
    capabilities = [str(getattr(device, "compute_capability", None)) for device in jax.local_devices()]
    numbers = [float(text) for text in capabilities if re.fullmatch(r"\d+\.\d+", text)]  # AMD's are names
    return all(number >= 8 for number in numbers)


def quotient(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """numerator / denominator, correctly rounded on every platform, element by element.

    GPUs divide in float32 with an error of up to two units in the last place. There the remainder of the quotient is
    taken in integers, exactly, and moves the quotient to the nearest float32. On CPU the divisor is hidden from the
    compiler, which would multiply by the rounded reciprocal of a constant.

    Args:
      numerator: Floating-point array of whole numbers, at least 0 and at most the denominator.
      denominator: Whole numbers from 1 to 2^28, of the same type and shape.

    Returns: an array of the same type and shape.
    """
    if numerator.dtype != jnp.float32:
        return _plain(numerator, denominator)
    return lax.platform_dependent(numerator, denominator, cpu=_plain, default=_divided)


def _plain(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    return numerator / lax.optimization_barrier(denominator)


def _divided(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    return rounded(numerator, denominator, numerator / denominator)


def rounded(numerator: jax.Array, denominator: jax.Array, guess: jax.Array) -> jax.Array:
    """The float32 nearest to numerator / denominator, from a guess at most four float32 away.

    Those are two units in the last place where the quotient lies just below a power of two.
    """
    for _ in range(_STEPS):
        guess = settled(numerator, denominator, guess)
    return guess


def settled(numerator: jax.Array, denominator: jax.Array, guess: jax.Array) -> jax.Array:
    """`guess`, or its neighbour if that is nearer to numerator / denominator; arguments as `quotient`.

    With guess = q 2^-s for a 24-bit integer q, the sign and size of numerator 2^s - q denominator decide. It is below
    2^31 in absolute value, so arithmetic modulo 2^32 gives it exactly. A quotient of two float32 never lies midway
    between two others.
    """
    bits = lax.bitcast_convert_type(guess, jnp.int32)
    shift = (_SHIFT - (bits >> _FRACTION_BITS)).astype(jnp.uint32)
    fraction = bits & (2**_FRACTION_BITS - 1)
    significand = (fraction | 2**_FRACTION_BITS).astype(jnp.uint32)
    left = jnp.where(shift < 32, numerator.astype(jnp.uint32) << jnp.minimum(shift, 31), 0)
    whole = denominator.astype(jnp.int32)
    rest = lax.bitcast_convert_type(left - significand * whole.astype(jnp.uint32), jnp.int32)
    up = rest > whole - rest
    # the float below a power of two is half as far away
    down = jnp.where(fraction == 0, -rest > whole >> 2, -rest > whole + rest)
    moved = lax.bitcast_convert_type(bits + up.astype(jnp.int32) - down.astype(jnp.int32), jnp.float32)
    return jnp.where(numerator > 0, moved, 0)


def cumsum(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] sums of the items up to each one, of integers; `reverse` for those from it on."""
    return _running(jnp.add, lax.cumsum, values, reverse)


def cummax(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] the largest of the items up to each one; `reverse` for those from it on. After NaN all are NaN."""
    return _running(jnp.maximum, lax.cummax, values, reverse)


def cummin(values: jax.Array, *, reverse: bool = False) -> jax.Array:
    """[m] the smallest of the items up to each one; `reverse` for those from it on. After NaN all are NaN."""
    return _running(jnp.minimum, lax.cummin, values, reverse)


def _running(join: Callable[..., jax.Array], tree: Callable[..., Any], values: jax.Array, reverse: bool) -> jax.Array:
    """On a CPU one item after the other, in place of XLA's tree of windows; a batch runs side by side."""
    size = values.shape[0]
    if size < 2:
        return values

    def step(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place = size - 1 - i if reverse else i
        so_far = join(state[0], state[1][place])
        return so_far, lax.dynamic_update_index_in_dim(state[1], so_far, place, 0)

    def one_by_one(values: jax.Array) -> jax.Array:
        return lax.fori_loop(1, size, step, (values[-1 if reverse else 0], values))[1]

    return lax.platform_dependent(values, cpu=one_by_one, default=lambda values: tree(values, reverse=reverse))
