"""Simultaneous bounds on the false discovery proportion of every cut and on the number of members.

All bounds hold together on one event of probability >= 1 - delta, so that cuts may be chosen after looking at them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import conformal
from tdd.kernels import fdp_bounds as kernels
from tdd.kernels.fdp_bounds import DkwBounds, Template
from tdd.procedures.calls import (
    as_floating,
    checked_scores,
    common_size,
    level_operand,
    operand,
    order_preserving,
    to_common_size,
    tracing,
)
from tdd.procedures.fdp_template import template_for
from tdd.records import Guarantee, Null, Selection, pytree
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_ONE_SCORE = (
    "the null holds for every calibration item",
    "calibration scores and the scores of null candidates are exchangeable",
    "one score, chosen before any result was seen, or ranks of one pooled score",
)

_ALL_CUTS = "P(some cut has FDP above its bound) <= delta"

GUARANTEES: dict[str, Guarantee] = {
    "envelope": Guarantee.finite_sample(
        "P(some cut has FDP above its bound, or the count of true discoveries is wrong) <= delta",
        _ONE_SCORE,
        "Gazin, Blanchard & Roquain (2024); Song, Jin & Candes (2026)",
    ),
    "dkw": Guarantee.finite_sample(
        _ALL_CUTS, (*_ONE_SCORE, "p-values are conservative"), "Gazin, Blanchard & Roquain (2024), theorem 2.4"
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.fdp_bounds", "", GUARANTEES["envelope"]),
    ("tdd.fdp_bounds_of_ranks", "", GUARANTEES["envelope"]),
    ("tdd.dkw_fdp_bounds", "", GUARANTEES["dkw"]),
]


class Cut(NamedTuple):
    """Bounds for one set of items.

    Attributes:
      num_selected: [] int32, its size.
      false_bound: [] int32, upper bound on its nulls.
      fdp_bound: [] false_bound / max(1, num_selected).
      min_true: [] int32, lower bound on its non-nulls.
    """

    num_selected: jax.Array
    false_bound: jax.Array
    fdp_bound: jax.Array
    min_true: jax.Array


@pytree("method", "null", "guarantee")
class FdpBounds:
    """Bounds for every cut {j: r_j <= i}, r_j the conformal rank ((n+1) times the conservative p-value), i = 1..N+1.

    All of them hold together with probability >= 1 - delta.

    Attributes:
      num_selected: [N+1] int32, R(i), entry i - 1 for rank i.
      false_bound: [N+1] int32, upper bound on the nulls among these.
      fdp_bound: [N+1] false_bound / max(1, num_selected).
      item_fdp_bound: [m] the bound for the cut at each item's own rank; NaN for masked items.
      rank: [m] int32, conformal ranks; N + 2 for masked items.
      max_nulls: [] int32, upper bound on the nulls among the m items.
      min_true: [] int32, lower bound on the non-nulls: m - max_nulls.
      num_tests: [] int32, m without masked and NaN items.
      num_calibration: [] int32, n without masked and NaN items.
      delta: [] probability that some bound fails.
      method: "envelope".
      null: direction of the null.
      guarantee: the guarantee and its assumptions.
    """

    num_selected: jax.Array
    false_bound: jax.Array
    fdp_bound: jax.Array
    item_fdp_bound: jax.Array
    rank: jax.Array
    max_nulls: jax.Array
    min_true: jax.Array
    num_tests: jax.Array
    num_calibration: jax.Array
    delta: jax.Array
    method: str
    null: Null
    guarantee: Guarantee

    @property
    def min_members(self) -> jax.Array:
        """Lower bound [] int32 on the number of members among the items; a ValueError with null="member"."""
        if self.null != "nonmember":
            raise ValueError('bounds with null="member" count clean items: read min_clean')
        return self.min_true

    @property
    def min_clean(self) -> jax.Array:
        """Lower bound [] int32 on the number of items that are not members; a ValueError with null="nonmember"."""
        if self.null != "member":
            raise ValueError('bounds with null="nonmember" count members: read min_members')
        return self.min_true

    def at(self, rank: Any) -> Cut:
        """Return the bounds for {j: r_j <= rank}; a rank below 1 selects nothing."""
        slot = jnp.asarray(rank, jnp.int32) - 1
        inside = jnp.clip(slot, 0, self.num_selected.shape[0] - 1)
        count = jnp.where(slot >= 0, self.num_selected[inside], 0)
        return _cut(count, jnp.where(slot >= 0, self.false_bound[inside], 0))

    def fdp_at(self, rank: Any) -> jax.Array:
        """Return the bound [] on the false discovery proportion of {j: r_j <= rank}."""
        return self.at(rank).fdp_bound

    def of(self, selected: Any) -> Cut:
        """Return the bounds for any items, [m] bool, even those chosen after looking; masked items do not count."""
        rank, false_bound = self.rank, self.false_bound
        if not tracing(rank, false_bound, selected):
            rank, selected = to_common_size(np.asarray(rank), np.array(np.asarray(selected), bool))
            last = np.full(common_size(len(false_bound)) - len(false_bound), self.num_tests, np.int32)
            false_bound = np.concatenate([np.asarray(false_bound), last])
        return _of_set(rank, false_bound, self.max_nulls, self.num_tests, self.num_calibration, selected)


@in_own_settings()
def fdp_bounds(
    calibration: Any,
    scores: Any,
    *,
    null: Null,
    key: jax.Array | None = None,
    delta: Any = None,
    num_draws: int = 1_919,
    template: Template | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> FdpBounds:
    """Upper bounds on the false discovery proportion of every cut, and on the number of nulls among the candidates.

    u_k(i): an envelope above the numbers of k null ranks <= i for all i with probability >= 1 - delta; max_nulls =
    max{k: k <= u_k(i) + m - R(i) for all i}; v(i) = min(u_max_nulls(i), R(i)), made consistent between cuts; FDP(i) <=
    v(i)/max(1, R(i)) (Gazin, Blanchard & Roquain 2024; Song, Jin & Candes 2026).

    Guarantee: all bounds hold together with probability >= 1 - delta if calibration scores and the scores of null
    candidates are exchangeable, ties allowed; finite-sample. Over the data alone for known n and m up to 2,048, where
    u_k is computed (`tdd.kernels.null_paths`); beyond, and under a transformation, u_k is drawn and the probability is
    over data and draws: given the 999 draws of one seed, for n = m = 100 and delta = .05, some bound failed with
    probability .037 to .066 for 40 seeds (.050 computed).

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores of the candidates; one score, chosen beforehand.
      null: "nonmember" (small scores are evidence; the bounds count non-members among presumed members) or "member"
        (large scores are evidence; they count contaminated items among presumed clean ones).
      key: PRNG key of the draws, where there are some.
      delta: probability in (0, 1) that some bound fails; default 0.05.
      num_draws: B, as in `fdp_template`.
      template: result of `fdp_template`, instead of key and delta; also the value to close over under `jax.vmap`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `FdpBounds`. NaN scores are left out of n and m. Cost: O(m + n), one sort of n, and that of `fdp_template`.

    Raises:
      InputError: wrong shapes (scores of several detectors included), infinite scores, no calibration items, neither
        key nor template or both, a template for other sizes, delta out of range, too few draws.

    >>> calibration, scores = jnp.arange(40.0), jnp.concatenate([jnp.arange(20.0) - 30, jnp.arange(20.0)])
    >>> bounds = fdp_bounds(calibration, scores, null="nonmember", key=jax.random.key(0), delta=0.1)
    >>> bool(bounds.min_members >= 10), float(bounds.fdp_at(1)) < 0.5
    (True, True)
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    _check_one_score(calibration, scores)
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    sizes = calibration.shape[0], scores.shape[0]
    if template is None:
        calibration, calibration_mask = to_common_size(calibration, calibration_mask, scores, mask, key, delta)
        scores, mask = to_common_size(scores, mask, calibration, calibration_mask, key, delta)
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    ranked = _ranked(*samples, null=null, calibration_mask=masks[0], mask=masks[1])
    n, max_calibration = ranked.num_calibration, calibration.shape[0]
    template = _drawn_or_given(template, key, delta, num_draws, n, ranked.rank, max_calibration)
    return _of_sizes(_apply(template, ranked.rank, n, None, max_rank=max_calibration + 1, null=null), *sizes)


def _of_sizes(bounds: FdpBounds, n: int, m: int) -> FdpBounds:
    """Remove from the bounds what `to_common_size` added to n and m."""
    if (bounds.num_selected.shape[0], bounds.rank.shape[0]) == (n + 1, m):
        return bounds
    by_rank = {
        name: jax.device_put(np.asarray(getattr(bounds, name))[: n + 1])
        for name in ("num_selected", "false_bound", "fdp_bound")
    }
    rank, item_fdp_bound = (np.asarray(x)[:m] for x in (bounds.rank, bounds.item_fdp_bound))
    return dataclasses.replace(
        bounds, **by_rank, rank=jax.device_put(np.minimum(rank, n + 2)), item_fdp_bound=jax.device_put(item_fdp_bound)
    )


@in_own_settings()
def fdp_bounds_of_ranks(
    ranks: Any,
    num_calibration: int,
    *,
    null: Null,
    key: jax.Array | None = None,
    delta: Any = None,
    num_draws: int = 1_919,
    template: Template | None = None,
    mask: Any = None,
) -> FdpBounds:
    """Bounds as `fdp_bounds` from conformal ranks (whole numbers in 1..n+1), for a pooled score of several detectors.

    Guarantee: as `fdp_bounds`, if the ranks are those of one score that is symmetric in calibration and candidates,
    with ties counted against the candidate or broken by one random order of calibration and candidates together.
    Smoothed, weighted and combined p-values have no such ranks.

    Args:
      ranks: [m] int, r_j = (n+1) p_j.
      num_calibration: n.
      null: direction of the null that the ranks test.
      key, delta, num_draws, template: as in `fdp_bounds`.
      mask: [m] bool, True = real item.

    Raises:
      InputError: ranks that are not whole numbers in 1..n+1, else as `fdp_bounds`.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    n = arrays.as_count(num_calibration, "num_calibration", why="calibration scores")
    ranks, mask = _check_ranks(ranks, n, mask)
    ranks = operand(ranks, jnp.int32)
    real = ranks if mask is None else jnp.where(operand(mask), ranks, n + 2)
    template = _drawn_or_given(template, key, delta, num_draws, n, real, n)
    return _apply(template, ranks, n, mask, max_rank=n + 1, null=null)


def fdp_bounds_of_selection(selection: Selection, **draws: Any) -> FdpBounds:
    """`fdp_bounds_of_ranks` of a selection whose p-values are the ranks of one pooled score over n + 1."""
    n, p = int(selection.num_calibration), np.asarray(selection.p_values)
    tested = ~np.isnan(p)
    rank = np.where(tested, np.rint(np.nan_to_num(p, nan=1.0) * (n + 1)), n + 1).astype(np.int64)
    return fdp_bounds_of_ranks(rank, n, null=selection.null, mask=tested, **draws)


@in_own_settings()
def dkw_fdp_bounds(
    p_values: Any,
    thresholds: Any = None,
    *,
    num_calibration: int,
    delta: Any = 0.05,
    interpolate: bool = True,
    mask: Any = None,
) -> DkwBounds:
    """Closed-form bounds on the false discovery proportion of {p_j <= t}, for all t at once; they need no key.

    Guarantee: as `tdd.kernels.fdp_bounds.dkw`: simultaneous with probability >= 1 - delta, finite-sample. The envelope
    of `fdp_bounds` is tighter where it matters, at small t.

    Args:
      p_values: [m] conservative conformal p-values of one score; NaN is left out.
      thresholds: [t] cuts in [0, 1]; default the p-values themselves.
      num_calibration: n of the p-values.
      delta: probability in (0, 1) that some bound fails.
      interpolate: whether a bound at a smaller threshold may serve a larger one.
      mask: [m] bool, True = real item.

    Returns:
      `DkwBounds(fdp_bound, false_bound, num_selected, offset)`.

    Raises:
      InputError: values outside [0, 1], wrong shapes, delta out of range.

    >>> dkw_fdp_bounds([0.02] * 40, [0.02], num_calibration=99, delta=0.1).fdp_bound.round(2).tolist()
    [0.2800000011920929]
    """
    n = arrays.as_count(num_calibration, "num_calibration", why="calibration scores")
    p_values = arrays.as_vector(p_values, "p_values")
    mask = arrays.as_mask(mask, p_values, "mask")
    arrays.check_p_values(p_values)
    thresholds = p_values if thresholds is None else arrays.as_vector(thresholds, "thresholds")
    arrays.check_p_values(thresholds, "thresholds")
    operands = as_floating(p_values), as_floating(thresholds), n, level_operand(delta, "delta")
    return _dkw(*operands, interpolate=bool(interpolate), mask=mask)


_ranked = jax.jit(conformal.rank, static_argnames=("null", "tie_break"))
_dkw = jax.jit(kernels.dkw, static_argnames="interpolate")


@functools.partial(jax.jit, static_argnames=("max_rank", "null"))
def _apply(template, rank, n, mask, *, max_rank, null) -> FdpBounds:
    raw = kernels.bounds(template, rank, n, max_rank=max_rank, mask=mask)
    fdp = _cut(raw.num_selected, raw.false_bound).fdp_bound
    return FdpBounds(
        num_selected=raw.num_selected,
        false_bound=raw.false_bound,
        fdp_bound=fdp,
        item_fdp_bound=jnp.where(raw.slot >= 0, fdp[jnp.maximum(raw.slot, 0)], jnp.nan),
        rank=jnp.where(raw.slot >= 0, raw.slot + 1, max_rank + 1),
        max_nulls=raw.max_nulls,
        min_true=raw.num_tests - raw.max_nulls,
        num_tests=raw.num_tests,
        num_calibration=jnp.asarray(n, jnp.int32),
        delta=template.delta,
        method="envelope",
        null=null,
        guarantee=GUARANTEES["envelope"],
    )


@jax.jit
def _of_set(rank, false_bound, max_nulls, num_tests, n, selected) -> Cut:
    slot = jnp.where(rank <= n + 1, rank - 1, -1)
    raw = kernels.FdpBounds(false_bound, false_bound, max_nulls, num_tests, slot)
    selected = jnp.asarray(selected, bool)
    return _cut(jnp.sum(selected & (slot >= 0), dtype=jnp.int32), kernels.of_set(raw, selected))


def _cut(count: jax.Array, false: jax.Array) -> Cut:
    dtype = jnp.result_type(float)
    return Cut(count, false, false.astype(dtype) / jnp.maximum(count, 1).astype(dtype), count - false)


def _check_one_score(calibration: Any, scores: Any) -> None:
    """Refuse several scores an item: the distribution of the ranks is known for one score only."""
    for name, values in (("calibration", calibration), ("scores", scores)):
        if arrays.num_axes(values) == 2:
            raise InputError(
                f"{name} has shape {tuple(np.shape(values))}: simultaneous bounds are for one score chosen before its "
                "results were seen. For several detectors pass the conformal ranks of their pooled score to "
                "tdd.fdp_bounds_of_ranks; for Cauchy or largest p-values no such bound is known"
            )


def _check_ranks(ranks: Any, num_calibration: int, mask: Any) -> tuple[Any, Any]:
    """Check conservative conformal ranks, whole numbers from 1 to n + 1 where they are real, and their mask."""
    array: Any = ranks if isinstance(ranks, jax.Array) else arrays.own_copy(ranks)
    if array.ndim != 1 or (array.size and not jnp.issubdtype(array.dtype, jnp.integer)):
        raise InputError(
            f"ranks must be a one-dimensional array of whole numbers, got dtype {array.dtype} and shape "
            f"{tuple(array.shape)}; weighted, randomised and combined p-values have no ranks and no such bound"
        )
    mask = arrays.as_mask(mask, array, "mask")
    if isinstance(array, Tracer) or isinstance(mask, Tracer):
        return array, mask
    host = np.asarray(array)
    why = f"with num_calibration={num_calibration} ranks lie in 1..{num_calibration + 1}. Leave items out by mask"
    real = True if mask is None else np.asarray(mask)
    arrays.refuse(host, real & ((host < 1) | (host > num_calibration + 1)), "ranks", why)
    return array.astype(np.int32), mask


def _drawn_or_given(
    template: Any, key: Any, delta: Any, num_draws: int, n: Any, rank: jax.Array, max_calibration: int
) -> Template:
    """Draw a template, or check the given one for n calibration scores and at least this many items."""
    if template is None:
        sizes = {"max_calibration": max_calibration, "max_tests": rank.shape[0]}
        return template_for(key, n, delta, num_draws, **sizes)
    if key is not None or delta is not None:
        raise InputError("template already holds the draws and delta: give either it or key and delta")
    if isinstance(template.num_calibration, Tracer) or isinstance(n, Tracer) or np.ndim(template.num_calibration):
        return template
    if int(template.num_calibration) != int(n):
        raise InputError(
            f"template was made for num_calibration={int(template.num_calibration)}, but {int(n)} calibration scores "
            "are real (neither NaN nor masked out)"
        )
    num_tests = rank.shape[0] if isinstance(rank, Tracer) else int((np.asarray(rank) <= max_calibration + 1).sum())
    largest = int(np.max(np.asarray(template.num_nulls), initial=0))
    if num_tests > largest:
        raise InputError(f"template was made for at most {largest} items, but scores has {num_tests}")
    return template
