"""Online control of the false discovery rate: each hypothesis is decided when it arrives, on what came before it.

A level alpha_t is set from the decisions before t and hypothesis t is rejected iff p_t <= alpha_t (or e_t >=
1/alpha_t). Masked and NaN hypotheses take no place in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice

__all__ = ["Online", "e_lond", "gamma", "lond", "lord_plus_plus", "saffron"]

_SERIES = {"log": 0.07720838, "power": 0.4374901658}
_FDR_SHARE = {"lord": 0.1, "saffron": 0.5}


class Online(NamedTuple):
    """Decisions of one stream.

    Attributes:
      reject: [T] bool, False for masked hypotheses.
      levels: [T] alpha_t, NaN for masked hypotheses and where alpha was traced and out of range.
      num_rejected: [] int32.
      num_tests: [] int32, hypotheses that are neither masked nor NaN.
    """

    reject: jax.Array
    levels: jax.Array
    num_rejected: jax.Array
    num_tests: jax.Array


def gamma(length: int, kind: Literal["log", "power"] = "log") -> np.ndarray:
    """[length] float64 weights gamma_1, gamma_2, ... that sum to at most 1 over all of time.

    Args:
      length: how many.
      kind: "log", 0.07720838 log(max(t, 2)) / (t exp(sqrt(log t))); or "power", 0.4374901658 t^-1.6.

    Raises:
      ValueError: unknown `kind`.

    References: Javanmard & Montanari (2018) for "log"; Ramdas et al. (2018) for "power".
    """
    if kind not in _SERIES:
        raise ValueError(f"kind must be one of {tuple(_SERIES)}, got {kind!r}")
    t = np.arange(1, length + 1, dtype=np.float64)
    if kind == "power":
        return _SERIES[kind] * t**-1.6
    return _SERIES[kind] * np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t))))


def lond(
    p_values: jax.Array,
    alpha: Any,
    *,
    dependence: Literal["positive", "any"] = "positive",
    mask: jax.Array | None = None,
) -> Online:
    """LOND: alpha_t = alpha gamma_t (D_(t-1) + 1), D the discoveries so far.

    Guarantee: FDR <= alpha for every number of hypotheses, finite-sample: with "positive" for super-uniform p-values
    that are independent or PRDS (conformal ones are), with "any", where gamma_t is divided by 1 + 1/2 + ... + 1/t,
    under any dependence.

    Args:
      p_values: [T] in the order of arrival; NaN is masked out.
      alpha: level in (0, 1); a Python number is a static level, a JAX array may be traced.
      dependence: "positive" or "any".
      mask: [T] bool, True = real.

    Returns:
      `Online`.

    Raises:
      ValueError: static alpha outside (0, 1), unknown `dependence`. A traced alpha gives no rejections and NaN levels.

    Cost: one scan of T steps.

    References: Javanmard & Montanari (2015, 2018); Zrnic, Ramdas & Jordan (2021) for PRDS.
    """
    if dependence not in ("positive", "any"):
        raise ValueError(f'dependence must be "positive" or "any", got {dependence!r}')
    weights = gamma(p_values.shape[0])
    if dependence == "any":
        weights = weights / np.cumsum(1 / np.arange(1, len(weights) + 1))
    return _lond(*_stream(p_values, mask), alpha, weights)


def e_lond(e_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> Online:
    """e-LOND: LOND with e_t >= 1/alpha_t.

    Guarantee: FDR <= alpha for e-values under any dependence; finite-sample.

    Args:
      e_values: [T] >= 0 in the order of arrival; NaN is masked out.
      alpha: level as in `lond`.
      mask: [T] bool.

    Returns:
      `Online`.

    References: Xu & Ramdas (2024).
    """
    values, valid = _stream(e_values, mask)
    return _lond(jnp.where(values > 0, 1 / values, jnp.inf), valid, alpha, gamma(values.shape[0]))


def lord_plus_plus(
    p_values: jax.Array, alpha: Any, *, initial_wealth: Any = None, mask: jax.Array | None = None
) -> Online:
    """LORD++: alpha_t = w0 gamma_t + (alpha - w0) gamma_(t - tau_1) + alpha sum over j >= 2 of gamma_(t - tau_j).

    tau_j is the time of the j-th discovery before t.

    Guarantee: FDR <= alpha for independent super-uniform p-values, mFDR <= alpha if each is super-uniform given the
    past; finite-sample. Conformal p-values that share one calibration sample are not independent.

    Args:
      p_values: [T] in the order of arrival; NaN is masked out.
      alpha: level as in `lond`.
      initial_wealth: w0 as a share of alpha, in (0, 1); 1/10 where not given.
      mask: [T] bool, True = real.

    Returns:
      `Online`.

    Raises:
      ValueError: static alpha or `initial_wealth` out of range.

    Cost: a scan of T steps with a sum of T products each.

    References: Ramdas, Yang, Wainwright & Jordan (2017).
    """
    values, valid = _stream(p_values, mask)
    share = _share(initial_wealth, _FDR_SHARE["lord"])
    return _wealth(values, valid, alpha, share, gamma(values.shape[0]), jnp.ones_like, 1.0)


def saffron(
    p_values: jax.Array,
    alpha: Any,
    *,
    lambda_: float = 0.5,
    initial_wealth: Any = None,
    mask: jax.Array | None = None,
) -> Online:
    """SAFFRON: LORD++ on a clock that stands still at candidates p_t <= lambda, at (1 - lambda) of its level.

    alpha_t = min(lambda, (1 - lambda)(w0 gamma_(t - C0) + (alpha - w0) gamma_(t - tau_1 - C1) + alpha sum over j >= 2
    of gamma_(t - tau_j - Cj))), Cj the candidates after tau_j and before t.

    Guarantee: as `lord_plus_plus`.

    Args:
      p_values: [T] in the order of arrival; NaN is masked out.
      alpha: level as in `lond`.
      lambda_: static, in (0, 1).
      initial_wealth: w0 as a share of alpha, in (0, 1); 1/2 where not given.
      mask: [T] bool, True = real.

    Returns:
      `Online`.

    Raises:
      ValueError: static alpha, `lambda_` or `initial_wealth` out of range.

    References: Ramdas, Zrnic, Wainwright & Jordan (2018).
    """
    if not 0 < lambda_ < 1:
        raise ValueError(f"lambda_ must lie in (0, 1), got {lambda_!r}")
    values, valid = _stream(p_values, mask)
    share = _share(initial_wealth, _FDR_SHARE["saffron"])
    weights = (1 - lambda_) * gamma(values.shape[0], "power")
    return _wealth(values, valid, alpha, share, weights, lambda p: p > lambda_, lambda_)


def _lond(values: jax.Array, valid: jax.Array, alpha: Any, weights: np.ndarray) -> Online:
    level = _level(alpha, values.dtype)
    steps = level * jnp.asarray(weights, values.dtype)
    if not values.shape[0]:
        return _online(valid, values, valid)

    def decide(state, item):
        value, real = item
        time, found = state
        now = steps[time] * (found + 1).astype(values.dtype)
        reject = real & (value <= now)
        return (time + real, found + reject), (reject, jnp.where(real, now, jnp.nan))

    _, (reject, levels) = jax.lax.scan(decide, (jnp.int32(0), jnp.int32(0)), (values, valid))
    return _online(reject, levels, valid)


def _wealth(
    values: jax.Array,
    valid: jax.Array,
    alpha: Any,
    share: Any,
    weights: np.ndarray,
    ticks: Callable[[jax.Array], jax.Array],
    ceiling: float,
) -> Online:
    """Levels from the wealth regained by every discovery, on a clock that advances where `ticks(p)`."""
    size, dtype = values.shape[0], values.dtype
    level = _level(alpha, dtype)
    if not size:
        return _online(valid, values, valid)
    wealth = level * jnp.asarray(share, dtype)
    series = jnp.asarray(weights, dtype)
    backwards = jnp.concatenate([jnp.flip(series), jnp.zeros(size, dtype)])

    def decide(state, item):
        value, real = item
        clock, found, gains = state
        # gains[c] is what the discoveries at clock c earn; one at clock c has weight gamma_(clock - c + 1).
        past = jax.lax.dynamic_slice(backwards, (size - 1 - clock,), (size,))
        now = jnp.minimum(wealth * series[clock] + jnp.sum(past * gains), ceiling)
        reject = real & (value <= now)
        ahead = clock + (real & ticks(value).astype(bool)).astype(jnp.int32)
        gain = jnp.where(reject, jnp.where(found > 0, level, level - wealth), 0)
        # A discovery counts from the next hypothesis on, whose distance from it is 1.
        gains = gains.at[jnp.minimum(ahead, size - 1)].add(gain)
        return (jnp.minimum(ahead, size - 1), found + reject, gains), (reject, jnp.where(real, now, jnp.nan))

    start = jnp.int32(0), jnp.int32(0), jnp.zeros(size, dtype)
    _, (reject, levels) = jax.lax.scan(decide, start, (values, valid))
    return _online(reject, levels, valid)


def _online(reject: jax.Array, levels: jax.Array, valid: jax.Array) -> Online:
    return Online(reject, levels, jnp.sum(reject, dtype=jnp.int32), jnp.sum(valid, dtype=jnp.int32))


def _stream(values: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Values in at least single precision, and which of them are real."""
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return values, ~jnp.isnan(values) if mask is None else mask & ~jnp.isnan(values)


def _level(alpha: Any, dtype: Any) -> jax.Array:
    """alpha; NaN for a traced one out of range."""
    value = jnp.asarray(lattice.as_level(alpha).value, dtype)
    return jnp.where((value > 0) & (value < 1), value, jnp.nan)


def _share(initial_wealth: Any, default: float) -> Any:
    """w0/alpha; a traced one out of range gives NaN."""
    share = default if initial_wealth is None else initial_wealth
    if isinstance(share, jax.Array):
        return jnp.where((share > 0) & (share < 1), share, jnp.nan)
    if not 0 < share < 1:
        raise ValueError(f"initial_wealth must lie in (0, 1), a share of alpha, got {share!r}")
    return share
