"""What can be checked about knockoffs: their symmetry on known non-members."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tdd.kernels import knockoff
from tdd.kernels import knockoff_symmetry as symmetry_tests
from tdd.kernels.knockoff_symmetry import Tails
from tdd.procedures.calls import level_operand
from tdd.procedures.precision import computed
from tdd.records import Guarantee, TestResult
from tdd.validate import arrays
from tdd.validate import knockoffs as checks
from tdd.validate.errors import InputError

__all__ = ["COPIES", "GUARANTEES", "GUARANTEE_ROWS", "PAIRS", "TESTS", "knockoff_symmetry"]

TESTS = ("combined", "sign", "tail", "signed_rank")
_LIKE = "the knockoffs were not written by the audited model, and are prepared and scored as the originals"
PAIRS = (
    "given all else, the score of a non-member and that of its knockoff are exchangeable",
    _LIKE,
    "the score, alpha and every other option were chosen before any result was seen",
)
COPIES = (
    "given all other items, the k + 1 scores of a non-member and its knockoffs are exchangeable",
    *PAIRS[1:],
)

_SIZE = "P(p <= level) <= level if the statistic is symmetric; a large p-value does not prove that it is"
_NONMEMBERS = (
    "all items are known non-members, independent of one another, with knockoffs made as those of the candidates",
    "not rejecting shows neither symmetry nor that the candidates are like these items: few items, or an asymmetry "
    "beyond the largest |W| among them, go unseen",
)
_BINOMIAL = "given |W| the numbers of positive signs are binomial"

GUARANTEES: dict[str, Guarantee] = {
    "combined": Guarantee(_SIZE, _NONMEMBERS, "finite-sample", f"Bonferroni over sign and tail; {_BINOMIAL}"),
    "sign": Guarantee(_SIZE, _NONMEMBERS, "finite-sample", _BINOMIAL),
    "tail": Guarantee(_SIZE, _NONMEMBERS, "finite-sample", _BINOMIAL),
    "signed_rank": Guarantee(
        _SIZE.replace(" if", " in the limit of many items if"),
        _NONMEMBERS,
        "asymptotic",
        "Wilcoxon (1945), normal null given |W|",
    ),
}
GUARANTEE_ROWS = [
    *(("tdd.knockoff_symmetry", f'test="{name}"', GUARANTEES[name]) for name in TESTS),
]


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
    """Test on known non-members whether knockoffs behave as a rule of `tdd.ktd` needs them to.

    rule="ktd": is W = mean of the knockoffs - original sign-symmetric given |W|? rule="multi": does each of the k + 1
    copies win equally often given the gap? With one knockoff the two questions are one.

    Guarantee: P(p <= level) <= level where the answer is yes, finite-sample ("signed_rank": asymptotic). A small
    p-value is a reason to use rule="conformal". A large one proves nothing: the test may lack items, the
    asymmetry may lie beyond the largest |W| seen, and the candidates' knockoffs may be unlike these.

    Args:
      original: [n] loss-like scores of known non-members.
      knockoffs: [n, k] scores of their knockoffs.
      rule: whose assumption is tested ("derandomized" needs that of "multi" with each knockoff alone).
      test: "sign": positive signs among all items; "tail": among the share `tail` with the largest |W|, where
        thresholds lie; "combined" (the default): twice the smaller of both p-values; "signed_rank": Wilcoxon's, for
        rule="ktd".
      alternative: "two-sided", or "greater": originals win too often, the side on which the FDR is lost.
      tail: share in (0, 1).
      mask: [n] bool, True = real item.

    Returns:
      `TestResult`; `statistic` is the share of positive signs ("combined": in the part with the smaller p-value), or
      the standardised signed-rank sum. p = 1 where every W is 0.

    Raises:
      InputError: wrong shapes, no items, unknown options, tail outside (0, 1).

    Cost: one sort.

    >>> result = knockoff_symmetry([0.0] * 9, [[1.0]] * 9, test="sign")
    >>> print(float(result.p_value))
    0.00390625

    References: KTD, lemma 1 (the symmetry that its rule needs).
    """
    arrays.check_choice(rule, ("ktd", "multi"), "rule")
    arrays.check_choice(test, TESTS, "test")
    arrays.check_choice(alternative, ("two-sided", "greater"), "alternative")
    if test == "signed_rank" and rule == "multi":
        raise InputError('test="signed_rank" is about the mean of the knockoffs: use it with rule="ktd"')
    original, knockoffs, mask = checks.as_scores_with_knockoffs(original, knockoffs, mask)
    checks.check_some_complete(original, knockoffs, mask, "original", "at least one known non-member is needed")

    def run(samples: list[Any]) -> TestResult:
        share = level_operand(tail, "tail")
        return _symmetry(*samples, mask, share, rule=rule, test=test, alternative=alternative)

    result = computed(run, (original, knockoffs), mask, tail)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), result)


@functools.partial(jax.jit, static_argnames=("rule", "test", "alternative"))
def _symmetry(original, knockoffs, mask, tail, *, rule, test, alternative) -> TestResult:
    if rule == "multi":
        w, losses = knockoff.multi_statistics(original, knockoffs, mask=mask).statistic, knockoffs.shape[1]
    else:
        w, losses = knockoff.w_statistics(original, knockoffs, mask=mask), 1

    def log_p(tails: Tails) -> jax.Array:
        if alternative == "greater":
            return tails.log_upper
        return jnp.minimum(jnp.log(2.0) + jnp.minimum(tails.log_upper, tails.log_lower), 0)

    if test == "signed_rank":
        tails = symmetry_tests.signed_rank_tails(w)
        found, statistic = log_p(tails), tails.statistic
    else:
        signs = symmetry_tests.count_signs(w, tail=tail)
        counted = ((signs.positive, signs.total), (signs.tail_positive, signs.tail_total))
        parts = [symmetry_tests.binomial_tails(*pair, num_knockoffs=losses, bound=w.shape[0]) for pair in counted]
        all_items, largest = (log_p(part) for part in parts)
        if test == "combined":
            found = jnp.minimum(jnp.log(2.0) + jnp.minimum(all_items, largest), 0)
            statistic = jnp.where(all_items <= largest, parts[0].statistic, parts[1].statistic)
        else:
            found, statistic = (all_items, parts[0].statistic) if test == "sign" else (largest, parts[1].statistic)
    return TestResult(jnp.exp(found), found, statistic, f"knockoff_symmetry/{rule}/{test}", GUARANTEES[test])
