"""Rules that the papers compare their methods with, for studies and rankings of models: none controls an error rate.

A threshold from labelled validation items guarantees nothing for the candidates. A union of one selection a model holds
items that another model was trained on; an intersection removes right selections faster than those, and the fraction of
wrong items that remain is not bounded by the level of the single selections. `tdd.jmcs` tests the joint null itself.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, lattice, proportion, stepup
from tdd.procedures.calls import level_operand, order_preserving
from tdd.records import Guarantee, Null, pytree
from tdd.validate import InputError, arrays

Rule = Literal["accuracy", "fdr", "fpr"]

COMPOSITIONS = ("union", "intersection")

_NOTHING = "nothing: no error rate among the candidates is controlled; "

GUARANTEES: dict[str, Guarantee] = {
    "accuracy": Guarantee(
        _NOTHING + "the threshold has the highest accuracy on the validation items",
        (),
        "none",
        "TD4Eval, eq. 1 and appendix 11.3 (the baselines of table 1)",
    ),
    "fdr": Guarantee(
        _NOTHING + "the false discovery proportion is at most alpha on the validation items, from which the threshold "
        "was chosen",
        (),
        "none",
        "KTD, section 5.2 (LOSS, MinK%, Zlib and Lowercase of table 2)",
    ),
    "fpr": Guarantee(
        _NOTHING + "the false positive rate is at most alpha on the validation items, and it says nothing of the "
        "fraction of false ones among the selected",
        (),
        "none",
        "Mireshghallah et al. (2022), for Ref of KTD, section 5.2 (which does not write the rule)",
    ),
}
RULES = tuple(GUARANTEES)

GUARANTEE_ROWS = [
    ("tdd.study.baselines.threshold", f'rule="{name}"', guarantee) for name, guarantee in GUARANTEES.items()
]


@pytree("method", "null", "guarantee")
class ThresholdSelection:
    """The selection of a threshold.

    Attributes:
      selected: [m] bool.
      num_selected: [] int32.
      num_tests: [] int32, real candidates.
      num_validation: [] int32, real validation items.
      method: "threshold/<rule>".
      null: which items should not be selected.
      guarantee: states that there is none.
    """

    selected: jax.Array
    num_selected: jax.Array
    num_tests: jax.Array
    num_validation: jax.Array
    method: str
    null: Null
    guarantee: Guarantee


def threshold(
    validation: Any,
    is_target: Any,
    scores: Any,
    *,
    null: Null,
    rule: Rule = "accuracy",
    alpha: Any = None,
    validation_mask: Any = None,
    mask: Any = None,
) -> ThresholdSelection:
    """Select candidates by one score and a threshold chosen on validation items whose labels are known.

    With null="nonmember" the scores up to the threshold are selected (members), with null="member" those from it on
    (clean items). Of a threshold t, let A(t) and F(t) count the selected validation items that are targets and that are
    not. Thresholds are scores of validation items; one that selects nothing is among them.
      "accuracy": the highest fraction of right decisions, A(t) - F(t).
      "fdr": F(t) <= alpha (A(t) + F(t)), the largest A(t).
      "fpr": F(t) <= alpha·(validation items that are not targets), the largest A(t) + F(t). The paper has validation
        items of one kind only, no targets.
    Of equally good thresholds it takes the one that selects fewest.

    Guarantee: no error rate among the candidates is controlled. The bound of "fdr" holds on the validation items alone,
    which were searched for it.

    Args:
      validation: [v] loss-like scores (lower = more member-like).
      is_target: [v] bool, True where selecting the item is right: members for null="nonmember", clean items for
        "member".
      scores: [m] loss-like scores of the candidates.
      null: which items should not be selected.
      rule: see above.
      alpha: level in (0, 1) for "fdr" and "fpr"; a number is taken as an exact fraction, a JAX array may be traced.
      validation_mask: [v] bool, True = real item.
      mask: [m] bool, True = real item. Items with a NaN score are left out too.

    Raises:
      InputError: wrong shapes, infinite scores, no validation item, unknown options, `alpha` missing, out of range, or
        given for "accuracy".

    Cost: one sort of v numbers.

    >>> threshold([1.0, 2.0, 3.0, 4.0], [True, True, False, False], [0.0, 2.5], null="nonmember").selected.tolist()
    [True, False]

    References: TD4Eval, eq. 1 and appendix 11.3; KTD, section 5.2; Mireshghallah et al. (2022).
    """
    arrays.check_choice(rule, RULES, "rule")
    arrays.check_choice(null, ("nonmember", "member"), "null")
    if (alpha is None) != (rule == "accuracy"):
        needs = f'rule="{rule}" needs alpha' if alpha is None else 'alpha is of no use to rule="accuracy"'
        raise InputError(needs)
    samples = arrays.as_vector(validation, "validation"), arrays.as_vector(scores, "scores")
    for sample, name in zip(samples, ("validation", "scores"), strict=True):
        arrays.check_finite(sample, name)
    is_target = arrays.as_mask(is_target, samples[0], "is_target")
    masks = (arrays.as_mask(validation_mask, samples[0], "validation_mask"), arrays.as_mask(mask, samples[1], "mask"))
    arrays.check_some(samples[0], masks[0], "validation", "items with known labels are needed")
    (own, tested), (own_real, real) = order_preserving(samples, masks)
    level = None if alpha is None else level_operand(alpha)
    return _threshold(own, jnp.asarray(is_target), tested, own_real, real, level, null=null, rule=rule)


def auc(evidence: jax.Array, target: jax.Array) -> jax.Array:
    """[] fraction of the pairs of a target and another item in which the target has more evidence, ties one half.

    `evidence` [m] is large for items that look like targets: -score for members, the score for clean items, -p-value;
    NaN is left out. The AUC is NaN where there are no targets or nothing else.
    """
    real = ~jnp.isnan(evidence)
    other = real & ~target
    beaten = jnp.sort(jnp.where(other, evidence, jnp.inf))
    below, upto = (jnp.searchsorted(beaten, evidence, side=side) for side in ("left", "right"))
    count = jnp.sum(other)
    wins = (jnp.minimum(below, count) + jnp.minimum(upto, count)) / 2
    targets = real & target
    return jnp.sum(jnp.where(targets, wins, 0)) / (jnp.sum(targets) * count)


@functools.partial(jax.jit, static_argnames=("null", "rule"))
def _threshold(own, is_target, tested, own_real, real, level, *, null, rule) -> ThresholdSelection:
    if null == "member":
        turned = jnp.negative if jnp.issubdtype(own.dtype, jnp.floating) else jnp.invert
        own, tested = turned(own), turned(tested)
    if jnp.issubdtype(own.dtype, jnp.floating):
        own_real, real = own_real & ~jnp.isnan(own), real & ~jnp.isnan(tested)
    order = jnp.lexsort((own, ~own_real))
    ranked, kept, wanted = own[order], own_real[order], is_target[order]
    right, false = (jnp.cumsum(kept & side, dtype=jnp.int32) for side in (wanted, ~wanted))
    whole = kept & jnp.append((ranked[1:] != ranked[:-1]) | ~kept[1:], True)  # the last of a group of ties
    if rule == "accuracy":
        gain = right - false
    elif rule == "fdr":
        gain = jnp.where(_at_most(false, right + false, level), right, 0)
    else:
        gain = jnp.where(_at_most(false, false[-1], level), right + false, 0)
    gain = jnp.where(whole, gain, 0)
    best = jnp.argmax(gain)
    selected = real & (tested <= ranked[best]) & (gain[best] > 0)
    return ThresholdSelection(
        selected=selected,
        num_selected=jnp.sum(selected, dtype=jnp.int32),
        num_tests=jnp.sum(real, dtype=jnp.int32),
        num_validation=jnp.sum(own_real, dtype=jnp.int32),
        method=f"threshold/{rule}",
        null=null,
        guarantee=GUARANTEES[rule],
    )


def _at_most(count: jax.Array, total: jax.Array, alpha: Any) -> jax.Array:
    """count <= alpha·total, exactly where the level is exact, else within four machine epsilons."""
    level = lattice.as_level(alpha)
    if lattice.is_exact(level):
        return lattice.product_le((count, level.denominator), (level.numerator, total))
    value = jnp.asarray(level.value)
    bound = value * (1 + 4 * jnp.finfo(value.dtype).eps) * total
    return (value > 0) & (value < 1) & (count <= bound)


class JointMetrics(NamedTuple):
    """Error and power of a joint selection."""

    gcp: jax.Array  # [] fraction of contaminated items among the selected, 0 without a selection
    power: jax.Array  # [] fraction of the jointly pure items that are selected, 0 without any


def selected_by_each(
    calibration: jax.Array, scores: jax.Array, *, alpha: Any, step: Literal["storey", "bh"] = "storey", eta: Any = 0.5
) -> jax.Array:
    """[K, m] bool: BH or Storey-BH for each model alone, null "member": FDR <= alpha for that model, and for it only.

    `calibration` [K, n] are loss-like scores of known members, `scores` [K, m] those of the candidates; `eta` is the
    fraction of the calibration scores in the region of presumed members, for "storey".

    Differs from the paper: JECS's eq. 5 is BH, and its table 1 has what Storey-BH gives (GCR of the intersection .366,
    .614 and .757 at levels .1, .2 and .3; `python -m benchmarks.jecs_synthetic`: .369, .615 and .756 with Storey-BH,
    .115, .226 and .323 with BH). "storey" is therefore the default, and "bh" is offered.

    Raises:
      InputError: unknown `step`.
    """
    arrays.check_choice(step, ("storey", "bh"), "step")
    max_rank = calibration.shape[1] + 1

    def selected(own: jax.Array, tested: jax.Array) -> jax.Array:
        ranked = conformal.rank(own, tested, null="member")
        n = ranked.num_calibration
        if step == "bh":
            return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank).reject
        estimate = proportion.storey(ranked.rank, ranked.valid, n, max_rank=max_rank, eta=eta)
        scale = (estimate.numerator, estimate.denominator)
        return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=max_rank, scale=scale).reject

    return jax.vmap(selected)(calibration, scores)


def composed(selected: jax.Array, how: Literal["union", "intersection"]) -> jax.Array:
    """Compose [K, m] selections to [m]: items selected for at least one model, or for every model.

    Raises:
      ValueError: unknown `how`.
    """
    if how not in COMPOSITIONS:
        raise ValueError(f"how must be one of {COMPOSITIONS}, got {how!r}")
    return jnp.any(selected, axis=0) if how == "union" else jnp.all(selected, axis=0)


def joint_metrics(selected: jax.Array, target: jax.Array) -> JointMetrics:
    """Global contamination proportion and power of a joint selection (JECS, eq. 7-8).

    `selected` and `target` are [m] bool; targets are members of no model.
    """
    false = jnp.sum(selected & ~target)
    true = jnp.sum(selected & target)
    return JointMetrics(false / jnp.maximum(false + true, 1), true / jnp.maximum(jnp.sum(target), 1))
