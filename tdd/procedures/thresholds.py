"""Thresholds of a score that labelled validation items choose: the papers' baselines, which control no error rate."""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.procedures.calls import level_operand, operand, order_preserving
from tdd.records import Guarantee, Null, pytree
from tdd.validate import InputError, arrays

Rule = Literal["accuracy", "fdr", "fpr"]

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
        raise InputError(f'rule="{rule}" needs alpha' if alpha is None else 'alpha is of no use to rule="accuracy"')
    samples = arrays.as_vector(validation, "validation"), arrays.as_vector(scores, "scores")
    for sample, name in zip(samples, ("validation", "scores"), strict=True):
        arrays.check_finite(sample, name)
    is_target = arrays.as_mask(is_target, samples[0], "is_target")
    masks = (arrays.as_mask(validation_mask, samples[0], "validation_mask"), arrays.as_mask(mask, samples[1], "mask"))
    arrays.check_some(samples[0], masks[0], "validation", "items with known labels are needed")
    (own, tested), (own_real, real) = order_preserving(samples, masks)
    level = None if alpha is None else level_operand(alpha)
    return _threshold(own, operand(is_target), tested, own_real, real, level, null=null, rule=rule)


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
