"""p-values of one hypothesis combined into one: `tdd.combine_p_values`, checked input around the merging kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import combine, merge
from tdd.kernels.combine import Combined
from tdd.procedures.calls import tracing
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "METHODS", "combine_p_values"]

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
_EACH = ("each p-value is super-uniform under the null",)
_INDEPENDENT = ("the p-values are independent and super-uniform under the null",)
_TAIL = (
    "the p-values are uniform under the null, with a copula whose pairs are normal or similarly tail-independent",
    "the weights were fixed before the p-values were seen",
)
_MEAN = "Vovk & Wang (2020)"

GUARANTEES: dict[str, Guarantee] = {
    "cauchy": Guarantee("P(p <= t)/t -> 1 as t -> 0; above t at usual levels", _TAIL, "asymptotic", "Liu & Xie (2020)"),
    "truncated_cauchy": Guarantee(
        "P(p <= t)/t -> 1 as t -> 0; above t at usual levels", _TAIL, "asymptotic", "Fang et al. (2023)"
    ),
    "bonferroni": Guarantee(_SIZE, _EACH, "finite-sample", "Bonferroni's inequality"),
    "hommel": Guarantee(_SIZE, _EACH, "finite-sample", "Hommel (1983)"),
    "twice_mean": Guarantee(_SIZE, _EACH, "finite-sample", f"Rueschendorf (1982); {_MEAN}"),
    "geometric": Guarantee(_SIZE, _EACH, "finite-sample", _MEAN),
    "harmonic": Guarantee(_SIZE, _EACH, "finite-sample", f"{_MEAN}, with the exact constant"),
    "ruger": Guarantee(_SIZE, _EACH, "finite-sample", "Rueger (1978)"),
    "maximum": Guarantee(_SIZE, ("one of the p-values is super-uniform under the null",), "finite-sample", "-"),
    "simes": Guarantee(
        _SIZE, ("the p-values are independent or positively dependent (PRDS)",), "finite-sample", "Simes (1986)"
    ),
    "fisher": Guarantee(_SIZE, _INDEPENDENT, "finite-sample", "Fisher (1925)"),
    "stouffer": Guarantee(_SIZE, _INDEPENDENT, "finite-sample", "Stouffer et al. (1949)"),
    "pearson": Guarantee(_SIZE, _INDEPENDENT, "finite-sample", "Pearson (1933)"),
    "tippett": Guarantee(_SIZE, _INDEPENDENT, "finite-sample", "Tippett (1931)"),
}
METHODS = tuple(GUARANTEES)

GUARANTEE_ROWS = [("tdd.combine_p_values", f'method="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]

_WEIGHTED = ("cauchy", "truncated_cauchy", "stouffer")


def combine_p_values(p_values: Any, *, method: Method, weights: Any = None, axis: int = -1) -> Combined:
    """Combine K p-values of the same null hypothesis into one.

    Guarantee: by `method` (P(p <= t) <= t for every t is meant):
      "bonferroni", "hommel", "twice_mean", "geometric", "harmonic", "ruger" (twice the median), "maximum": under any
        dependence, finite-sample.
      "simes": for independent or positively dependent p-values, finite-sample.
      "fisher", "stouffer", "pearson", "tippett": for independent p-values, finite-sample.
      "cauchy", "truncated_cauchy" (p-values below 1/2): only in the limit t -> 0, for fixed weights.

    Args:
      p_values: [..., K, ...] in [0, 1]; NaN anywhere in a group makes its result NaN.
      method: one of the names above; there is no default, because they assume different things.
      weights: [K] or the shape of `p_values`, not negative, for "cauchy", "truncated_cauchy" and "stouffer"; a p-value
        of weight 0 is ignored.
      axis: where K is.

    Returns:
      `Combined(p_value, statistic)`, [...] each; for methods without a statistic of their own it is the p-value. NumPy
      float64 (or a list) is computed and returned as NumPy float64 whatever JAX's default type, so that p-values of
      1e-300 survive; JAX arrays stay what they are.

    Raises:
      InputError: p outside [0, 1], negative or all-zero weights, weights for a method without them, wrong shapes.

    Cost: O(K) a group ("hommel", "simes": O(K^2) up to K = 16).

    >>> round(float(combine_p_values([0.01, 0.02, 0.5], method="hommel").p_value), 6)
    0.055

    References: Vovk & Wang (2020); Liu & Xie (2020); see `tdd.kernels.combine`, `merge` and `independent`.
    """
    arrays.check_choice(method, METHODS, "method")
    p = _numbers(p_values, "p_values")
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool) or not -p.ndim <= axis < p.ndim:
        raise InputError(f"axis must be a whole number that names one of the {p.ndim} axes of p_values, got {axis!r}")
    size = p.shape[axis]
    if size == 0:
        raise InputError(f"p_values has shape {p.shape}: there is no p-value along axis {axis}")
    _check_in_range(p)
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
    run = _compiled(method, int(axis))
    if not isinstance(p, np.ndarray) or tracing(w):
        return run(jnp.asarray(p), None if w is None else jnp.asarray(w))
    if p.dtype != np.float64 or jnp.result_type(float) == np.float64:
        return run(jnp.asarray(p), None if w is None else jnp.asarray(w, p.dtype))
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(jnp.asarray(p), None if w is None else jnp.asarray(w, p.dtype)))


@functools.cache
def _compiled(method: str, axis: int) -> Callable[..., Combined]:
    """The kernel of a method as a jitted function of p-values and weights."""

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
    """An array of numbers: a JAX array as it is, anything else NumPy, whole numbers as float64."""
    if isinstance(values, jax.Array):
        array: Any = values
    else:
        try:
            array = np.asarray(values)
            if array.dtype.kind in "iub":
                array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} must be an array of numbers: {error}") from error
    if array.ndim == 0:
        raise InputError(f"{name} must be an array with the values to combine along one axis, got {values!r}")
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise InputError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array


def _check_in_range(p: Any) -> None:
    if isinstance(p, Tracer):
        return
    host = np.asarray(p)
    bad = np.argwhere((host < 0) | (host > 1))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(
            f"p_values[{', '.join(map(str, where))}] is {float(host[where])!r}; p-values must lie in [0, 1] "
            f"({len(bad)} of {host.size} do not)"
        )
