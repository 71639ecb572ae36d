"""P-values that hold for the one calibration sample at hand."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import numpy as np

from tdd.kernels import conditional, conformal
from tdd.procedures.calls import level_operand, order_preserving, tracing
from tdd.procedures.testing import checked_scores
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "calibration_conditional_p_values"]

METHODS = ("simes", "dkwm", "monte_carlo", "asymptotic")

_DRAWN = (
    "calibration scores and null test scores are independent draws of one law",
    "the score, alpha and every other option were chosen before any result was seen",
)
_CONTROLS = "P(p <= t | calibration) <= t for all t, with probability 1 - delta over the calibration sample"

GUARANTEES: dict[str, Guarantee] = {
    "simes": Guarantee(_CONTROLS, _DRAWN, "finite-sample", "Bates et al. (2023), theorem 4; Sarkar (2008)"),
    "dkwm": Guarantee(_CONTROLS, _DRAWN, "finite-sample", "Massart (1990), theorem 1"),
    "monte_carlo": Guarantee(
        _CONTROLS.replace("the calibration sample", "calibration sample and draws"),
        _DRAWN,
        "finite-sample",
        "Bates et al. (2023), section 3.4, with an exact Monte Carlo constant",
    ),
    "asymptotic": Guarantee(
        _CONTROLS, (*_DRAWN, "calibration items are many"), "asymptotic", "Bates et al. (2023), eq. 15"
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.calibration_conditional_p_values", f'method="{name}"', guarantee) for name, guarantee in GUARANTEES.items()
]


def calibration_conditional_p_values(
    calibration: Any,
    scores: Any,
    *,
    null: Literal["nonmember", "member"],
    delta: Any = 0.1,
    method: Literal["simes", "dkwm", "monte_carlo", "asymptotic"] = "simes",
    k: int | None = None,
    num_draws: int = 999,
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values, enlarged so that they hold for this calibration sample and not only on average.

    A plain conformal p-value is valid on average over calibration samples: given one sample it is too small for about
    half of them. Here p_j = b_r for the conservative integer rank r = (n+1)·p, from a table b of bounds that hold the
    order statistics of n uniforms simultaneously.

    Guarantee: with probability 1 - delta over the calibration sample, P(p_j <= t | calibration) <= t for every t, if
    calibration and null test scores are independent draws of one law (ties allowed):
      "simes": finite-sample; tight for the smallest p-values. The default.
      "monte_carlo": finite-sample, the draws being part of the probability; tighter than "simes" at the smallest
        ranks and from about r = k on.
      "dkwm": finite-sample; adds one constant, so no p-value is small.
      "asymptotic": in the limit of many calibration items.
    Given a sample for which they hold, p-values of independent candidates are independent, so BH on them has its FDR
    below alpha conditionally too.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      delta: share of calibration samples for which the guarantee may fail, in (0, 1); may be traced.
      method: the table of bounds.
      k: for "simes", how many order statistics share the bound, in 1..n; floor(n/2) where not given.
      num_draws: for "monte_carlo", at least 1/delta - 1.
      key: PRNG key for "monte_carlo".
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN where the score is NaN or masked out.

    Raises:
      InputError: bad shapes, an infinite score, no calibration items, delta outside (0, 1), unknown options, options of
        another method, fewer than 17 calibration items for "asymptotic".

    Cost: O((n + m) log n); "monte_carlo" besides num_draws·n.

    >>> calibration_conditional_p_values(range(99), [-1.0, 40.5], null="nonmember").round(4).tolist()
    [0.045899998396635056, 0.6032999753952026]

    References: Bates, Candes, Lei, Romano & Sesia (2023), section 3; the table is indexed by the integer rank.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    arrays.check_choice(method, METHODS, "method")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    level = level_operand(delta, "delta")
    if method == "monte_carlo":
        arrays.check_key(key, 'method="monte_carlo"')
        _check_draws(num_draws, delta)
    if not tracing(calibration, calibration_mask):
        _check_size(calibration, calibration_mask, method, k)
    if k is not None and method != "simes":
        raise InputError(f'k is used by method="simes" only, not by {method!r}')
    (calibration, scores), (calibration_mask, mask) = order_preserving((calibration, scores), (calibration_mask, mask))
    return _conditional(
        calibration,
        scores,
        calibration_mask,
        mask,
        level,
        key if method == "monte_carlo" else None,
        null=null,
        method=method,
        k=k,
        num_draws=num_draws if method == "monte_carlo" else 0,
    )


@functools.partial(jax.jit, static_argnames=("null", "method", "k", "num_draws"))
def _conditional(calibration, scores, calibration_mask, mask, delta, key, *, null, method, k, num_draws) -> jax.Array:
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
    return conditional.p_values(ranked, table)


def _check_draws(num_draws: Any, delta: Any) -> None:
    if not isinstance(num_draws, (int, np.integer)) or isinstance(num_draws, bool) or num_draws < 1:
        raise InputError(f"num_draws must be a positive integer, got {num_draws!r}")
    if not tracing(delta) and (num_draws + 1) * float(delta) < 1 - 1e-6:
        raise InputError(
            f"num_draws is {num_draws}, too few for delta = {float(delta):g}: every p-value would be 1; at least "
            f"{int(np.ceil(1 / float(delta))) - 1} are needed"
        )


def _check_size(calibration: Any, calibration_mask: Any, method: str, k: Any) -> None:
    """The number of real calibration items allows the method and its k."""
    host = np.asarray(calibration)
    real = ~np.isnan(host.astype(float)) & (True if calibration_mask is None else np.asarray(calibration_mask))
    n = int(real.sum())
    least = conditional.LEAST_ASYMPTOTIC
    if method == "asymptotic" and n < least:
        raise InputError(
            f'calibration has {n} real items; method="asymptotic" needs at least {least} (and many more to be '
            'accurate): use "simes" or "monte_carlo"'
        )
    if k is None:
        return
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 1 <= k <= n:
        raise InputError(f"k must be an integer from 1 to the number of real calibration items, {n}; got {k!r}")
