"""TD4Eval: which benchmark items are clean, by several detectors at once, at a false discovery rate of at most alpha.

Calibration on known members; the null of an item is that it is a member (contaminated), and large loss-like scores are
evidence that it is clean. The paper's own combination (`combine="cauchy"`) does not control the error; the default
does.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import combine as cauchy_combination
from tdd.kernels import conformal, evalues, lattice, merge, pooled_ranks, stepup
from tdd.procedures.best_score import choose
from tdd.procedures.calls import first_items, level_operand, ordered_panels, tracing
from tdd.procedures.evalues import drawn_uniform
from tdd.records import CombinedSelection, Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["COMBINATIONS", "GUARANTEES", "GUARANTEE_ROWS", "td4eval"]

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

_EXCHANGEABLE = (
    "the calibration items are members of the training data",
    "given the scores of the clean candidates, the vectors of K scores of calibration items and of member candidates "
    "are exchangeable: the same kind of text, prepared and scored in the same way; the detectors may depend on one "
    "another in any way",
    "the detectors, alpha and every other option were chosen before any result was seen",
)
_FIXED = "the weights were fixed before the scores were seen"
_POOLED = "Marandon et al. (2024); Bates et al. (2023)"
_TAIL = "P(p_j <= t)/t -> 1 for a member as t -> 0 and n -> infinity; the FDR at a given alpha is not bounded"


def _merged(source: str) -> Guarantee:
    return Guarantee("FDR <= alpha * m0/m", _EXCHANGEABLE, "finite-sample", f"{source}; Benjamini & Yekutieli (2001)")


GUARANTEES: dict[str, Guarantee] = {
    "pooled_rank": Guarantee("FDR <= alpha * m0/m", (*_EXCHANGEABLE, _FIXED), "finite-sample", _POOLED),
    "split_weights": Guarantee(
        "FDR <= alpha * m0/m",
        (*_EXCHANGEABLE, "the split does not look at the scores"),
        "finite-sample",
        _POOLED,
        "one",
    ),
    "e_values": Guarantee(
        "FDR <= alpha", _EXCHANGEABLE, "finite-sample", "Wang & Ramdas (2022); Bashari et al. (2023)", "one"
    ),
    "closed_e_values": Guarantee(
        "FDR <= alpha", _EXCHANGEABLE, "finite-sample", "Xu et al. (2025); Bashari et al. (2023)", "one"
    ),
    "best_score": Guarantee(
        "FDR <= alpha * m0/m",
        (*_EXCHANGEABLE, "exchangeability holds given the other candidates"),
        "finite-sample",
        "tdd.best_score, after Bai & Jin (2024)",
        "one",
    ),
    "bonferroni": _merged("Bonferroni's inequality"),
    "hommel": _merged("Hommel (1983)"),
    "twice_mean": _merged("Rueschendorf (1982)"),
    "geometric": _merged("Vovk & Wang (2020)"),
    "harmonic": _merged("Vovk & Wang (2020)"),
    "cauchy": Guarantee(
        "nothing: the weights follow the rejections, and with members only the FDR is near the probability that any "
        "detector rejects anything",
        _EXCHANGEABLE,
        "none",
        "TD4Eval eq. 7-11 (the paper states FDR <= alpha)",
        "one",
    ),
    "average": Guarantee(
        _TAIL,
        (*_EXCHANGEABLE, _FIXED, "pairs of detectors are tail-independent, as normal scores are"),
        "asymptotic",
        "Liu & Xie (2020); TD4Eval, ablation",
    ),
    "max": Guarantee(
        "nothing: the detector is chosen by its own rejections", _EXCHANGEABLE, "none", "TD4Eval, ablation", "one"
    ),
    "random": Guarantee(
        _TAIL,
        (*_EXCHANGEABLE, "pairs of detectors are tail-independent, as normal scores are"),
        "asymptotic",
        "Liu & Xie (2020); TD4Eval, ablation",
    ),
    "bh_average": Guarantee(
        "nothing: the mean of p-values is no p-value, and under some dependence is at most t with probability 2t",
        _EXCHANGEABLE,
        "none",
        "TD4Eval, appendix 11.1: BH-Average as written",
    ),
    "bh_max": Guarantee(
        "nothing: the smallest of K p-values is at most t with probability up to K t",
        _EXCHANGEABLE,
        "none",
        "TD4Eval, appendix 11.1: BH-Max as written, the best detector for each instance",
    ),
}
COMBINATIONS = tuple(GUARANTEES)

GUARANTEE_ROWS = [("tdd.td4eval", f'combine="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]


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

    Guarantee: by `combine`, provided the K-vectors of scores of calibration items and of member candidates are
    exchangeable, whatever the dependence between detectors (`CombinedSelection.guarantee` says it in words):
      "pooled_rank": each detector's ranks in calibration and test together, combined by `rule`, and ranked again
        against the calibration items; BH. FDR <= alpha·m0/m, finite-sample. The default. The p-value of an item
        depends on the whole batch.
      "split_weights": pooled ranks with data-driven weights: one part A of the calibration items gives R_k, the
        rejections of detector k among the other part B and the test items; the final ranks use B alone. FDR <=
        alpha·m0/m, finite-sample. The better choice where detectors differ much and calibration items are plenty.
      "e_values": conformal e-values at alpha/2 averaged over detectors, e-BH at alpha. FDR <= alpha, finite-sample.
      "closed_e_values": the same, decided by closed e-BH: more power, O(m^2 log m). FDR <= alpha, finite-sample.
      "best_score": the best detector, chosen for each item without it; see `tdd.best_score`. FDR <= alpha·m0/m,
        finite-sample; O(K m (n + m)).
      "bonferroni", "hommel", "twice_mean", "geometric", "harmonic": p-values of an item merged under any dependence,
        then Benjamini-Yekutieli. FDR <= alpha·m0/m, finite-sample, little power.
      "cauchy": the paper: weights R_k/sum R from the rejections of each detector, weighted Cauchy combination, BH. No
        guarantee: with members only, something is selected about as often as any detector rejects.
      "average": Cauchy with equal (or given) weights, BH; valid per item only in the limit of small levels.
      "max": the detector with most rejections, alone; no guarantee.
      "random": Cauchy with weights drawn uniformly from the simplex; as "average".
      "bh_average", "bh_max": the paper's BH-Average and BH-Max as its appendix 11.1 writes them, the mean and the
        smallest of an item's K p-values, BH. No guarantee: use "twice_mean" and "bonferroni" in their place.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of known members, one detector a row.
      scores: [K, m] loss-like scores of the candidates.
      alpha: level in (0, 1). A number is taken as an exact fraction, and ranks are decided exactly; a JAX array may be
        traced and carries a tolerance of four machine epsilons.
      combine: how the detectors are combined.
      weights: [K] not negative, fixed in advance, for "pooled_rank" and "average".
      rule: for "pooled_rank" and "split_weights": "sum" of the pooled ranks (the default) or "cauchy" of them.
      split: [n] bool for "split_weights": True = learn the weights (A). Otherwise half of the items, drawn by `key`.
      key: PRNG key: needed by "random", and by "split_weights" without `split`. Where one is given, "pooled_rank" and
        "split_weights" break ties of the combined ranks at random instead of against the item, and "e_values" and
        "best_score" randomise e-BH; see `tdd.e_bh`.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `CombinedSelection`. Items with a NaN from any detector are left out of n and m. `weights` sum to 1: equal where
      the rule has none, and where no detector rejects anything; for "best_score" the shares of the items that each
      detector judges. `num_rejected_alone` is what BH at alpha rejects on each detector alone. `p_values` of the rules
      by e-values are min(1, 1/e). `adjusted` may be compared with alpha alone for "e_values", "closed_e_values",
      "best_score", "split_weights" and "cauchy", whose numbers depend on it. For "split_weights" `num_calibration` and
      `num_rejected_alone` are about the part B of the calibration items.

    Raises:
      InputError: wrong shapes, infinite scores, no calibration items, alpha out of range, unknown options, an argument
        that the chosen combination does not use, a missing key.

    Cost: O(K (n + m) log n).

    >>> calibration, scores = [[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]], [[9.0, 2.0], [8.0, 0.5]]
    >>> td4eval(calibration, scores, alpha=0.5).selected.tolist()
    [True, False]

    References: TD4Eval, eq. 4-11 (the p-value with the inequality turned and the + 1 added); Marandon et al. (2024)
    for scores that are symmetric in calibration and test.
    """
    arrays.check_choice(combine, COMBINATIONS, "combine")
    _check_only_for("weights", weights, combine, ("pooled_rank", "average"))
    _check_only_for("rule", rule, combine, ("pooled_rank", "split_weights"))
    _check_only_for("split", split, combine, ("split_weights",))
    _check_only_for("key", key, combine, ("pooled_rank", "split_weights", "random", "e_values", "best_score"))
    if rule is not None:
        arrays.check_choice(rule, pooled_ranks.RULES, "rule")
    if key is not None or combine == "random" or (combine == "split_weights" and split is None):
        arrays.check_key(key, f'combine="{combine}"')
    lengthen = key is None and not tracing(alpha)  # a key's draws depend on the sizes
    own, test, own_real, test_real = ordered_panels(calibration, scores, calibration_mask, mask, lengthen=lengthen)
    if weights is not None:
        weights = _as_weights(weights, own.shape[0])
    if split is not None:
        split = arrays.as_mask(split, np.empty(np.shape(calibration)[1:]), "split")
        split = jnp.zeros_like(own_real).at[: len(split)].set(split)
        _check_split(split, own_real)
    found = _td4eval(
        own,
        test,
        own_real,
        test_real,
        weights,
        split,
        key,
        level_operand(alpha),
        _half(alpha) if combine in ("e_values", "closed_e_values") else None,
        combine=combine,
        rule=rule or _DEFAULT_RULE,
    )
    return first_items(found, np.shape(scores)[1])


def _half(alpha: Any) -> Any:
    """alpha/2 as an operand, exact where alpha is."""
    if isinstance(alpha, jax.Array):
        return alpha / 2
    if isinstance(alpha, lattice.Level):  # halving moves no float off its place
        halved = jax.tree.map(lambda field: field / 2, alpha)
        return halved._replace(numerator=alpha.numerator, denominator=alpha.denominator * 2)
    level = lattice.as_level(alpha)
    exact = Fraction(int(level.numerator), 2 * int(level.denominator))
    return level_operand(max(exact, Fraction(1, 10**9)))


@functools.partial(jax.jit, static_argnames=("combine", "rule"))
def _td4eval(own, test, own_real, test_real, weights, split, key, alpha, half, *, combine, rule) -> CombinedSelection:
    """The procedure on order-preserving scores whose masks are False wherever a detector has no score."""
    num_detectors, bound = own.shape[0], own.shape[1] + 1
    uniform = None if key is None else drawn_uniform(key)
    if combine == "split_weights":
        own_real, weights, key = _learned(own, test, own_real, test_real, split, key, alpha)
    n, m = (jnp.sum(real, dtype=jnp.int32) for real in (own_real, test_real))
    scale = ((m,), (n + 1,))
    dtype = jnp.result_type(float)
    if weights is None:
        weights = jnp.ones(num_detectors, dtype)
    if combine in ("pooled_rank", "split_weights"):
        ranked = pooled_ranks.rank(
            own, test, null="member", rule=rule, weights=weights, key=key, calibration_mask=own_real, mask=test_real
        )
        alone, m = ranked.alone, ranked.combined.num_tests
        step = stepup.bh_ranks(ranked.combined.rank, n, alpha, max_rank=bound)
        p = conformal.p_values(ranked.combined)
    else:
        each = jax.vmap(lambda c, s: conformal.rank(c, s, null="member", calibration_mask=own_real, mask=test_real))(
            own, test
        )
        alone, p_alone = each.rank, jax.vmap(conformal.p_values)(each)
    rejected = _rejections(alone, n, alpha, bound)
    if combine in _MERGES:
        p = _MERGES[combine](p_alone, axis=0)
        step = stepup.by(p, alpha)
        least = _MERGES[combine](jnp.full(num_detectors, 1 / (n + 1).astype(dtype)))
        scale = ((least * _harmonic_number(m, test.shape[1]), m), (jnp.int32(1),))
    elif combine == "best_score":
        e, weights = choose(own, test, own_real, test_real, alpha, null="member")
        found = evalues.e_bh(e, alpha, uniform=uniform)
        p, step = jnp.minimum(1 / e, 1), found._replace(threshold=1 / found.threshold)
    elif combine in ("e_values", "closed_e_values"):
        values = jax.vmap(
            lambda c, s: evalues.conformal_e_values(
                c, s, half, null="member", calibration_mask=own_real, mask=test_real
            )
        )(own, test)
        e = evalues.average(values)
        found = evalues.e_bh(e, alpha, uniform=uniform) if combine == "e_values" else evalues.closed_e_bh(e, alpha)
        p, step = jnp.minimum(1 / e, 1), found._replace(threshold=1 / found.threshold)
    elif combine == "max":
        best = jnp.argmax(rejected)
        weights = (jnp.arange(num_detectors) == best).astype(dtype)
        p, step = p_alone[best], stepup.bh_ranks(alone[best], n, alpha, max_rank=bound)
    elif combine in ("bh_average", "bh_max"):
        several = num_detectors if combine == "bh_average" else 1
        own_rank = jnp.sum(alone, axis=0) if combine == "bh_average" else jnp.min(alone, axis=0)
        p = jnp.where(test_real, own_rank.astype(dtype) / (several * (n + 1)).astype(dtype), jnp.nan)
        step = stepup.bh_ranks(own_rank, several * (n + 1) - 1, alpha, max_rank=several * bound)
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
    return CombinedSelection(
        selected=step.reject,
        p_values=p,
        adjusted=step.adjusted,
        threshold=step.threshold,
        proportion=jnp.zeros((), dtype),
        num_selected=step.num_rejected,
        num_tests=m,
        num_calibration=n,
        min_selections=stepup.min_rejections(alpha, test.shape[1], scale=scale),
        method=f"td4eval/{combine}",
        null="member",
        guarantee=GUARANTEES[combine],
        weights=weights / jnp.sum(weights),
        num_rejected_alone=rejected,
    )


def _learned(own, test, own_real, test_real, split, key, alpha) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Mask of the part B, weights learned on the part A, and what is left of the key."""
    n = own.shape[1]
    if key is not None:
        key, drawing = jax.random.split(key)
        if split is None:
            drawn = jnp.where(own_real, jax.random.randint(drawing, (n,), 0, 2**31 - 1), 2**31 - 1)
            split = drawn < jnp.sort(drawn)[jnp.sum(own_real, dtype=jnp.int32) // 2]
    first, second = own_real & split, own_real & ~split
    # B and the candidates are treated alike, so that the weights say nothing about which is which.
    tested, tested_real = jnp.concatenate([own, test], axis=1), jnp.concatenate([second, test_real])
    each = jax.vmap(lambda c, s: conformal.rank(c, s, null="member", calibration_mask=first, mask=tested_real))(
        own, tested
    )
    return second, _by_rejections(_rejections(each.rank, each.num_calibration[0], alpha, n + 1)), key


def _rejections(ranks: jax.Array, n: jax.Array, alpha: Any, bound: int) -> jax.Array:
    """[K] R_k, the number of items that BH at alpha rejects by each row of ranks."""
    return jax.vmap(lambda row: stepup.bh_ranks(row, n, alpha, max_rank=bound).num_rejected)(ranks)


def _by_rejections(rejected: jax.Array) -> jax.Array:
    """Weights proportional to the numbers of rejections; equal where there are none."""
    return jnp.where(jnp.any(rejected > 0), rejected, 1).astype(jnp.result_type(float))


def _harmonic_number(m: jax.Array, bound: int) -> jax.Array:
    """1 + 1/2 + ... + 1/m."""
    place = jnp.arange(1, bound + 1)
    return jnp.sum(jnp.where(place <= m, 1 / place, 0))


def _as_weights(weights: Any, num_detectors: int) -> jax.Array:
    """[K] weights, relative to the largest, so that no type of JAX is too small for them."""
    array = arrays.as_vector(weights, "weights")
    if array.shape != (num_detectors,):
        raise InputError(
            f"weights has {array.shape[0]} entries and there are {num_detectors} detectors; give one weight a detector"
        )
    arrays.check_weights(array)
    if isinstance(array, np.ndarray):
        array = array.astype(np.float64) / array.max()
    return jnp.asarray(array, jnp.result_type(float))


def _check_only_for(name: str, value: Any, combine: str, users: tuple[str, ...]) -> None:
    """An argument that the chosen combination would not look at is a mistake."""
    if value is not None and combine not in users:
        named = " or ".join(f'combine="{user}"' for user in users)
        raise InputError(f'{name} is used by {named} only, not by combine="{combine}"; leave it out')


def _check_split(split: Any, calibration_mask: Any) -> None:
    """Both parts of the calibration items hold a real one."""
    if isinstance(split, Tracer) or isinstance(calibration_mask, Tracer):
        return
    real, chosen = np.asarray(calibration_mask), np.asarray(split)
    for part, use in ((real & chosen, "True: to learn the weights"), (real & ~chosen, "False: for the final ranks")):
        if not part.any():
            raise InputError(
                f"split leaves no calibration item with {use}; each part needs at least one item that every detector "
                "scored"
            )
