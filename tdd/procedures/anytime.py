"""Evidence that a set of items was memorised during training, valid at every one of many looks at the same items."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import set_statistics, trajectories
from tdd.kernels.set_statistics import STATISTICS, Statistic
from tdd.procedures.calls import exact_fraction, operand, tracing
from tdd.records import Guarantee, pytree
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count
from tdd.validate.settings import in_own_settings

_MAX_ITEMS = 2**18 - 1
_MAX_LABELS = 2**32  # bytes of the table of labellings

Baseline = Literal["first", "none"]
BASELINES = ("first", "none")

GUARANTEE = Guarantee.finite_sample(
    "P(anytime_p_value <= alpha at some look) <= alpha, and the e-value has mean at most 1 at any time",
    (
        "if no suspect is in the training data, then, given the scores of all items at all looks, which of them are "
        "the suspects is a uniformly random choice: suspects and references are of one kind, chosen and prepared alike",
        "the looks and the horizon were fixed before any score was seen",
        "the training does not react to the evidence, except by stopping",
        "the probability is over the data and over the relabellings; for those of one seed it may differ",
    ),
    "slots of exchangeable trajectories (tdd.kernels.trajectories.advance); spending after Lan & DeMets (1983)",
)
GUARANTEE_ROWS = [("tdd.trajectory_test", "", GUARANTEE)]


@pytree("method", "guarantee")
class TrajectoryResult:
    """Evidence that a set of items was memorised, at each of T looks.

    Attributes:
      p_value: [T] p-value of each look alone; not valid over several looks.
      anytime_p_value: [T] lowest level crossed so far, on a grid that contains alpha; it never rises.
      log_e_value: [T] logarithm of the e-value so far, -inf or more; it never falls.
      alarm: [T] bool, anytime_p_value <= alpha; it stays.
      first_alarm: [] int32, index of the first look with an alarm, -1 if there is none.
      num_masked: [T] int32, items left out at the look because of a missing score there or earlier.
      method: name of the statistic and the baseline.
      guarantee: guarantee of `anytime_p_value` and `log_e_value`.
    """

    p_value: jax.Array
    anytime_p_value: jax.Array
    log_e_value: jax.Array
    alarm: jax.Array
    first_alarm: jax.Array
    num_masked: jax.Array
    method: str
    guarantee: Guarantee


@in_own_settings()
def trajectory_test(
    scores: Any,
    is_suspect: Any,
    *,
    alpha: float,
    num_draws: int = 9_999,
    horizon: int | None = None,
    baseline: Baseline = "first",
    statistic: Statistic = "combined",
    seed: int = 0,
) -> TrajectoryResult:
    """Test at each look whether the suspects among the items have become more member-like than the reference items.

    At each look the items are ranked by score, or by its residual given the first score, and the suspects' ranks are
    compared with those of `num_draws` random choices of as many suspects. The looks share the level (Lan & DeMets
    1983): linearly up to `horizon`, as look / (look + 20) if none was fixed. The test counts the random choices that
    would have raised an alarm so far, so that looks that depend on each other cost little or no power.

    A set that moves by 2 sd of the statistic's null distribution at the first of 50 looks and then stays is detected at
    level .05 with probability .66, as by one look at the whole level; testing each look at alpha/50 detects it with
    probability .13, the e-value at 20 with .28 (10,000 rows, repeated looks, 200 repetitions, standard errors up to
    .034).

    Guarantee: P(anytime_p_value <= alpha at some look) <= alpha for every alpha, and E e-value <= 1 at any time,
    finite-sample, if the suspects are a uniformly random choice among the items given all scores (nobody trained on
    them, and they were drawn like the reference items), the looks and the horizon were fixed beforehand, and the
    training does not react to the evidence, except by stopping.

    Args:
      scores: [T, N] loss-like scores of the same N items at T looks, in order. A NaN leaves the item out at that look.
      is_suspect: [N] bool, True = suspect, False = reference.
      alpha: level of the alarm, a number.
      num_draws: random labellings; at least 1/alpha - 1, better 20 / (alpha · fraction spent at the first look).
      horizon: number of looks, fixed beforehand; None if it is open.
      baseline: "first": ranks of the residuals of the least-squares line, over all items, on each item's first score;
        the first look itself ranks the scores. "none": ranks of the scores at all looks.
      statistic: "rank_sum" for a shift of the whole set, "tail" for a part of it that moved far, "combined": the larger
        of both.
      seed: seed of the labellings.

    Returns:
      `TrajectoryResult`. Concrete scores are ranked in float64, traced ones in their own type. Cost: O(K N + K log K)
      a look for K = num_draws + 1 labellings of N items; K N bytes.

    Raises:
      InputError: wrong shapes, infinite scores, a look without a score, no suspect or no reference item, more looks
        than the horizon, too few or too many labellings, unknown options.

    >>> rng = np.random.default_rng(0)
    >>> suspect = np.arange(60) < 30
    >>> paths = rng.normal(size=60) + 0.1 * rng.normal(size=(6, 60)) - 0.2 * suspect * np.arange(6)[:, None]
    >>> result = trajectory_test(paths, suspect, alpha=0.05, num_draws=999, horizon=6)
    >>> result.alarm.tolist(), int(result.first_alarm)
    ([False, True, True, True, True, True], 1)
    """
    arrays.check_choice(baseline, BASELINES, "baseline")
    arrays.check_choice(statistic, STATISTICS, "statistic")
    arrays.check_level(alpha)
    alpha = float(alpha)
    paths = _as_paths(scores)
    num_looks, num_items = paths.shape
    suspects = _as_suspects(is_suspect, num_items)
    num_draws = _as_relabellings(num_draws, alpha, num_items)
    horizon = _as_horizon(horizon, num_looks)
    order = np.argsort(~suspects, kind="stable")  # the true labelling has the suspects first
    num_suspect = int(suspects.sum())
    labels = set_statistics.labellings(num_suspect, num_items - num_suspect, num_draws, arrays.check_seed(seed))
    levels = trajectories.start(num_draws, alpha=alpha).levels.value
    options = (labels, alpha, horizon, baseline == "first", statistic)
    if tracing(paths):
        wide = jnp.promote_types(paths.dtype, jnp.float32)
        evidence, place, num_masked = _looks(jnp.asarray(paths, wide)[:, order], *options)
    else:
        with jax.enable_x64(True):
            looks = _looks(np.asarray(paths).astype(float)[:, order], *options)
            evidence, place, num_masked = jax.tree.map(np.asarray, looks)
    anytime = levels[jax.device_put(place)]
    alarm = anytime <= alpha
    return TrajectoryResult(
        p_value=jax.device_put(operand(evidence.p_value, levels.dtype)),
        anytime_p_value=anytime,
        log_e_value=jax.device_put(operand(evidence.log_e_value, levels.dtype)),
        alarm=alarm,
        first_alarm=jnp.where(jnp.any(alarm), jnp.argmax(alarm), -1).astype(jnp.int32),
        num_masked=jax.device_put(num_masked),
        method=f"trajectories/{statistic}/baseline={baseline}",
        guarantee=GUARANTEE,
    )


@functools.partial(jax.jit, static_argnames=("alpha", "horizon", "from_first", "statistic"))
def _looks(
    paths: jax.Array, labels: jax.Array, alpha: float, horizon: int | None, from_first: bool, statistic: Statistic
) -> tuple[trajectories.Evidence, jax.Array, jax.Array]:
    """Return the evidence of each look, the true labelling's place in the grid and the number of items left out."""

    def statistics(scores: jax.Array, baseline: jax.Array | None) -> jax.Array:
        return set_statistics.set_statistics(scores, labels, baseline=baseline, statistic=statistic)

    def look(carry: tuple[trajectories.State, jax.Array], step: tuple[jax.Array, jax.Array]) -> Any:
        (state, first), (number, scores) = carry, step
        known = jnp.isfinite(scores)
        if from_first:
            values = jax.lax.cond(number == 1, lambda: statistics(scores, None), lambda: statistics(scores, first))
            ranked = known & ((number == 1) | jnp.isfinite(first))
        else:
            values, ranked = statistics(scores, None), known
        state, evidence = trajectories.advance(state, values, trajectories.spending(number, horizon))
        first = jnp.where(jnp.isfinite(first), first, scores)
        return (state, first), (evidence, state.place[0], jnp.sum(~ranked, dtype=jnp.int32))

    state = trajectories.start(labels.shape[0] - 1, alpha=alpha)
    first = jnp.full(paths.shape[1], jnp.nan, paths.dtype)
    _, by_look = jax.lax.scan(look, (state, first), (jnp.arange(1, paths.shape[0] + 1), paths))
    return by_look


def _as_paths(scores: Any) -> jax.Array | np.ndarray:
    """Check scores [T, N], finite or NaN, with an item to rank at every look."""
    array = arrays.as_matrix(scores, "scores", "[looks, items]")
    arrays.check_finite(array, "scores")
    num_looks, num_items = array.shape
    if num_looks == 0:
        raise InputError("scores has no look: it must hold one row of scores a look, [looks, items]")
    if num_items > _MAX_ITEMS:
        raise InputError(f"scores has {num_items:,} items; ranks are exact up to {_MAX_ITEMS:,}: take a sample of them")
    if isinstance(array, Tracer) or not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    empty = np.flatnonzero(np.isnan(np.asarray(array)).all(axis=1))
    if len(empty):
        raise InputError(f"scores[{empty[0]}] has no item to rank: all {num_items} are NaN; leave this look out")
    return array


def _as_suspects(is_suspect: Any, num_items: int) -> np.ndarray:
    """Check [N] bool with at least one suspect and one reference item."""
    if isinstance(is_suspect, Tracer):
        raise InputError("is_suspect must be known before tracing: the labellings are drawn on the host")
    array = np.asarray(is_suspect)
    if array.dtype != np.bool_:
        raise InputError(f"is_suspect must be boolean (True = suspect, False = reference), got dtype {array.dtype}")
    if array.shape != (num_items,):
        raise InputError(f"is_suspect has shape {array.shape}, but scores has {num_items} items a look")
    count = int(array.sum())
    if not 0 < count < num_items:
        missing = "suspect" if count == 0 else "reference"
        raise InputError(f"is_suspect names {count} of {num_items} items: at least one {missing} item is needed")
    return array


def _as_relabellings(num_draws: Any, alpha: Any, num_items: int) -> int:
    """Check that the number of random labellings can reach the level and that their table fits in memory."""
    count = as_count(num_draws, "num_draws")
    level = exact_fraction(alpha)
    if level * (count + 1) < 1:
        needed = math.ceil(1 / level) - 1
        raise InputError(
            f"num_draws={count} random labellings cannot give a p-value of alpha={alpha} or below; at least {needed} "
            "are needed, and 20 times as many for looks that share the level"
        )
    if (count + 1) * num_items > _MAX_LABELS:
        raise InputError(
            f"num_draws={count:,} labellings of {num_items:,} items take {(count + 1) * num_items / 2**30:.1f} GiB; "
            f"at most {_MAX_LABELS // num_items - 1:,} draws fit in {_MAX_LABELS // 2**30} GiB"
        )
    return count


def _as_horizon(horizon: Any, num_looks: int) -> int | None:
    """Check the number of looks fixed beforehand against those that were taken."""
    if horizon is None:
        return None
    wanted = as_count(horizon, "horizon")
    if wanted < num_looks:
        raise InputError(
            f"scores has {num_looks} looks, more than horizon={wanted}: a horizon is fixed before the first look; "
            f"pass scores[:{wanted}], or horizon=None if none was fixed"
        )
    return wanted
