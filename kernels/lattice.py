"""Exact comparisons of products of integers, without 64-bit types.

Conformal p-values live on the lattice r/(n+1), and a step-up procedure compares them with k·alpha/m. Equality is
common there and floating point decides it wrongly, so the comparison is made between integers: alpha is a fraction
a/b, and r·m·b <= a·k·(n+1) is decided on products held as base-2^16 digits in uint32. It is exact for any n and m
below 2^30 under JAX's default 32-bit types, on every backend.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Level", "as_level", "ceil_ratio", "floor_ratio", "in_range", "is_exact", "product_le", "settle"]

_DENOMINATORS = (10, 20, 10**2, 10**3, 10**6, 10**9)  # the first three for numbers of 16 bits
_GUESS_ERROR = 2e-6  # bounds the relative error of the float32 quotient below: under thirty roundings of 2^-24


class Level(NamedTuple):
    """A level alpha in (0, 1), as an exact fraction where it is known as one."""

    value: Any  # [] alpha in floating point
    numerator: Any  # [] integer a of alpha = a/b; a static 0 where alpha is only known as a float
    denominator: Any  # [] integer b; a static 1 where alpha is only known as a float
    below32: Any  # [] the largest float32 that is <= alpha, both as the fraction and as it was given
    above32: Any  # [] the smallest float32 that is > alpha, likewise
    below64: Any  # [] as `below32` in float64
    above64: Any  # [] as `above32` in float64


def as_level(alpha: Any) -> Level:
    """Turn a level into a `Level`.

    A Python or NumPy number, a Fraction or a Decimal becomes the simplest fraction that rounds to it (0.1 is 1/10),
    and decisions at it are exact. A JAX array, traced or not, stays a float: decisions then carry a tolerance
    of four machine epsilons, in favour of rejection at equality.

    Raises ValueError: a static level outside (0, 1).
    """
    if isinstance(alpha, Level):
        return alpha
    if isinstance(alpha, jax.Array):
        return _float_level(alpha)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha!r}")
    exact = _simplest_fraction(alpha)
    given = Fraction(alpha) if isinstance(alpha, Fraction) else Fraction(float(alpha))
    low, high = min(exact, given), max(exact, given)
    bounds = []
    for dtype in (np.float32, np.float64):
        below, above = dtype(float(low)), dtype(float(high))
        if Fraction(float(below)) > low:
            below = np.nextafter(below, dtype(-1))
        # Above alpha also where alpha is rounded to this type before it is compared.
        bounds += [below, np.nextafter(above, dtype(2))]
    value = np.asarray(float(exact), jnp.result_type(float))
    integer = np.uint16 if exact.denominator < 2**16 else np.int32
    return Level(value, integer(exact.numerator), integer(exact.denominator), *bounds)


def is_exact(level: Level) -> bool:
    """True if the level is known as a fraction (its digits may be traced). Static."""
    return isinstance(level.numerator, jax.Array) or int(level.numerator) > 0


def in_range(level: Level) -> jax.Array:
    """[] bool, True if a level lies in (0, 1); a static one always does."""
    if is_exact(level):
        return jnp.asarray(True)
    return (level.value > 0) & (level.value < 1)


def settle(reject: jax.Array, adjusted: jax.Array, level: Level) -> jax.Array:
    """Adjusted values on the side of alpha where the decision put them: `reject == (settled <= alpha)`."""
    single = adjusted.dtype == jnp.float32
    sides = (level.below32, level.above32) if single else (level.below64, level.above64)
    below, above = (jnp.asarray(side).astype(adjusted.dtype) for side in sides)
    return jnp.where(reject, jnp.minimum(adjusted, below), jnp.maximum(adjusted, above))


def product_le(left: tuple[Any, ...], right: tuple[Any, ...]) -> jax.Array:
    """True if the product of `left` is at most the product of `right`, exactly, element by element.

    Factors are non-negative integers below 2^31, scalars or arrays that broadcast against all others. Numbers of the
    host and arrays of 8 or 16 bits (`narrow`) cost less: products that fit 32 bits are compared as they are.
    Cost: O(len^2) integer operations an element.
    """
    words = [_joined(factors) for factors in (left, right)]
    if len(words[0]) == len(words[1]) == 1:
        return jnp.asarray(words[0][0].value <= words[1][0].value)
    return digits_le(*map(_digits, words))


def narrow(value: Any, most: int) -> Any:
    """An integer array that holds 0..`most` (static), in the smallest unsigned type that can; a host's number as is."""
    if isinstance(value, (int, np.integer)):
        return value
    for dtype in (jnp.uint8, jnp.uint16):
        if most <= jnp.iinfo(dtype).max:
            return jnp.asarray(value).astype(dtype)
    return value


def floor_ratio(numerator: tuple[Any, ...], denominator: tuple[Any, ...], bound: int) -> jax.Array:
    """The largest integer t in 0..bound with t·prod(denominator) <= prod(numerator), exactly: [] int32.

    Factors are non-negative integers below 2^31, scalars (batch with `jax.vmap`); a zero in the denominator makes the
    answer `bound`, which is static and below 2^30. Numbers of the host are divided there.
    """
    if all(isinstance(factor, (int, np.integer)) for factor in (*numerator, *denominator)):
        top, bottom = (math.prod(map(int, factors)) for factors in (numerator, denominator))
        return jnp.int32(min(bound, top // bottom) if bottom else bound)
    candidates = _candidates(numerator, denominator, bound)
    holds = product_le((narrow(candidates, bound), *denominator), numerator)
    return jnp.max(jnp.where(holds, candidates, 0))


def ceil_ratio(numerator: tuple[Any, ...], denominator: tuple[Any, ...], bound: int) -> jax.Array:
    """The smallest t in 0..bound with prod(numerator) <= t·prod(denominator), else bound + 1; as `floor_ratio`."""
    candidates = _candidates(numerator, denominator, bound)
    holds = product_le(numerator, (narrow(candidates, bound), *denominator))
    return jnp.min(jnp.where(holds, candidates, bound + 1))


def _float_level(alpha: jax.Array) -> Level:
    """A level that is only known as a float, in its own precision."""
    value = alpha if jnp.issubdtype(alpha.dtype, jnp.floating) else alpha.astype(jnp.result_type(float))
    bounds = []
    for dtype in (jnp.float32, jnp.result_type(float)):
        rounded = value.astype(dtype)
        below = jnp.where(rounded > value, jnp.nextafter(rounded, jnp.asarray(-1, dtype)), rounded)
        bounds += [below, jnp.nextafter(rounded, jnp.asarray(2, dtype))]
    return Level(value, np.int32(0), np.int32(1), *bounds)


def _simplest_fraction(alpha: Any) -> Fraction:
    """The fraction with the smallest denominator class that rounds to alpha in alpha's own type."""
    given = getattr(alpha, "dtype", None)
    rounded = given.type if given is not None and jnp.issubdtype(given, jnp.floating) and given.itemsize < 8 else float
    exact = alpha if isinstance(alpha, Fraction) else Fraction(float(alpha))
    for limit in _DENOMINATORS:
        candidate = exact.limit_denominator(limit)
        if 0 < candidate < 1 and rounded(float(candidate)) == rounded(float(exact)):
            return candidate
    candidate = exact.limit_denominator(_DENOMINATORS[-1])
    if not 0 < candidate < 1:
        raise ValueError(f"alpha must lie between 1e-9 and 1 - 1e-9, got {alpha!r}")
    return candidate


class _Word(NamedTuple):
    """An integer below 2^bits; a 1 that is static has no bits, as it adds none to a product."""

    value: Any  # uint32, of NumPy where it is static
    bits: int  # static, at most 32


def digits(factors: tuple[Any, ...]) -> list[Any]:
    """The product of the factors, base 2^16, least significant digit first; without those that bounds say are 0."""
    return _digits(_joined(factors))


def digits_le(small: list[Any], large: list[Any]) -> jax.Array:
    """True if one number in base 2^16 is at most another."""
    less, equal = jnp.asarray(False), jnp.asarray(True)
    for a, b in reversed(list(zip_longest(small, large, fillvalue=np.uint32(0)))):
        less = less | (equal & (a < b))
        equal = equal & (a == b)
    return less | equal


def _word(factor: Any) -> _Word:
    if isinstance(factor, (int, np.integer)):
        return _Word(np.uint32(factor), 0 if factor == 1 else max(1, int(factor).bit_length()))
    array = jnp.asarray(factor)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(jnp.int32)
    return _Word(array.astype(jnp.uint32), int(jnp.iinfo(array.dtype).max).bit_length())


def _joined(factors: Iterable[Any]) -> list[_Word]:
    """Factors whose product fits 32 bits in one word, the smallest first."""
    first, *rest = sorted(map(_word, factors), key=lambda word: word.bits)
    out = [first]
    for word in rest:
        if out[-1].bits + word.bits > 32:
            out.append(word)
        elif out[-1].bits == 0:  # times one
            out[-1] = word
        else:
            out[-1] = _Word(out[-1].value * word.value, out[-1].bits + word.bits)
    return out


def _digits(words: list[_Word]) -> list[Any]:
    out, bits = [], 0
    for word in words:
        digits = [word.value] if word.bits <= 16 else [word.value & 0xFFFF, word.value >> 16]
        bits += word.bits
        out = _multiply(out, digits, -(-bits // 16)) if out else digits
    return out


def _multiply(left: list[Any], right: list[Any], size: int) -> list[Any]:
    """The `size` digits of a product, by the schoolbook; digit·digit + digit + carry fits uint32 exactly."""
    out: list[Any] = []
    for j, b in enumerate(right):
        carry = None
        for i, a in enumerate(left[: size - j]):
            parts = [a * b, *out[i + j : i + j + 1], *([] if carry is None else [carry])]
            total = reduce(operator.add, parts)
            ends = i + j == size - 1  # the last digit carries nothing
            out[i + j :] = [total if ends else total & 0xFFFF, *out[i + j + 1 :]]
            carry = None if ends else total >> 16
        if carry is not None:
            out.append(carry)
    return out


def _candidates(numerator: tuple[Any, ...], denominator: tuple[Any, ...], bound: int) -> jax.Array:
    """Integers around the float32 quotient, wide enough to contain the exact answer's neighbourhood."""
    guess = jnp.float32(1)
    for a, b in zip_longest(numerator, denominator, fillvalue=1):
        guess = guess * jnp.asarray(a).astype(jnp.float32) / jnp.asarray(b).astype(jnp.float32)
    guess = jnp.where(jnp.isnan(guess), bound, guess)
    reach = 2 + math.ceil(bound * _GUESS_ERROR)
    centre = jnp.clip(jnp.floor(guess), 0, np.float32(bound)).astype(jnp.int32)
    around = centre + jnp.arange(-reach, reach + 1, dtype=jnp.int32)
    # The ends belong to every search: a quotient beyond either of them has its answer there.
    return jnp.clip(around, 0, bound)
