"""Evidence on a stream, valid at every step: conformal test martingales and change detection on checked input."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import change_detection, martingale, online_conformal
from tdd.kernels.change_detection import Alarms
from tdd.kernels.martingale import BETS, Bet, Martingale
from tdd.procedures.calls import as_floating, at_common_size, operand, order_preserving
from tdd.records import Guarantee, Null
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_MAX_WINDOW = 10**7

_ANY_TIME = "P(p <= alpha at some time) <= alpha"
_ONLINE = (
    "p-values of arriving scores against those before them, or against controls of their own: not against one "
    "calibration sample that all of them share"
)
_SUPER_UNIFORM = ("every p-value is super-uniform given those before it", _ONLINE)

GUARANTEES: dict[str, Guarantee] = {
    "online_conformal_p_values": Guarantee.finite_sample(
        "independent and uniform p-values",
        ("the scores are exchangeable in their order of arrival",),
        "Vovk, Gammerman & Shafer (2005), theorem 8.1",
    ),
    "mixture": Guarantee.finite_sample(
        _ANY_TIME, _SUPER_UNIFORM, "Ville (1939); Vovk, Gammerman & Shafer (2005), sect. 7.1"
    ),
    "any_start": Guarantee.finite_sample(_ANY_TIME, _SUPER_UNIFORM, "Ville (1939)"),
    "simple_jumper": Guarantee.finite_sample(
        _ANY_TIME,
        ("every p-value is exactly uniform given those before it: no conservative ones", _ONLINE),
        "Ville (1939); Vovk et al. (2021), algorithm 1",
    ),
    "shiryaev_roberts": Guarantee.finite_sample(
        "mean number of p-values between false alarms >= mean_time", _SUPER_UNIFORM, "Pollak (1987); Vovk (2021)"
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.online_conformal_p_values", "", GUARANTEES["online_conformal_p_values"]),
    *(("tdd.conformal_martingale", f'bet="{bet}"', GUARANTEES[bet]) for bet in BETS),
    ("tdd.shiryaev_roberts", "", GUARANTEES["shiryaev_roberts"]),
]


@in_own_settings()
def online_conformal_p_values(
    scores: Any,
    *,
    null: Null,
    key: jax.Array | None = None,
    uniforms: Any = None,
    window: int | None = None,
    mask: Any = None,
) -> jax.Array:
    """Smoothed conformal p-values of scores against those that arrived before them.

    p_t = (#{s < t more extreme} + U_t (1 + #{s < t equal})) / t. With a window of w scores, p_t compares with the w
    that are held; an arriving score joins them and one of the w + 1, drawn at random, leaves.

    Guarantee: independent and uniform for exchangeable scores, with and without a window, ties or not; finite-sample
    (Vovk, Gammerman & Shafer 2005, theorem 8.1, for the whole past). A window of the last w scores would not give
    independent p-values.

    Args:
      scores: [T] loss-like scores in order of arrival; NaN is skipped.
      null: "nonmember" (small scores are extreme: small p = more member-like than before) or "member".
      key: PRNG key; the draw of a score depends on it and on the scores up to this one, so that one constant key does
        not give every stream the same draws. Fewer scores with the same key give the same p-values.
      uniforms: [T] U_t in (0, 1], instead of those of the key.
      window: w; None for the whole past.
      mask: [T] bool, True = real.

    Returns:
      [T] in (0, 1]; NaN for skipped scores. Cost: O(T w), O(T^2) for the whole past; memory O(T).

    Raises:
      InputError: wrong shapes, infinite scores, `uniforms` outside (0, 1], no key where one is needed, unknown `null`.

    >>> ones = np.ones(4)
    >>> online_conformal_p_values([3.0, 2.0, 5.0, 1.0], null="nonmember", uniforms=ones).tolist()
    [1.0, 0.5, 1.0, 0.25]
    """
    arrays.check_choice(null, ("nonmember", "member"), "null")
    scores = arrays.as_vector(scores, "scores")
    arrays.check_finite(scores, "scores")
    mask = arrays.as_mask(mask, scores, "mask")
    window = (
        None if window is None else arrays.as_count(window, "window", _MAX_WINDOW, "how many earlier scores are held")
    )
    length = scores.shape[0]
    if uniforms is not None:
        uniforms = arrays.as_vector(uniforms, "uniforms")
        _check_uniforms(uniforms, length)
        uniforms = operand(uniforms, jnp.result_type(float))
    if key is not None or uniforms is None or (window is not None and length > window + 1):
        arrays.check_key(key, "breaking ties and choosing the score that leaves a full window")
    (ordered,), (real,) = order_preserving([scores], [mask])
    seen = None if key is None else operand(scores, jnp.float32)
    return _p_values(ordered, null=null, key=key, uniforms=uniforms, window=window, mask=real, evidence=seen)


_p_values = jax.jit(online_conformal.p_values, static_argnames=("null", "window"))


@in_own_settings()
def conformal_martingale(p_values: Any, *, bet: Bet = "any_start", log: bool = False, mask: Any = None) -> Martingale:
    """Evidence against a stream of p-values, by betting on small ones; it may be watched and stopped at any time.

    Guarantee: P(some anytime p-value <= a) <= a for every a, finite-sample, for p-values that are each super-uniform
    given those before ("simple_jumper": exactly uniform), such as those of `tdd.online_conformal_p_values` or of
    arriving canaries against controls of their own; not for `tdd.conformal_p_values`, which share one calibration
    sample (Ville 1939; Vovk, Gammerman & Shafer 2005; Vovk et al. 2021).

    Choice of the bet, for p-values that are uniform at first and Beta(1/2, 1) from step t0 on: mean number of steps
    from t0 until the anytime p-value is .01 (1,000 streams each) for "any_start", "mixture" and "simple_jumper": 21,
    20, 52 for t0 = 0; 37, 51, 69 for t0 = 100; 48, 137, 103 for t0 = 1,000.

    Args:
      p_values: [T] in [0, 1], in order of arrival; NaN is skipped. A p-value of 0 is infinite evidence.
      bet: "any_start" (small from some step on), "mixture" (small from the start) or "simple_jumper" (small or large).
      log: whether `p_values` are natural logarithms of p-values.
      mask: [T] bool, True = real.

    Returns:
      `Martingale(log_martingale, log_running_max, anytime_p_value, num_tests)`, each [T]. One step at a time:
      `tdd.kernels.martingale.start` and `advance` give the same.

    Raises:
      InputError: p outside [0, 1], wrong shapes, unknown `bet`.

    >>> evidence = conformal_martingale([0.01, 0.02, 0.01, 0.005], bet="mixture")
    >>> [round(float(p), 4) for p in evidence.anytime_p_value]
    [0.2247, 0.0624, 0.0099, 0.0009]
    """
    arrays.check_choice(bet, BETS, "bet")
    log_p, mask = _log_p(p_values, log, mask)
    return at_common_size(lambda log_p, real: _martingale(log_p, bet=bet, mask=real), log_p, mask)


_martingale = jax.jit(martingale.conformal_martingale, static_argnames="bet")


@in_own_settings()
def shiryaev_roberts(p_values: Any, mean_time: Any, *, log: bool = False, mask: Any = None) -> Alarms:
    """Raise alarms when p-values become small, on a stream without end; see the kernel of the same name.

    Guarantee: the mean number of p-values up to a false alarm, and between two, is at least `mean_time`; the mean
    number of false alarms among n p-values is at most n / mean_time. Finite-sample, for p-values as in
    `conformal_martingale`. Some clean streams will have an alarm: an alarm is not a test at a level.

    For p-values that are Beta(1/2, 1) from some step on and mean_time = 10,000 the alarm comes 26 steps later on
    average, whether that step is 100 or 1,000.

    Args:
      p_values: [T] in [0, 1], in order of arrival; NaN is skipped.
      mean_time: at least 1; may be traced.
      log: whether `p_values` are natural logarithms of p-values.
      mask: [T] bool, True = real.

    Returns:
      `Alarms(log_statistic, alarm)`, each [T]. After an alarm the statistic starts again.

    Raises:
      InputError: p outside [0, 1], `mean_time` below 1, wrong shapes.

    >>> shiryaev_roberts([0.5, 0.001, 0.001, 0.002, 0.4], 1_000).alarm.tolist()
    [False, False, True, False, False]
    """
    _check_mean_time(mean_time)
    log_p, mask = _log_p(p_values, log, mask)
    mean_time = operand(mean_time, jnp.result_type(float))
    return at_common_size(lambda log_p, real: _alarms(log_p, mean_time, mask=real), log_p, mask, mean_time)


_alarms = jax.jit(change_detection.shiryaev_roberts)


def _log_p(p_values: Any, log: bool, mask: Any) -> tuple[Any, Any]:
    """Return the logarithms, taken in double precision where values are known, and the checked mask."""
    if not isinstance(log, bool):
        raise InputError(f"log must be True or False, got {log!r}")
    p_values = arrays.as_vector(p_values, "p_values")
    mask = arrays.as_mask(mask, p_values, "mask")
    if log:
        if not isinstance(p_values, Tracer):
            host = np.asarray(p_values)
            why = "with log=True they are natural logarithms of p-values, at most 0; leave log out for p-values"
            arrays.refuse(host, host > 0, "p_values", why)
        return as_floating(p_values), mask
    arrays.check_p_values(p_values)
    if isinstance(p_values, jax.Array):
        p_values = as_floating(p_values)
        return jnp.log(p_values.astype(jnp.promote_types(p_values.dtype, jnp.float32))), mask
    if not np.issubdtype(p_values.dtype, np.floating):
        p_values = p_values.astype(jnp.result_type(float))
    with np.errstate(divide="ignore"):
        return operand(np.log(p_values)), mask


def _check_mean_time(mean_time: Any) -> None:
    if isinstance(mean_time, Tracer):
        return
    number = np.ndim(mean_time) == 0 and not isinstance(mean_time, (bool, str, bytes))
    try:
        value = float(mean_time) if number else np.nan
    except (TypeError, ValueError, ArithmeticError):
        value = np.nan
    if not 1 <= value < np.inf:
        raise InputError(
            "mean_time must be one finite number of at least 1, the mean number of p-values between false alarms, "
            f"got {mean_time!r}"
        )


def _check_uniforms(uniforms: Any, length: int) -> None:
    if uniforms.shape[0] != length:
        raise InputError(f"uniforms has {uniforms.shape[0]} entries and scores has {length}; give one for each score")
    if not isinstance(uniforms, Tracer):
        host = np.asarray(uniforms)
        why = "they must lie in (0, 1], so that no p-value is 0: 1 - jax.random.uniform(key, scores.shape) does"
        arrays.refuse(host, ~((host > 0) & (host <= 1)), "uniforms", why)
