"""KTD: select candidates that were in the training data by comparison with their knockoffs."""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, evalues, knockoff, stepup
from tdd.procedures import ptdi
from tdd.procedures.bounds import fdp_bounds
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    exact_fraction,
    first_items,
    half_level,
    in_own_precision,
    level_operand,
    narrowed,
    to_common_size,
    tracing,
)
from tdd.procedures.knockoff_bounds import knockoff_fdp_bounds
from tdd.procedures.knockoff_symmetry import COPIES, PAIRS, as_scores_with_knockoffs
from tdd.procedures.procedure import WithOption, masks, min_selections_by_rank
from tdd.records import Difference, Evidence, Guarantee, KnockoffSelection, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

Rule = Literal["multi", "derandomized", "conformal", "ktd"]
RULES = ("multi", "derandomized", "conformal", "ktd")
PROPORTIONS = ptdi.PROPORTIONS

_ETA = 0.05
"""The eta of the estimators of the proportion."""

_MADE_ALIKE = (
    "the calibration items are non-members, and their knockoffs were made and scored like those of the candidates",
    "calibration items and non-member candidates, each with its knockoffs, are exchangeable; the knockoffs may be poor",
    CHOSEN_BEFOREHAND,
)
_KNOCKOFF_PLUS = "Barber & Candes (2015), theorem 2; KTD proposition 1"
_MODIFIED = "Barber & Candes (2015), theorem 1"
_REN = "Ren & Barber (2024), theorem 2"


def _of_ptdi(proportion: str) -> Guarantee:
    """PTDI's guarantee on -W: its conditions on the estimate, with the exchangeability of items with knockoffs."""
    told = ptdi.GUARANTEES[proportion]
    return dataclasses.replace(told, assumes=(*_MADE_ALIKE, *told.assumes[3:]), source=f"{told.source}, on -W")


GUARANTEES: dict[str, Guarantee] = {
    "multi": Guarantee.finite_sample("FDR <= alpha", COPIES, "Gimenez & Zou (2019), section 3.2"),
    "multi, offset=0": Guarantee.finite_sample("E[V/(R + 1/(alpha k))] <= alpha; not the FDR", COPIES, _MODIFIED),
    "derandomized": Guarantee.finite_sample("FDR <= alpha", PAIRS, _REN, "one"),
    "conformal, none": Guarantee.finite_sample("FDR <= alpha * m0/m", _MADE_ALIKE, "PTDI eq. 7 and 9 on -W"),
    "conformal, storey": Guarantee.finite_sample("FDR <= alpha", _MADE_ALIKE, "Bates et al. (2023), theorem 3, on -W"),
    **{f"conformal, {name}": _of_ptdi(name) for name in ("subtraction", *ptdi.WITH_MEMBERS)},
    "ktd, k = 1": Guarantee.finite_sample("FDR <= alpha", PAIRS, _KNOCKOFF_PLUS),
    "ktd, k = 1, offset=0": Guarantee.finite_sample("E[V/(R + 1/alpha)] <= alpha; not the FDR", PAIRS, _MODIFIED),
    "ktd, k > 1": Guarantee(
        "nothing in general; FDR <= alpha if the W of non-members are symmetric about 0",
        (
            *PAIRS,
            "the distribution of a score within an item is symmetric about its mean: exchangeable copies do not make "
            "the mean of k > 1 of them minus one more symmetric (skewed scores: global-null FDR from .3 to 1 at alpha "
            "= .2)",
        ),
        "none",
        "KTD proposition 2, whose lemma 1 needs the symmetry",
    ),
    "ktd, k > 1, offset=0": Guarantee(
        "nothing in general; E[V/(R + 1/alpha)] <= alpha if the W of non-members are symmetric about 0",
        (*PAIRS, "the distribution of a score within an item is symmetric about its mean"),
        "none",
        f"KTD proposition 2; {_MODIFIED}",
    ),
}

_OPTIONS = {
    **{f"conformal, {name}": f'rule="conformal", proportion="{name}"' for name in PROPORTIONS},
    "multi, offset=0": 'rule="multi", offset=0',
    "ktd, k = 1": 'rule="ktd", one knockoff',
    "ktd, k = 1, offset=0": 'rule="ktd", offset=0, one knockoff',
    "ktd, k > 1": 'rule="ktd", several knockoffs averaged',
    "ktd, k > 1, offset=0": 'rule="ktd", offset=0, several knockoffs averaged',
}
GUARANTEE_ROWS = [
    ("tdd.ktd", _OPTIONS.get(name, f'rule="{name}"'), guarantee) for name, guarantee in GUARANTEES.items()
]

DIFFERENCES = [
    Difference(
        "tdd.ktd", "KTD", "proposition 2", "FDR <= q for W averaged over any number of knockoffs",
        'rule="ktd" has a guarantee for one knockoff only, and rule="multi" is the default',
        "the mean of several copies minus one more is not symmetric for skewed scores: FDR from .3 to 1 at level .2",
    ),
    Difference(
        "tdd.ktd", "KTD", "eq. 10", "the authors' code takes the best threshold where none qualifies",
        "nothing is selected then", "the code rejects in practically every run without members",
    ),
]  # fmt: skip


@in_own_settings()
def ktd(
    original: Any,
    knockoffs: Any,
    *,
    alpha: Any,
    rule: Rule = "multi",
    offset: Literal[0, 1] = 1,
    calibration: Any = None,
    calibration_knockoffs: Any = None,
    proportion: ptdi.ProportionName | None = None,
    members: Any = None,
    members_knockoffs: Any = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> KnockoffSelection:
    """Select candidates that were in the training data by knockoffs (paraphrases), with FDR control.

    A member scores lower than its paraphrases: W_j = mean score of the knockoffs - own score is large. Nothing is
    selected if no threshold qualifies (the authors' code selects at the best one), and an item whose statistic is 0
    never is (except by "conformal", which ranks W).

    Guarantee: by `rule` (`KnockoffSelection.guarantee` states it in words):
      "multi": which of the k + 1 copies scores lowest, and by which gap (Gimenez & Zou 2019). FDR <= alpha,
        finite-sample, if the copies of a non-member are exchangeable. The default.
      "derandomized": one knockoff+ run for each knockoff (at alpha/2; at alpha if k = 1), e-values averaged over them,
        e-BH at alpha (Ren & Barber 2024). FDR <= alpha, finite-sample, if each knockoff is exchangeable with its
        original.
      "conformal": -W against known non-members with their own knockoffs, as in `tdd.ptdi`, whatever the quality of the
        knockoffs. FDR <= alpha, finite-sample, for "none" and "storey"; other estimates as in `tdd.ptdi`.
      "ktd": the paper (eq. 5-10): knockoff+ on W (Barber & Candès 2015). For k = 1 FDR <= alpha, finite-sample. For k >
        1 no guarantee: W is symmetric only if the scores within an item are. `tdd.knockoff_symmetry` tests for
        asymmetry.
    With offset=0 ("ktd", "multi") a modified FDR only.

    Differs from the paper (`DIFFERENCES`): proposition 2 is not claimed for several knockoffs, and where no threshold
    of eq. 10 qualifies nothing is selected.

    Args:
      original: [n] loss-like scores (lower = more member-like) of the candidates.
      knockoffs: [n, k] scores of their knockoffs, which the audited model did not write, truncated like the originals.
      alpha: level in (0, 1). A number is taken as an exact fraction, and ratios of counts are compared with it exactly;
        a JAX array may be traced and has a tolerance of four machine epsilons.
      rule: see above.
      offset: 1 (knockoff+) or 0.
      calibration: [N] scores of known non-members, for "conformal".
      calibration_knockoffs: [N, k] scores of their knockoffs, for "conformal".
      proportion: for "conformal": estimator of the proportion of members, as in `tdd.ptdi` with its eta of .05;
        "storey" is the default.
      members: [n1] scores of known members, for proportion="moment" and "moment_paper".
      members_knockoffs: [n1, k] scores of their knockoffs, for proportion="moment" and "moment_paper".
      calibration_mask: [N] bool, True = real item, for "conformal".
      mask: [n] bool, True = real item.

    Returns:
      `KnockoffSelection`: `statistic` is W ("ktd", "conformal"), the gap, negative if a knockoff wins ("multi"), or the
      averaged e-value ("derandomized"), and `selected == (statistic >= cut)`. Items with a NaN among their k + 1 scores
      are left out. `p_values` and `threshold` are NaN except for "conformal". For "derandomized" `adjusted` is that of
      the e-values of this alpha and does not decide at other levels; closed e-BH may not decide on them, since those of
      the m0 non-members sum to at most the number of items, not m0. Cost: one sort of n integers (k of them for
      "derandomized"); NumPy float64 scores are computed with in float64.

    Raises:
      InputError: wrong shapes, no knockoffs, infinite scores, alpha out of range, unknown options, calibration missing
        or not used.

    >>> ktd([1.0, 1.0, 1.0, 5.0], [[2.0], [3.0], [4.0], [4.5]], alpha=0.5).selected.tolist()
    [True, True, True, False]
    """
    _check_rule(rule)
    check_offset(offset, rule)
    original, knockoffs, mask = as_scores_with_knockoffs(original, knockoffs, mask)
    for name, value in (
        ("calibration", calibration),
        ("calibration_knockoffs", calibration_knockoffs),
        ("proportion", proportion),
        ("calibration_mask", calibration_mask),
    ):
        if rule != "conformal" and value is not None:
            raise InputError(f'{name} is used by rule="conformal" only, not by rule="{rule}"; leave it out')
        if rule == "conformal" and value is None and name in ("calibration", "calibration_knockoffs"):
            raise InputError(
                f'rule="conformal" needs {name}: scores of known non-members and of their knockoffs, made and '
                "scored as those of the candidates"
            )
    if rule == "conformal":
        why = "at least one known non-member is needed"
        calibration, calibration_knockoffs, calibration_mask = as_scores_with_knockoffs(
            calibration, calibration_knockoffs, calibration_mask, prefix="calibration", needed=why
        )
        _check_same_number("calibration_knockoffs", calibration_knockoffs, knockoffs)
        proportion = proportion or "storey"
        ptdi.check_proportion(proportion)
    for name, value in (("members", members), ("members_knockoffs", members_knockoffs)):
        if (value is not None) != (proportion in ptdi.WITH_MEMBERS):
            raise InputError(
                f'{name} is used by proportion="moment" and "moment_paper" only, not by {proportion!r}; leave it out'
                if value is not None
                else f"proportion={proportion!r} needs {name}: scores of known members and of their knockoffs"
            )
    if proportion in ptdi.WITH_MEMBERS:
        why = "scores of known members are needed"
        members, members_knockoffs, _ = as_scores_with_knockoffs(
            members, members_knockoffs, None, prefix="members", needed=why
        )
        _check_same_number("members_knockoffs", members_knockoffs, knockoffs)

    def run(samples: list[Any]) -> KnockoffSelection:
        options = {"rule": rule, "offset": int(offset), "proportion": proportion}
        return _ktd(*samples, mask, calibration_mask, level_operand(alpha), **options)

    number = original.shape[0]
    if members is None and not tracing(alpha):  # no means over more places
        original, knockoffs, mask = _of_common_size(original, knockoffs, mask, calibration_mask)
        if calibration is not None:
            calibration, calibration_knockoffs, calibration_mask = _of_common_size(
                calibration, calibration_knockoffs, calibration_mask, mask
            )
    samples = (original, knockoffs, calibration, calibration_knockoffs, members, members_knockoffs)
    return first_items(_narrowed(in_own_precision(run, samples, alpha, mask, calibration_mask), alpha), number)


@functools.partial(jax.jit, static_argnames=("rule", "offset", "proportion"))
def _ktd(
    original,
    knockoffs,
    calibration,
    calibration_knockoffs,
    members,
    members_knockoffs,
    mask,
    calibration_mask,
    alpha,
    *,
    rule,
    offset,
    proportion,
) -> KnockoffSelection:
    n, k = knockoffs.shape
    w = knockoff.w_statistics(original, knockoffs, mask=mask)
    dtype = w.dtype
    p_values, threshold = jnp.full(w.shape, jnp.nan, dtype), jnp.asarray(jnp.nan, dtype)
    share, num_calibration = jnp.zeros((), dtype), jnp.int32(0)
    if rule == "conformal":
        calibration_w = knockoff.w_statistics(calibration, calibration_knockoffs, mask=calibration_mask)
        ranked = conformal.rank(-calibration_w, -w, null="nonmember")
        num_calibration, max_rank = ranked.num_calibration, calibration_w.shape[0] + 1
        values = None
        if proportion in ptdi.WITH_MEMBERS:
            values = (-knockoff.w_statistics(members, members_knockoffs), -calibration_w, -w)
        real = {"calibration_mask": ~jnp.isnan(calibration_w), "mask": ranked.valid}
        estimate = ptdi.estimated(proportion, ranked, -calibration_w, -w, values, _ETA, **real)
        scale = (estimate.numerator, estimate.denominator)
        step = stepup.bh_ranks(ranked.rank, num_calibration, alpha, max_rank=max_rank, scale=scale)
        p_values, threshold, share = conformal.p_values(ranked), step.threshold, 1 - estimate.null_proportion
        statistic, cut = w, jnp.min(jnp.where(step.reject, w, jnp.inf), initial=jnp.inf)
    elif rule == "derandomized":
        # W of every draw; a NaN in one of them masks the item in all.
        draws = jax.vmap(lambda column: knockoff.w_statistics(original, column[:, None], mask=mask), 1, 1)(knockoffs)
        run_level = alpha if k == 1 else half_level(alpha)
        statistic = knockoff.derandomized_e_values(draws, run_level)
        step = evalues.e_bh(statistic, alpha)
        cut, scale = step.threshold, ((1,), (1,))
    else:
        several = rule == "multi"
        statistic = knockoff.multi_statistics(original, knockoffs, mask=mask).statistic if several else w
        losses = k if several else 1
        step = knockoff.select(statistic, alpha, offset=offset, num_knockoffs=losses)
        cut, scale = step.threshold, ((offset,), (losses,))
    return KnockoffSelection.from_step(
        step,
        p_values=p_values,
        threshold=threshold,
        proportion=share,
        num_calibration=num_calibration,
        min_selections=stepup.min_rejections(alpha, n, scale=scale),
        method=f"ktd/{rule}",
        null="nonmember",
        guarantee=guarantee_of(rule, proportion, offset, k),
        statistic=statistic,
        cut=cut,
    )


def _of_common_size(original: Any, knockoffs: Any, mask: Any, other: Any) -> tuple[Any, Any, Any]:
    """Pad host scores [n] and [n, k] and their mask to a common size, beside a mask that may be traced."""
    if not (isinstance(original, np.ndarray) and isinstance(knockoffs, np.ndarray)):
        return original, knockoffs, mask
    by_copy, _ = to_common_size(knockoffs.T, mask, other, coarse=True)
    original, mask = to_common_size(original, mask, other, coarse=True)
    return original, by_copy.T, mask


def guarantee_of(rule: str, proportion: str | None, offset: int, num_knockoffs: int) -> Guarantee:
    """Return the guarantee of a rule with its options."""
    several = "=" if num_knockoffs == 1 else ">"
    name = {"conformal": f"conformal, {proportion}", "ktd": f"ktd, k {several} 1"}.get(rule, rule)
    return GUARANTEES[name if offset else f"{name}, offset=0"]


def _narrowed(selection: KnockoffSelection, alpha: Any) -> KnockoffSelection:
    """Return a selection in JAX's default type; rounding carries no `statistic` across the cut."""
    if not isinstance(selection.adjusted, np.ndarray):
        return selection
    single = narrowed(selection, alpha)
    selected, cut = np.asarray(single.selected), np.asarray(single.cut)
    if np.isinf(cut):
        return single
    statistic = np.asarray(single.statistic)
    beneath = np.minimum(statistic, np.nextafter(cut, np.float32(-np.inf)))
    statistic = np.where(selected, np.maximum(statistic, cut), beneath)
    return dataclasses.replace(single, statistic=jax.device_put(statistic.astype(np.float32)))


def _check_same_number(name: str, others: Any, knockoffs: Any) -> None:
    if others.shape[1] != knockoffs.shape[1]:
        raise InputError(
            f"{name} has {others.shape[1]} knockoffs an item and knockoffs has {knockoffs.shape[1]}: their means are "
            "comparable only where both have the same number"
        )


def check_offset(offset: Any, rule: str) -> None:
    """Check that the offset is 1, or 0 for a rule whose threshold has an offset."""
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)) or offset not in (0, 1):
        raise InputError(f"offset must be 1 (controls the FDR) or 0 (a modified FDR only), got {offset!r}")
    if offset == 0 and rule not in ("ktd", "multi"):
        raise InputError(f'offset=0 is used by rule="ktd" and rule="multi" only, not by rule="{rule}"; leave it out')


_W = "W = mean score of its knockoffs - its own; large = member"
_STATISTICS = {
    "ktd": _W,
    "conformal": f"{_W}; ranked among those of the calibration items",
    "multi": "gap between its score and the lowest of its knockoffs; negative if a knockoff scores lowest",
    "derandomized": "its e-value, averaged over the knockoffs",
}


def _check_rule(rule: Any) -> None:
    if rule == "closed":
        raise InputError(
            "rule='closed' was withdrawn: its false discovery rate can exceed the level; use rule='derandomized', "
            "which averages over the knockoffs too"
        )
    arrays.check_choice(rule, RULES, "rule")


@dataclasses.dataclass(frozen=True)
class KTD(WithOption):
    """`tdd.ktd`, by knockoffs (paraphrases).

    Attributes:
      rule: "multi", "derandomized", "conformal" or "ktd", the paper's.
      proportion: for rule="conformal": an estimator of `tdd.ptdi`, "storey" by default.
      offset: 1 controls the FDR, 0 a modified one.
    """

    name = "ktd"
    _option = "rule"
    score = "grad_norm"
    long_texts = "truncate"

    rule: Rule = "multi"
    proportion: ptdi.ProportionName | None = None
    offset: int = 1

    def __post_init__(self) -> None:
        _check_rule(self.rule)
        check_offset(self.offset, self.rule)
        if self.rule != "conformal" and self.proportion is not None:
            raise InputError(
                f"proportion={self.proportion!r} belongs to rule 'conformal' of method 'ktd'; leave it out"
            )
        if self.rule == "conformal":
            object.__setattr__(self, "proportion", "storey" if self.proportion is None else self.proportion)
            ptdi.check_proportion(self.proportion)

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        if self.rule != "conformal":
            return ("knockoffs",)
        known = ("members", "members_knockoffs") if self.proportion in ptdi.WITH_MEMBERS else ()
        return ("calibration", "knockoffs", "calibration_knockoffs", *known)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for several knockoffs an item; that of a selection is for the actual number."""
        return guarantee_of(self.rule, self.proportion, self.offset, 2)

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {}
        if self.rule == "conformal":
            options = {
                "calibration": evidence.calibration,
                "calibration_knockoffs": evidence.calibration_knockoffs,
                "calibration_mask": evidence.calibration_mask,
                "proportion": self.proportion,
            }
            if self.proportion in ptdi.WITH_MEMBERS:
                options |= {"members": evidence.members, "members_knockoffs": evidence.members_knockoffs}
        elif self.offset != 1:
            options = {"offset": self.offset}
        return ktd(evidence.scores, evidence.knockoffs, alpha=alpha, rule=self.rule, mask=evidence.mask, **options)

    def record(self) -> dict[str, Any]:  # noqa: D102
        plain = {"rule": self.rule} if self.proportion is None else {"rule": self.rule, "proportion": self.proportion}
        return plain if self.offset == 1 else {**plain, "offset": self.offset}

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        if self.rule == "conformal":
            if self.proportion not in ("storey", "none"):  # estimates that can be near 0
                return 1
            scale = Fraction(max(m - num_targets, 1), m) if self.proportion == "storey" else Fraction(1)
            return min_selections_by_rank(n, m, alpha, scale)
        copies = num_knockoffs if self.rule == "multi" else 1
        return min(m + 1, max(1, math.ceil(self.offset / (exact_fraction(alpha) * copies))))

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1) if self.rule == "conformal" else None

    def bound(self, alpha: float, selection: Selection) -> float:  # noqa: D102
        if self.proportion != "subtraction":
            return super().bound(alpha, selection)
        return ptdi.subtraction_bound(alpha, selection)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, KnockoffSelection)
        cut = float(selection.cut)
        return [
            ("knockoffs an item", str(evidence.knockoffs.shape[1])),
            ("statistic of an item", _STATISTICS[self.rule]),
            ("threshold of the statistic", f"{cut:.4g}" if np.isfinite(cut) else "none qualifies"),
        ]

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        tied = (evidence.knockoffs == evidence.scores[:, None]).any(axis=1)
        num_tied = int((tied if evidence.mask is None else tied & evidence.mask).sum())
        single = evidence.knockoffs.shape[1] == 1 and self.rule != "conformal"
        if not num_tied or not (single or self.rule == "multi"):
            return []
        return [f"{num_tied} candidates have the same score as one of their knockoffs; a tie is never selected"]

    def bounds(self, evidence: Evidence, selection: Selection, *, delta: float, **draws: Any) -> Any:  # noqa: D102
        if self.rule == "conformal":
            roles = (evidence.calibration, evidence.calibration_knockoffs), (evidence.scores, evidence.knockoffs)
            # W to the bit, so that ties are those of the selection
            calibration, scores = (in_own_precision(lambda both: -knockoff.w_statistics(*both), role) for role in roles)
            return fdp_bounds(calibration, scores, null="nonmember", delta=delta, **masks(evidence), **draws)
        if evidence.knockoffs.shape[1] == 1 and self.rule in ("ktd", "multi"):
            assert isinstance(selection, KnockoffSelection)
            return knockoff_fdp_bounds(selection.statistic, delta=delta)
        return "bounds exist for rule=conformal, and for rule=ktd or multi with a single knockoff an item"
