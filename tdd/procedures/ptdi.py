"""PTDI: which candidates were in the training data, at a false discovery rate of at most alpha."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal
from tdd.kernels import proportion as proportions
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    checked_scores,
    decided_by_rank,
    first_items,
    level_operand,
    operand,
    order_preserving,
    to_common_size,
)
from tdd.records import Difference, Guarantee, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

ProportionName = Literal["none", "subtraction", "storey", "moment", "moment_paper"]
PROPORTIONS = ("none", "subtraction", "storey", "moment", "moment_paper")
WITH_MEMBERS = ("moment", "moment_paper")
"""Estimates that need known members."""

FURTHER = {"none": (), "storey": (), "subtraction": ("scores have no ties at the region's edge",)}
"""What the guarantee of an estimate assumes in addition."""

_EXCHANGEABLE = (
    "the calibration items are non-members of the training data",
    "calibration items and the candidates that are non-members are exchangeable, whatever the other candidates score: "
    "they are of the same kind, prepared and scored in the same way, so that only chance tells their scores apart",
    CHOSEN_BEFOREHAND,
)

_MANY = (
    *_EXCHANGEABLE,
    "the known members are representative of the candidates that are members",
    "there are many calibration items, known members and candidates",
)

GUARANTEES: dict[str, Guarantee] = {
    "none": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        _EXCHANGEABLE,
        "PTDI eq. 7 and 9 without scaling; Marandon et al. (2024) for exchangeable scores",
    ),
    "storey": Guarantee.finite_sample(
        "FDR <= alpha",
        _EXCHANGEABLE,
        "Bates et al. (2023), theorem 3; Marandon et al. (2024) for exchangeable scores with ties",
    ),
    "subtraction": Guarantee.finite_sample(
        "FDR <= alpha * (1 + 1/m) * (1 + 1/n)",
        (*_EXCHANGEABLE, *FURTHER["subtraction"]),
        "PTDI eq. 8-9 and 12 (the paper states alpha)",
    ),
    "moment": Guarantee(
        "FDR <= alpha in the limit of many items",
        _MANY,
        "asymptotic",
        "PTDI eq. 13, proposition 2 and theorem 4, in our variant: Storey's estimate where theta <= 1",
    ),
    "moment_paper": Guarantee(
        "FDR <= alpha in the limit of many items, not at small sizes (.27 at alpha = .1 for 20 items of each kind)",
        _MANY,
        "asymptotic",
        "PTDI eq. 13, proposition 2 and theorem 4, as in the paper",
    ),
}

GUARANTEE_ROWS = [("tdd.ptdi", f'proportion="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]

DIFFERENCES = [
    Difference(
        "tdd.scoring.scores.tokens.Loss", "PTDI", "eq. 2", "the loss is a sum over tokens",
        "the mean; the sum with reduction=sum", "texts of unequal length are ranked",
    ),
    Difference(
        "tdd.scoring.scores.tokens.MaxRenyi", "PTDI", "eq. 3",
        "minus the logarithm of the sum of p^gamma: Renyi's entropy times gamma - 1", "Renyi's entropy",
        "gamma - 1 is negative at the paper's gamma = 1/2, and texts of high entropy would count as members",
    ),
    Difference(
        "tdd.scoring.scores.tokens.Zlib", "PTDI", "section 4.2", "perplexity over the compressed size",
        "loss, its logarithm, over the compressed size", "the ratio of Carlini et al. (2021), whom the paper cites",
    ),
    Difference(
        "tdd.ptdi", "PTDI", "theorem 1", "FDR <= alpha with the subtraction estimate",
        "the claim is alpha (1 + 1/m)(1 + 1/n), and the default is Storey's estimate, with FDR <= alpha",
        "the proof takes the estimate as independent of the p-values",
    ),
    Difference(
        "tdd.ptdi", "PTDI", "proposition 1", "the region holds exactly the fraction eta of the calibration scores",
        "the denominator of eq. 12 is the fraction that it does hold",
        "with ties that is less than eta, and with eta the FDR is .27 at level .1",
    ),
    Difference(
        "tdd.ptdi", "PTDI", "eq. 13", "the moment estimate is clipped to [0, 1)",
        "theta is clipped to [1, m], and the estimate is 0 unless it is significant",
        "a negative theta would select everything: FDR .27 at level .1 with 20 items each and a weak score",
    ),
    Difference(
        "tdd.study.results.StudyResult", "PTDI", "appendix F.7", "Hamming distance: the number of wrong decisions",
        "that number over m", "test sets of several sizes stand in one table",
    ),
]  # fmt: skip


@in_own_settings()
def ptdi(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    proportion: ProportionName = "storey",
    eta: Any = 0.05,
    members: Any = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> Selection:
    """Select candidates that were in the training data, with FDR control (PTDI, algorithm 1, eq. 7-13).

    p_j = (1 + #{i: T_i <= T_j})/(n+1); p~_j = (1 - pi)·p_j; k* = max{k: p~_(k) <= k·alpha/m}; select p~_j <=
    k*·alpha/m.

    Guarantee: by `proportion`, if calibration scores and the scores of non-member candidates are exchangeable given the
    scores of the members (`Selection.guarantee` states it in words):
      "none": pi = 0; FDR <= alpha·m0/m, finite-sample.
      "storey": Storey's pi0 on the lattice; FDR <= alpha, finite-sample. The default.
      "subtraction": the paper's estimator; FDR <= alpha (1 + 1/m)(1 + 1/n), finite-sample.
      "moment": our variant of the paper's adjusted moment estimator (`tdd.kernels.proportion.moment`), with Storey's
        pi0 where the moments show no member; asymptotic, and at its level in each of 39 settings of 2 to 500 candidates
        where it was measured.
      "moment_paper": the paper's own, pi clipped to [0, 1 - eps]; asymptotic, and it does not hold its level at small
        sizes: FDR .273 at alpha = .1 for n = n1 = m = 20 and members half a standard deviation away.
    The factor 1 - pi may exceed 1; capping it would void the guarantee.

    Differs from the paper (`DIFFERENCES`): theorem 1, whose level the subtraction estimate does not hold exactly;
    proposition 1, whose region holds exactly the fraction eta: here eq. 12 has the fraction that it does hold as its
    denominator; eq. 13, with another clip.

    Args:
      calibration: [n] loss-like scores (lower = more member-like) of known non-members.
      scores: [m] loss-like scores of the candidates.
      alpha: level in (0, 1). A number is taken as an exact fraction and equality on the lattice is decided exactly; a
        JAX array may be traced and has a tolerance of four machine epsilons.
      proportion: estimator of the proportion of members.
      eta: fraction of the calibration scores in the region of presumed non-members ("subtraction", "storey", and
        "moment" where it takes Storey's estimate).
      members: [n1] loss-like scores of known members, for "moment" and "moment_paper".
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `Selection`. NaN scores are left out of n and m (`num_calibration`, `num_tests`). Cost: O((n + m) log n).

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha or eta out of range, unknown `proportion`,
        `members` missing or not used.

    >>> selection = ptdi([3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 7.0], alpha=0.5, proportion="none")
    >>> selection.selected.tolist()
    [True, True, False]
    """
    check_proportion(proportion)
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    if (members is None) == (proportion in WITH_MEMBERS):
        raise InputError(
            f'proportion="{proportion}" needs members, the scores of known members'
            if members is None
            else f'members is used by proportion="moment" and "moment_paper" only, not by {proportion!r}'
        )
    number, values = scores.shape[0], None
    if proportion in WITH_MEMBERS:
        members = arrays.as_vector(members, "members")
        arrays.check_finite(members, "members")
        arrays.check_some(members, None, "members", "scores of known members are needed")
        values = _standardised(members, calibration, scores)
    else:  # means over more places round otherwise
        traced = mask, calibration_mask, alpha, eta
        calibration, calibration_mask = to_common_size(calibration, calibration_mask, scores, *traced, coarse=True)
        scores, mask = to_common_size(scores, mask, calibration, *traced, coarse=True)
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    levels = level_operand(alpha), level_operand(eta, "eta")
    return first_items(_ptdi(*samples, *masks, values, *levels, proportion=proportion), number)


def _standardised(*samples: Any) -> tuple[Any, ...]:
    """Return samples of a moment estimate in JAX's float type, NumPy scores centred and scaled together first.

    The estimate does not depend on the origin and the unit of the scores, but its rounding error does.
    """
    if all(isinstance(sample, np.ndarray) for sample in samples):
        together = np.concatenate(samples).astype(np.float64)
        known = together[~np.isnan(together)]
        unit = float(np.ptp(known / 4)) if known.size else 1.0  # a quarter: the range of the largest floats overflows
        samples = tuple((sample / 4 - known.mean() / 4) / (unit or 1.0) for sample in samples)
    return tuple(operand(sample, jnp.result_type(float)) for sample in samples)


@functools.partial(jax.jit, static_argnames="proportion")
def _ptdi(calibration, scores, calibration_mask, mask, values, alpha, eta, *, proportion) -> Selection:
    """The procedure on order-preserving scores; `values` are (members, calibration, scores) for the moments."""
    max_rank = calibration.shape[0] + 1
    ranked = conformal.rank(calibration, scores, null="nonmember", calibration_mask=calibration_mask, mask=mask)
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    estimate = estimated(proportion, ranked, calibration, scores, values, eta, **masks)
    return Selection.from_step(
        **decided_by_rank(ranked, alpha, estimate, max_rank=max_rank),
        method=f"ptdi/{proportion}",
        null="nonmember",
        guarantee=GUARANTEES[proportion],
    )


def estimated(
    proportion: ProportionName,
    ranked: conformal.ConformalRanks,
    calibration: jax.Array,
    scores: jax.Array,
    values: Any,
    eta: Any,
    **masks: jax.Array | None,
) -> proportions.Proportion:
    """The estimate of the proportion of members; `values` are (members, calibration, scores) for the moments."""
    n, max_rank = ranked.num_calibration, calibration.shape[0] + 1
    if proportion == "none":
        return proportions.none(n, ranked.num_tests, max_rank=max_rank, max_tests=ranked.rank.shape[0])
    storey = functools.partial(proportions.storey, ranked.rank, ranked.valid, n, max_rank=max_rank, eta=eta)
    if proportion == "storey":
        return storey()
    if proportion == "subtraction":
        return proportions.subtraction(calibration, scores, eta=eta, **masks)
    if proportion == "moment":
        return proportions.moment(*values, **masks, otherwise=storey())
    return proportions.moment_paper(*values, **masks)


def check_proportion(name: Any) -> None:
    """Check the name of an estimator of the proportion."""
    if name == "jackknife":
        raise InputError('proportion="jackknife" is no more: it gave nothing over "storey"; use proportion="storey"')
    arrays.check_choice(name, PROPORTIONS, "proportion")


def subtraction_bound(alpha: float, selection: Selection) -> float:
    """alpha (1 + 1/m)(1 + 1/n), the bound on the FDR with the subtraction estimate."""
    m, n = max(int(selection.num_tests), 1), max(int(selection.num_calibration), 1)
    return float(alpha) * ((1 + 1 / m) * (1 + 1 / n))
