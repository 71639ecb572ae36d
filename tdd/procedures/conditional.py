"""Conformal p-values that hold for the calibration sample at hand, and BH on them."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conditional, conformal, stepup
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    checked_scores,
    draws_for,
    level_operand,
    order_preserving,
    tracing,
)
from tdd.procedures.procedure import WithOption, check_options, masks
from tdd.procedures.testing import bh
from tdd.records import Evidence, Guarantee, Null, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_DRAWN = ("calibration scores and null test scores are independent draws from one distribution", CHOSEN_BEFOREHAND)
_GIVEN_CALIBRATION = "P(p <= t | calibration) <= t for all t, with probability 1 - delta over the calibration sample"

GUARANTEES: dict[str, Guarantee] = {
    "simes": Guarantee.finite_sample(_GIVEN_CALIBRATION, _DRAWN, "Bates et al. (2023), theorem 4; Sarkar (2008)"),
    "dkwm": Guarantee.finite_sample(_GIVEN_CALIBRATION, _DRAWN, "Massart (1990), theorem 1"),
    "monte_carlo": Guarantee.finite_sample(
        f"{_GIVEN_CALIBRATION} and the draws",
        _DRAWN,
        "Bates et al. (2023), section 3.4, with an exact Monte Carlo constant",
    ),
    "asymptotic": Guarantee(
        _GIVEN_CALIBRATION,
        (*_DRAWN, "the number of calibration items is large"),
        "asymptotic",
        "Bates et al. (2023), eq. 15",
    ),
}

_ROUNDING = 1e-5  # of a bound in single precision

_OF_BH = {
    rule: Guarantee(
        "FDR <= alpha given the calibration sample, with probability 1 - delta over such samples",
        (*record.assumes, "the candidates are independent of one another"),
        record.kind,
        f"{record.source}; Benjamini & Hochberg (1995)",
    )
    for rule, record in GUARANTEES.items()
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(("tdd.calibration_conditional_p_values", f'method="{name}"', row) for name, row in GUARANTEES.items()),
    *(("tdd.select", f'method="conditional", rule="{rule}"', row) for rule, row in _OF_BH.items()),
]


@dataclasses.dataclass(frozen=True)
class ConditionalBH(WithOption):
    """BH on p-values that hold for the calibration sample at hand, `tdd.calibration_conditional_p_values`.

    Attributes:
      rule: table of bounds, "simes", "dkwm", "monte_carlo" or "asymptotic".
      delta: probability over calibration samples that the level does not hold.
    """

    name = "conditional"
    no_bounds = "method=ptdi has bounds for the same scores"
    _option = "rule"
    _guarantees = _OF_BH

    rule: Literal["simes", "dkwm", "monte_carlo", "asymptotic"] = "simes"
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_options(self, rule=tuple(GUARANTEES))
        arrays.check_level(self.delta, "delta")

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        drawn = {"key": key} if self.rule == "monte_carlo" else {}
        options: dict[str, Any] = {"null": self.null, "delta": self.delta, "method": self.rule, **drawn}
        p, smallest, n = _p_values(evidence.calibration, evidence.scores, **options, **masks(evidence))
        step = bh(p, alpha)
        scale = ((smallest, step.num_tests), (1,))
        fewest = stepup.min_rejections(level_operand(alpha), len(p), scale=scale)
        return self.selection(step, p, n, jnp.minimum(fewest, step.num_tests + 1))

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        if self.rule == "simes":  # the bound of the first order statistic
            return -math.expm1(math.log(self.delta) / max(1, n // 2))
        if self.rule == "dkwm":
            return min(1, 1 / (n + 1) + math.sqrt(-math.log(min(self.delta, 0.5)) / (2 * max(1, n))))
        return None  # a matter of the draws, or of a limit

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        smallest = self.smallest_p_value(n)
        return 1 if smallest is None else min(m + 1, max(1, math.ceil(smallest * m / alpha * (1 - _ROUNDING))))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return [("delta", f"{self.delta:g}: probability that the calibration sample does not support the level")]

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"rule": self.rule, **({} if self.delta == ConditionalBH.delta else {"calibration_delta": self.delta})}


@in_own_settings()
def calibration_conditional_p_values(
    calibration: Any,
    scores: Any,
    *,
    null: Null,
    delta: Any = 0.1,
    method: Literal["simes", "dkwm", "monte_carlo", "asymptotic"] = "simes",
    k: int | None = None,
    num_draws: int | None = None,
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values, enlarged so that they hold for the calibration sample at hand.

    A plain conformal p-value is valid on average over calibration samples; given one sample it is too small for about
    half of them. Here p_j = b_r for the conservative integer rank r = (n+1)·p, where the bounds b hold for all order
    statistics of n uniforms simultaneously (Bates, Candes, Lei, Romano & Sesia 2023, section 3).

    Guarantee: with probability 1 - delta over the calibration sample, P(p_j <= t | calibration) <= t for every t, if
    calibration and null test scores are independent draws from one distribution (ties allowed):
      "simes": finite-sample; tight for the smallest p-values. The default.
      "monte_carlo": finite-sample, over the draws too; tighter than "simes" at the smallest ranks and from about r = k
        on.
      "dkwm": finite-sample; adds one constant, so no p-value is small.
      "asymptotic": in the limit of many calibration items.
    Given a sample for which they hold, p-values of independent candidates are independent, so that BH on them controls
    the FDR conditionally too.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      delta: probability in (0, 1) that the guarantee fails for a calibration sample; may be traced.
      method: the table of bounds.
      k: for "simes", how many order statistics share the bound, in 1..n; default floor(n/2).
      num_draws: B, for "monte_carlo", at least 1/delta - 1. Given the draws of one seed, delta has a standard error of
        sqrt(delta (1 - delta)/(B + 2)); by default B makes that .005: 3,609 for delta = .1, and for a traced one.
      key: PRNG key for "monte_carlo".
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN if the score is NaN or masked out. Cost: O((n + m) log n), and num_draws·n for
      "monte_carlo".

    Raises:
      InputError: wrong shapes, an infinite score, no calibration items, delta outside (0, 1), unknown options, options
        of another method, fewer than 17 calibration items for "asymptotic".

    >>> calibration_conditional_p_values(range(99), [-1.0, 40.5], null="nonmember").round(4).tolist()
    [0.045899998396635056, 0.6032999753952026]
    """
    options: dict[str, Any] = {"delta": delta, "method": method, "k": k, "num_draws": num_draws, "key": key}
    real = {"calibration_mask": calibration_mask, "mask": mask}
    return _p_values(calibration, scores, null=null, **options, **real)[0]


def _p_values(
    calibration, scores, *, null, delta, method, k=None, num_draws=None, key=None, calibration_mask=None, mask=None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return `calibration_conditional_p_values`, the smallest one that any score can have, and n."""
    arrays.check_choice(null, conformal.NULLS, "null")
    arrays.check_choice(method, tuple(GUARANTEES), "method")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    level = level_operand(delta, "delta")
    drawn = method == "monte_carlo"
    if drawn:
        num_draws = draws_for(0.1 if tracing(delta) else float(delta)) if num_draws is None else num_draws
        arrays.check_key(key, 'method="monte_carlo"')
        _check_draws(num_draws, delta)
    if not tracing(calibration, calibration_mask):
        _check_size(calibration, calibration_mask, method, k)
    if k is not None and method != "simes":
        raise InputError(f'k is used by method="simes" only, not by {method!r}')
    samples, real = order_preserving((calibration, scores), (calibration_mask, mask))
    options = {"null": null, "method": method, "k": k, "num_draws": num_draws if drawn else 0}
    return _conditional(*samples, *real, level, key if drawn else None, **options)


@functools.partial(jax.jit, static_argnames=("null", "method", "k", "num_draws"))
def _conditional(calibration, scores, calibration_mask, mask, delta, key, *, null, method, k, num_draws):
    ranked = conformal.rank(calibration, scores, null=null, calibration_mask=calibration_mask, mask=mask)
    n, max_rank = ranked.num_calibration, calibration.shape[0] + 1
    if method == "simes":
        table = conditional.simes_bounds(n, delta, max_rank=max_rank, k=k)
    elif method == "dkwm":
        table = conditional.dkwm_bounds(n, delta, max_rank=max_rank)
    elif method == "asymptotic":
        table = conditional.asymptotic_bounds(n, delta, max_rank=max_rank)
    else:
        table = conditional.monte_carlo_bounds(n, delta, max_rank=max_rank, key=key, num_draws=num_draws)
    return conditional.p_values(ranked, table), table[1], n


def _check_draws(num_draws: Any, delta: Any) -> None:
    arrays.as_count(num_draws, "num_draws")
    if not tracing(delta) and (num_draws + 1) * float(delta) < 1 - 1e-6:
        raise InputError(
            f"num_draws is {num_draws}, too few for delta = {float(delta):g}: every p-value would be 1; at least "
            f"{math.ceil(1 / float(delta)) - 1} are needed"
        )


def _check_size(calibration: Any, calibration_mask: Any, method: str, k: Any) -> None:
    """Check that the number of real calibration items suffices for the method and its k."""
    host = np.asarray(calibration)
    real = ~np.isnan(host.astype(float)) & (True if calibration_mask is None else np.asarray(calibration_mask))
    n = int(real.sum())
    minimum = conditional.LEAST_ASYMPTOTIC
    if method == "asymptotic" and n < minimum:
        raise InputError(
            f'calibration has {n} real items; method="asymptotic" needs at least {minimum} (and many more to be '
            'accurate): use "simes" or "monte_carlo"'
        )
    if k is None:
        return
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 1 <= k <= n:
        raise InputError(f"k must be an integer from 1 to the number of real calibration items, {n}; got {k!r}")
