"""Local false discovery rates with checked input: what `tdd.local_fdr` is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tdd.kernels import local_fdr as kernel
from tdd.kernels.local_fdr import LocalFdr
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "local_fdr"]

GUARANTEES: dict[str, Guarantee] = {
    "margin": Guarantee(
        "P(the least extreme item with local_fdr <= alpha is a null) <= alpha·m0/m, for one alpha fixed beforehand",
        ("the p-values of the nulls are uniform, and independent of each other and of all others",),
        "finite-sample",
        "Soloff, Xiang & Fithian (2024), theorem 1",
    ),
    "estimate": Guarantee(
        "estimates the local false discovery rate at p-values that stay away from 0, in the limit of many items; at "
        "the smallest p-values it is not consistent, and no error rate is controlled",
        (
            "p-values are independent, uniform under the null, with a decreasing density",
            "null_proportion is the share of nulls; the estimate is too large where it is larger",
        ),
        "asymptotic",
        "Grenander (1956); Strimmer (2008)",
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.local_fdr", "null_proportion=1", GUARANTEES["margin"]),
    ("tdd.local_fdr", "null_proportion < 1", GUARANTEES["estimate"]),
]


def local_fdr(p_values: Any, *, null_proportion: Any = 1.0, mask: Any = None) -> LocalFdr:
    """How likely each item is a null, by Grenander's density estimate; see `tdd.kernels.local_fdr.local_fdr`.

    Guarantee, for null_proportion=1: if the p-values of the nulls are uniform and independent, the least extreme of the
    items with local_fdr <= alpha is a null with probability at most alpha·m0/m; finite-sample, for an alpha fixed
    beforehand. Conformal p-values share their calibration items, so that they are not independent: there, and with a
    smaller null_proportion, these are estimates, which are not consistent at the smallest p-values. For FDR control use
    `tdd.ptdi`.

    Args:
      p_values: [m] in [0, 1]; NaN is left out.
      null_proportion: share of nulls in (0, 1]; 1 is conservative.
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
            good = jnp.ndim(null_proportion) == 0 and 0 < float(null_proportion) <= 1
        except (TypeError, ValueError):
            good = False
        if not good or isinstance(null_proportion, bool):
            raise InputError(f"null_proportion must be one number in (0, 1], got {null_proportion!r}")
    dtype = jnp.result_type(float)
    values = jnp.asarray(p_values)
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(dtype)
    return _local_fdr(values, jnp.asarray(null_proportion, dtype), mask)


@jax.jit
def _local_fdr(p_values, null_proportion, mask) -> LocalFdr:
    return kernel.local_fdr(p_values, null_proportion=null_proportion, mask=mask)
