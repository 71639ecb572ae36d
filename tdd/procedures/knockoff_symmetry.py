"""The symmetry that knockoff procedures assume, its test on known non-members, and the checks of their scores."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import knockoff
from tdd.kernels import knockoff_symmetry as symmetry_tests
from tdd.kernels.knockoff_symmetry import Tails
from tdd.procedures.calls import CHOSEN_BEFOREHAND, in_own_precision, level_operand, operand
from tdd.records import Guarantee, TestResult
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_LIKE = "the knockoffs were not written by the audited model, and are prepared and scored like the originals"
PAIRS = (
    "given all else, the score of a non-member and that of its knockoff are exchangeable",
    _LIKE,
    CHOSEN_BEFOREHAND,
)
COPIES = ("given all other items, the k + 1 scores of a non-member and its knockoffs are exchangeable", *PAIRS[1:])

_SIZE = "P(p <= level) <= level if the statistic is symmetric; a large p-value does not prove that it is"
_NONMEMBERS = (
    "all items are known non-members, independent of one another, with knockoffs made like those of the candidates",
    "not rejecting shows neither symmetry nor that the candidates are like these items: with few items, or beyond the "
    "largest |W| among them, an asymmetry goes undetected",
)
_BINOMIAL = "given |W| the numbers of positive signs are binomial"

GUARANTEES: dict[str, Guarantee] = {
    "combined": Guarantee.finite_sample(_SIZE, _NONMEMBERS, f"Bonferroni over sign and tail; {_BINOMIAL}"),
    "sign": Guarantee.finite_sample(_SIZE, _NONMEMBERS, _BINOMIAL),
    "tail": Guarantee.finite_sample(_SIZE, _NONMEMBERS, _BINOMIAL),
    "signed_rank": Guarantee(
        _SIZE.replace(" if", " in the limit of many items if"),
        _NONMEMBERS,
        "asymptotic",
        "Wilcoxon (1945), normal null given |W|",
    ),
}
GUARANTEE_ROWS = [("tdd.knockoff_symmetry", f'test="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]


@in_own_settings()
def knockoff_symmetry(
    original: Any,
    knockoffs: Any,
    *,
    rule: Literal["ktd", "multi"] = "ktd",
    test: Literal["combined", "sign", "tail", "signed_rank"] = "combined",
    alternative: Literal["two-sided", "greater"] = "two-sided",
    tail: Any = 0.1,
    mask: Any = None,
) -> TestResult:
    """Test on known non-members the symmetry of knockoffs that a rule of `tdd.ktd` assumes (KTD, lemma 1).

    rule="ktd": is W = mean of the knockoffs - original sign-symmetric given |W|? rule="multi": is each of the k + 1
    copies equally likely to win given the gap? With one knockoff the two questions are the same.

    Guarantee: P(p <= level) <= level if the answer is yes, finite-sample ("signed_rank": asymptotic). A small p-value
    is a reason to use rule="conformal". A large one proves nothing: there may be too few items, the asymmetry may lie
    beyond the largest |W| seen, and the candidates' knockoffs may be unlike these.

    Args:
      original: [n] loss-like scores of known non-members.
      knockoffs: [n, k] scores of their knockoffs.
      rule: the rule whose assumption is tested ("derandomized" needs that of "multi" with each knockoff separately).
      test: "sign": positive signs among all items; "tail": among the fraction `tail` with the largest |W|, where
        thresholds lie; "combined" (the default): twice the smaller of both p-values; "signed_rank": Wilcoxon's, for
        rule="ktd".
      alternative: "two-sided", or "greater": originals win too often, the direction that inflates the FDR.
      tail: fraction in (0, 1).
      mask: [n] bool, True = real item.

    Returns:
      `TestResult`; `statistic` is the fraction of positive signs ("combined": in the part with the smaller p-value), or
      the standardised signed-rank sum. p = 1 if every W is 0.

    Raises:
      InputError: wrong shapes, no items, unknown options, tail outside (0, 1).

    >>> result = knockoff_symmetry([0.0] * 9, [[1.0]] * 9, test="sign")
    >>> print(float(result.p_value))
    0.00390625
    """
    arrays.check_choice(rule, ("ktd", "multi"), "rule")
    arrays.check_choice(test, tuple(GUARANTEES), "test")
    arrays.check_choice(alternative, ("two-sided", "greater"), "alternative")
    if test == "signed_rank" and rule == "multi":
        raise InputError('test="signed_rank" is about the mean of the knockoffs: use it with rule="ktd"')
    why = "at least one known non-member is needed"
    original, knockoffs, mask = as_scores_with_knockoffs(original, knockoffs, mask, needed=why)

    def run(samples: list[Any]) -> TestResult:
        level = level_operand(tail, "tail")
        return _symmetry(*samples, mask, level, rule=rule, test=test, alternative=alternative)

    result = in_own_precision(run, (original, knockoffs), mask, tail)
    return jax.device_put(jax.tree.map(lambda leaf: operand(leaf, jnp.result_type(float)), result))


@functools.partial(jax.jit, static_argnames=("rule", "test", "alternative"))
def _symmetry(original, knockoffs, mask, tail, *, rule, test, alternative) -> TestResult:
    if rule == "multi":
        w, losses = knockoff.multi_statistics(original, knockoffs, mask=mask).statistic, knockoffs.shape[1]
    else:
        w, losses = knockoff.w_statistics(original, knockoffs, mask=mask), 1

    def log_p_of(tails: Tails) -> jax.Array:
        if alternative == "greater":
            return tails.log_upper
        return jnp.minimum(jnp.log(2.0) + jnp.minimum(tails.log_upper, tails.log_lower), 0)

    if test == "signed_rank":
        tails = symmetry_tests.signed_rank_tails(w)
        log_p, statistic = log_p_of(tails), tails.statistic
    else:
        signs = symmetry_tests.count_signs(w, tail=tail)
        counted = ((signs.positive, signs.total), (signs.tail_positive, signs.tail_total))
        parts = [symmetry_tests.binomial_tails(*pair, num_knockoffs=losses, bound=w.shape[0]) for pair in counted]
        all_items, largest = (log_p_of(part) for part in parts)
        if test == "combined":
            log_p = jnp.minimum(jnp.log(2.0) + jnp.minimum(all_items, largest), 0)
            statistic = jnp.where(all_items <= largest, parts[0].statistic, parts[1].statistic)
        else:
            log_p, statistic = (all_items, parts[0].statistic) if test == "sign" else (largest, parts[1].statistic)
    return TestResult(jnp.exp(log_p), log_p, statistic, f"knockoff_symmetry/{rule}/{test}", GUARANTEES[test])


def as_scores_with_knockoffs(
    original: Any, knockoffs: Any, mask: Any, *, prefix: str = "", needed: str = ""
) -> tuple[Any, Any, Any]:
    """Check scores [n] and [n, k] and a mask [n] or None, named after `prefix`; `needed` says why one item must be
    complete.
    """
    names = ("original", "knockoffs", "mask") if not prefix else (prefix, f"{prefix}_knockoffs", f"{prefix}_mask")
    original = arrays.as_vector(original, names[0])
    knockoffs = arrays.as_matrix(knockoffs, names[1], "[items, knockoffs of an item]")
    if knockoffs.shape[1] == 0:
        raise InputError(f"{names[1]} has shape {tuple(knockoffs.shape)}: every item needs at least one knockoff")
    if knockoffs.shape[0] != original.shape[0]:
        hint = "; it looks transposed" if knockoffs.shape[1] == original.shape[0] else ""
        raise InputError(
            f"{names[1]} has {knockoffs.shape[0]} rows and {names[0]} has {original.shape[0]} items; give one row of "
            f"knockoff scores an item, in the same order{hint}"
        )
    mask = arrays.as_mask(mask, original, names[2])
    arrays.check_finite(original, names[0])
    arrays.check_finite(knockoffs, names[1])
    if needed:
        arrays.check_some(original, mask, names[0], needed)
        if not any(isinstance(value, Tracer) for value in (original, knockoffs, mask)):
            complete = ~np.isnan(np.asarray(original, float)) & ~np.isnan(np.asarray(knockoffs, float)).any(axis=1)
            arrays.check_some(np.where(complete, 0.0, np.nan), mask, f"{names[0]} with its knockoffs", needed)
    return original, knockoffs, mask
