"""Combination of several p-values of one hypothesis, on checked input: `tdd.combine_p_values`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
from jax.core import Tracer

from tdd.kernels import combine, merge
from tdd.kernels.combine import Combined
from tdd.procedures.calls import in_own_precision
from tdd.records import Guarantee
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

Method = Literal[
    "cauchy",
    "truncated_cauchy",
    "bonferroni",
    "hommel",
    "twice_mean",
    "geometric",
    "harmonic",
    "ruger",
    "maximum",
    "simes",
    "fisher",
    "stouffer",
    "pearson",
    "tippett",
]

_SIZE = "P(p <= t) <= t for every t"
_LIMIT = "P(p <= t)/t -> 1 as t -> 0; above t at usual levels"
_EACH = ("each p-value is super-uniform under the null",)
_INDEPENDENT = ("the p-values are independent and super-uniform under the null",)
_TAIL = (
    "the p-values are uniform under the null, with a copula whose pairs are normal or similarly tail-independent",
    "the weights were fixed before the p-values were seen",
)
_MEAN = "Vovk & Wang (2020)"

GUARANTEES: dict[str, Guarantee] = {
    "cauchy": Guarantee(_LIMIT, _TAIL, "asymptotic", "Liu & Xie (2020)"),
    "truncated_cauchy": Guarantee(_LIMIT, _TAIL, "asymptotic", "Fang et al. (2023)"),
    "bonferroni": Guarantee.finite_sample(_SIZE, _EACH, "Bonferroni's inequality"),
    "hommel": Guarantee.finite_sample(_SIZE, _EACH, "Hommel (1983)"),
    "twice_mean": Guarantee.finite_sample(_SIZE, _EACH, f"Rueschendorf (1982); {_MEAN}"),
    "geometric": Guarantee.finite_sample(_SIZE, _EACH, _MEAN),
    "harmonic": Guarantee.finite_sample(_SIZE, _EACH, f"{_MEAN}, with the exact constant"),
    "ruger": Guarantee.finite_sample(_SIZE, _EACH, "Rueger (1978)"),
    "maximum": Guarantee.finite_sample(_SIZE, ("one of the p-values is super-uniform under the null",), "-"),
    "simes": Guarantee.finite_sample(
        _SIZE, ("the p-values are independent or positively dependent (PRDS)",), "Simes (1986)"
    ),
    "fisher": Guarantee.finite_sample(_SIZE, _INDEPENDENT, "Fisher (1925)"),
    "stouffer": Guarantee.finite_sample(_SIZE, _INDEPENDENT, "Stouffer et al. (1949)"),
    "pearson": Guarantee.finite_sample(_SIZE, _INDEPENDENT, "Pearson (1933)"),
    "tippett": Guarantee.finite_sample(_SIZE, _INDEPENDENT, "Tippett (1931)"),
}
METHODS = tuple(GUARANTEES)

GUARANTEE_ROWS = [("tdd.combine_p_values", f'method="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]

_WEIGHTED = ("cauchy", "truncated_cauchy", "stouffer")


@in_own_settings()
def combine_p_values(p_values: Any, *, method: Method, weights: Any = None, axis: int = -1) -> Combined:
    """Combine K p-values of the same null hypothesis into one; see `tdd.kernels.combine` and `merge`.

    Guarantee: P(p <= t) <= t for every t, by `method`:
      "bonferroni", "hommel", "twice_mean", "geometric", "harmonic", "ruger" (twice the median), "maximum": under any
        dependence, finite-sample (Vovk & Wang 2020).
      "simes": for independent or positively dependent p-values, finite-sample.
      "fisher", "stouffer", "pearson", "tippett": for independent p-values, finite-sample.
      "cauchy", "truncated_cauchy" (p-values below 1/2): only in the limit t -> 0, for fixed weights (Liu & Xie 2020).

    Args:
      p_values: [..., K, ...] in [0, 1]; a NaN in a group makes its result NaN.
      method: one of the names above; there is no default, because their assumptions differ.
      weights: [K] or the shape of `p_values`, not negative, for "cauchy", "truncated_cauchy" and "stouffer"; a p-value
        of weight 0 is ignored.
      axis: the axis of K.

    Returns:
      `Combined(p_value, statistic)`, [...] each; the statistic is the p-value for methods that have none. NumPy float64
      (or a list) is computed and returned as NumPy float64 whatever JAX's default type, so that p-values of 1e-300
      survive; JAX arrays keep their type. Cost: O(K) a group ("hommel", "simes": O(K^2) up to K = 16).

    Raises:
      InputError: p outside [0, 1], negative or all-zero weights, weights for a method without them, wrong shapes.

    >>> round(float(combine_p_values([0.01, 0.02, 0.5], method="hommel").p_value), 6)
    0.055
    """
    arrays.check_choice(method, METHODS, "method")
    p = _numbers(p_values, "p_values")
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool) or not -p.ndim <= axis < p.ndim:
        raise InputError(f"axis must be a whole number that names one of the {p.ndim} axes of p_values, got {axis!r}")
    size = p.shape[axis]
    if size == 0:
        raise InputError(f"p_values has shape {p.shape}: there is no p-value along axis {axis}")
    arrays.check_p_values(p)
    w = None
    if weights is not None:
        if method not in _WEIGHTED:
            raise InputError(f"weights are used by {', '.join(_WEIGHTED)} only, not by method={method!r}")
        w = _numbers(weights, "weights")
        if w.shape not in ((size,), p.shape):
            raise InputError(
                f"weights has shape {w.shape}; it must be ({size},), one weight a p-value, or that of p_values, "
                f"{p.shape}"
            )
        arrays.check_weights(w if w.ndim == 1 or isinstance(w, Tracer) else np.moveaxis(np.asarray(w), axis, -1))
    if isinstance(p, np.ndarray) and w is not None and not isinstance(w, Tracer):
        w = np.asarray(w).astype(p.dtype)
    return in_own_precision(lambda samples: _compiled(method, int(axis))(*samples), (p, w))


@functools.cache
def _compiled(method: str, axis: int) -> Callable[..., Combined]:
    """Compile the kernel of a method, a function of p-values and weights."""

    def run(p: jax.Array, w: jax.Array | None) -> Combined:
        if method == "cauchy":
            return Combined(combine.cauchy(p, weights=w, axis=axis), combine.cauchy_statistic(p, weights=w, axis=axis))
        if method == "truncated_cauchy":
            return combine.truncated_cauchy(p, weights=w, axis=axis)
        if method == "stouffer":
            return combine.stouffer(p, weights=w, axis=axis)
        if hasattr(combine, method):
            return getattr(combine, method)(p, axis=axis)
        merged = getattr(merge, method)(p, axis=axis)
        return Combined(merged, merged)

    return jax.jit(run)


def _numbers(values: Any, name: str) -> Any:
    """Check an array of numbers; on the host integers become float64."""
    array = arrays.as_rows(values, name)
    integers = isinstance(array, np.ndarray) and array.dtype.kind in "iu"
    return array.astype(np.float64) if integers else array
