"""Conformal test martingales: evidence by betting against p-values that arrive one after the other.

If every p-value is uniform given those before it, wealth that is bet on small p-values is a martingale M_t with
M_0 = 1, and P(M_t >= 1/a for some t) <= a (Ville's inequality): the stream may be watched at every step and stopped at
any.

With the bets b_e(p) = e p^(e - 1), 0 < e < 1,

"mixture": the integral over e of prod_i b_e(p_i), by a Gauss-Legendre rule of 96 nodes: a weighted mean, of weights
that are positive and sum to 1, so itself a martingale; for 100 p-values it is the integral to rounding.

"any_start": the mean over eight e and over the step s at which betting begins, sum_s w_s prod_(i >= s) b_e(p_i), with
w_s = h(s - 1) - h(s), h(s) = 1 / (1 + log(1 + s)); h(t) itself waits at t. For p-values that begin to be small late: a
long clean stretch before costs log(1/w_s), where the other bets lose more with every step of it.

"simple_jumper": three accounts, multiplied by 1 + e (p_t - 1/2) for e = -1, 0, 1. Before every step each account gives
the fraction `JUMPING_RATE` of its wealth to all three evenly.

The first two fall with every p-value, so those that are too large only lower them. The third bets on large p-values
too: they must be exactly uniform.

References: Vovk, Gammerman & Shafer (2005), section 7.1, for "mixture"; Vovk, Petej, Nouretdinov, Ahlberg, Carlsson &
Gammerman (2021), algorithm 1, for "simple_jumper".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import ranks

__all__ = [
    "BETS",
    "JUMPING_RATE",
    "Bet",
    "Martingale",
    "State",
    "advance",
    "conformal_martingale",
    "control_p_value",
    "first_account",
    "place",
    "power_bets",
    "start",
]

Bet = Literal["mixture", "any_start", "simple_jumper"]
BETS = ("mixture", "any_start", "simple_jumper")
JUMPING_RATE = 0.01
_NUM_NODES, _NUM_STARTED = 96, 8


class Martingale(NamedTuple):
    """Wealth after every p-value."""

    log_martingale: jax.Array  # [T] log M_t; that of the step before at masked steps
    log_running_max: jax.Array  # [T] log of the largest of M_0, ..., M_t
    anytime_p_value: jax.Array  # [T] 1 / running maximum, in (0, 1]; P(it is <= a at some t) <= a
    num_tests: jax.Array  # [T] int32, p-values so far that are neither masked nor NaN


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """A martingale so far: four arrays, whatever the length of the stream."""

    num_tests: jax.Array  # [] int32
    log_martingale: jax.Array  # []
    log_running_max: jax.Array  # []
    account: jax.Array  # State of the bet
    bet: Bet = dataclasses.field(metadata={"static": True})


def start(bet: Bet, *, dtype: Any = None) -> State:
    """M_0 = 1, of JAX's default float by default. Raises ValueError for an unknown `bet`."""
    dtype = dtype or jnp.result_type(float)
    account = first_account(bet, dtype)
    return State(jnp.int32(0), jnp.zeros((), dtype), jnp.zeros((), dtype), account, bet)


def advance(state: State, log_p_value: Any, mask: Any = True) -> tuple[State, Martingale]:
    """Bet on the next p-value: the new state, of the same shapes, and `Martingale` with fields [].

    `log_p_value` [] is the natural logarithm of p in [0, 1]; -inf makes the wealth infinite for good, but that of
    "simple_jumper" grows by 3/2 at most. A NaN, or one with `mask` False, takes no place.
    """
    dtype = state.log_martingale.dtype
    log_p = jnp.asarray(log_p_value, dtype)
    real = mask & ~jnp.isnan(log_p)
    num_tests = state.num_tests + real
    account, log_wealth = place(state.bet, state.account, state.log_martingale, num_tests.astype(dtype), log_p)
    account = jnp.where(real, account, state.account)
    log_wealth = jnp.where(real, log_wealth, state.log_martingale)
    largest = jnp.maximum(state.log_running_max, log_wealth)
    p_value = jnp.maximum(jnp.exp(-largest), jnp.finfo(dtype).tiny)
    after = dataclasses.replace(
        state, num_tests=num_tests, log_martingale=log_wealth, log_running_max=largest, account=account
    )
    return after, Martingale(log_wealth, largest, p_value, num_tests)


def conformal_martingale(log_p_values: jax.Array, *, bet: Bet, mask: jax.Array | None = None) -> Martingale:
    """Bet against a whole stream; a scan over `advance`.

    **Guarantee**: P(some anytime p-value <= a) <= a for every a, finite-sample, if every p-value is uniform given those
    before it; for "mixture" and "any_start" P(p_t <= x given the past) <= x is enough. Online conformal p-values of
    exchangeable scores are, and those of `control_p_value` with controls of their own; p-values that share one
    calibration sample are not.

    Args:
      log_p_values, mask: [T] natural logarithms of p-values in order of arrival, NaN masked out; bool, True = real.
      bet: "mixture", "any_start" or "simple_jumper".

    Raises ValueError: unknown `bet`.
    Cost: O(T); "mixture" takes 96 exponentials a step, "any_start" 24.
    """
    log_p = ranks.at_least_single(log_p_values)
    real = jnp.ones(log_p.shape, bool) if mask is None else mask
    return jax.lax.scan(lambda state, item: advance(state, *item), start(bet, dtype=log_p.dtype), (log_p, real))[1]


def control_p_value(
    score: jax.Array,
    controls: jax.Array,
    *,
    key: jax.Array | None = None,
    uniform: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """p-value of a canary among k controls of its own; small = its score is lower than theirs (more member-like).

    (#{lower} + U (1 + #{equal})) / (k + 1), exactly uniform where canary and controls are exchangeable; without `key`
    and `uniform` U = 1, the conservative (1 + #{lower or equal}) / (k + 1). Independent over canaries whose controls
    are drawn afresh.

    Args:
      score: [...] loss-like scores.
      controls, mask: [..., k] scores of the controls of each, NaN masked out; bool, True = real control.
      key: Draws U.
      uniform: [...] U itself, in (0, 1].

    Returns: [...] in (0, 1]; NaN where the score is NaN.
    Raises ValueError: both `key` and `uniform`.
    """
    if key is not None and uniform is not None:
        raise ValueError("give key or uniform, not both")
    dtype = jnp.result_type(float)
    if key is not None:
        uniform = 1 - jax.random.uniform(key, jnp.shape(score), dtype)
    u = jnp.ones((), dtype) if uniform is None else jnp.asarray(uniform, dtype)
    score, controls = jnp.asarray(score), jnp.asarray(controls)
    real = controls == controls if mask is None else mask & (controls == controls)
    lower = jnp.sum(real & (controls < score[..., None]), axis=-1).astype(dtype)
    equal = jnp.sum(real & (controls == score[..., None]), axis=-1).astype(dtype)
    p = (lower + u * (1 + equal)) / (jnp.sum(real, axis=-1) + 1).astype(dtype)
    return jnp.where(score == score, jnp.minimum(p, 1), jnp.nan)


def first_account(bet: Bet, dtype: Any) -> jax.Array:
    """The state of a bet before the first p-value. Raises ValueError for an unknown `bet`.

    "mixture": [1], sum of -log p_i - 1; "any_start": [8], log of what each e holds; "simple_jumper": [3], fractions
    of the wealth in the three accounts.
    """
    if bet not in BETS:
        raise ValueError(f"bet must be one of {BETS}, got {bet!r}")
    size, value = {"mixture": (1, 0.0), "any_start": (_NUM_STARTED, -np.inf), "simple_jumper": (3, 1 / 3)}[bet]
    return jnp.full(size, value, dtype)


def place(
    bet: Bet, account: jax.Array, log_wealth: jax.Array, time: jax.Array, log_p: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The account and log M_t after log p_t = `log_p`; t = `time` >= 1, `log_wealth` is log M_(t-1), `bet` static."""
    if bet == "mixture":
        return _mixture(account, time, log_p)
    if bet == "any_start":
        return _any_start(account, time, log_p)
    return _simple_jumper(account, log_wealth, log_p)


def power_bets(size: int) -> tuple[np.ndarray, np.ndarray]:
    """e in (0, 1) and weights that sum to 1: the Gauss-Legendre rule."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return (nodes + 1) / 2, weights / 2


def _mixture(account: jax.Array, time: jax.Array, log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log sum_k w_k exp(t log e_k + (1 - e_k) S), S = t + account: no difference of large numbers."""
    e, weights = power_bets(_NUM_NODES)
    drift, slope, log_weights = (jnp.asarray(x, log_p.dtype) for x in (np.log(e) + 1 - e, 1 - e, np.log(weights)))
    account = account - log_p - 1
    return account, jax.nn.logsumexp(log_weights + time * drift + slope * account)


def _any_start(account: jax.Array, time: jax.Array, log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    e, weights = power_bets(_NUM_STARTED)
    constant, slope, log_weights = (jnp.asarray(x, log_p.dtype) for x in (np.log(e), 1 - e, np.log(weights)))
    before, now = 1 + jnp.log(time), 1 + jnp.log1p(time)
    begins = jnp.log(jnp.log1p(1 / time)) - jnp.log(before) - jnp.log(now)  # log w_t, with all its digits
    account = jnp.logaddexp(account, begins) + (constant - slope * log_p)
    return account, jnp.logaddexp(jax.nn.logsumexp(log_weights + account), -jnp.log(now))


def _simple_jumper(account: jax.Array, log_wealth: jax.Array, log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    mixed = account * (1 - JUMPING_RATE) + JUMPING_RATE / 3
    parts = mixed * (1 + jnp.array([-1, 0, 1], log_p.dtype) * (jnp.exp(log_p) - 0.5))
    total = jnp.sum(parts)
    return parts / total, log_wealth + jnp.log(total)
