"""Selection by the best of several scores, or by one learned from them, on the same data, with FDR control."""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, discriminant, evalues, stepup
from tdd.procedures.bounds import fdp_bounds_of_selection
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    first_items,
    half_level,
    key_of,
    level_operand,
    ordered_panels,
    tracing,
)
from tdd.procedures.evalues import drawn_uniform
from tdd.procedures.procedure import Procedure, WithOption, check_options, masks, min_selections_by_rank
from tdd.records import CombinedSelection, Evidence, Guarantee, Null, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

Rule = Literal["split", "cross_fit"]
RULES = ("split", "cross_fit")

_LEARNED = (
    "the null holds for the calibration items",
    "given the scores of the candidates for which the null is false, the vectors of K scores of the calibration items "
    "and of the other candidates are exchangeable",
    "how the calibration items are divided does not depend on the scores; known members are not candidates",
    CHOSEN_BEFOREHAND,
)
GUARANTEES: dict[str, Guarantee] = {
    "best_score": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        (
            "the null holds for the calibration items",
            "given the other candidates, the vectors of K scores of a null candidate and of the calibration items are "
            "exchangeable",
            "the K scores, alpha and every other option were chosen before any result was seen",
        ),
        "tdd.kernels.evalues.unit_e_values, after Bai & Jin (2024) and Bashari et al. (2023); Wang & Ramdas (2022)",
        "one",
    ),
    "split": Guarantee.finite_sample("FDR <= alpha * m0/m", _LEARNED, "Marandon, Lei, Mary & Roquain (2024)"),
    "cross_fit": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        _LEARNED,
        "Bashari et al. (2023); Wang & Ramdas (2022); Marandon, Lei, Mary & Roquain (2024)",
        "one",
    ),
}
GUARANTEE_ROWS = [
    ("tdd.best_score", "", GUARANTEES["best_score"]),
    *(("tdd.combined_score", f'rule="{name}"', GUARANTEES[name]) for name in RULES),
]


@in_own_settings()
def best_score(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    null: Null = "nonmember",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> CombinedSelection:
    """Select candidates by the best of K scores, chosen from the same data.

    Trying scores and keeping the one that selects most voids the level of any procedure. Here each candidate is judged
    by the score that selects most of the *others* when the candidate is treated as a calibration item
    (`tdd.kernels.evalues.unit_e_values`; Bai & Jin 2024), and e-BH decides. Of scores that select equally many the
    first judges, so their order, too, is chosen before any result is seen. With K = 1 the selection is that of BH on
    conformal p-values. If several scores are good and items choose different ones, e-BH loses power that `key`
    restores.

    Guarantee: FDR <= alpha·m0/m, finite-sample, whatever the dependence between the scores, if calibration items and
    null candidates are exchangeable given the other candidates. With `key` the same, over its draw too; drawing another
    key because of what the first selected voids it.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1); may be traced.
      null: "nonmember" (calibrated on known non-members, finds members) or "member" (finds clean items).
      key: PRNG key for randomised e-BH, which selects at least as much; see `tdd.e_bh`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`; `weights` are the fractions of the tested candidates that each score judged, `p_values`
      min(1, 1/e). `adjusted` is that of e-BH on the e-values of this alpha and does not decide at other levels. Cost:
      O(K m (n + m)).

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown `null`.

    >>> known, unknown = [[3.0, 4.0, 5.0, 6.0], [1.0, 9.0, 2.0, 5.0]], [[1.0, 2.0, 7.0], [9.0, 8.0, 7.0]]
    >>> best_score(known, unknown, alpha=0.5).selected.tolist()
    [True, True, False]
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    if key is not None:
        arrays.check_key(key, "randomised e-BH")
    panels = ordered_panels(calibration, scores, calibration_mask, mask)
    if key is not None:
        key = key_of(key, (calibration, calibration_mask), (scores, mask))
    return _best_score(*panels, level_operand(alpha), key, null=null)


@functools.partial(jax.jit, static_argnames="null")
def _best_score(calibration, scores, calibration_mask, mask, alpha, key, *, null) -> CombinedSelection:
    e_values, weights = choose(calibration, scores, calibration_mask, mask, alpha, null=null)
    step = evalues.e_bh(e_values, alpha, uniform=None if key is None else drawn_uniform(key))
    n = jnp.sum(calibration_mask, dtype=jnp.int32)
    ranks = jax.vmap(lambda c, s: conformal.rank(c, s, null=null, calibration_mask=calibration_mask, mask=mask).rank)(
        calibration, scores
    )
    return CombinedSelection.from_step(
        step,
        p_values=jnp.minimum(1 / e_values, 1),
        threshold=1 / step.threshold,
        num_calibration=n,
        min_selections=jnp.int32(1)  # randomised e-values have no upper bound
        if key is not None
        else stepup.min_rejections(
            alpha,
            scores.shape[1],
            scale=stepup.plain_scale(n, step.num_tests, calibration.shape[1] + 1, scores.shape[1]),
        ),
        method="best_score",
        null=null,
        guarantee=GUARANTEES["best_score"],
        weights=weights,
        num_rejected_alone=num_rejections(ranks, n, alpha, calibration.shape[1] + 1),
    )


def choose(calibration, scores, calibration_mask, mask, alpha, *, null) -> tuple[jax.Array, jax.Array]:
    """Return e-values [m] by the best of K scores, and [K] the fraction of the tested candidates that each judges."""
    (num_scores, n), m = calibration.shape, scores.shape[1]
    units = evalues.unit_e_values(
        calibration,
        scores,
        jnp.arange(n, dtype=jnp.int32),
        jnp.arange(m, dtype=jnp.int32),
        alpha,
        num_units=(n, m),
        null=null,
        calibration_mask=calibration_mask,
        mask=mask,
    )
    judged = jnp.sum((units.score[:, None] == jnp.arange(num_scores)) & mask[:, None], axis=0)
    return units.e_values, judged / jnp.maximum(jnp.sum(mask), 1)


def num_rejections(ranks: jax.Array, n: jax.Array, alpha: Any, max_rank: int) -> jax.Array:
    """Return [K] the number of items that BH at alpha rejects by each row of ranks."""
    return jax.vmap(lambda row: stepup.bh_ranks(row, n, alpha, max_rank=max_rank).num_rejected)(ranks)


@dataclasses.dataclass(frozen=True)
class BestScore(Procedure):
    """`tdd.best_score`.

    Attributes:
      rule: "deterministic", or "randomized": e-BH with randomised e-values, more power.
    """

    name = "best_score"
    no_bounds = "the scores were chosen from the data; name one score for bounds"
    columns = "detectors"

    rule: Literal["deterministic", "randomized"] = "deterministic"

    def __post_init__(self) -> None:
        check_options(self, rule=("deterministic", "randomized"))

    @property
    def randomised(self) -> bool:  # noqa: D102
        return self.rule == "randomized"

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return GUARANTEES["best_score"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        if self.rule == "randomized":
            arrays.check_key(key, 'rule="randomized"')
        key = key if self.rule == "randomized" else None
        return best_score(evidence.calibration, evidence.scores, alpha=alpha, key=key, **masks(evidence))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return weights_of_detectors(evidence, selection)


def weights_of_detectors(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    """For the report: the weight of each detector, and how many items it would select alone."""
    assert isinstance(selection, CombinedSelection)
    weights, counts = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, counts, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]


@in_own_settings()
def combined_score(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    rule: Rule = "split",
    null: Null = "nonmember",
    members: Any = None,
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> CombinedSelection:
    """Select candidates by a score that is learned from K scores on the same data, without known members.

    The calibration items are divided into two halves. One half A is class 0; the other half B and the candidates,
    mixed, are class 1. What `tdd.kernels.discriminant` learns from them is one score g, lower where items look like
    those by which the mixed sample differs from A. Candidates are compared with B by g. A score that is no evidence by
    itself but shares the noise of others (the difficulty of a text) helps too: its coefficient may be negative.

    Guarantee: FDR <= alpha·m0/m, finite-sample, whatever the dependence between the scores, by `rule`:
      "split": conformal p-values against B, then BH at alpha. The default: more power wherever it was measured.
      "cross_fit": each half is B once; conformal e-values against it at alpha/2, averaged over both, e-BH at alpha. The
        choice of A has less influence.
    Proof. Let A, the known members and the candidates for which the null is false be given, and the score vectors of B
    and of the m0 null candidates without their order. (1) All orders of those are equally likely, by assumption.
    (2) g is a function of what is given: the learner sees B and the candidates in one class and gives the same g to the
    bit under any order of them. (3) So the values g of B and of the null candidates are exchangeable given the values
    of the others, which is the assumption of conformal p-values under BH: FDR <= alpha·m0/m (Marandon et al. 2024,
    theorem 3.3; Bates et al. 2023). (4) In the same way the conformal e-values of the null candidates sum to at most m0
    in expectation for each B (Bashari et al. 2023, theorem 3.1), hence their averages over both B do, however they
    depend on one another. (5) e-BH selects j only if e_j >= m/(alpha·R), R the number selected, so the false discovery
    proportion is at most the sum of alpha·e_j/m over the nulls, and its mean at most alpha·m0/m.
    Ranking candidates among items of A, which were class 0, breaks (2), and no level is kept.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1); may be traced.
      rule: "split" or "cross_fit".
      null: "nonmember" (calibrated on known non-members, finds members) or "member" (finds clean items).
      members: [K, n1] scores of items for which the null is known to be false and which are not candidates: they are
        learned from as class 1.
      key: PRNG key that divides the calibration items at random; by default every second one goes to A.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`; `weights` are the coefficients of the scores, their absolute values summing to 1. For "split"
      `num_calibration` is the size of B. For "cross_fit" `p_values` are min(1, 1/e), and `adjusted` belongs to this
      alpha. Cost: O(K (n + m) log(n + m) + K^2 (n + m)).

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown `rule` or `null`.

    >>> known = [[3.0, 4, 5, 6, 7, 8, 9, 10], [9.0, 6, 3, 8, 5, 10, 7, 4]]
    >>> combined_score(known, [[1.0, 2.0, 7.5], [2.0, 1.0, 6.5]], alpha=0.5).selected.tolist()
    [True, True, False]
    """
    arrays.check_choice(rule, RULES, "rule")
    arrays.check_choice(null, conformal.NULLS, "null")
    if key is not None:
        arrays.check_key(key, "the division of the calibration items")
    pad = key is None and members is None and not tracing(alpha)  # a key's draws depend on the sizes
    num_tests, num_members = np.shape(scores)[-1], 0
    if members is not None:
        if null != "nonmember":
            raise InputError('members is used with null="nonmember" only: they are items for which that null is false')
        scores, mask = _joined(scores, members, mask)
        num_members = np.shape(scores)[1] - num_tests
    panels = ordered_panels(calibration, scores, calibration_mask, mask, pad=pad)
    selection = _combined_score(*panels, level_operand(alpha), key, rule=rule, null=null, num_members=num_members)
    return first_items(selection, num_tests)


def _joined(scores: Any, members: Any, mask: Any) -> tuple[Any, Any]:
    """Candidates and known members side by side, and the mask of both."""
    scores = arrays.as_matrix(scores, "scores", "[detectors, test items]")
    members = arrays.as_matrix(members, "members", "[detectors, known members]")
    if len(members) != len(scores):
        raise InputError(f"members has {len(members)} detectors and scores has {len(scores)}; both need the same")
    arrays.check_finite(members, "members")
    mask = arrays.as_mask(mask, scores[0], "mask")
    xp = np if isinstance(scores, np.ndarray) and isinstance(members, np.ndarray) and not tracing(mask) else jnp
    tested = xp.ones(scores.shape[1], bool) if mask is None else xp.asarray(mask)
    return xp.concatenate([scores, members], axis=1), xp.concatenate([tested, xp.ones(members.shape[1], bool)])


@functools.partial(jax.jit, static_argnames=("rule", "null", "num_members"))
def _combined_score(
    calibration, scores, calibration_mask, mask, alpha, key, *, rule, null, num_members
) -> CombinedSelection:
    """Run the procedure on order-preserving scores, the known members behind the candidates."""
    n, m = calibration.shape[1], scores.shape[1] - num_members
    pooled, real = jnp.concatenate([calibration, scores], axis=1), jnp.concatenate([calibration_mask, mask])
    class_of_tests = jnp.where(jnp.arange(m + num_members) < m, 1, 2)
    scores, mask = scores[:, :m], mask[:m]

    def learned(training: jax.Array) -> tuple[jax.Array, jax.Array, dict[str, Any], jax.Array]:
        """Values of calibration items and candidates, the masks of those that are compared, and [K] weights."""
        label = jnp.concatenate([jnp.where(training, 0, 1), class_of_tests])
        found = discriminant.discriminant(pooled, label, null=null, sparse=True, mask=real)
        weights = found.coefficients / jnp.sum(jnp.abs(found.coefficients))
        compared = {"calibration_mask": calibration_mask & ~training, "mask": mask}
        return found.statistic[:n], found.statistic[n : n + m], compared, weights

    total = jnp.sum(calibration_mask, dtype=jnp.int32)
    odd = _places(calibration_mask, key) % 2 == 1  # the smaller half
    own, test, compared, weights = learned(odd)
    if rule == "split":
        ranked = conformal.rank(own, test, null="member", **compared)
        num_calibration, p = ranked.num_calibration, conformal.p_values(ranked)
        scale = stepup.plain_scale(num_calibration, ranked.num_tests, n + 1, m)
        step = stepup.bh_ranks(ranked.rank, num_calibration, alpha, max_rank=n + 1)
        threshold = {}
    else:
        halves, half = [(own, test, compared, weights), learned(~odd)], half_level(alpha)
        weights, num_calibration = (weights + halves[1][3]) / 2, total
        e_values = evalues.average(
            jnp.stack([evalues.conformal_e_values(c, s, half, null="member", **real) for c, s, real, _ in halves])
        )
        step = evalues.e_bh(e_values, alpha)
        p, threshold = jnp.minimum(1 / e_values, 1), {"threshold": 1 / step.threshold}
        scale = ((2 * step.num_tests,), (total + 2,))  # no average exceeds that of n + 1 over both halves
    alone = jax.vmap(lambda c, s: conformal.rank(c, s, null=null, calibration_mask=calibration_mask, mask=mask).rank)(
        calibration, scores
    )
    return CombinedSelection.from_step(
        step,
        p_values=p,
        **threshold,
        num_tests=jnp.sum(mask, dtype=jnp.int32),
        num_calibration=num_calibration,
        min_selections=stepup.min_rejections(alpha, m, scale=scale),
        method=f"combined_score/{rule}",
        null=null,
        guarantee=GUARANTEES[rule],
        weights=weights,
        num_rejected_alone=num_rejections(alone, total, alpha, n + 1),
    )


def _places(real: jax.Array, key: jax.Array | None) -> jax.Array:
    """[n] int32: 0, 1, ... for the real items, in their order or in a random one."""
    if key is None:
        return jnp.cumsum(real, dtype=jnp.int32) - 1
    drawn = jnp.where(real, jax.random.uniform(key, real.shape), 2)
    return jnp.zeros(len(real), jnp.int32).at[jnp.argsort(drawn)].set(jnp.arange(len(real), dtype=jnp.int32))


@dataclasses.dataclass(frozen=True)
class CombinedScore(WithOption):
    """`tdd.combined_score`, the calibration items divided in their order: every second one is learned from.

    Shuffle a table first in which kinds of calibration items alternate.

    Attributes:
      rule: "split", or "cross_fit": both halves in both roles, by e-values.
      learn_from: "candidates", or "members": from known members besides.
    """

    name = "combined_score"
    _option = "rule"
    _guarantees = GUARANTEES
    columns = "detectors"
    no_bounds = "the distribution of averaged e-values under the null is unknown; rule=split has bounds"

    rule: Rule = "split"
    learn_from: Literal["candidates", "members"] = "candidates"

    def __post_init__(self) -> None:
        check_options(self, rule=RULES, learn_from=("candidates", "members"))

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "members") if self.learn_from == "members" else ("calibration",)

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        members = evidence.members if self.learn_from == "members" else None
        given: dict[str, Any] = {"alpha": alpha, "rule": self.rule, "members": members, **masks(evidence)}
        return combined_score(evidence.calibration, evidence.scores, **given)

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        if self.rule == "split":
            return min_selections_by_rank((n + 1) // 2, m, alpha)
        return min_selections_by_rank(n + 1, m, alpha, Fraction(2))

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1) if self.rule == "split" else None

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return weights_of_detectors(evidence, selection)

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return self.no_bounds if self.rule != "split" else fdp_bounds_of_selection(selection, **draws)
