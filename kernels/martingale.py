"""Conformal test martingales: evidence by betting against p-values that arrive one after the other.

If every p-value is uniform given those before it, wealth that is bet on small p-values is a martingale M_t with
M_0 = 1, and P(M_t >= 1/a for some t) <= a (Ville's inequality): the stream may be watched at every step and stopped at
any. `tdd.kernels.martingale_bets` defines the bets.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import martingale_bets
from tdd.kernels.martingale_bets import Bet

__all__ = ["Martingale", "State", "advance", "conformal_martingale", "control_p_value", "start"]


class Martingale(NamedTuple):
    """Wealth after every p-value.

    Attributes:
      log_martingale: [T] log M_t; that of the step before at masked steps.
      log_running_max: [T] log of the largest of M_0, ..., M_t.
      anytime_p_value: [T] 1 / running maximum, in (0, 1]; P(it is <= a at some t) <= a.
      num_tests: [T] int32, p-values so far that are neither masked nor NaN.
    """

    log_martingale: jax.Array
    log_running_max: jax.Array
    anytime_p_value: jax.Array
    num_tests: jax.Array


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("num_tests", "log_martingale", "log_running_max", "account"),
    meta_fields=("bet",),
)
@dataclasses.dataclass(frozen=True)
class State:
    """A martingale up to now; four arrays, whatever the length of the stream.

    Attributes:
      num_tests: [] int32.
      log_martingale: [].
      log_running_max: [].
      account: what the bet carries.
      bet: static.
    """

    num_tests: jax.Array
    log_martingale: jax.Array
    log_running_max: jax.Array
    account: jax.Array
    bet: Bet


def start(bet: Bet, *, dtype: Any = None) -> State:
    """M_0 = 1. `dtype` is JAX's default float by default.

    Raises:
      ValueError: unknown `bet`.
    """
    dtype = dtype or jnp.result_type(float)
    account = martingale_bets.first_account(bet, dtype)
    return State(jnp.int32(0), jnp.zeros((), dtype), jnp.zeros((), dtype), account, bet)


def advance(state: State, log_p_value: Any, mask: Any = True) -> tuple[State, Martingale]:
    """Bet on the next p-value.

    Args:
      state: of `start` or of the step before.
      log_p_value: [] natural logarithm of p in [0, 1]; -inf makes the wealth infinite for good, but of
        "simple_jumper", which at most multiplies it by 3/2. NaN takes no place.
      mask: [] bool, False for a step that takes no place.

    Returns:
      The new state, of the same shapes, and `Martingale` with fields [].
    """
    dtype = state.log_martingale.dtype
    log_p = jnp.asarray(log_p_value, dtype)
    real = mask & ~jnp.isnan(log_p)
    num_tests = state.num_tests + real
    account, log_wealth = martingale_bets.place(
        state.bet, state.account, state.log_martingale, num_tests.astype(dtype), log_p
    )
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
      log_p_values: [T] natural logarithms of p-values in order of arrival; NaN is masked out.
      bet: "mixture", "any_start" or "simple_jumper".
      mask: [T] bool, True = real.

    Returns:
      `Martingale`.

    Raises:
      ValueError: unknown `bet`.

    Cost: O(T); "mixture" takes 96 exponentials a step, "any_start" 24.
    """
    log_p = log_p_values.astype(jnp.promote_types(log_p_values.dtype, jnp.float32))
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
      controls: [..., k] scores of the controls of each; NaN is masked out.
      key: draws U.
      uniform: [...] U itself, in (0, 1].
      mask: [..., k] bool, True = real control.

    Returns:
      [...] in (0, 1]; NaN where the score is NaN.

    Raises:
      ValueError: both `key` and `uniform`.
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
