"""Detection of the time at which sequential p-values become small, for streams that are monitored without end.

A martingale from a fixed start must win back all that it lost on a long clean stretch. The procedure of Shiryaev and
Roberts starts a new bet at every step,

    R_t = (1 + R_(t-1)) b(p_t),    R_0 = 0,

here for the mean over eight bets b(p) = e p^(e - 1), raises an alarm when R_t >= A, and restarts at 0. Clean
p-values make R_t - t a supermartingale, and every alarm takes A from it: that bounds how often alarms are false. The
CUSUM statistic of the same bets is never larger than R_t and has no better bound, so there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import ranks
from tdd.kernels.martingale import power_bets

__all__ = ["Alarms", "State", "advance", "shiryaev_roberts", "start"]

_NUM_BETS = 8


class State(NamedTuple):
    """The state between steps."""

    log_statistics: jax.Array  # [8] log R of each bet; -inf after a start
    log_threshold: jax.Array  # [] log A


class Alarms(NamedTuple):
    """The statistic after every p-value."""

    log_statistic: jax.Array  # [T] log R_t, before it begins again; that of the step before at masked steps
    alarm: jax.Array  # [T] bool, R_t >= A


def start(mean_time: Any, *, dtype: Any = None) -> State:
    """No evidence yet.

    `mean_time` is A >= 1, the smallest mean number of p-values between false alarms; `dtype` is JAX's default float by
    default. Raises ValueError for a static `mean_time` below 1; a traced one gives no alarm.
    """
    if not isinstance(mean_time, jax.Array) and not mean_time >= 1:
        raise ValueError(f"mean_time must be at least 1, got {mean_time!r}")
    dtype = dtype or jnp.result_type(float)
    threshold = jnp.asarray(mean_time, dtype)
    log_threshold = jnp.where(threshold >= 1, jnp.log(threshold), jnp.nan)
    return State(jnp.full(_NUM_BETS, -jnp.inf, dtype), log_threshold)


def advance(state: State, log_p_value: Any, mask: Any = True) -> tuple[State, Alarms]:
    """Bet on the next p-value: the new state, of the same shapes, and `Alarms` with fields [].

    `log_p_value` [] is the natural logarithm of p in [0, 1], -inf an alarm; a NaN, or one with `mask` False, takes no
    place.
    """
    e, weights = power_bets(_NUM_BETS)
    dtype = state.log_statistics.dtype
    slope, constant, log_weights = (jnp.asarray(x, dtype) for x in (1 - e, np.log(e), np.log(weights)))
    log_p = jnp.asarray(log_p_value, dtype)
    real = mask & ~jnp.isnan(log_p)
    bets = jnp.logaddexp(state.log_statistics, jnp.zeros((), dtype)) + (constant - slope * jnp.where(real, log_p, 0))
    statistics = jnp.where(real, bets, state.log_statistics)
    log_statistic = jax.nn.logsumexp(log_weights + statistics)
    alarm = real & (log_statistic >= state.log_threshold)
    return state._replace(log_statistics=jnp.where(alarm, -jnp.inf, statistics)), Alarms(log_statistic, alarm)


def shiryaev_roberts(log_p_values: jax.Array, mean_time: Any, *, mask: jax.Array | None = None) -> Alarms:
    """Watch a whole stream; a scan over `advance`.

    **Guarantee**: where every p-value is super-uniform given those before it, the mean number of p-values up to the
    first alarm, and from one alarm to the next, is at least A = `mean_time`, and the mean number of alarms among any n
    p-values from a start is at most n / A. Finite-sample.

    Arguments as `start` and `martingale.conformal_martingale`. Cost: O(T).
    References: Shiryaev (1963); Roberts (1966); Pollak (1987) for the bound; Vovk (2021) for conformal p-values.
    """
    log_p = ranks.at_least_single(log_p_values)
    real = jnp.ones(log_p.shape, bool) if mask is None else mask
    begin = start(mean_time, dtype=log_p.dtype)
    return jax.lax.scan(lambda state, item: advance(state, *item), begin, (log_p, real))[1]
