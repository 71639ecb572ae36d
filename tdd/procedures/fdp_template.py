"""The template of `fdp_bounds`: computed, or beyond some sizes drawn on the host at a cost that sizes do not raise."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, null_paths
from tdd.kernels.fdp_bounds import Template, calibrate, grids, place_of
from tdd.procedures.calls import level_operand, tracing
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

LARGE = 2_048
"""Calibration scores or items up to which the template is computed; beyond, the host draws."""
_TOGETHER = 256  # draws whose counts fit a core's cache


@in_own_settings()
def fdp_template(
    num_calibration: int, num_tests: int, *, key: jax.Array, delta: Any = 0.05, num_draws: int = 1_919
) -> Template:
    """Return the part of `fdp_bounds` that depends on the sizes only, for many data sets of one size.

    For known sizes up to 2,048 it is computed (`tdd.kernels.null_paths`), and neither the key nor the number of draws
    moves it; otherwise it is drawn. Cost: up to 2,048, O((n + m) W) for each tabulated number of nulls, W at most
    m + 1; beyond, O(num_draws log n); in a trace, O(num_draws (n + m)) besides.

    Args:
      num_calibration: n, calibration scores that are real in every data set.
      num_tests: the largest m.
      key: PRNG key of the draws.
      delta: probability in (0, 1) that some bound fails.
      num_draws: B; the bounds are valid for any B >= 1/delta - 1, and vary less for more: over data sets alone, given
        the draws, delta has a standard error of sqrt(delta (1 - delta)/(B + 2)), .005 for .05 and B = 1,919.

    Returns:
      `Template`, for `fdp_bounds(..., template=...)`.

    Raises:
      InputError: sizes that are not positive, delta out of range, too few draws, no key.
    """
    n = arrays.as_count(num_calibration, "num_calibration", why="calibration scores")
    m = arrays.as_count(num_tests, "num_tests", why="items")
    return template_for(key, n, delta, num_draws, max_calibration=n, max_tests=m)


def template_for(key: Any, n: Any, delta: Any, num_draws: int, *, max_calibration: int, max_tests: int) -> Template:
    """Check the arguments and return the template; n may be traced, and delta=None stands for 0.05."""
    draws = arrays.as_count(num_draws, "num_draws", why="Monte Carlo draws")
    arrays.check_key(key, "the envelope")
    level = level_operand(0.05 if delta is None else delta, "delta")
    if not tracing(delta) and (draws + 1) * float(0.05 if delta is None else delta) < 1 - 1e-6:  # of single precision
        raise InputError(f"num_draws={draws} is too few for delta={delta!r}: at least 1/delta - 1 draws are needed")
    sizes = {"max_calibration": max_calibration, "max_tests": max_tests}
    if tracing(key, n, *jax.tree.leaves(level)):
        return _template(key, n, level, num_draws=draws, **sizes)
    level = lattice.as_level(level)
    if max(max_calibration, max_tests) > LARGE:
        return draw_template(key, n, level, num_draws=draws, **sizes)
    exact = lattice.is_exact(level)
    value = int(level.numerator) / int(level.denominator) if exact else float(level.value)
    return _computed(int(n), value, **sizes)


@functools.lru_cache(maxsize=8)
def _computed(n: int, delta: float, *, max_calibration: int, max_tests: int) -> Template:
    """The template in double precision; the last eight are kept, since one run after the other has the same sizes."""
    with jax.enable_x64(True):
        found = _calibrated(n, np.float64(delta), max_calibration=max_calibration, max_tests=max_tests)
        found = jax.tree.map(np.asarray, found)
    return jax.device_put(found._replace(delta=np.asarray(delta, jnp.result_type(float))))


_calibrated = jax.jit(null_paths.calibrate, static_argnames=("max_calibration", "max_tests"))
_template = jax.jit(calibrate, static_argnames=("max_calibration", "max_tests", "num_draws"))


def _words(array: jax.Array) -> jax.Array:
    return jax.random.key_data(array) if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def draw_template(
    key: Any, num_calibration: int, level: lattice.Level, *, max_calibration: int, max_tests: int, num_draws: int
) -> Template:
    """Draw the envelope u_k(i) of `tdd.kernels.fdp_bounds.calibrate` on the host, at its ranks and numbers of nulls.

    The uniforms below U_(i:n) are counted at the tabulated ranks only: the differences of U_(i:n) there are Dirichlet,
    and the counts between them multinomial. Of k null ranks, N_k(i) reach rank i; Molenaar's approximation (1970) of
    the hypergeometric distribution, z_ki(c) = sqrt(c (n+1-i)) - sqrt((k+1-c) i), puts P(N_k(i) >= c) on one scale. With
    Z_b = max_i z_ki(N_k^b(i)) and z the floor(delta (B+1))-th largest Z_b, u_k(i) = max{c: z_ki(c) <= z}, then the
    largest u_k' of k' <= k. The approximation affects how the error is divided among the ranks, not its total: P(N_k(i)
    <= u_k(i) for all i) >= 1 - delta for every k, over the draws and the data, for any number of draws.

    The N_k of one draw share their parts for several k (`_counts`): each has its own law, and only that is used.

    Cost: 8 B binomial draws for each of O(log n) tabulated ranks, and B operations for each pair of a tabulated rank
    and number of nulls, of which there are at most 256; the last eight templates are cached.
    """
    data = np.asarray(_words(key))
    exact = lattice.is_exact(level)
    place = int(level.numerator) * (num_draws + 1) // int(level.denominator) if exact else place_of(level, num_draws)
    words, value = tuple(data.ravel().tolist()), float(level.value)
    return _drawn(words, int(num_calibration), int(place), value, max_calibration, max_tests, num_draws)


@functools.lru_cache(maxsize=8)
def _drawn(
    words: tuple[int, ...], n: int, place: int, delta: float, max_calibration: int, max_tests: int, num_draws: int
) -> Template:
    random = np.random.default_rng(np.random.SeedSequence(words))
    grid, step, num_steps = grids(max_calibration, max_tests)
    ranks = grid[grid <= n].astype(np.float64)
    most = np.zeros((num_steps, num_draws))
    for start in range(0, num_draws if place else 0, _TOGETHER):
        part = slice(start, min(start + _TOGETHER, num_draws))
        between = random.standard_gamma(np.diff(ranks, prepend=0, append=n + 1), (part.stop - start, ranks.size + 1))
        between /= between.sum(axis=1, keepdims=True)
        for index, count in enumerate(_counts(random, step, num_steps, between)):
            most[index, part] = _deviation(count, (index + 1) * step, ranks, n).max(axis=1)
    bound = np.zeros((num_steps, grid.size), np.int32)
    widest = np.zeros(grid.size, np.int32)
    for index in range(num_steps):
        k = (index + 1) * step
        top = np.full(grid.size, k)
        if place:
            top[: ranks.size] = _largest(np.partition(most[index], num_draws - place)[num_draws - place], k, ranks, n)
        widest = np.maximum(widest, top)
        bound[index] = widest
    num_nulls = step * np.arange(1, num_steps + 1, dtype=np.int32)
    value = np.asarray(delta, jnp.result_type(float))
    return Template(*jax.device_put((num_nulls, grid, bound, np.int32(n), value)))


def _counts(random: np.random.Generator, step: int, num_steps: int, between: np.ndarray) -> Iterator[np.ndarray]:
    """Yield N_k [B, R] at the R ranks for k = step, 2 step, ..., with the chances [B, R + 1] of the cells between them.

    Counts of step, 2 step, 4 step, ... nulls are drawn; those of any other number are the sum over its binary digits.
    """
    powers = [
        np.cumsum(random.multinomial(step << digit, between)[:, :-1], axis=1, dtype=float)
        for digit in range(num_steps.bit_length())
    ]
    sums = [np.zeros_like(powers[0])] * (len(powers) + 1)  # by the number of digits that are 1
    for number in range(1, num_steps + 1):
        lowest, digits = (number & -number).bit_length() - 1, number.bit_count()
        sums[digits] = sums[digits - 1] + powers[lowest]  # that without its lowest digit came last with so many
        yield sums[digits]


def _deviation(count: np.ndarray, k: int, rank: np.ndarray, n: int) -> np.ndarray:
    """Return z_ki(c), increasing in the count c."""
    deviation = np.sqrt(count) * np.sqrt(n + 1 - rank)
    deviation -= np.sqrt(k + 1 - count) * np.sqrt(rank)
    return deviation


def _largest(deviation: float, k: int, rank: np.ndarray, n: int) -> np.ndarray:
    """Return max{c <= k: z_ki(c) <= deviation}, from the root c = (k+1) sin² and its neighbours."""
    angle = np.arcsin(np.sqrt(rank / (n + 1))) + np.arcsin(np.clip(deviation / np.sqrt((k + 1) * (n + 1)), -1, 1))
    near = np.floor((k + 1) * np.sin(np.clip(angle, 0, np.pi / 2)) ** 2) + np.arange(-2, 3)[:, None]
    near = np.clip(near, 0, k)
    return np.where(_deviation(near, k, rank, n) <= deviation, near, 0).max(axis=0).astype(np.int32)
