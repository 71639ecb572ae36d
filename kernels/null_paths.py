"""The envelope of null ranks without Monte Carlo: the paths that null and calibration items make are counted.

In order of their scores, n calibration items and k null items stand in a uniformly random sequence. N_k(i), the null
items before the i-th calibration item, is a path on a lattice, and P(N_k(i) <= u(i) for all i) is a recursion over its
n + k steps: after d of them with c null items, the next item is null with probability (k - c)/(n + k - d).
`calibrate` finds the envelope of `fdp_bounds.calibrate` with it, at a constant that no draw moves.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels.fdp_bounds import Template, grids, tails_of, width_of

__all__ = ["calibrate", "probability_under"]

_SIDE = 16  # numbers of nulls side by side
_DEVIATIONS = 9  # half width of the counts that are followed, in standard deviations: what is beyond counts as failure
_STEPS, _FEWER_STEPS, _SMALL = 20, 10, 2**16  # steps of the search for sizes n·m up to and above the last


def probability_under(limit: jax.Array, num_nulls: jax.Array, num_calibration: Any, *, max_tests: int) -> jax.Array:
    """P(N_k(i) <= u(i) for i = 1..n), N_k(i) = #{null items before the i-th of n calibration items}.

    Args:
      limit: [J, N] int32, u(i) of each of J envelopes; what stands beyond n does not count.
      num_nulls: [J] int32, k <= max_tests.
      num_calibration: [] int32, n <= N.
      max_tests: Static M.

    Returns: [J], at most the probability but for the rounding of (n + k) steps, and at least it less 1e-17: counts that
    are more than nine standard deviations from their mean are taken to lie above the envelope.
    Cost: O(J (N + M) W), W the smaller of M + 1 and about nine square roots of N M/(N + M).
    References: Gazin, Blanchard & Roquain (2024) for the law.
    """
    size, k = limit.shape[1], jnp.asarray(num_nulls, jnp.int32)
    n, dtype = jnp.asarray(num_calibration, jnp.int32), jnp.result_type(float)
    rank = jnp.arange(1, size + 1, dtype=jnp.int32)
    # A count never falls, so that the smallest limit from here on holds here; ranks beyond n have none.
    rising = jax.lax.cummin(jnp.where(rank <= n, limit, max_tests), axis=1, reverse=True)
    step = jnp.arange(size + max_tests, dtype=jnp.int32)
    first = jax.vmap(lambda last: jnp.searchsorted(last, step))(rising + rank - 1)
    most = (step - first).astype(jnp.int32).T  # [N + M, J] null items up to which the next may be a calibration item
    deviation = math.sqrt(size * max_tests / max(size + max_tests - 1, 1)) / 2
    width = min(max_tests + 1, 2 * math.ceil(_DEVIATIONS * deviation) + 3)

    def start_at(d: jax.Array) -> jax.Array:
        """[J] the smallest count that is followed after d items."""
        middle = (d.astype(dtype) * (k / jnp.maximum(n + k, 1))).astype(jnp.int32)
        return jnp.clip(middle - width // 2, 0, jnp.maximum(k + 1 - width, 0))

    def advance(d: jax.Array, chance: jax.Array) -> jax.Array:
        left, start = (n + k - d)[:, None], start_at(d)
        count = start[:, None] + jnp.arange(width, dtype=jnp.int32)
        share = chance / jnp.maximum(left, 1).astype(dtype)
        calibration = jnp.where(count <= most[d][:, None], share * jnp.maximum(n - d + count, 0).astype(dtype), 0)
        null = share * jnp.maximum(k[:, None] - count, 0).astype(dtype)
        stays = calibration + jnp.pad(null, ((0, 0), (1, 0)))[:, :-1]
        moves = jnp.pad(calibration, ((0, 0), (0, 1)))[:, 1:] + null
        return jnp.where(left > 0, jnp.where((start_at(d + 1) > start)[:, None], moves, stays), chance)

    begin = jnp.zeros((k.size, width), dtype).at[:, 0].set(1)
    return jnp.sum(jax.lax.fori_loop(0, n + jnp.max(k), advance, begin), axis=1)


def calibrate(num_calibration: Any, delta: Any, *, max_calibration: int, max_tests: int) -> Template:
    """The envelope u_k(i) of null ranks, computed.

    As `fdp_bounds.calibrate`, with the same grids and u_k(i) = max{c: G_ki(c) >= g}, but g is found by a search on
    `probability_under` and not from draws, so that the failure rate of the bounds depends on no seed.

    Guarantee: P(N_k(i) <= u_k(i) for all i) >= 1 - delta for every k, over the data alone; finite-sample. The rounding
    of all steps, 4 (n + k) epsilons, is on the safe side.

    Args and errors as `fdp_bounds.calibrate`.
    Cost: 10 or 20 times that of `probability_under` for each number of nulls in the grid.
    References: Gazin, Blanchard & Roquain (2024) for the law; Song, Jin & Candes (2026).
    """
    if max_calibration < 1 or max_tests < 0:
        raise ValueError(f"sizes must be positive, got {(max_calibration, max_tests)}")
    level, dtype = lattice.as_level(delta), jnp.result_type(float)
    n = jnp.asarray(num_calibration, jnp.int32)
    grid, step, num_steps = grids(max_calibration, max_tests)
    size, tabulated, width = step * num_steps, jnp.asarray(grid), width_of(max_calibration, step * num_steps)
    allowed = jnp.where(lattice.in_range(level), jnp.asarray(level.value).astype(dtype), 0)
    num_trials = _STEPS if max_calibration * max_tests <= _SMALL else _FEWER_STEPS

    def side_by_side(k: jax.Array) -> jax.Array:
        """[J, I] the envelopes of J numbers of nulls."""
        start, tails = jax.vmap(lambda one: tails_of(one, tabulated, n, width))(k)

        def envelope(log_g: jax.Array) -> jax.Array:
            last = jnp.sum(tails >= jnp.exp(log_g)[:, None, None], axis=2, dtype=jnp.int32) - 1
            return jnp.where((tabulated <= n) & (last >= 0), jnp.minimum(start + last, k[:, None]), k[:, None])

        def excess(log_g: jax.Array) -> jax.Array:
            """Logarithm of the chance of failure over what is allowed."""
            full = jnp.full((k.size, max_calibration), size, jnp.int32).at[:, tabulated - 1].set(envelope(log_g))
            rounding = 4 * (n + k).astype(dtype) * float(jnp.finfo(dtype).eps)
            chance = 1 - probability_under(full, k, n, max_tests=size) + rounding
            return jnp.log(jnp.maximum(chance, 1e-30)) - jnp.log(allowed)

        def narrow(trial: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            low, high, below, above = state
            line = low - below * (high - low) / (above - below)
            middle = jnp.where(trial % 2 == 0, line + 0.02 * (low - line), (low + high) / 2)
            found = excess(middle)
            holds = found <= 0
            return (
                jnp.where(holds, middle, low),
                jnp.where(holds, high, middle),
                jnp.where(holds, found, below),
                jnp.where(holds, above, found),
            )

        low = jnp.full(k.shape, jnp.log(allowed / grid.size), dtype)  # the union bound
        high = jnp.zeros_like(low)
        state = low, high, jnp.full_like(low, -math.log(grid.size)), jnp.broadcast_to(-jnp.log(allowed), low.shape)
        low = jax.lax.fori_loop(0, num_trials, narrow, state)[0]
        return jnp.where(allowed > 0, envelope(low), k[:, None])

    num_nulls = step * jnp.arange(1, num_steps + 1, dtype=jnp.int32)
    padded = -(-num_steps // _SIDE) * _SIDE
    counts = jnp.minimum(step * jnp.arange(1, padded + 1, dtype=jnp.int32), size)
    found = jax.lax.map(side_by_side, counts.reshape(-1, _SIDE)).reshape(padded, grid.size)[:num_steps]
    value = jnp.asarray(level.value, dtype)
    delta = jnp.where((value > 0) & (value < 1), value, jnp.nan)
    return Template(num_nulls, tabulated, jax.lax.cummax(found, axis=0), n, delta)
