"""TD4Eval: select clean benchmark items by several detectors, at a false discovery rate of at most alpha.

Calibration on known members; the null of an item is that it is a member (contaminated), and large loss-like scores are
evidence that it is clean. The paper's own combination (`combine="cauchy"`) does not control the FDR; the default does.
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import combine as cauchy_combination
from tdd.kernels import conformal, evalues, merge, pooled_ranks, stepup
from tdd.procedures.bounds import fdp_bounds_of_selection
from tdd.procedures.calls import first_items, half_level, key_of, level_operand, operand, ordered_panels, tracing
from tdd.procedures.evalues import drawn_uniform
from tdd.procedures.procedure import WithOption, masks, min_selections_by_rank
from tdd.procedures.several_scores import choose, num_rejections, weights_of_detectors
from tdd.records import CombinedSelection, Difference, Evidence, Guarantee, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

Combination = Literal[
    "pooled_rank",
    "split_weights",
    "e_values",
    "closed_e_values",
    "best_score",
    "bonferroni",
    "hommel",
    "twice_mean",
    "geometric",
    "harmonic",
    "cauchy",
    "average",
    "max",
    "random",
    "bh_average",
    "bh_max",
]
_MERGES = {name: getattr(merge, name) for name in ("bonferroni", "hommel", "twice_mean", "geometric", "harmonic")}
_DEFAULT_RULE = "sum"
_USERS = {
    "weights": ("pooled_rank", "average"),
    "rule": ("pooled_rank", "split_weights"),
    "split": ("split_weights",),
    "key": ("pooled_rank", "split_weights", "random", "e_values", "best_score"),
}

_EXCHANGEABLE = (
    "the calibration items are members of the training data",
    "calibration items and the candidates that are members, each with its K scores, are exchangeable, whatever the "
    "clean candidates score: they are of the same kind, prepared and scored in the same way, so that only chance tells "
    "their scores apart; the detectors may depend on one another in any way",
    "the detectors, alpha and every other option were chosen before any result was seen",
)
_FIXED = "the weights were fixed before the scores were seen"
_TAIL_INDEPENDENT = "pairs of detectors are tail-independent, as normal scores are"
_POOLED = "Marandon et al. (2024); Bates et al. (2023)"
_TAIL = "P(p_j <= t)/t -> 1 for a member as t -> 0 and n -> infinity; the FDR at a given alpha is not bounded"
_ABLATION = "Liu & Xie (2020); TD4Eval, ablation"


def _merged(source: str) -> Guarantee:
    return Guarantee.finite_sample("FDR <= alpha * m0/m", _EXCHANGEABLE, f"{source}; Benjamini & Yekutieli (2001)")


def _nothing(why: str, source: str, levels: Literal["any", "one"] = "any") -> Guarantee:
    return Guarantee(f"nothing: {why}", _EXCHANGEABLE, "none", source, levels)


GUARANTEES: dict[str, Guarantee] = {
    "pooled_rank": Guarantee.finite_sample("FDR <= alpha * m0/m", (*_EXCHANGEABLE, _FIXED), _POOLED),
    "split_weights": Guarantee.finite_sample(
        "FDR <= alpha * m0/m", (*_EXCHANGEABLE, "the split does not depend on the scores"), _POOLED, "one"
    ),
    "e_values": Guarantee.finite_sample(
        "FDR <= alpha", _EXCHANGEABLE, "Wang & Ramdas (2022); Bashari et al. (2023)", "one"
    ),
    "closed_e_values": Guarantee.finite_sample(
        "FDR <= alpha", _EXCHANGEABLE, "Xu et al. (2025); Bashari et al. (2023)", "one"
    ),
    "best_score": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        (*_EXCHANGEABLE, "exchangeability holds given the other candidates"),
        "tdd.best_score, after Bai & Jin (2024)",
        "one",
    ),
    "bonferroni": _merged("Bonferroni's inequality"),
    "hommel": _merged("Hommel (1983)"),
    "twice_mean": _merged("Rueschendorf (1982)"),
    "geometric": _merged("Vovk & Wang (2020)"),
    "harmonic": _merged("Vovk & Wang (2020)"),
    "cauchy": _nothing(
        "the weights depend on the rejections; if all candidates are members, the FDR is close to the probability that "
        "any detector rejects anything",
        "TD4Eval eq. 7-11 (the paper states FDR <= alpha)",
        "one",
    ),
    "average": Guarantee(_TAIL, (*_EXCHANGEABLE, _FIXED, _TAIL_INDEPENDENT), "asymptotic", _ABLATION),
    "max": _nothing("the detector is chosen by its own rejections", "TD4Eval, ablation", "one"),
    "random": Guarantee(_TAIL, (*_EXCHANGEABLE, _TAIL_INDEPENDENT), "asymptotic", _ABLATION),
    "bh_average": _nothing(
        "the mean of p-values is not a p-value; under some dependence it is at most t with probability 2t",
        "TD4Eval, appendix 11.1: BH-Average as written",
    ),
    "bh_max": _nothing(
        "the smallest of K p-values is at most t with probability up to K t",
        "TD4Eval, appendix 11.1: BH-Max as written, the best detector for each instance",
    ),
}
COMBINATIONS = tuple(GUARANTEES)

GUARANTEE_ROWS = [("tdd.td4eval", f'combine="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]

DIFFERENCES = [
    Difference(
        "tdd.td4eval", "TD4Eval", "eq. 4", "p is the fraction of reference scores up to the item's",
        "p = (1 + number of reference scores at least as large)/(n + 1)",
        "contaminated items score low: the inequality is reversed, and without the + 1 p can be 0",
    ),
    Difference(
        "tdd.td4eval", "TD4Eval", "eq. 6 and 11", 'selected if p < the threshold of BH', "selected if p <= it",
        "BH rejects the item that sets the threshold; with < a lone rejection is lost",
    ),
    Difference(
        "tdd.td4eval", "TD4Eval", "eq. 7", "weights by rejections, and FDR <= alpha",
        'offered as combine="cauchy" without a guarantee; equal weights where nothing is rejected; the default is '
        '"pooled_rank"', "the weights depend on the p-values: global-null FDR about .5 at level .2 with five detectors",
    ),
    Difference(
        "tdd.td4eval", "TD4Eval", "eq. 8", "tan(pi (0.5 - p)) for every p", "p = 1 is replaced by 1 - 1/(2(n + 1))",
        "the transform is minus infinity at p = 1, whatever the other detectors say",
    ),
    Difference(
        "tdd.scoring.scores.passes.Lowercase", "TD4Eval", "appendix 11.1",
        "the perplexity is compared with that of the lowercased text", "the ratio of the losses, their logarithms",
        "as in Carlini et al. (2021), whom the paper cites",
    ),
    Difference(
        "tdd.audit.rankings.rankings", "TD4Eval", "section 5.4",
        "rankings are compared with that of the models before contamination, on the whole benchmark",
        "with that on the truly clean items, or on all items where labels are not known",
        "whoever audits a contaminated model does not have it as it was before",
    ),
]  # fmt: skip


@in_own_settings()
def td4eval(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    combine: Combination = "pooled_rank",
    weights: Any = None,
    rule: Literal["sum", "cauchy"] | None = None,
    split: Any = None,
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> CombinedSelection:
    """Select items that are clean (not in the training data) by K detectors, with FDR control.

    Guarantee: by `combine`, if the K-vectors of scores of calibration items and of member candidates are exchangeable,
    whatever the dependence between detectors (`CombinedSelection.guarantee` states it in words):
      "pooled_rank": each detector's ranks in calibration and test together, combined by `rule` and ranked again against
        the calibration items; BH. FDR <= alpha·m0/m, finite-sample (Marandon et al. 2024). The default. The p-value of
        an item depends on the whole batch.
      "split_weights": pooled ranks with data-driven weights: one part A of the calibration items gives R_k, the
        rejections of detector k among the other part B and the test items; the final ranks use B only. FDR <=
        alpha·m0/m, finite-sample. Better if detectors differ much and there are many calibration items.
      "e_values": conformal e-values at alpha/2 averaged over detectors, e-BH at alpha. FDR <= alpha, finite-sample.
      "closed_e_values": the same, decided by closed e-BH: more power, O(m^2 log m). FDR <= alpha, finite-sample.
      "best_score": the best detector, chosen for each item without it; see `tdd.best_score`. FDR <= alpha·m0/m,
        finite-sample; O(K m (n + m)).
      "bonferroni", "hommel", "twice_mean", "geometric", "harmonic": p-values of an item merged under any dependence,
        then Benjamini-Yekutieli. FDR <= alpha·m0/m, finite-sample, little power.
      "cauchy": the paper: weights R_k/sum R from the rejections of each detector, weighted Cauchy combination, BH. No
        guarantee: if all candidates are members, it selects something about as often as any detector rejects.
      "average": Cauchy with equal (or given) weights, BH; valid per item only in the limit of small levels.
      "max": the detector with most rejections, alone; no guarantee.
      "random": Cauchy with weights drawn uniformly from the simplex; as "average".
      "bh_average", "bh_max": the paper's BH-Average and BH-Max as in its appendix 11.1, the mean and the smallest of an
        item's K p-values, BH. No guarantee: use "twice_mean" and "bonferroni" instead.

    Differs from the paper (`DIFFERENCES`): eq. 4, its inequality reversed and the + 1 added; eq. 6 and 11, "<=" for
    "<"; eq. 7, whose weights are an option without a guarantee; eq. 8, 1 - 1/(2(n + 1)) in place of p = 1.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of known members, one detector a row.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1). A number is taken as an exact fraction, and ranks are decided exactly; a JAX array may be
        traced and has a tolerance of four machine epsilons.
      combine: rule by which the detectors are combined.
      weights: [K] not negative, fixed in advance, for "pooled_rank" and "average".
      rule: for "pooled_rank" and "split_weights": "sum" of the pooled ranks (the default) or "cauchy" of them.
      split: [n] bool for "split_weights": True = learn the weights (A). By default half of the items, drawn by `key`.
      key: PRNG key: required by "random", and by "split_weights" without `split`. With a key, "pooled_rank" and
        "split_weights" break ties of the combined ranks at random instead of against the item, and "e_values" and
        "best_score" randomise e-BH; see `tdd.e_bh`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`. Items with a NaN from any detector are left out of n and m. `num_rejected_alone` is what BH
      at alpha rejects on each detector alone. `p_values` of the rules by e-values are min(1, 1/e). `adjusted` of
      "e_values", "closed_e_values", "best_score", "split_weights" and "cauchy" depends on alpha and may be compared
      with this alpha only. For "split_weights" `num_calibration` and `num_rejected_alone` describe the part B of the
      calibration items.

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown options, an argument
        that the chosen combination does not use, a missing key.

    >>> calibration, scores = [[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]], [[9.0, 2.0], [8.0, 0.5]]
    >>> td4eval(calibration, scores, alpha=0.5).selected.tolist()
    [True, False]

    References: TD4Eval, eq. 4-11 (the p-value with the inequality reversed and the + 1 added). Cost: O(K (n + m) log
    n).
    """
    check_options(combine, weights=weights, rule=rule, split=split, key=key)
    if key is not None or combine == "random" or (combine == "split_weights" and split is None):
        arrays.check_key(key, f'combine="{combine}"')
    pad = key is None and not tracing(alpha)  # a key's draws depend on the sizes
    coarse = combine not in ("best_score", "closed_e_values")  # these two cost the square of a length
    panels = ordered_panels(calibration, scores, calibration_mask, mask, pad=pad, coarse=coarse)
    if key is not None:
        key = key_of(key, (calibration, calibration_mask), (scores, mask))
    if weights is not None:
        weights = _as_weights(weights, panels[0].shape[0])
    if split is not None:
        split = arrays.as_mask(split, np.empty(np.shape(calibration)[1:]), "split")
        split = jnp.zeros_like(panels[2]).at[: len(split)].set(split)
        _check_split(split, panels[2])
    selection = _td4eval(
        *panels, weights, split, key, level_operand(alpha), combine=combine, rule=rule or _DEFAULT_RULE
    )
    return first_items(selection, np.shape(scores)[1])


@functools.partial(jax.jit, static_argnames=("combine", "rule"))
def _td4eval(
    calibration, scores, calibration_mask, mask, weights, split, key, alpha, *, combine, rule
) -> CombinedSelection:
    """Run the procedure on order-preserving scores whose masks are False wherever a detector has no score."""
    num_detectors, bound = calibration.shape[0], calibration.shape[1] + 1
    if combine == "split_weights":
        calibration_mask, weights, key = _learned(calibration, scores, calibration_mask, mask, split, key, alpha)
    n, m = (jnp.sum(real, dtype=jnp.int32) for real in (calibration_mask, mask))
    scale = stepup.plain_scale(n, m, bound, scores.shape[1])
    dtype = jnp.result_type(float)
    if weights is None:
        weights = jnp.ones(num_detectors, dtype)
    masks = {"null": "member", "calibration_mask": calibration_mask, "mask": mask}
    if combine in ("pooled_rank", "split_weights"):
        ranked = pooled_ranks.rank(calibration, scores, rule=rule, weights=weights, key=key, **masks)
        alone, m = ranked.alone, ranked.combined.num_tests
        step = stepup.bh_ranks(ranked.combined.rank, n, alpha, max_rank=bound)
        p = conformal.p_values(ranked.combined)
    else:
        by_detector = jax.vmap(lambda c, s: conformal.rank(c, s, **masks))(calibration, scores)
        alone, p_alone = by_detector.rank, jax.vmap(conformal.p_values)(by_detector)
    rejected = num_rejections(alone, n, alpha, bound)
    if combine in _MERGES:
        p = _MERGES[combine](p_alone, axis=0)
        step = stepup.by(p, alpha)
        smallest = _MERGES[combine](jnp.full(num_detectors, 1 / (n + 1).astype(dtype)))
        scale = ((smallest * _harmonic_number(m, scores.shape[1]), m), (1,))
    elif combine in ("best_score", "e_values", "closed_e_values"):
        # Randomised or closed e-BH may select fewer than n and m allow e-BH.
        if key is not None:
            scale = ((0,), scale[1])
        elif combine == "closed_e_values":
            scale = ((1,), scale[1])
        if combine == "best_score":
            e, weights = choose(calibration, scores, calibration_mask, mask, alpha, null="member")
        else:
            half = half_level(alpha)
            e = evalues.average(
                jax.vmap(lambda c, s: evalues.conformal_e_values(c, s, half, **masks))(calibration, scores)
            )
        uniform = None if key is None else drawn_uniform(key)
        step = (
            evalues.closed_e_bh(e, alpha) if combine == "closed_e_values" else evalues.e_bh(e, alpha, uniform=uniform)
        )
        p, step = jnp.minimum(1 / e, 1), step._replace(threshold=1 / step.threshold)
    elif combine == "max":
        best = jnp.argmax(rejected)
        weights = (jnp.arange(num_detectors) == best).astype(dtype)
        p, step = p_alone[best], stepup.bh_ranks(alone[best], n, alpha, max_rank=bound)
    elif combine in ("bh_average", "bh_max"):
        several = num_detectors if combine == "bh_average" else 1
        rank = jnp.sum(alone, axis=0) if combine == "bh_average" else jnp.min(alone, axis=0)
        p = jnp.where(mask, rank.astype(dtype) / (several * (n + 1)).astype(dtype), jnp.nan)
        step = stepup.bh_ranks(rank, several * (n + 1) - 1, alpha, max_rank=several * bound)
    elif combine in ("cauchy", "average", "random"):
        if combine == "cauchy":
            weights = _by_rejections(rejected)
        elif combine == "random":
            assert key is not None
            weights = jax.random.exponential(key, (num_detectors,), dtype)
        last = (n + 1).astype(dtype)
        p = cauchy_combination.cauchy(
            jnp.where(alone == n + 1, 1 - 0.5 / last, p_alone),  # p = 1 would outweigh everything
            weights=weights,
            axis=0,
        )
        step = stepup.bh(p, alpha)
    return CombinedSelection.from_step(
        step,
        p_values=p,
        num_tests=m,
        num_calibration=n,
        min_selections=stepup.min_rejections(alpha, scores.shape[1], scale=scale),
        method=f"td4eval/{combine}",
        null="member",
        guarantee=GUARANTEES[combine],
        weights=weights / jnp.sum(weights),
        num_rejected_alone=rejected,
    )


def _learned(
    calibration, scores, calibration_mask, mask, split, key, alpha
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return the mask of the part B, weights learned on the part A, and the key for further draws."""
    n = calibration.shape[1]
    if key is not None:
        key, drawing = jax.random.split(key)
        if split is None:
            drawn = jnp.where(calibration_mask, jax.random.randint(drawing, (n,), 0, 2**31 - 1), 2**31 - 1)
            split = drawn < jnp.sort(drawn)[jnp.sum(calibration_mask, dtype=jnp.int32) // 2]
    first, second = calibration_mask & split, calibration_mask & ~split
    # B and the candidates are treated alike, so that the weights say nothing about which is which.
    tested, tested_real = jnp.concatenate([calibration, scores], axis=1), jnp.concatenate([second, mask])
    masks = {"null": "member", "calibration_mask": first, "mask": tested_real}
    ranked = jax.vmap(lambda c, s: conformal.rank(c, s, **masks))(calibration, tested)
    return second, _by_rejections(num_rejections(ranked.rank, ranked.num_calibration[0], alpha, n + 1)), key


def _by_rejections(rejected: jax.Array) -> jax.Array:
    """Return weights proportional to the numbers of rejections, equal if there are none."""
    return jnp.where(jnp.any(rejected > 0), rejected, 1).astype(jnp.result_type(float))


def _harmonic_number(m: jax.Array, bound: int) -> jax.Array:
    """Return 1 + 1/2 + ... + 1/m."""
    place = jnp.arange(1, bound + 1)
    return jnp.sum(jnp.where(place <= m, 1 / place, 0))


def _as_weights(weights: Any, num_detectors: int) -> Any:
    """Check weights [K] and return them relative to the largest, so that no type of JAX is too small for them."""
    array = arrays.as_vector(weights, "weights")
    if array.shape != (num_detectors,):
        raise InputError(
            f"weights has {array.shape[0]} entries and there are {num_detectors} detectors; give one weight a detector"
        )
    arrays.check_weights(array)
    if isinstance(array, np.ndarray):
        array = array.astype(np.float64) / array.max()
    return operand(array, jnp.result_type(float))


def check_options(combine: Any, **given: Any) -> None:
    """Refuse an unknown combination or rule, and an argument that the combination does not use."""
    arrays.check_choice(combine, COMBINATIONS, "combine")
    for name, value in given.items():
        if value is not None and combine not in _USERS[name]:
            named = " or ".join(f'combine="{user}"' for user in _USERS[name])
            raise InputError(f'{name} is used by {named} only, not by combine="{combine}"; leave it out')
    if given["rule"] is not None:
        arrays.check_choice(given["rule"], pooled_ranks.RULES, "rule")


def _check_split(split: Any, calibration_mask: Any) -> None:
    """Check that both parts of the calibration items have a real one."""
    if isinstance(split, Tracer) or isinstance(calibration_mask, Tracer):
        return
    real, chosen = np.asarray(calibration_mask), np.asarray(split)
    for part, use in ((real & chosen, "True: to learn the weights"), (real & ~chosen, "False: for the final ranks")):
        if not part.any():
            raise InputError(
                f"split leaves no calibration item with {use}; each part needs at least one item that every detector "
                "scored"
            )


@dataclasses.dataclass(frozen=True)
class TD4Eval(WithOption):
    """`tdd.td4eval`, by several detectors.

    Attributes:
      combine: rule by which the detectors are combined.
      rule: combination of pooled ranks, "sum" or "cauchy"; empty for the default.
      weights: weights of the detectors, fixed beforehand; empty for equal ones.
    """

    name = "td4eval"
    _option = "combine"
    _guarantees = GUARANTEES
    null = "member"
    columns = "detectors"

    combine: Combination = "pooled_rank"
    rule: Literal["", "sum", "cauchy"] = ""
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        check_options(self.combine, rule=self.rule or None, weights=self.weights or None)
        if self.weights:
            arrays.check_weights(arrays.as_vector(self.weights, "weights"))

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        drawn = self.combine == "random" or (self.combine == "split_weights" and evidence.split is None)
        return td4eval(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            combine=self.combine,
            rule=self.rule or None,
            weights=self.weights or None,
            split=evidence.split,
            key=key if drawn else None,  # otherwise a key would break ties at random
            **masks(evidence),
        )

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        used = (n + 1) // 2 if self.combine == "split_weights" else n  # the others teach the weights
        return min_selections_by_rank(
            used, m, alpha, Fraction(1, m) if self.combine == "closed_e_values" else Fraction(1)
        )

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1) if self.combine in ("pooled_rank", "split_weights") else None

    def least_calibration(self, k: int, m: int, alpha: float, null_proportion: float = 1) -> int | None:  # noqa: D102
        if self.combine in ("pooled_rank", "e_values"):
            return super().least_calibration(k, m, alpha, null_proportion)
        return None  # it depends on the detectors, or on what is learned from

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return weights_of_detectors(evidence, selection)

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        assert isinstance(selection, CombinedSelection)
        if self.combine == "cauchy" and not np.asarray(selection.num_rejected_alone).any():
            return ["no detector rejects anything alone, so the detectors were weighted equally"]
        return []

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if self.combine not in ("pooled_rank", "split_weights"):
            return "the distribution of merged p-values under the null is unknown; combine=pooled_rank has bounds"
        return fdp_bounds_of_selection(selection, **draws)
