"""KTD: which candidates were in the training data, by comparison with their knockoffs.

Every text is paraphrased; a member scores lower than its paraphrases, a non-member as they do. No calibration sample is
needed, except by the one rule that trusts no paraphrase.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, evalues, knockoff, lattice, stepup
from tdd.kernels import proportion as proportions
from tdd.procedures import knockoff_checks
from tdd.procedures.calls import level_operand
from tdd.procedures.knockoff_checks import knockoff_symmetry
from tdd.procedures.precision import computed, single_selection
from tdd.records import Guarantee, KnockoffSelection
from tdd.validate import arrays
from tdd.validate import knockoffs as checks
from tdd.validate.errors import InputError
from tdd.validate.knockoffs import as_scores_with_knockoffs, check_some_complete

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "RULES", "knockoff_symmetry", "ktd"]

Rule = Literal["multi", "derandomized", "closed", "conformal", "ktd"]
RULES = ("multi", "derandomized", "closed", "conformal", "ktd")
PROPORTIONS = ("storey", "none")

_PAIRS = knockoff_checks.PAIRS
_COPIES = knockoff_checks.COPIES
_SAME_MAKING = (
    "the calibration items are non-members, and their knockoffs were made and scored as those of the candidates",
    "calibration items and non-member candidates, each with its knockoffs, are exchangeable; the knockoffs may be bad",
    "the score, alpha and every other option were chosen before any result was seen",
)
_BARBER = "Barber & Candes (2015), theorem 2; KTD proposition 1"

GUARANTEES: dict[str, Guarantee] = {
    "multi": Guarantee("FDR <= alpha", _COPIES, "finite-sample", "Gimenez & Zou (2019), section 3.2"),
    "multi, offset=0": Guarantee(
        "E[V/(R + 1/(alpha k))] <= alpha; not the FDR", _COPIES, "finite-sample", "Barber & Candes (2015), theorem 1"
    ),
    "derandomized": Guarantee("FDR <= alpha", _PAIRS, "finite-sample", "Ren & Barber (2024), theorem 2", "one"),
    "closed": Guarantee(
        "FDR <= alpha", _PAIRS, "finite-sample", "Ren & Barber (2024), theorem 2, decided by Xu et al. (2025)", "one"
    ),
    "conformal, none": Guarantee("FDR <= alpha * m0/m", _SAME_MAKING, "finite-sample", "PTDI eq. 7 and 9 on -W"),
    "conformal, storey": Guarantee(
        "FDR <= alpha", _SAME_MAKING, "finite-sample", "Bates et al. (2023), theorem 3, on -W"
    ),
    "ktd, k = 1": Guarantee("FDR <= alpha", _PAIRS, "finite-sample", _BARBER),
    "ktd, k = 1, offset=0": Guarantee(
        "E[V/(R + 1/alpha)] <= alpha; not the FDR", _PAIRS, "finite-sample", "Barber & Candes (2015), theorem 1"
    ),
    "ktd, k > 1": Guarantee(
        "nothing in general; FDR <= alpha where the W of non-members are symmetric about 0",
        (
            *_PAIRS,
            "the law of a score within an item is symmetric about its mean: exchangeable copies do not make the mean "
            "of k > 1 of them minus one more symmetric (skewed scores: global-null FDR from .3 to 1 at alpha = .2)",
        ),
        "none",
        "KTD proposition 2, whose lemma 1 needs the symmetry",
    ),
    "ktd, k > 1, offset=0": Guarantee(
        "nothing in general; E[V/(R + 1/alpha)] <= alpha where the W of non-members are symmetric about 0",
        (*_PAIRS, "the law of a score within an item is symmetric about its mean"),
        "none",
        "KTD proposition 2; Barber & Candes (2015), theorem 1",
    ),
}

_OPTIONS = {
    "multi": 'rule="multi"',
    "multi, offset=0": 'rule="multi", offset=0',
    "derandomized": 'rule="derandomized"',
    "closed": 'rule="closed"',
    "conformal, none": 'rule="conformal", proportion="none"',
    "conformal, storey": 'rule="conformal", proportion="storey"',
    "ktd, k = 1": 'rule="ktd", one knockoff',
    "ktd, k = 1, offset=0": 'rule="ktd", offset=0, one knockoff',
    "ktd, k > 1": 'rule="ktd", several knockoffs averaged',
    "ktd, k > 1, offset=0": 'rule="ktd", offset=0, several knockoffs averaged',
}
GUARANTEE_ROWS = [
    *(("tdd.ktd", _OPTIONS[name], guarantee) for name, guarantee in GUARANTEES.items()),
    *knockoff_checks.GUARANTEE_ROWS,
]


def ktd(
    original: Any,
    knockoffs: Any,
    *,
    alpha: Any,
    rule: Rule = "multi",
    offset: Literal[0, 1] = 1,
    calibration: Any = None,
    calibration_knockoffs: Any = None,
    proportion: Literal["storey", "none"] | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> KnockoffSelection:
    """Select candidates that were in the training data by knockoffs (paraphrases), with FDR control.

    W_j = mean of the knockoffs' scores - own score, large for a member. Nothing is selected where no threshold
    qualifies, and an item whose statistic is 0 never is (but for "conformal", which ranks W and knows no such item).

    Guarantee: by `rule` ("KnockoffSelection.guarantee" says it in words):
      "multi": which of the k + 1 copies scores lowest, and by which gap. FDR <= alpha, finite-sample, if the copies of
        a non-member are exchangeable. The default.
      "derandomized": one knockoff+ run a knockoff (at alpha/2; at alpha where k = 1), e-values averaged over them, e-BH
        at alpha. FDR <= alpha, finite-sample, if each knockoff is exchangeable with its original.
      "closed": the same e-values, decided by closed e-BH: more power, O(n^2 log n). FDR <= alpha, finite-sample.
      "conformal": -W against known non-members with knockoffs of their own, as `tdd.ptdi`. FDR <= alpha, finite-sample,
        however bad the knockoffs are.
      "ktd": the paper: knockoff+ on W. For k = 1 FDR <= alpha, finite-sample. For k > 1 no guarantee: W is symmetric
        only where the scores within an item are. `tdd.knockoff_symmetry` looks for the opposite.
    With offset=0 ("ktd", "multi") a modified FDR only.

    Args:
      original: [n] loss-like scores (lower = more member-like) of the candidates.
      knockoffs: [n, k] scores of their knockoffs, which the audited model did not write, truncated as the originals.
      alpha: level in (0, 1). A number is taken as an exact fraction, and ratios of counts are compared with it exactly;
        a JAX array may be traced and carries a tolerance of four machine epsilons.
      rule: see above.
      offset: 1 (knockoff+) or 0.
      calibration: [N] scores of known non-members, for "conformal".
      calibration_knockoffs: [N, k] scores of their knockoffs, for "conformal".
      proportion: for "conformal": "storey" (the default) or "none", as in `tdd.ptdi`.
      calibration_mask: [N] bool, True = real item, for "conformal".
      mask: [n] bool, True = real item.

    Returns:
      `KnockoffSelection`: `statistic` is W ("ktd", "conformal"), the gap, negative where a knockoff wins ("multi"), or
      the averaged e-value ("derandomized", "closed"), and `selected == (statistic >= cut)`. Items with a NaN among
      their k + 1 scores are left out; `num_tests` counts the rest. Fewer than `min_selections` items are never
      selected. `p_values` and `threshold` are NaN but for "conformal". "derandomized" and "closed": `adjusted` is that
      of the e-values of this alpha; at another level the selection is another.

    Raises:
      InputError: wrong shapes, no knockoffs, infinite scores, alpha out of range, unknown options, calibration missing
        or given for nothing.

    Cost: one sort of n integers (k of them for "derandomized"); NumPy float64 scores are computed with in float64.

    >>> ktd([1.0, 1.0, 1.0, 5.0], [[2.0], [3.0], [4.0], [4.5]], alpha=0.5).selected.tolist()
    [True, True, True, False]

    References: KTD, eq. 5-10 (the authors' code selects at the best threshold where none qualifies); Barber & Candès
    (2015); Gimenez & Zou (2019); Ren & Barber (2024).
    """
    arrays.check_choice(rule, RULES, "rule")
    _check_offset(offset, rule)
    original, knockoffs, mask = checks.as_scores_with_knockoffs(original, knockoffs, mask)
    _check_only_conformal(
        rule,
        {
            "calibration": calibration,
            "calibration_knockoffs": calibration_knockoffs,
            "proportion": proportion,
            "calibration_mask": calibration_mask,
        },
    )
    if rule == "conformal":
        calibration, calibration_knockoffs, calibration_mask = _as_calibration(
            calibration, calibration_knockoffs, calibration_mask, knockoffs.shape[1]
        )
        arrays.check_choice(proportion or PROPORTIONS[0], PROPORTIONS, "proportion")

    def run(samples: list[Any]) -> KnockoffSelection:
        level = level_operand(alpha)
        return _ktd(
            *samples, mask, calibration_mask, level, rule=rule, offset=int(offset), proportion=proportion or "storey"
        )

    samples = (original, knockoffs, calibration, calibration_knockoffs)
    return single_selection(computed(run, samples, alpha, mask, calibration_mask), alpha)


@functools.partial(jax.jit, static_argnames=("rule", "offset", "proportion"))
def _ktd(
    original, knockoffs, calibration, calibration_knockoffs, mask, calibration_mask, alpha, *, rule, offset, proportion
) -> KnockoffSelection:
    n, k = knockoffs.shape
    w = knockoff.w_statistics(original, knockoffs, mask=mask)
    dtype = w.dtype
    nothing = jnp.full(w.shape, jnp.nan, dtype)
    p_values, largest_p, members = nothing, jnp.asarray(jnp.nan, dtype), jnp.zeros((), dtype)
    num_calibration = jnp.int32(0)
    if rule == "conformal":
        own = knockoff.w_statistics(calibration, calibration_knockoffs, mask=calibration_mask)
        ranked = conformal.rank(-own, -w, null="nonmember")
        num_calibration, max_rank = ranked.num_calibration, own.shape[0] + 1
        estimate = (
            proportions.none(num_calibration, ranked.num_tests)
            if proportion == "none"
            else proportions.storey(ranked.rank, ranked.valid, num_calibration, max_rank=max_rank)
        )
        scale = (estimate.numerator, estimate.denominator)
        found = stepup.bh_ranks(ranked.rank, num_calibration, alpha, max_rank=max_rank, scale=scale)
        p_values, largest_p, members = conformal.p_values(ranked), found.threshold, 1 - estimate.null_proportion
        statistic, cut = w, jnp.min(jnp.where(found.reject, w, jnp.inf), initial=jnp.inf)
    elif rule in ("derandomized", "closed"):
        # W of every draw; a NaN in one of them masks the item in all.
        draws = jax.vmap(lambda column: knockoff.w_statistics(original, column[:, None], mask=mask), 1, 1)(knockoffs)
        placing = alpha if k == 1 else _half(alpha)
        statistic = knockoff.derandomized_e_values(draws, placing)
        found = (evalues.e_bh if rule == "derandomized" else evalues.closed_e_bh)(statistic, alpha)
        cut, scale = found.threshold, ((jnp.int32(1),), (jnp.int32(1),))
    else:
        several = rule == "multi"
        statistic = knockoff.multi_statistics(original, knockoffs, mask=mask).statistic if several else w
        losses = k if several else 1
        found = knockoff.select(statistic, alpha, offset=offset, num_knockoffs=losses)
        cut, scale = found.threshold, ((jnp.int32(offset),), (jnp.int32(losses),))
    name = _guarantee_name(rule, k, offset, proportion)
    return KnockoffSelection(
        selected=found.reject,
        p_values=p_values,
        adjusted=found.adjusted,
        threshold=largest_p,
        proportion=members,
        num_selected=found.num_rejected,
        num_tests=found.num_tests,
        num_calibration=num_calibration,
        min_selections=stepup.min_rejections(alpha, n, scale=scale),
        method=f"ktd/{rule}",
        null="nonmember",
        guarantee=GUARANTEES[name],
        statistic=statistic,
        cut=cut,
    )


def _guarantee_name(rule: str, k: int, offset: int, proportion: str) -> str:
    if rule == "conformal":
        return f"conformal, {proportion}"
    if rule == "ktd":
        rule = "ktd, k = 1" if k == 1 else "ktd, k > 1"
    return rule if offset else f"{rule}, offset=0"


def _half(alpha: Any) -> Any:
    """alpha/2, exact where alpha is: halving moves no float off its place."""
    if not isinstance(alpha, lattice.Level):
        return alpha / 2
    halved = jax.tree.map(lambda field: field / 2, alpha)
    return halved._replace(numerator=alpha.numerator, denominator=alpha.denominator * 2)


def _as_calibration(calibration: Any, knockoffs: Any, mask: Any, num_knockoffs: int) -> tuple[Any, Any, Any]:
    """Scores of known non-members and of their knockoffs, as many an item as the candidates have; one item is real."""
    calibration, knockoffs, mask = as_scores_with_knockoffs(calibration, knockoffs, mask, "calibration")
    if knockoffs.shape[1] != num_knockoffs:
        raise InputError(
            f"calibration_knockoffs has {knockoffs.shape[1]} knockoffs an item and knockoffs has {num_knockoffs}: "
            "their means are comparable only where both have the same number"
        )
    check_some_complete(calibration, knockoffs, mask, "calibration", "at least one known non-member is needed")
    return calibration, knockoffs, mask


def _check_offset(offset: Any, rule: str) -> None:
    """The offset is 1 or 0, and 0 only where the rule has a threshold with an offset."""
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)) or offset not in (0, 1):
        raise InputError(f"offset must be 1 (controls the FDR) or 0 (a modified FDR only), got {offset!r}")
    if offset == 0 and rule not in ("ktd", "multi"):
        raise InputError(f'offset=0 is used by rule="ktd" and rule="multi" only, not by rule="{rule}"; leave it out')


def _check_only_conformal(rule: str, given: Mapping[str, Any]) -> None:
    """Known non-members with knockoffs for rule="conformal", and nothing of the kind for the others."""
    needed = ("calibration", "calibration_knockoffs")
    if rule == "conformal":
        for name in needed:
            if given[name] is None:
                raise InputError(
                    f'rule="conformal" needs {name}: scores of known non-members and of their knockoffs, made and '
                    "scored as those of the candidates"
                )
        return
    for name, value in given.items():
        if value is not None:
            raise InputError(f'{name} is used by rule="conformal" only, not by rule="{rule}"; leave it out')
