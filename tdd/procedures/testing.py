"""Step-up and step-down procedures and local false discovery rates on checked p-values.

NumPy float64 p-values are decided in float64 whatever JAX's default type, which results have. All procedures raise
`InputError` for p outside [0, 1], alpha outside (0, 1) and wrong shapes; under a transformation of JAX values are not
checked.
"""

from __future__ import annotations

import inspect
import numbers
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tdd.kernels import local_fdr as local_fdr_kernel
from tdd.kernels import stepup
from tdd.kernels.local_fdr import LocalFdr
from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.calls import as_floating, operand
from tdd.procedures.step_up_calls import PROCEDURES, run_step_up
from tdd.records import Guarantee
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_SUPER_UNIFORM = "p-values are super-uniform under the null"
_ANY_DEPENDENCE = (_SUPER_UNIFORM, "the p-values may depend on one another in any way")
_SIMES = "so that Simes' inequality holds"
_INDEPENDENT = (_SUPER_UNIFORM, "p-values are independent; conformal p-values on one calibration sample are not")
_ORTHANT = (
    _SUPER_UNIFORM,
    "p-values of true nulls are independent or positively orthant dependent; conformal p-values are",
)
_BKY = "Benjamini, Krieger & Yekutieli (2006), theorem 1"

GUARANTEES: dict[str, Guarantee] = {
    "bh": Guarantee.finite_sample(
        "FDR <= alpha * m0/m",
        (_SUPER_UNIFORM, "p-values are independent or PRDS; conformal p-values are"),
        "Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001), theorem 1.2; Bates et al. (2023), theorem 2",
    ),
    "storey_bh": Guarantee.finite_sample(
        "FDR <= alpha",
        (
            _SUPER_UNIFORM,
            "p-values are independent; or they are conservative conformal p-values and lambda = K/(n+1), K an integer",
        ),
        "Storey, Taylor & Siegmund (2004), theorem 3; Bates et al. (2023), theorem 3",
    ),
    "storey_bh/cap": Guarantee(
        "FDR <= alpha in the limit of many tests",
        (_SUPER_UNIFORM, "p-values are weakly dependent", "there are many tests: with few, the FDR exceeds alpha"),
        "asymptotic",
        "Storey, Taylor & Siegmund (2004), theorem 4",
    ),
    "by": Guarantee.finite_sample("FDR <= alpha * m0/m", _ANY_DEPENDENCE, "Benjamini & Yekutieli (2001), theorem 1.3"),
    "holm": Guarantee.finite_sample("FWER <= alpha", _ANY_DEPENDENCE, "Holm (1979)"),
    "hochberg": Guarantee.finite_sample(
        "FWER <= alpha",
        (_SUPER_UNIFORM, f"p-values are independent or positively dependent (MTP2), {_SIMES}"),
        "Hochberg (1988); Sarkar (1998)",
    ),
    "hommel": Guarantee.finite_sample(
        "FWER <= alpha",
        (_SUPER_UNIFORM, f"p-values are independent or PRDS, {_SIMES}; conformal p-values are"),
        "Hommel (1988); Meijer, Krebs & Goeman (2019)",
    ),
    "bonferroni": Guarantee.finite_sample("FWER <= alpha * m0/m", _ANY_DEPENDENCE, "Bonferroni's inequality"),
    "sidak": Guarantee.finite_sample("FWER <= 1 - (1 - alpha)^(m0/m)", _ORTHANT, "Šidák (1967), theorem 1"),
    "holm_sidak": Guarantee.finite_sample(
        "FWER <= alpha", _ORTHANT, "Holm (1979), section 4; Holland & Copenhaver (1987)"
    ),
    "two_stage_bh": Guarantee.finite_sample("FDR <= alpha", _INDEPENDENT, _BKY),
    "two_stage_bh/bh": Guarantee.finite_sample(
        "FDR <= alpha / (1 - alpha)", _INDEPENDENT, f"{_BKY}, at alpha / (1 - alpha)"
    ),
    "rejections": Guarantee.finite_sample(
        "the error rate of the named procedure, in each family separately",
        ("the assumptions of the named procedure, for each family",),
        "the row of that procedure",
    ),
    "local_fdr": Guarantee.finite_sample(
        "P(the least extreme item with local_fdr <= alpha is a null) <= alpha·m0/m, for one alpha fixed beforehand",
        ("the p-values of the nulls are uniform, and independent of each other and of all others",),
        "Soloff, Xiang & Fithian (2024), theorem 1",
    ),
    "local_fdr/estimate": Guarantee(
        "estimates the local false discovery rate at p-values that stay away from 0, in the limit of many items; at "
        "the smallest p-values it is not consistent, and no error rate is controlled",
        (
            "p-values are independent, uniform under the null, with a decreasing density",
            "null_proportion is the proportion of nulls; a larger value makes the estimate too large",
        ),
        "asymptotic",
        "Grenander (1956); Strimmer (2008)",
    ),
}

_OPTIONS = {
    "storey_bh": "cap=False",
    "storey_bh/cap": "cap=True",
    "two_stage_bh": 'variant="bky"',
    "two_stage_bh/bh": 'variant="bh"',
    "local_fdr": "null_proportion=1",
    "local_fdr/estimate": "null_proportion < 1",
}
GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    (f"tdd.{name.split('/')[0]}", _OPTIONS.get(name, ""), guarantee) for name, guarantee in GUARANTEES.items()
]


@in_own_settings()
def bh(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Benjamini-Hochberg (1995): reject the k smallest p-values, k the largest i with p_(i) <= i·alpha/m.

    Guarantee: FDR <= alpha·m0/m for super-uniform null p-values that are independent or PRDS (conformal p-values are);
    finite-sample.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp(reject, adjusted, threshold, num_rejected, num_tests, null_proportion)`, with the leading axes of
      `p_values`. `tdd.rejections` gives the decisions alone, without the sort of `adjusted`.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), wrong shapes.

    >>> bh([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, True, False]
    """
    return run_step_up("bh", p_values, alpha, mask)


@in_own_settings()
def storey_bh(p_values: Any, alpha: Any, *, lambda_: float = 0.5, cap: bool = False, mask: Any = None) -> StepUp:
    """BH at alpha/pi0 with Storey's estimate (2004); see `tdd.kernels.stepup.storey_bh`.

    Guarantee: FDR <= alpha for independent p-values, and for conservative conformal p-values (Bates et al. 2023) with
    lambda_ = K/(n+1) for an integer K (for odd n the default 1/2 is one); finite-sample with `cap=False`, asymptotic
    with `cap=True`.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1).
      lambda_: in [0, 1).
      cap: whether to cap pi0 at 1.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp`; `null_proportion` is the estimate pi0, which exceeds 1 if few p-values are small.
    """
    return run_step_up("storey_bh", p_values, alpha, mask, **_storey_options(lambda_, cap))


@in_own_settings()
def by(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Benjamini-Yekutieli (2001, theorem 1.3): BH at level alpha / (1 + 1/2 + ... + 1/m).

    Guarantee: FDR <= alpha·m0/m for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are those of BH times the harmonic number of m, at most 1.

    >>> by([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [False, False, False, False]
    """
    return run_step_up("by", p_values, alpha, mask)


@in_own_settings()
def holm(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Holm's step-down procedure (1979): reject in increasing order of p while p_(i) <= alpha / (m - i + 1).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    >>> holm([0.01, 0.015, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, False, False]
    """
    return run_step_up("holm", p_values, alpha, mask)


@in_own_settings()
def hochberg(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Hochberg's step-up procedure (1988): reject the k smallest p-values, k the largest i with p_(i) <= alpha / (m - i
    + 1).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent, or positively
    dependent (MTP2), so that Simes' inequality holds (Sarkar 1998); finite-sample. Rejects whatever `holm` does.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    >>> hochberg([0.03, 0.04, 0.02, 0.045], 0.05).reject.tolist()
    [True, True, True, True]
    """
    return run_step_up("hochberg", p_values, alpha, mask)


@in_own_settings()
def hommel(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Hommel's procedure (1988): closed testing with Simes' test of every intersection.

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent or PRDS (conformal
    p-values are); finite-sample. Rejects whatever `hochberg` and `holm` do.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    >>> hommel([0.01, 0.02, 0.03, 0.04], 0.05).reject.tolist()
    [True, True, True, True]
    """
    return run_step_up("hommel", p_values, alpha, mask)


@in_own_settings()
def bonferroni(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Bonferroni: reject where p <= alpha / m.

    Guarantee: family-wise error rate <= alpha·m0/m for super-uniform null p-values under any dependence; finite-sample.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are m·p, at most 1.

    >>> bonferroni([0.01, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, False, False, False]
    """
    return run_step_up("bonferroni", p_values, alpha, mask)


@in_own_settings()
def sidak(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Šidák (1967): reject where p <= 1 - (1 - alpha)^(1/m).

    Guarantee: family-wise error rate <= 1 - (1 - alpha)^(m0/m) for super-uniform null p-values that are independent or
    positively orthant dependent (conformal p-values are); finite-sample. Rejects whatever `bonferroni` does.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp`; `adjusted` are 1 - (1 - p)^m.

    >>> sidak([0.0127, 0.02, 0.03, 0.5], 0.05).reject.tolist()
    [True, False, False, False]
    """
    return run_step_up("sidak", p_values, alpha, mask)


@in_own_settings()
def holm_sidak(p_values: Any, alpha: Any, *, mask: Any = None) -> StepUp:
    """Šidák's step-down procedure: reject in increasing order of p while p_(i) <= 1 - (1 - alpha)^(1/(m - i + 1)).

    Guarantee: family-wise error rate <= alpha for super-uniform null p-values that are independent or positively
    orthant dependent (conformal p-values are); finite-sample (Holland & Copenhaver 1987). Rejects whatever `sidak` and
    `holm` do.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      mask: [..., m] or [m] bool, True = real item.

    >>> holm_sidak([0.0127, 0.0169, 0.03, 0.5], 0.05).reject.tolist()
    [True, True, False, False]
    """
    return run_step_up("holm_sidak", p_values, alpha, mask)


@in_own_settings()
def two_stage_bh(p_values: Any, alpha: Any, *, variant: Literal["bky", "bh"] = "bky", mask: Any = None) -> StepUp:
    """BH in two stages, the first of which estimates the number of nulls (Benjamini, Krieger & Yekutieli 2006,
    definition 6).

    Guarantee: for independent p-values FDR <= alpha with "bky" and <= alpha/(1 - alpha) with "bh"; finite-sample. It is
    not proven for conformal p-values on one calibration sample; `storey_bh` is.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1).
      variant: "bky" runs both stages at alpha/(1 + alpha), "bh" at alpha.
      mask: [..., m] or [m] bool, True = real item.

    Returns:
      `StepUp`; `null_proportion` is the first stage's estimate, and `adjusted` holds for this alpha only.

    >>> two_stage_bh([0.005, 0.01, 0.02, 0.5, 0.09], 0.05).reject.tolist()
    [True, True, True, False, True]
    """
    return run_step_up("two_stage_bh", p_values, alpha, mask, **_stage_options(variant))


@in_own_settings()
def rejections(p_values: Any, alpha: Any, *, procedure: str = "bh", mask: Any = None, **options: Any) -> jax.Array:
    """Decide many families of p-values at once, without the sort of adjusted p-values ("hommel" sorts).

    Guarantee: that of the procedure, for each family.

    Args:
      p_values: [..., m] in [0, 1], each row a family of hypotheses; NaN is left out of m.
      alpha: level in (0, 1); may be traced.
      procedure: "bh", "storey_bh", "two_stage_bh", "by", "bonferroni", "holm", "hochberg", "hommel", "sidak" or
        "holm_sidak".
      mask: [..., m] or [m] bool, True = real item.
      **options: `lambda_` and `cap` of "storey_bh", `variant` of "two_stage_bh".

    Returns:
      [..., m] bool, for example `tdd.bh(p_values, alpha).reject`.

    Raises:
      InputError: as the procedure, and an unknown procedure or option.

    >>> rejections([[0.01, 0.02, 0.03, 0.5], [0.2, 0.01, 0.4, 0.9]], 0.05).sum(axis=-1).tolist()
    [3, 1]
    """
    arrays.check_choice(procedure, tuple(PROCEDURES), "procedure")
    check = {"storey_bh": _storey_options, "two_stage_bh": _stage_options}.get(procedure, dict)
    names = tuple(inspect.signature(check).parameters) if check is not dict else ()
    unknown = [name for name in options if name not in names]
    if unknown:
        raise InputError(f"{procedure} has no option {unknown[0]!r}; its options: {', '.join(names) or 'none'}")
    return run_step_up(procedure, p_values, alpha, mask, only_reject=True, **check(**options))


def _storey_options(lambda_: float = 0.5, cap: bool = False) -> dict[str, Any]:
    if not isinstance(lambda_, numbers.Real) or isinstance(lambda_, bool) or not 0 <= lambda_ < 1:
        raise InputError(f"lambda_ must be one number in [0, 1), got {lambda_!r}")
    return {"static": (("cap", bool(cap)),), "operands": {"lambda_": float(lambda_)}}


def _stage_options(variant: str = "bky") -> dict[str, Any]:
    arrays.check_choice(variant, stepup.VARIANTS, "variant")
    return {"static": (("variant", variant),)}


@in_own_settings()
def local_fdr(p_values: Any, *, null_proportion: Any = 1.0, mask: Any = None) -> LocalFdr:
    """Estimate the probability that each item is a null, by Grenander's density; see `tdd.kernels.local_fdr.local_fdr`.

    Guarantee, for null_proportion=1: if the p-values of the nulls are uniform and independent, the least extreme of the
    items with local_fdr <= alpha is a null with probability at most alpha·m0/m; finite-sample, for an alpha fixed
    beforehand. Conformal p-values share their calibration items and are not independent: for them, and for a smaller
    null_proportion, these are estimates, which are not consistent at the smallest p-values. For FDR control use
    `tdd.ptdi`.

    Args:
      p_values: [m] in [0, 1]; NaN is left out.
      null_proportion: proportion of nulls in (0, 1]; 1 is conservative.
      mask: [m] bool, True = real item.

    Returns:
      `LocalFdr(local_fdr, tail_fdr, density, num_tests)`.

    Raises:
      InputError: p outside [0, 1], null_proportion outside (0, 1], wrong shapes.

    >>> local_fdr([0.01, 0.02, 0.9, 1.0]).local_fdr.round(2).tolist()
    [0.03999999910593033, 0.03999999910593033, 1.0, 1.0]
    """
    p_values = arrays.as_vector(p_values, "p_values")
    mask = arrays.as_mask(mask, p_values, "mask")
    arrays.check_p_values(p_values)
    if not isinstance(null_proportion, Tracer):
        try:
            valid = jnp.ndim(null_proportion) == 0 and 0 < float(null_proportion) <= 1
        except (TypeError, ValueError, ArithmeticError):
            valid = False
        if not valid or isinstance(null_proportion, (bool, str, bytes)):
            raise InputError(f"null_proportion must be one number in (0, 1], got {null_proportion!r}")
    proportion = operand(null_proportion, jnp.result_type(float))
    return _local_fdr(as_floating(p_values), null_proportion=proportion, mask=mask)


_local_fdr = jax.jit(local_fdr_kernel.local_fdr)
