"""Evidence over many looks at the same items, valid at all of them at once.

K trajectories of a statistic are exchangeable under the null hypothesis: row 0 belongs to the true labelling of the
items, the others to random labellings. At a look at most floor(a·spent·K) of the K trajectories may have crossed level
a since the start, for every a of a nested grid, decided by the statistics alone, alike for every row. Row 0 is among
them with probability at most a·spent. Unlike a union bound this loses nothing where the looks depend on each other: a
trajectory that stays extreme takes one slot, not one a look.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice

__all__ = ["Evidence", "Levels", "State", "advance", "spending", "start"]

_DIGITS = (1_000, 800, 600, 500, 400, 300, 250, 200, 150, 125)  # levels of a decade, in thousandths
_UNITS = 2**24  # fractions of the level are multiples of 1/_UNITS: exact in float32
_PATIENCE = 20  # looks after which half of the level has been spent, where no horizon is known
_TILT = 3.0  # of the e-value: of those tried, found most often at 20 and above; see `advance`


class Levels(NamedTuple):
    """The grid of levels, from 1 downward."""

    numerator: jax.Array  # [J] int32
    denominator: jax.Array  # [J] int32
    value: jax.Array  # [J] numerator / denominator, rounded down: `p <= alpha` holds at equality in every precision


class State(NamedTuple):
    """The state after the looks so far."""

    place: jax.Array  # [K] int32, place in the grid of the lowest level that each trajectory has crossed; 0 = none
    spent: jax.Array  # [] the largest fraction of the level so far
    e_value: jax.Array  # [] sum of w_t e_t
    levels: Levels  # The grid


class Evidence(NamedTuple):
    """The evidence of a look about row 0."""

    p_value: jax.Array  # [] of this look alone, (1 + #{b >= 1: s_b >= s_0}) / K
    anytime_p_value: jax.Array  # [] the lowest level crossed so far, 1 where none is; it never rises
    log_e_value: jax.Array  # [] logarithm of the e-value so far; it never falls


def start(num_draws: int, *, alpha: Any = None) -> State:
    """The state before the first look at K - 1 = `num_draws` random labellings.

    The levels of the grid are 1, .8, .6, .5, .4, .3, .25, .2, .15, .125, .1 and so on by decades, down to 1/K, below
    which no row can cross; and `alpha`, a number.

    Raises ValueError: num_draws below 0, alpha outside (0, 1) or traced.
    """
    if num_draws < 0:
        raise ValueError(f"num_draws must not be negative, got {num_draws!r}")
    num_rows = num_draws + 1
    levels = {Fraction(1)}
    for decade in range(len(str(num_rows))):
        levels |= {Fraction(digits, 1_000 * 10**decade) for digits in _DIGITS}
    if alpha is not None:
        exact = lattice.as_level(alpha)
        if not lattice.is_exact(exact):
            raise ValueError(f"alpha must be a number that is known beforehand, got {alpha!r}")
        levels.add(Fraction(int(exact.numerator), int(exact.denominator)))
    grid = sorted((level for level in levels if level * num_rows >= 1), reverse=True)
    dtype = np.dtype(jnp.result_type(float))
    return State(
        place=jnp.zeros(num_rows, jnp.int32),
        spent=jnp.zeros((), dtype),
        e_value=jnp.zeros((), dtype),
        levels=Levels(
            jnp.asarray([level.numerator for level in grid], jnp.int32),
            jnp.asarray([level.denominator for level in grid], jnp.int32),
            jnp.asarray([_rounded_down(level, dtype) for level in grid]),
        ),
    )


def advance(state: State, statistics: jax.Array, spent: Any) -> tuple[State, Evidence]:
    """Take in the statistics of one look.

    Level by level from 1 downward, the free slots of a level, floor(a·spent·K) less those taken, go to the most
    extreme trajectories that have crossed the level above and not this one. Trajectories that tie cross together or
    not at all. A look where all tie tells nothing new, yet those that crossed a level before may cross the next one
    there, once more of it has been spent and all of them fit.

    **Guarantee**, finite-sample, where the K paths of statistics are exchangeable: P(anytime_p_value <= a at this look
    or before) <= a·spent for every a < 1, whatever the dependence between looks. Proof: which rows have crossed a is a
    function of all paths that permutes with the rows, so every row has crossed with the same probability, and the K
    probabilities sum to the mean number of rows that have, at most a·spent·K.
    The e-value is N_t = sum over looks of w_t e_t, w_t = spent_t - spent_(t-1), e_t = K f(s_0) / sum_b f(s_b) with
    f = exp(3 z), z the statistic standardised over the K rows. The K values f(s_b) / sum f sum to 1 and are
    exchangeable, so e_t has mean 1; N_t never falls and its limit has mean sum w_t <= 1, so E N <= 1 at any time that
    one may choose, and P(N_t >= 1/a at some look) <= a. (A product of e_t over looks at the same items is no e-value.)
    Both need fractions that were fixed beforehand, and a training that reacts to the evidence by stopping only.

    Args:
      state: Result of `start` or of the previous look.
      statistics: [K] larger = more member-like, row 0 that of the true labelling. A NaN is least extreme.
      spent: [] fraction in [0, 1] of the level that may have been spent by this look, with earlier looks; taken down to
        a multiple of 2^-24, and never below that of an earlier look.

    Returns: (state, `Evidence`).
    Cost: O(K log K + J K) for J levels; under jit, as its loop compiles once.
    """
    num_rows = state.place.shape[0]
    if jnp.issubdtype(statistics.dtype, jnp.floating):
        statistics = jnp.where(jnp.isnan(statistics), -jnp.inf, statistics)
    dtype = state.spent.dtype
    fraction = jnp.asarray(spent, dtype)
    fraction = jnp.maximum(state.spent, jnp.where(jnp.isnan(fraction), 0, jnp.clip(fraction, 0, 1)))
    place = _cross(state.place, statistics, _capacity(state.levels, fraction, num_rows))
    reached = jnp.sum(statistics >= statistics[0], dtype=jnp.int32)
    e_value = state.e_value + (fraction - state.spent) * _e_value(statistics, dtype)
    evidence = Evidence(reached.astype(dtype) / num_rows, state.levels.value[place[0]], jnp.log(e_value))
    return State(place, fraction, e_value, state.levels), evidence


def spending(look: Any, horizon: Any = None) -> jax.Array:
    """Fraction of the level that may have been spent by a look: look/horizon, or look/(look + 20) without a horizon.

    `look` counts from 1; `horizon` is the largest number of looks, fixed beforehand, and looks beyond it spend nothing
    more. [] in [0, 1], taken up to a multiple of 2^-24: the same number in every precision, so the same slots.
    """
    look = jnp.maximum(jnp.asarray(look, jnp.int32), 0)
    whole = look + _PATIENCE if horizon is None else jnp.asarray(horizon, jnp.int32)
    units = lattice.ceil_ratio((jnp.minimum(look, whole), _UNITS), (whole,), _UNITS)
    return jnp.minimum(units, _UNITS).astype(jnp.result_type(float)) / _UNITS


def _rounded_down(level: Fraction, dtype: np.dtype) -> Any:
    value = dtype.type(float(level))
    return np.nextafter(value, dtype.type(0)) if Fraction(float(value)) > level else value


def _capacity(levels: Levels, fraction: jax.Array, num_rows: int) -> jax.Array:
    """[J] int32: floor(a·fraction·K), exactly."""
    units = jnp.floor(fraction * _UNITS).astype(jnp.int32)

    def one(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
        return lattice.floor_ratio((numerator, units, num_rows), (denominator, _UNITS), num_rows)

    return jax.vmap(one)(levels.numerator, levels.denominator)


def _cross(place: jax.Array, statistics: jax.Array, capacity: jax.Array) -> jax.Array:
    """[K] places after the look."""
    num_rows = place.shape[0]
    index = jnp.arange(num_rows, dtype=jnp.int32)
    ordered, order = (x[::-1] for x in jax.lax.sort((statistics, index), num_keys=1, is_stable=False))
    closes = jnp.append(ordered[1:] != ordered[:-1], True)  # the last of those that tie

    def level(place: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        number, slots = step
        free = slots - jnp.sum(place >= number, dtype=jnp.int32)
        waiting = place == number - 1
        fits = closes & (jax.lax.associative_scan(jnp.add, waiting.astype(jnp.int32)) <= free)
        last = jnp.max(jnp.where(fits, index, -1))
        return jnp.where(waiting & (index <= last), number, place), None

    numbers = jnp.arange(1, capacity.shape[0], dtype=jnp.int32)
    crossed, _ = jax.lax.scan(level, place[order], (numbers, capacity[1:]))
    return jnp.zeros_like(place).at[order].set(crossed, unique_indices=True)


def _e_value(statistics: jax.Array, dtype: Any) -> jax.Array:
    """K f(s_0) / sum_b f(s_b) with f = exp(3 z), z standardised over the rows; 1 where nothing is finite."""
    value = statistics.astype(dtype)
    finite = jnp.isfinite(value)
    count = jnp.maximum(jnp.sum(finite), 1).astype(dtype)
    deviation = jnp.where(finite, value - jnp.sum(jnp.where(finite, value, 0)) / count, 0)
    scale = jnp.sqrt(jnp.sum(deviation**2) / count)
    tilted = jnp.where(finite, _TILT * deviation / jnp.where(scale > 0, scale, 1), -jnp.inf)
    weight = jnp.where(jnp.any(finite), jax.nn.softmax(tilted)[0], 1 / statistics.shape[0])
    return weight * statistics.shape[0]
