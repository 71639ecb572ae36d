"""Conformal p-values and step-up procedures with checked input: what `tdd.bh` and its neighbours are.

Each call checks its values on the host and then runs one compiled kernel. Inside `jax.jit`, `jax.vmap` or
`jax.lax.scan` the checks of values step aside. NumPy float64 p-values are decided in float64 whatever JAX's default
type; the numbers returned come in that default type.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

import jax
import numpy as np

from tdd.kernels import conformal, stepup
from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.calls import order_preserving
from tdd.procedures.step_up_calls import PROCEDURES, run_step_up
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = [
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "bh",
    "bonferroni",
    "by",
    "conformal_p_values",
    "hochberg",
    "holm",
    "holm_sidak",
    "hommel",
    "rejections",
    "sidak",
    "storey_bh",
    "two_stage_bh",
]

_EXCHANGEABLE = (
    "the null holds for every calibration item",
    "calibration scores and the scores of null test items are exchangeable",
)
_SUPER_UNIFORM = "p-values are super-uniform under the null"
_ANY_DEPENDENCE = "the p-values may depend on one another in any way"
_INDEPENDENT = "p-values are independent; conformal p-values on one calibration sample are not"
_ORTHANT = "p-values of true nulls are independent or positively orthant dependent; conformal p-values are"
_VOVK = "Vovk, Gammerman & Shafer (2005)"

GUARANTEES: dict[str, Guarantee] = {
    "conservative": Guarantee(
        "P(p <= t) <= t for every t", _EXCHANGEABLE, "finite-sample", f"{_VOVK}; Bates et al. (2023), eq. 2"
    ),
    "randomized": Guarantee("P(p <= t) = t for every t", _EXCHANGEABLE, "finite-sample", f"{_VOVK}, smoothed"),
    "shared": Guarantee(
        "P(p <= k/(n+1)) = k/(n+1) for every k",
        _EXCHANGEABLE,
        "finite-sample",
        f"{_VOVK}, on one random order of calibration and test items that refines the scores",
    ),
    "bh": Guarantee(
        "FDR <= alpha * m0/m",
        (_SUPER_UNIFORM, "p-values are independent or PRDS; conformal p-values are"),
        "finite-sample",
        "Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001), theorem 1.2; Bates et al. (2023), theorem 2",
    ),
    "storey_bh": Guarantee(
        "FDR <= alpha",
        (
            _SUPER_UNIFORM,
            "p-values are independent; or they are conservative conformal p-values and lambda = K/(n+1), K an integer",
        ),
        "finite-sample",
        "Storey, Taylor & Siegmund (2004), theorem 3; Bates et al. (2023), theorem 3",
    ),
    "storey_bh/cap": Guarantee(
        "FDR <= alpha in the limit of many tests",
        (_SUPER_UNIFORM, "p-values are weakly dependent", "the tests are many: with few of them FDR exceeds alpha"),
        "asymptotic",
        "Storey, Taylor & Siegmund (2004), theorem 4",
    ),
    "by": Guarantee(
        "FDR <= alpha * m0/m",
        (_SUPER_UNIFORM, _ANY_DEPENDENCE),
        "finite-sample",
        "Benjamini & Yekutieli (2001), theorem 1.3",
    ),
    "holm": Guarantee("FWER <= alpha", (_SUPER_UNIFORM, _ANY_DEPENDENCE), "finite-sample", "Holm (1979)"),
    "hochberg": Guarantee(
        "FWER <= alpha",
        (_SUPER_UNIFORM, "p-values are independent or positively dependent (MTP2), so that Simes' inequality holds"),
        "finite-sample",
        "Hochberg (1988); Sarkar (1998)",
    ),
    "hommel": Guarantee(
        "FWER <= alpha",
        (_SUPER_UNIFORM, "p-values are independent or PRDS, so that Simes' inequality holds; conformal p-values are"),
        "finite-sample",
        "Hommel (1988); Meijer, Krebs & Goeman (2019)",
    ),
    "bonferroni": Guarantee(
        "FWER <= alpha * m0/m", (_SUPER_UNIFORM, _ANY_DEPENDENCE), "finite-sample", "Bonferroni's inequality"
    ),
    "sidak": Guarantee(
        "FWER <= 1 - (1 - alpha)^(m0/m)", (_SUPER_UNIFORM, _ORTHANT), "finite-sample", "Šidák (1967), theorem 1"
    ),
    "holm_sidak": Guarantee(
        "FWER <= alpha",
        (_SUPER_UNIFORM, _ORTHANT),
        "finite-sample",
        "Holm (1979), section 4; Holland & Copenhaver (1987)",
    ),
    "two_stage_bh": Guarantee(
        "FDR <= alpha",
        (_SUPER_UNIFORM, _INDEPENDENT),
        "finite-sample",
        "Benjamini, Krieger & Yekutieli (2006), theorem 1",
    ),
    "two_stage_bh/bh": Guarantee(
        "FDR <= alpha / (1 - alpha)",
        (_SUPER_UNIFORM, _INDEPENDENT),
        "finite-sample",
        "Benjamini, Krieger & Yekutieli (2006), theorem 1, at alpha / (1 - alpha)",
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(
        ("tdd.conformal_p_values", f'tie_break="{name}"', GUARANTEES[name])
        for name in ("conservative", "randomized", "shared")
    ),
    ("tdd.bh", "", GUARANTEES["bh"]),
    ("tdd.storey_bh", "cap=False", GUARANTEES["storey_bh"]),
    ("tdd.storey_bh", "cap=True", GUARANTEES["storey_bh/cap"]),
    *((f"tdd.{name}", "", GUARANTEES[name]) for name in ("by", "holm", "hochberg", "hommel", "bonferroni")),
    *((f"tdd.{name}", "", GUARANTEES[name]) for name in ("sidak", "holm_sidak")),
    ("tdd.two_stage_bh", 'variant="bky"', GUARANTEES["two_stage_bh"]),
    ("tdd.two_stage_bh", 'variant="bh"', GUARANTEES["two_stage_bh/bh"]),
    (
        "tdd.rejections",
        "",
        Guarantee(
            "what the named procedure controls, in each family by itself",
            ("what the named procedure assumes, of each family",),
            "finite-sample",
            "the row of that procedure",
        ),
    ),
]


def conformal_p_values(
    calibration: Any,
    scores: Any,
    *,
    null: Literal["nonmember", "member"],
    tie_break: Literal["conservative", "randomized", "shared"] = "conservative",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values p_j = (1 + #{i: T_i at least as member-like as T_j}) / (n + 1), or the reverse.

    Guarantee: P(p_j <= t) <= t for every t under the null, if calibration scores and null test scores are exchangeable;
    finite-sample. With "randomized" and "shared" P(p_j <= t) = t on the whole resolution of the p-value.

    Args:
      calibration: [n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [m] loss-like scores to test.
      null: "nonmember": calibrated on known non-members, small scores are evidence of membership. "member":
        calibrated on known members, large scores are evidence of being clean.
      tie_break: "conservative" counts ties against the item; "randomized" smooths each p-value by its own uniform;
        "shared" breaks all ties by one random order of calibration and test together.
      key: PRNG key for the last two.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN where the score is NaN or masked out.

    Raises:
      InputError: bad shapes, an infinite score, no calibration items, unknown options, a key that is missing or none.

    Cost: O((n + m) log n).

    >>> conformal_p_values([1.0, 2.0, 3.0], [0.5, 2.0, 9.0], null="nonmember").tolist()
    [0.25, 0.75, 1.0]

    References: Vovk, Gammerman & Shafer (2005); PTDI, eq. 7; TD4Eval, eq. 5 (with the inequality and the + 1 mended).
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    arrays.check_choice(tie_break, ("conservative", "randomized", "shared"), "tie_break")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    if tie_break == "conservative":
        key = None  # draws nothing
    else:
        arrays.check_key(key, f'tie_break="{tie_break}"')
    (calibration, scores), (calibration_mask, mask) = order_preserving((calibration, scores), (calibration_mask, mask))
    return _conformal(calibration, scores, calibration_mask, mask, key, null=null, tie_break=tie_break)


@functools.partial(jax.jit, static_argnames=("null", "tie_break"))
def _conformal(calibration, scores, calibration_mask, mask, key, *, null, tie_break):
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    if tie_break == "randomized":
        return conformal.randomized_p_values(calibration, scores, null=null, key=key, **masks)
    ranked = conformal.rank(calibration, scores, null=null, tie_break=tie_break, key=key, **masks)
    return conformal.p_values(ranked)


def bh(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Benjamini-Hochberg on checked p-values; see `tdd.kernels.stepup.bh`.

    Guarantee: FDR <= alpha·m0/m for super-uniform null p-values that are independent or PRDS (conformal p-values are);
    finite-sample.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] bool, True = real item; or [..., m], a row for each family.

    Returns:
      `StepUp(reject, adjusted, threshold, num_rejected, num_tests, null_proportion)`, with the leading axes of
      `p_values`.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> bh([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, True, False]

    Where the decisions are all that is wanted, `tdd.rejections` is far faster on many families.

    References: Benjamini & Hochberg (1995).
    """
    return run_step_up("bh", p_values, alpha, mask)


def storey_bh(p_values: Any, alpha: Any, *, lambda_: float = 0.5, cap: bool = False, mask: Any = None) -> StepUp:
    """BH at alpha/pi0 with Storey's estimate; see `tdd.kernels.stepup.storey_bh`.

    Guarantee: FDR <= alpha for independent p-values, and for conservative conformal p-values with lambda_ = K/(n+1) for
    an integer K (the default 1/2 is one for odd n); finite-sample with `cap=False`, asymptotic with `cap=True`.

    Args:
      p_values: [m] in [0, 1]; NaN is left out. Or [..., m], rows of families.
      alpha: level in (0, 1).
      lambda_: in [0, 1).
      cap: whether to cut pi0 at 1.
      mask: [m] or [..., m] bool.

    Returns:
      `StepUp`, `null_proportion` the estimate pi0 (which exceeds 1 where few p-values are small).

    Raises:
      InputError: as `bh`, and lambda_ outside [0, 1).

    References: Storey, Taylor & Siegmund (2004); Bates et al. (2023).
    """
    return run_step_up("storey_bh", p_values, alpha, mask, **_storey_options(lambda_, cap))


def by(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Benjamini-Yekutieli: BH at level alpha / (1 + 1/2 + ... + 1/m).

    Guarantee: FDR <= alpha·m0/m for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are those of BH times the harmonic number of m, at most 1.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> by([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [False, False, False, False]

    References: Benjamini & Yekutieli (2001), theorem 1.3.
    """
    return run_step_up("by", p_values, alpha, mask)


def holm(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Holm's step-down procedure: reject in increasing order of p while p_(i) <= alpha / (m - i + 1).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted[j] <= alpha` where hypothesis j is rejected at level alpha.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> holm([0.01, 0.015, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, False, False]

    References: Holm (1979).
    """
    return run_step_up("holm", p_values, alpha, mask)


def hochberg(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Hochberg's step-up procedure: reject the k smallest p-values, k the largest i with p_(i) <= alpha / (m - i + 1).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent, or dependent in a
    way (MTP2) under which Simes' inequality holds; finite-sample. Rejects whatever `holm` does.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted[j] <= alpha` where hypothesis j is rejected at level alpha.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> hochberg([0.03, 0.04, 0.02, 0.045], 0.05).reject.tolist()
    [True, True, True, True]

    References: Hochberg (1988); Sarkar (1998).
    """
    return run_step_up("hochberg", p_values, alpha, mask)


def hommel(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Hommel's procedure: closed testing with Simes' test of every intersection.

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent or PRDS (conformal
    p-values are); finite-sample. Rejects whatever `hochberg` and `holm` do.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted[j] <= alpha` where hypothesis j is rejected at level alpha.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> hommel([0.01, 0.02, 0.03, 0.04], 0.05).reject.tolist()
    [True, True, True, True]

    References: Hommel (1988); Meijer, Krebs & Goeman (2019).
    """
    return run_step_up("hommel", p_values, alpha, mask)


def bonferroni(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Bonferroni: reject where p <= alpha / m.

    Guarantee: family-wise error rate <= alpha·m0/m for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are m·p, at most 1.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> bonferroni([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, False, False, False]

    References: Bonferroni's inequality.
    """
    return run_step_up("bonferroni", p_values, alpha, mask)


def sidak(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Šidák: reject where p <= 1 - (1 - alpha)^(1/m).

    Guarantee: family-wise error rate <= 1 - (1 - alpha)^(m0/m) for super-uniform null p-values that are independent or
    positively orthant dependent (conformal p-values are); finite-sample. Rejects whatever `bonferroni` does.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are 1 - (1 - p)^m.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> sidak([0.0127, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, False, False, False]

    References: Šidák (1967), theorem 1.
    """
    return run_step_up("sidak", p_values, alpha, mask)


def holm_sidak(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Šidák's step-down procedure: reject in increasing order of p while p_(i) <= 1 - (1 - alpha)^(1/(m - i + 1)).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent or positively
    orthant dependent (conformal p-values are); finite-sample. Rejects whatever `sidak` and `holm` do.

    Args:
      p_values: [m] in [0, 1]; NaN is left out of m. Or [..., m], each row along the last axis a family of its own.
      alpha: level in (0, 1); may be traced.
      mask: [m] or [..., m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted[j] <= alpha` where hypothesis j is rejected at level alpha.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> holm_sidak([0.0127, 0.0169, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, False, False]

    References: Holm (1979), section 4; Holland & Copenhaver (1987).
    """
    return run_step_up("holm_sidak", p_values, alpha, mask)


def two_stage_bh(p_values: Any, alpha: Any, *, variant: Literal["bky", "bh"] = "bky", mask: Any = None) -> StepUp:
    """BH whose first stage estimates the number of nulls for a second; see `tdd.kernels.stepup.two_stage_bh`.

    Guarantee: for independent p-values FDR <= alpha with "bky" and <= alpha/(1 - alpha) with "bh"; finite-sample. For
    conformal p-values on one calibration sample `storey_bh` is proven, this is not.

    Args:
      p_values: [m] in [0, 1]; NaN is left out. Or [..., m], rows of families.
      alpha: level in (0, 1).
      variant: "bky" runs both stages at alpha/(1 + alpha), "bh" at alpha.
      mask: [m] bool, True = real item.

    Returns:
      `StepUp`, `null_proportion` the first stage's estimate; the adjusted values hold for this alpha alone.

    Raises:
      InputError: as `bh`, and an unknown variant.

    >>> two_stage_bh([0.005, 0.01, 0.02, 0.5, 0.09], 0.05).reject.tolist()
    [True, True, True, False, True]

    References: Benjamini, Krieger & Yekutieli (2006), definition 6.
    """
    return run_step_up("two_stage_bh", p_values, alpha, mask, **_stage_options(variant))


def rejections(p_values: Any, alpha: Any, *, procedure: str = "bh", mask: Any = None, **options: Any) -> jax.Array:
    """What a procedure rejects, and nothing else: many families of p-values at once, in a small share of the time.

    The adjusted p-values of `tdd.bh` and its neighbours need an order of the items; decisions mostly do not. NumPy
    float64 p-values are decided in float64.

    Guarantee: that of the procedure, for each family.

    Args:
      p_values: [..., m] in [0, 1], each row along the last axis a family of its own; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      procedure: "bh", "storey_bh", "two_stage_bh", "by", "bonferroni", "holm", "hochberg", "hommel", "sidak" or
        "holm_sidak".
      mask: [..., m] bool, True = real item, or [m] for every family.
      **options: those of the procedure: `lambda_` and `cap` of "storey_bh", `variant` of "two_stage_bh".

    Returns:
      [..., m] bool: `tdd.bh(p_values, alpha).reject`, or that of the procedure named.

    Raises:
      InputError: as the procedure; an unknown procedure, or an option that it does not have.

    >>> rejections([[0.01, 0.02, 0.03, 0.5], [0.2, 0.01, 0.4, 0.9]], 0.05).sum(axis=-1).tolist()
    [3, 1]

    Cost: a few passes over the p-values; "hommel" sorts.
    """
    arrays.check_choice(procedure, tuple(PROCEDURES), "procedure")
    check = {"storey_bh": _storey_options, "two_stage_bh": _stage_options}.get(procedure, dict)
    names = tuple(inspect.signature(check).parameters) if check is not dict else ()
    unknown = [name for name in options if name not in names]
    if unknown:
        raise InputError(f"{procedure} has no option {unknown[0]!r}; its options: {', '.join(names) or 'none'}")
    return run_step_up(procedure, p_values, alpha, mask, only_reject=True, **check(**options))


def _storey_options(lambda_: float = 0.5, cap: bool = False) -> dict[str, Any]:
    if not isinstance(lambda_, (int, float, np.number)) or isinstance(lambda_, bool) or not 0 <= lambda_ < 1:
        raise InputError(f"lambda_ must be one number in [0, 1), got {lambda_!r}")
    return {"static": (("cap", bool(cap)),), "operands": {"lambda_": float(lambda_)}}


def _stage_options(variant: str = "bky") -> dict[str, Any]:
    arrays.check_choice(variant, stepup.VARIANTS, "variant")
    return {"static": (("variant", variant),)}


def checked_scores(calibration: Any, scores: Any, calibration_mask: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Calibration and test scores as vectors with their masks, checked; shared by every call that ranks."""
    calibration, scores = arrays.as_vector(calibration, "calibration"), arrays.as_vector(scores, "scores")
    calibration_mask = arrays.as_mask(calibration_mask, calibration, "calibration_mask")
    mask = arrays.as_mask(mask, scores, "mask")
    arrays.check_finite(calibration, "calibration")
    arrays.check_finite(scores, "scores")
    why = "at least one item for which the null holds is needed"
    arrays.check_some(calibration, calibration_mask, "calibration", why)
    return calibration, scores, calibration_mask, mask
