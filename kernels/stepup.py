"""Step-up and step-down procedures on p-values, and on the integer ranks behind conformal p-values.

The decision is the greatest fixed point of k <- #{p <= critical(k)} from k = m, which equals
max{k: p_(k) <= critical(k)}: a few vectorised passes, no sort and no scatter (data made to need more than 32 passes
are ordered instead). Adjusted p-values need an order; they are computed beside the decision, and a compiled caller that
does not use them does not pay for them. Where rounding would break `reject == (adjusted <= alpha)`, the adjusted value
is moved by a few units in the last place.

`bh_ranks` takes integers and is exact; all others take p-values, where equality with a critical value is decided with a
tolerance of four machine epsilons in favour of rejection (Šidák's: eight).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import lattice, platforms, ranks
from tdd.kernels import stepup_parts as parts
from tdd.kernels.stepup_parts import StepUp

__all__ = [
    "VARIANTS",
    "StepUp",
    "bh",
    "bh_ranks",
    "bonferroni",
    "by",
    "hochberg",
    "holm",
    "holm_sidak",
    "min_rejections",
    "sidak",
    "storey_bh",
    "two_stage_bh",
]

VARIANTS = ("bky", "bh")


def bh(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Benjamini-Hochberg: k* = max{k: p_(k) <= k·alpha/m}, reject p_j <= k*·alpha/m.

    Guarantee: FDR <= alpha·m0/m if the p-values are super-uniform under the null and independent or PRDS;
    finite-sample.

    Args:
      p_values, mask: [m] p-values, NaN masked out of m; bool, True = real item.
      alpha: Level in (0, 1); a Python number is a static level, a JAX array may be traced.

    Raises ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.
    Cost: a few passes over m; `adjusted` sorts.
    References: Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001) for PRDS.
    """
    return parts.scaled_bh(p_values, alpha, parts.items(p_values, mask)[2], mask)


def storey_bh(
    p_values: jax.Array,
    alpha: Any,
    *,
    lambda_: float = 0.5,
    cap: bool = False,
    mask: jax.Array | None = None,
) -> StepUp:
    """BH at alpha/pi0 with Storey's pi0 = (1 + #{p_j >= lambda}) / (m (1 - lambda)).

    Guarantee: FDR <= alpha for independent super-uniform p-values, and for conservative conformal p-values on n
    calibration scores when lambda = K/(n+1) for an integer K (1/2 is one for odd n); finite-sample, only with
    `cap=False`. With `cap=True` (pi0 at most 1) the theorem fails and the procedure is asymptotic. Randomised p-values
    may not enter pi0.

    `lambda_` in [0, 1) is the lower end of the region of presumed nulls; other arguments as `bh`. `null_proportion` is
    pi0.

    Raises ValueError: static alpha or `lambda_` out of range.
    References: Storey, Taylor & Siegmund (2004), eq. 8; Bates et al. (2023), theorem 3.
    """
    if not isinstance(lambda_, jax.Array) and not 0 <= lambda_ < 1:
        raise ValueError(f"lambda_ must lie in [0, 1), got {lambda_!r}")
    values, valid, num_tests = parts.items(p_values, mask)
    at_least = jnp.asarray(lambda_).astype(values.dtype) * (1 - parts.tolerance(values.dtype))
    above = jnp.sum(valid & (values >= at_least), dtype=jnp.int32)
    tests = jnp.maximum(num_tests, 1).astype(values.dtype)
    pi0 = (1 + above).astype(values.dtype) / (tests * (1 - lambda_))
    pi0 = (jnp.minimum(pi0, 1) if cap else pi0).astype(values.dtype)
    step = parts.scaled_bh(p_values, alpha, pi0 * num_tests.astype(values.dtype), mask)
    return step._replace(null_proportion=pi0)


def two_stage_bh(p_values: jax.Array, alpha: Any, *, variant: str = "bky", mask: jax.Array | None = None) -> StepUp:
    """BH at level a rejects r items; then BH at level a·m/(m - r), with a = alpha/(1 + alpha) or alpha.

    Where r = 0 nothing is rejected and where r = m everything is: no second stage.

    Guarantee: for independent super-uniform p-values, finite-sample: FDR <= alpha with "bky"; FDR <= alpha/(1 - alpha)
    with "bh", which is "bky" at that level. Nothing is proven under dependence, conformal p-values included.

    `variant` "bky": both stages at alpha/(1 + alpha). "bh": both at alpha. Other arguments and errors as `bh`.

    `null_proportion` is (m - r)/m, 1 where there was no second stage. The adjusted values belong to this alpha: those
    of the last stage times (m - r)/m and (1 + alpha), the latter with "bky".

    Cost: twice the passes of BH; `adjusted` sorts.
    References: Benjamini, Krieger & Yekutieli (2006), definition 6 and theorem 1.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {VARIANTS}, got {variant!r}")
    values, _, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    growth = 1 + jnp.asarray(level.value).astype(values.dtype) if variant == "bky" else jnp.ones((), values.dtype)
    first = parts.scaled_bh(p_values, level, growth * num_tests.astype(values.dtype), mask).num_rejected
    nulls = jnp.where(first < num_tests, num_tests - first, num_tests).astype(values.dtype)
    step = parts.scaled_bh(p_values, level, growth * nulls, mask)
    return step._replace(null_proportion=nulls / jnp.maximum(num_tests, 1).astype(values.dtype))


def by(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Benjamini-Yekutieli: BH at alpha / (1 + 1/2 + ... + 1/m).

    Guarantee: FDR <= alpha·m0/m under any dependence of super-uniform p-values; finite-sample. Arguments as `bh`.

    References: Benjamini & Yekutieli (2001), theorem 1.3.
    """
    values, valid, num_tests = parts.items(p_values, mask)
    harmonic = np.concatenate([[1.0], np.cumsum(1 / np.arange(1, valid.size + 1))])
    factor = jnp.asarray(harmonic, values.dtype)[num_tests]
    return parts.scaled_bh(p_values, alpha, factor * num_tests.astype(values.dtype), mask)


def holm(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Holm's step-down procedure: reject while p_(i) <= alpha / (m - i + 1).

    Guarantee: family-wise error rate <= alpha under any dependence; finite-sample. Arguments as `bh`.

    References: Holm (1979).
    """
    return parts.step_down(
        p_values,
        alpha,
        mask,
        cut=lambda level, left: level / left,
        adjust=lambda left, ordered: jnp.minimum(left * ordered, 1),
    )


def hochberg(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Hochberg's step-up procedure: k* = max{k: p_(k) <= alpha / (m - k + 1)}, reject p_j <= alpha / (m - k* + 1).

    Guarantee: family-wise error rate <= alpha for independent or positively dependent (MTP2) p-values; finite-sample.
    Arguments as `bh`.

    References: Hochberg (1988).
    """
    values, valid, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)

    def critical(k: jax.Array) -> jax.Array:
        return jnp.where(k > 0, parts.critical(level, values.dtype) / (num_tests - k + 1).astype(values.dtype), -1)

    def directly(zero: jax.Array) -> jax.Array:
        ordered, place, _ = parts.order(values + zero.astype(values.dtype))
        return jnp.max(jnp.where(ordered <= critical(place + 1), place + 1, 0), initial=0)

    count = parts.fixed_point(lambda k: parts.count(valid, values <= critical(k)), num_tests, directly)
    reject = valid & (values <= critical(count))
    ordered, place, back = parts.order(values)
    left = jnp.maximum(num_tests - place, 1).astype(values.dtype)
    adjusted = platforms.cummin(jnp.minimum(left * ordered, 1), reverse=True)
    return parts.result(reject, back(adjusted), values, valid, num_tests, level)


def bonferroni(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Bonferroni: reject p_j <= alpha / m.

    Guarantee: family-wise error rate <= alpha·m0/m under any dependence; finite-sample. Arguments as `bh`. No sort even
    for `adjusted`.
    """
    values, valid, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    tests = jnp.maximum(num_tests, 1).astype(values.dtype)
    reject = valid & (values * tests <= parts.critical(level, values.dtype))
    return parts.result(reject, jnp.minimum(values * tests, 1), values, valid, num_tests, level)


def sidak(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Šidák's one-step procedure: reject p_j <= 1 - (1 - alpha)^(1/m); adjusted values 1 - (1 - p_j)^m.

    Guarantee: family-wise error rate <= 1 - (1 - alpha)^(m0/m) <= alpha for super-uniform p-values that are independent
    or orthant dependent among the true nulls, P(all p_j > c) >= prod P(p_j > c); finite-sample. Conformal p-values on
    one calibration sample are: given that sample their chances of staying above c are equal and independent, and
    E[G^k] >= E[G]^k. Under other dependence the procedure may fail: Bonferroni's does not.

    Arguments as `bh`. Cost: one pass over m; no sort even for `adjusted`.
    References: Šidák (1967), theorem 1.
    """
    values, valid, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    tests = jnp.maximum(num_tests, 1).astype(values.dtype)
    reject = valid & (values <= _cut(parts.critical(level, values.dtype), tests))
    return parts.result(reject, _at_least_one(tests, values), values, valid, num_tests, level)


def holm_sidak(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Šidák's procedure stepping down: reject while p_(i) <= 1 - (1 - alpha)^(1/(m - i + 1)).

    Guarantee: family-wise error rate <= alpha under the conditions of `sidak`; finite-sample. It rejects all that
    `sidak` and Holm's procedure do. Arguments as `bh`.

    References: Holm (1979), section 4; Holland & Copenhaver (1987).
    """
    return parts.step_down(p_values, alpha, mask, cut=_cut, adjust=_at_least_one)


def bh_ranks(
    rank: jax.Array,
    num_calibration: Any,
    alpha: Any,
    *,
    max_rank: int,
    scale: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None,
    mask: jax.Array | None = None,
) -> StepUp:
    """BH on the lattice r/(n+1), decided between integers.

    With p_j = r_j/(n+1) and an estimate pi0 of the null proportion, BH at alpha/pi0 rejects r_j <= t(k*), where
    t(k) = floor(alpha·k / rho), rho = pi0·m/(n+1), and k* = max{k: #{r_j <= t(k)} >= k}. For a static alpha, t(k) is
    exact at any size; for a traced one it carries a tolerance of four machine epsilons.

    Guarantee: As BH with the scale used; with `scale=None` FDR <= alpha·m0/m for conformal ranks whose calibration
    and null test scores are exchangeable; finite-sample.

    Args:
      rank, mask: [m] int32 ranks in 1..n+1, and bool, True = real item; ranks above `max_rank` count as masked out.
      num_calibration: [] n.
      alpha: Level in (0, 1).
      max_rank: Static upper bound of n + 1.
      scale: rho as (numerator factors, denominator factors), non-negative integers below 2^31; None is m/(n+1). If
        one of them is a float, the decision carries the tolerance of a traced level.

    Returns: `StepUp`; `adjusted` is min over r >= r_j of rho·r/#{ranks <= r}.
    Raises ValueError: static alpha outside (0, 1); a static n that `max_rank` does not bound.
    Cost: O(m) a pass and a scalar search; `adjusted` O(m + n), without a sort.
    """
    level = lattice.as_level(alpha)
    valid = ranks.within(rank, max_rank, mask)
    num_tests = jnp.sum(valid, dtype=jnp.int32)
    if isinstance(num_calibration, (int, np.integer)) and num_calibration >= max_rank:
        raise ValueError(f"max_rank={max_rank} must be at least n + 1 = {num_calibration + 1}")
    num_calibration = jnp.asarray(num_calibration, jnp.int32)
    most = rank.shape[0]
    numerator, denominator = plain_scale(num_calibration, num_tests, max_rank, most) if scale is None else scale

    exact = lattice.is_exact(level) and not _has_float(numerator + denominator)

    def largest_rank(k: jax.Array) -> jax.Array:
        """t(k), the largest rank that k rejections allow."""
        if not exact:
            return _float_rank(level, k, numerator, denominator, max_rank)
        rejected = lattice.narrow(k, most)
        return lattice.floor_ratio((level.numerator, rejected, *denominator), (level.denominator, *numerator), max_rank)

    dtype = jnp.result_type(float)
    slots = jnp.where(valid, rank, max_rank + 1)

    def directly(zero: jax.Array) -> jax.Array:
        every, rejected = jnp.arange(max_rank + 1, dtype=jnp.int32) + zero, ranks.up_to(slots + zero, max_rank + 1)
        if exact:
            fewer, places = lattice.narrow(rejected, most), lattice.narrow(every, max_rank)
            allowed = lattice.product_le(
                (places, level.denominator, *numerator), (level.numerator, fewer, *denominator)
            )
        else:
            allowed = every <= _float_rank(level, rejected, numerator, denominator, max_rank)
        return jnp.max(jnp.where(allowed, rejected, 0), initial=0)

    count = parts.fixed_point(lambda k: parts.count(valid, rank <= largest_rank(k)), num_tests, directly)
    reject = valid & (rank <= largest_rank(count)) & (count > 0)
    rho = _float_ratio(numerator, denominator, dtype)
    values = rank.astype(dtype) / (num_calibration + 1).astype(dtype)
    at_most = ranks.up_to(slots, max_rank + 1)
    # rho·r/#{ranks <= r}: products first, one division, so that small cases round once.
    every = jnp.arange(max_rank + 1, dtype=jnp.int32).astype(dtype)
    ratio = _times(every, numerator) / _times(at_most.astype(dtype), denominator)
    adjusted = platforms.cummin(jnp.where(at_most > 0, ratio, jnp.inf), reverse=True)
    adjusted = jnp.minimum(adjusted[jnp.minimum(slots, max_rank)], 1)
    step = parts.result(reject, adjusted, values, valid, num_tests, level)
    pi0 = rho * (num_calibration + 1).astype(dtype) / jnp.maximum(num_tests, 1).astype(dtype)
    return step._replace(null_proportion=pi0)


def plain_scale(
    num_calibration: Any, num_tests: Any, max_rank: int, max_tests: int
) -> tuple[tuple[jax.Array], tuple[jax.Array]]:
    """rho = m/(n+1) as `bh_ranks` takes it: no estimate; static upper bounds of n + 1 and m save digits."""
    return (lattice.narrow(num_tests, max_tests),), (lattice.narrow(num_calibration + 1, max_rank),)


def min_rejections(alpha: Any, max_tests: int, *, scale: tuple[tuple[Any, ...], tuple[Any, ...]]) -> jax.Array:
    """The smallest number of rejections that `bh_ranks` can make: the smallest k with rho <= alpha·k.

    The smallest rank is 1, so fewer than rho/alpha items are never rejected: the resolution of the calibration sample.
    [] int32 in 1..max_tests + 1 with `max_tests` a static upper bound of m; more than m: nothing can be rejected.
    `scale` is rho as in `bh_ranks`.
    """
    level = lattice.as_level(alpha)
    numerator, denominator = scale
    if lattice.is_exact(level) and not _has_float(numerator + denominator):
        least = lattice.ceil_ratio((level.denominator, *numerator), (level.numerator, *denominator), max_tests)
    else:
        dtype = jnp.result_type(float)
        fewest = jnp.ceil(_float_ratio(numerator, denominator, dtype) / parts.critical(level, dtype))
        least = jnp.where(fewest <= max_tests, fewest, max_tests + 1).astype(jnp.int32)  # NaN: nothing
    return jnp.maximum(least, 1)


def _cut(level: jax.Array, tests: jax.Array) -> jax.Array:
    """1 - (1 - level)^(1/tests), with four epsilons more for the rounding of log1p and expm1; NaN stays NaN."""
    return -jnp.expm1(_log_rest(level) / tests) * (1 + parts.tolerance(level.dtype))


def _at_least_one(tests: jax.Array, p_values: jax.Array) -> jax.Array:
    """1 - (1 - p)^tests: the chance that one of so many independent uniforms is at most p."""
    return -jnp.expm1(tests * _log_rest(p_values))


def _log_rest(p: jax.Array) -> jax.Array:
    """log(1 - p) for p up to 1; XLA's log1p loses two digits of a double just below sqrt(2) - 1."""
    p = jnp.minimum(p, 1)
    return jnp.where(p < 0.3, jnp.log1p(-p), jnp.log(1 - p))


def _has_float(factors: tuple[Any, ...]) -> bool:
    return any(jnp.issubdtype(jnp.asarray(factor).dtype, jnp.inexact) for factor in factors)


def _float_ratio(numerator: tuple[Any, ...], denominator: tuple[Any, ...], dtype: Any) -> jax.Array:
    one = jnp.ones((), dtype)
    return _times(one, numerator) / _times(one, denominator)


def _times(value: jax.Array, factors: tuple[Any, ...]) -> jax.Array:
    for factor in factors:
        value = value * jnp.asarray(factor).astype(value.dtype)
    return value


def _float_rank(
    level: lattice.Level,
    k: jax.Array,
    numerator: tuple[Any, ...],
    denominator: tuple[Any, ...],
    max_rank: int,
) -> jax.Array:
    """t(k) where the level or the scale is only known as a float."""
    dtype = jnp.result_type(float)
    allowed = parts.critical(level, dtype) * k.astype(dtype) / _float_ratio(numerator, denominator, dtype)
    return jnp.where(allowed >= 0, jnp.minimum(jnp.floor(allowed), max_rank), 0).astype(jnp.int32)
