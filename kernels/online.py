"""Online control of the false discovery rate: each hypothesis is decided when it arrives, on what came before it.

A level alpha_t is set from the decisions before t and hypothesis t is rejected iff p_t <= alpha_t (or e_t >=
1/alpha_t). Masked and NaN hypotheses take no place in the stream. Each rule is a scan over the steps of
`tdd.kernels.online_state`; gamma_t is its series "log" ("power" for SAFFRON).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import online_state

__all__ = ["Online", "e_lond", "lond", "lord_plus_plus", "saffron"]


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
    return _decided("lond" if dependence == "positive" else "lond/any", p_values, alpha, mask)


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
    return _decided("e_lond", e_values, alpha, mask)


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

    Cost: a scan of T steps of O(T) each.

    References: Ramdas, Yang, Wainwright & Jordan (2017).
    """
    return _decided("lord_plus_plus", p_values, alpha, mask, initial_wealth=initial_wealth)


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
    return _decided("saffron", p_values, alpha, mask, initial_wealth=initial_wealth, lambda_=lambda_)


def _decided(
    method: online_state.Method, values: jax.Array, alpha: Any, mask: jax.Array | None, **options: Any
) -> Online:
    """Decide one after the other, in at least single precision."""
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    valid = ~jnp.isnan(values) if mask is None else mask & ~jnp.isnan(values)
    state = online_state.start(method, alpha, horizon=max(values.shape[0], 1), dtype=values.dtype, **options)
    _, (reject, levels) = jax.lax.scan(lambda s, item: online_state.decide(s, *item), state, (values, valid))
    return Online(reject, levels, jnp.sum(reject, dtype=jnp.int32), jnp.sum(valid, dtype=jnp.int32))
