"""Online control of the false discovery rate: each hypothesis is decided when it arrives, on what came before it.

A level alpha_t is set from the decisions before t and hypothesis t is rejected iff p_t <= alpha_t (or e_t >=
1/alpha_t). Masked and NaN hypotheses take no place in the stream. `lond`, `e_lond`, `lord_plus_plus` and `saffron`
decide a whole stream by a scan over `decide`, whose state of fixed shape may live in a compiled training loop, be saved
as plain arrays, and continued. gamma_t is the series "log" ("power" for SAFFRON).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, ranks

__all__ = [
    "Decision",
    "Method",
    "Online",
    "State",
    "decide",
    "e_lond",
    "gamma",
    "lond",
    "lord_plus_plus",
    "saffron",
    "start",
]

Method = Literal["lond", "lond/any", "e_lond", "lord_plus_plus", "saffron"]
METHODS = ("lond", "lond/any", "e_lond", "lord_plus_plus", "saffron")
WEALTH_FRACTION = {"lord_plus_plus": 0.1, "saffron": 0.5}
_SERIES = {"log": 0.07720838, "power": 0.43749016577}


class Online(NamedTuple):
    """Decisions of one stream."""

    reject: jax.Array  # [T] bool, False for masked hypotheses
    levels: jax.Array  # [T] alpha_t, NaN for masked hypotheses and where alpha was traced and out of range
    num_rejected: jax.Array  # [] int32
    num_tests: jax.Array  # [] int32, hypotheses that are neither masked nor NaN


class Decision(NamedTuple):
    """The decision on one hypothesis."""

    reject: jax.Array  # [] bool
    # [] alpha_t; 0 beyond the horizon, NaN for masked hypotheses and where alpha was traced and out of range
    level: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """A stream so far. Its leaves are plain arrays whose shapes depend on the horizon H alone."""

    num_tests: jax.Array  # [] int32, hypotheses so far that were neither masked nor NaN
    num_rejected: jax.Array  # [] int32
    clock: jax.Array  # [] int32, ticks so far: hypotheses, for SAFFRON those that were no candidates
    # [H] LOND and e-LOND: alpha gamma_1, alpha gamma_2, ... LORD++ and SAFFRON: the level at every tick of the clock if
    # nothing more is discovered.
    levels: jax.Array
    # [2, 2 H] H zeros and what the first, and every later, discovery adds to the next H levels; [0, 2 H] for LOND and
    # e-LOND
    earned: jax.Array
    method: Method = dataclasses.field(metadata={"static": True})
    lambda_: float = dataclasses.field(metadata={"static": True})  # for "saffron"


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
      p_values, mask: [T] in the order of arrival, NaN masked out; bool, True = real.
      alpha: Level in (0, 1); a Python number is a static level, a JAX array may be traced.
      dependence: "positive" or "any".

    Raises ValueError: static alpha outside (0, 1), unknown `dependence`. A traced alpha gives no rejections and NaN
    levels.
    Cost: one scan of T steps.
    References: Javanmard & Montanari (2015, 2018); Zrnic, Ramdas & Jordan (2021) for PRDS.
    """
    if dependence not in ("positive", "any"):
        raise ValueError(f'dependence must be "positive" or "any", got {dependence!r}')
    return _decided("lond" if dependence == "positive" else "lond/any", p_values, alpha, mask)


def e_lond(e_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> Online:
    """e-LOND: LOND with e_t >= 1/alpha_t.

    Guarantee: FDR <= alpha for e-values under any dependence; finite-sample.

    `e_values` [T] >= 0; other arguments and errors as `lond`.

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

    `initial_wealth` is w0 as a fraction of alpha, in (0, 1), 1/10 where not given; other arguments as `lond`.

    Raises ValueError: static alpha or `initial_wealth` out of range.
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

    Guarantee, arguments: As `lord_plus_plus`; w0 is 1/2 of alpha where not given, `lambda_` static, in (0, 1).

    Raises ValueError: static alpha, `lambda_` or `initial_wealth` out of range.
    References: Ramdas, Zrnic, Wainwright & Jordan (2018).
    """
    return _decided("saffron", p_values, alpha, mask, initial_wealth=initial_wealth, lambda_=lambda_)


def start(
    method: Method,
    alpha: Any,
    *,
    horizon: int,
    initial_wealth: Any = None,
    lambda_: float = 0.5,
    dtype: Any = None,
) -> State:
    """The state before the first hypothesis.

    Args:
      method: "lond" (independent or PRDS p-values), "lond/any" (any dependence), "e_lond" (e-values, any dependence),
        "lord_plus_plus" or "saffron" (independent p-values).
      alpha: Level in (0, 1); a Python number is a static level, a JAX array may be traced.
      horizon: H, the largest number of hypotheses; static. Those after have level 0 and are never rejected. No
        decision before depends on it.
      initial_wealth: w0 as a fraction of alpha, in (0, 1), of the last two methods; None for 1/10 and 1/2.
      lambda_: For "saffron"; static, in (0, 1).
      dtype: Type of the levels; JAX's default float by default.

    Raises ValueError: unknown `method`, `horizon` below 1, static numbers out of range. A traced alpha or initial
    wealth out of range gives NaN levels.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon!r}")
    if not 0 < lambda_ < 1:
        raise ValueError(f"lambda_ must lie in (0, 1), got {lambda_!r}")
    dtype = dtype or jnp.result_type(float)
    level = jnp.asarray(lattice.as_level(alpha).value, dtype)
    level = jnp.where((level > 0) & (level < 1), level, jnp.nan)
    weights = gamma(horizon, "power" if method == "saffron" else "log")
    if method == "lond/any":
        weights = weights / np.cumsum(1 / np.arange(1, horizon + 1))
    if method == "saffron":
        weights = (1 - lambda_) * weights
    series = jnp.asarray(weights, dtype)
    if method in WEALTH_FRACTION:
        wealth = level * jnp.asarray(_wealth_fraction(initial_wealth, WEALTH_FRACTION[method]), dtype)
        levels, earned = wealth * series, jnp.stack([(level - wealth) * series, level * series])
    else:
        levels, earned = level * series, jnp.zeros((0, horizon), dtype)
    earned = jnp.pad(earned, ((0, 0), (horizon, 0)))
    return State(jnp.int32(0), jnp.int32(0), jnp.int32(0), levels, earned, method, lambda_)


def decide(state: State, value: Any, mask: Any = True) -> tuple[State, Decision]:
    """Decide the next hypothesis of the stream: the new state, of the same shapes, and the decision.

    `value` is a [] p-value, or e-value for "e_lond"; a NaN, or one with `mask` False, takes no place in the stream.
    Cost: O(1), for "lord_plus_plus" and "saffron" O(H).
    """
    value = jnp.asarray(value)
    value = value.astype(ranks.common(value.dtype, state.levels.dtype))
    real = mask & ~jnp.isnan(value)
    if state.method == "e_lond":
        value = jnp.where(value > 0, 1 / value, jnp.inf)
    horizon = state.levels.shape[0]
    left = state.num_tests < horizon
    level = jnp.where(left, _level(state), 0)
    reject = real & left & (value <= level.astype(value.dtype))
    tick = real & (value > state.lambda_) if state.method == "saffron" else real
    after = dataclasses.replace(
        state,
        num_tests=state.num_tests + (real & left),
        num_rejected=state.num_rejected + reject,
        clock=jnp.minimum(state.clock + tick, horizon - 1),
    )
    if state.method in WEALTH_FRACTION:
        after = dataclasses.replace(after, levels=jax.lax.cond(reject, _earn, lambda _: state.levels, after))
    return after, Decision(reject, jnp.where(real, level, jnp.nan))


def gamma(length: int, kind: Literal["log", "power"] = "log") -> np.ndarray:
    """[length] float64 weights gamma_1, gamma_2, ... that sum to at most 1 over all of time.

    "log": 0.07720838 log(max(t, 2)) / (t exp(sqrt(log t))). "power": 0.43749016577 t^-1.6.

    Raises ValueError: unknown `kind`.
    References: Javanmard & Montanari (2018) for "log"; Ramdas et al. (2018) for "power".
    """
    if kind not in _SERIES:
        raise ValueError(f"kind must be one of {tuple(_SERIES)}, got {kind!r}")
    t = np.arange(1, length + 1, dtype=np.float64)
    if kind == "power":
        return _SERIES[kind] * t**-1.6
    return _SERIES[kind] * np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t))))


def _decided(method: Method, values: jax.Array, alpha: Any, mask: jax.Array | None, **options: Any) -> Online:
    """Decide one after the other, in at least single precision."""
    values = ranks.at_least_single(values)
    valid = ranks.real(values, mask)
    state = start(method, alpha, horizon=max(values.shape[0], 1), dtype=values.dtype, **options)
    _, (reject, levels) = jax.lax.scan(lambda s, item: decide(s, *item), state, (values, valid))
    return Online(reject, levels, jnp.sum(reject, dtype=jnp.int32), jnp.sum(valid, dtype=jnp.int32))


def _level(state: State) -> jax.Array:
    level = state.levels[state.clock]
    if state.method in WEALTH_FRACTION:
        return jnp.minimum(level, state.lambda_ if state.method == "saffron" else 1.0)
    return level * (state.num_rejected + 1).astype(level.dtype)


def _earn(after: State) -> jax.Array:
    """The levels after a discovery, which adds gamma_1 at the next tick, gamma_2 at the one after, and so on.

    Sums of stored products, term by term in the order of discovery: the horizon cannot change their rounding.
    """
    horizon = after.levels.shape[0]
    row = (after.num_rejected > 1).astype(jnp.int32)
    gain = jax.lax.dynamic_slice(after.earned, (row, horizon - after.clock), (1, horizon))
    return after.levels + gain[0]


def _wealth_fraction(initial_wealth: Any, default: float) -> Any:
    """w0/alpha; a traced one out of range gives NaN."""
    fraction = default if initial_wealth is None else initial_wealth
    if isinstance(fraction, jax.Array):
        return jnp.where((fraction > 0) & (fraction < 1), fraction, jnp.nan)
    if not 0 < fraction < 1:
        raise ValueError(f"initial_wealth must lie in (0, 1), a share of alpha, got {fraction!r}")
    return fraction
