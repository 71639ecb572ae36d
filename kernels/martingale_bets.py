"""How a conformal test martingale bets on the next p-value.

With the bets b_e(p) = e p^(e - 1), 0 < e < 1,

"mixture": the integral over e of prod_i b_e(p_i), by a Gauss-Legendre rule of 96 nodes: a weighted mean, of weights
that are positive and sum to 1, so itself a martingale; for 100 p-values it is the integral to rounding.

"any_start": the mean over eight e and over the step s at which betting begins, sum_s w_s prod_(i >= s) b_e(p_i), with
w_s = h(s - 1) - h(s), h(s) = 1 / (1 + log(1 + s)); h(t) itself waits at t. For p-values that begin to be small late: a
long clean stretch before costs log(1/w_s), where the other bets lose more with every step of it.

"simple_jumper": three accounts, multiplied by 1 + e (p_t - 1/2) for e = -1, 0, 1. Before every step each account gives
the share `JUMPING_RATE` of its wealth to all three evenly.

The first two fall with every p-value, so those that are too large only lower them. The third bets on large p-values
too: they must be exactly uniform.

References: Vovk, Gammerman & Shafer (2005), section 7.1, for "mixture"; Vovk, Petej, Nouretdinov, Ahlberg, Carlsson &
Gammerman (2021), algorithm 1, for "simple_jumper".
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["BETS", "JUMPING_RATE", "Bet", "first_account", "place", "power_bets"]

Bet = Literal["mixture", "any_start", "simple_jumper"]
BETS = ("mixture", "any_start", "simple_jumper")
JUMPING_RATE = 0.01
_NUM_NODES, _NUM_STARTED = 96, 8


def first_account(bet: Bet, dtype: Any) -> jax.Array:
    """What a bet carries before the first p-value.

    "mixture": [1], sum of -log p_i - 1; "any_start": [8], log of what each e holds; "simple_jumper": [3], shares of the
    wealth in the three accounts.

    Raises:
      ValueError: unknown `bet`.
    """
    if bet not in BETS:
        raise ValueError(f"bet must be one of {BETS}, got {bet!r}")
    size, value = {"mixture": (1, 0.0), "any_start": (_NUM_STARTED, -np.inf), "simple_jumper": (3, 1 / 3)}[bet]
    return jnp.full(size, value, dtype)


def place(
    bet: Bet, account: jax.Array, log_wealth: jax.Array, time: jax.Array, log_p: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The account and log M_t after the t-th p-value.

    Args:
      bet: static.
      account: of `first_account` or of the step before.
      log_wealth: [] log M_(t-1).
      time: [] t >= 1, of the type of log_p.
      log_p: [] log p_t.
    """
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
    drift, slope, share = (jnp.asarray(x, log_p.dtype) for x in (np.log(e) + 1 - e, 1 - e, np.log(weights)))
    account = account - log_p - 1
    return account, jax.nn.logsumexp(share + time * drift + slope * account)


def _any_start(account: jax.Array, time: jax.Array, log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    e, weights = power_bets(_NUM_STARTED)
    constant, slope, share = (jnp.asarray(x, log_p.dtype) for x in (np.log(e), 1 - e, np.log(weights)))
    before, now = 1 + jnp.log(time), 1 + jnp.log1p(time)
    begins = jnp.log(jnp.log1p(1 / time)) - jnp.log(before) - jnp.log(now)  # log w_t, with all its digits
    account = jnp.logaddexp(account, begins) + (constant - slope * log_p)
    return account, jnp.logaddexp(jax.nn.logsumexp(share + account), -jnp.log(now))


def _simple_jumper(account: jax.Array, log_wealth: jax.Array, log_p: jax.Array) -> tuple[jax.Array, jax.Array]:
    mixed = account * (1 - JUMPING_RATE) + JUMPING_RATE / 3
    parts = mixed * (1 + jnp.array([-1, 0, 1], log_p.dtype) * (jnp.exp(log_p) - 0.5))
    total = jnp.sum(parts)
    return parts / total, log_wealth + jnp.log(total)
