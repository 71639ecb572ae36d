"""Evidence against exchangeable orders by betting at every draw: an e-process that may be monitored and stopped.

If the order means nothing and there are no ties, x exceedances in b draws of a shard follow Polya's urn: the next draw
exceeds with probability (x + 1)/(b + 2), independently over shards. The sum over shards is one more such urn. A bet is
the likelihood ratio of fewer exceedances.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import platforms
from tdd.kernels.sequential import Exceedances

__all__ = ["EProcess", "e_process", "largest_log_e", "log_urn_bet"]

_SHARD_BETS = (  # (a, c, assumed fraction of memorised shards), equally weighted
    (0.8, 1.2, 1.0),
    (0.5, 1.5, 1.0),
    (0.3, 4.0, 1.0),
    (0.05, 8.0, 1.0),
    (0.3, 4.0, 0.4),
    (0.2, 4.0, 0.2),
    (0.05, 8.0, 0.05),
)
_SUM_BETS = ((0.05, 8.0), (0.3, 4.0), (0.6, 1.4))
_SUM_WEIGHT = 0.1


class EProcess(NamedTuple):
    """Evidence by betting, after every draw."""

    log_e: jax.Array  # [B] logarithm of the e-value
    p_value: jax.Array  # [B] min(1, 1 / largest e-value so far), at least the smallest normal float
    log_p_value: jax.Array  # [B] its logarithm


def log_urn_bet(num_exceedances: jax.Array, num_draws: jax.Array, a: float, c: float, *, horizon: int) -> jax.Array:
    """log B(a + x, c + b - x) B(1, 1) / (B(a, c) B(1 + x, 1 + b - x)), element-wise.

    The likelihood ratio of a fraction of exceedances with law Beta(a, c) to the uniform one of an urn: a martingale
    with mean 1 if the urn is Polya's. For a <= 1 <= c it falls with every exceedance more among the same draws.

    Args:
      num_exceedances: x, integers in 0..b.
      num_draws: b, integers in 0..horizon.
      a, c: Static parameters.
      horizon: Largest b, static.

    Returns: JAX's default float, in the shape of x.
    Cost: three tables of `horizon` logarithms, made when traced.
    """
    return _log_bet(num_exceedances, num_draws, a, c, horizon, jnp.result_type(float))


def e_process(counted: Exceedances, dtype: Any = None) -> EProcess:
    """Bet against the urns: a product over shards, mixed over strengths and fractions of memorised shards.

    With E_i the ratio of `log_urn_bet` in shard i and s the assumed fraction of memorised shards, the shards give the
    mean over a fixed set of (a, c, s) of the product over i of 1 - s + s E_i; the sum over shards gives the mean of its
    own ratios over (a, c). The e-value is max(0.9 of the first, 0.1 of the second), and the first alone for one shard.
    It is no sum: the two are martingales with respect to different histories, and only their crossing probabilities
    add up.

    **Guarantee**: P(some p_b <= t) <= t for every t, finite-sample, under any stopping rule, if in every shard the
    canonical order and its shuffles are exchangeable given all other shards. Ville's inequality bounds each part by
    its share of t. Ties only lower an e-value: counted as exceedances they are never fewer than those of random ties,
    which follow Polya's urn, and no ratio rises with a count. At a draw fixed beforehand the e-value has mean <= 1.

    Args:
      counted: Result of `sequential.exceedances`.
      dtype: Type of the result; JAX's default float by default.

    Cost: O(r B).
    References: Fischer & Ramdas (2024), sequential Monte Carlo testing by betting; Ville (1939).
    """
    dtype = dtype or jnp.result_type(float)
    horizon = counted.total.shape[0]

    def of_shards(a: float, c: float, fraction: float) -> jax.Array:
        log_bets = _log_bet(counted.shards, counted.shard_draws, a, c, horizon, dtype)
        return jnp.sum(log_bets if fraction == 1 else jnp.log1p(fraction * jnp.expm1(log_bets)), axis=0)

    by_shards = _log_mean([of_shards(*bet) for bet in _SHARD_BETS])
    by_sum = _log_mean([_log_bet(counted.total, counted.total_draws, *bet, horizon, dtype) for bet in _SUM_BETS])
    both = jnp.maximum(by_shards + math.log1p(-_SUM_WEIGHT), by_sum + math.log(_SUM_WEIGHT))
    log_e = jnp.where(counted.num_shards > 1, both, by_shards)
    log_p = jnp.minimum(-platforms.cummax(log_e), 0)
    return EProcess(log_e, jnp.maximum(jnp.exp(log_p), jnp.finfo(dtype).tiny), log_p)


def largest_log_e(num_shards: int, num_draws: int) -> float:
    """Logarithm of the e-value where no shuffle of any shard reaches the canonical order: no other is larger."""

    def bet(a: float, c: float) -> float:
        return float(np.sum(_increments(c, 1, num_draws)) - np.sum(_increments(a + c, 2, num_draws)))

    shards = [
        num_shards * math.log1p(fraction * math.expm1(bet(a, c))) if fraction < 1 else num_shards * bet(a, c)
        for a, c, fraction in _SHARD_BETS
    ]
    by_shards = float(np.logaddexp.reduce(shards)) - math.log(len(shards))
    if num_shards == 1:
        return by_shards
    by_sum = float(np.logaddexp.reduce([bet(a, c) for a, c in _SUM_BETS])) - math.log(len(_SUM_BETS))
    return max(by_shards + math.log1p(-_SUM_WEIGHT), by_sum + math.log(_SUM_WEIGHT))


def _increments(over: float, under: float, horizon: int) -> np.ndarray:
    steps = np.arange(horizon, dtype=np.float64)
    return np.log1p((over - under) / (under + steps))


def _log_bet(x: jax.Array, b: jax.Array, a: float, c: float, horizon: int, dtype: Any) -> jax.Array:
    tables = [
        jnp.asarray(np.concatenate([[0.0], np.cumsum(_increments(over, under, horizon))]), dtype)
        for over, under in ((a, 1), (c, 1), (a + c, 2))
    ]
    return tables[0][x] + tables[1][b - x] - tables[2][b]


def _log_mean(parts: list[jax.Array]) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(parts), axis=0) - math.log(len(parts))
