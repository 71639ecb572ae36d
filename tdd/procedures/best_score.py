"""Several scores and no favourite: the best of them, chosen from the data, with the error rate of one."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, evalues, stepup
from tdd.procedures.calls import level_operand, ordered_panels
from tdd.procedures.evalues import drawn_uniform
from tdd.records import CombinedSelection, Guarantee
from tdd.validate import arrays

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "best_score", "choose"]

GUARANTEES: dict[str, Guarantee] = {
    "best_score": Guarantee(
        "FDR <= alpha * m0/m",
        (
            "the null holds for the calibration items",
            "given the other candidates, a candidate for which the null holds and the calibration items are "
            "exchangeable, all K scores together",
            "which K scores are offered, alpha and every other option were chosen before any result was seen",
        ),
        "finite-sample",
        "tdd.kernels.evalues.unit_e_values, after Bai & Jin (2024) and Bashari et al. (2023); Wang & Ramdas (2022)",
        "one",
    ),
}
GUARANTEE_ROWS = [("tdd.best_score", "", GUARANTEES["best_score"])]


def best_score(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    null: Literal["nonmember", "member"] = "nonmember",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> CombinedSelection:
    """Select candidates by the best of K scores, where which one is best is decided by the same data.

    Trying scores and keeping the one that selects most voids the level of any procedure. Here a candidate is judged by
    the score that selects most of the *others* when the candidate is put among the calibration items, which is fair to
    it: `tdd.kernels.evalues.unit_e_values`, decided by e-BH. With K = 1 the selection is that of BH on conformal
    p-values. Where several scores are good and items choose different ones, e-BH loses power that `key` gives back.

    Guarantee: FDR <= alpha·m0/m, finite-sample, whatever the dependence between the scores, if calibration items and
    candidates for which the null holds are exchangeable given the other candidates. With `key` the same, over its draw
    too; a key that is drawn again because of what it selected voids it.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1); may be traced.
      null: "nonmember" (calibrated on known non-members, finds members) or "member" (finds clean items).
      key: PRNG key; where one is given, e-BH is randomised, and selects at least as much. See `tdd.e_bh`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`; `weights` are the shares of the tested candidates that each score judged, `p_values`
      min(1, 1/e). `adjusted` is that of e-BH on the e-values of this alpha: at another level the selection is another.

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown `null`.

    Cost: O(K m (n + m)): about 10^8 steps a second on one core.

    >>> known, unknown = [[3.0, 4.0, 5.0, 6.0], [1.0, 9.0, 2.0, 5.0]], [[1.0, 2.0, 7.0], [9.0, 8.0, 7.0]]
    >>> best_score(known, unknown, alpha=0.5).selected.tolist()
    [True, True, False]

    References: Bai & Jin (2024), "Optimized conformal selection"; Bashari, Epstein, Romano & Sesia (2023); Xu & Ramdas
    (2023) for the randomisation.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    if key is not None:
        arrays.check_key(key, "randomised e-BH")
    own, test, own_real, test_real = ordered_panels(calibration, scores, calibration_mask, mask)
    return _best_score(own, test, own_real, test_real, level_operand(alpha), key, null=null)


@functools.partial(jax.jit, static_argnames="null")
def _best_score(own, test, own_real, test_real, alpha, key, *, null) -> CombinedSelection:
    e_values, weights = choose(own, test, own_real, test_real, alpha, null=null)
    step = evalues.e_bh(e_values, alpha, uniform=None if key is None else drawn_uniform(key))
    n, bound = jnp.sum(own_real, dtype=jnp.int32), own.shape[1] + 1
    ranks = jax.vmap(lambda c, s: conformal.rank(c, s, null=null, calibration_mask=own_real, mask=test_real).rank)(
        own, test
    )
    return CombinedSelection(
        selected=step.reject,
        p_values=jnp.minimum(1 / e_values, 1),
        adjusted=step.adjusted,
        threshold=1 / step.threshold,
        proportion=jnp.zeros((), weights.dtype),
        num_selected=step.num_rejected,
        num_tests=step.num_tests,
        num_calibration=n,
        min_selections=stepup.min_rejections(alpha, test.shape[1], scale=((step.num_tests,), (n + 1,))),
        method="best_score",
        null=null,
        guarantee=GUARANTEES["best_score"],
        weights=weights,
        num_rejected_alone=jax.vmap(lambda row: stepup.bh_ranks(row, n, alpha, max_rank=bound).num_rejected)(ranks),
    )


def choose(own, test, own_real, test_real, alpha, *, null) -> tuple[jax.Array, jax.Array]:
    """E-values [m] by the best of K scores, and [K] the share of the tested candidates that each score judges."""
    (num_scores, n), m = own.shape, test.shape[1]
    found = evalues.unit_e_values(
        own,
        test,
        jnp.arange(n, dtype=jnp.int32),
        jnp.arange(m, dtype=jnp.int32),
        alpha,
        num_units=(n, m),
        null=null,
        calibration_mask=own_real,
        mask=test_real,
    )
    judged = jnp.sum((found.score[:, None] == jnp.arange(num_scores)) & test_real[:, None], axis=0)
    return found.e_values, judged / jnp.maximum(jnp.sum(test_real), 1)
