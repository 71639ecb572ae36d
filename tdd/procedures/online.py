"""Decisions on a stream of hypotheses with checked input: what `tdd.lond` and its neighbours are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import online
from tdd.kernels.online import Online
from tdd.procedures.calls import level_operand
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "e_lond", "lond", "lord_plus_plus", "saffron"]

_SUPER_UNIFORM = "p-values are super-uniform under the null"
_INDEPENDENT = "p-values are independent; conformal ones that share a calibration sample are not"

GUARANTEES: dict[str, Guarantee] = {
    "lond/positive": Guarantee(
        "FDR <= alpha at every time",
        (_SUPER_UNIFORM, "p-values are independent or PRDS; conformal p-values are"),
        "finite-sample",
        "Javanmard & Montanari (2018); Zrnic, Ramdas & Jordan (2021)",
    ),
    "lond/any": Guarantee(
        "FDR <= alpha at every time",
        (_SUPER_UNIFORM, "the p-values may depend on one another in any way"),
        "finite-sample",
        "Javanmard & Montanari (2018)",
    ),
    "e_lond": Guarantee(
        "FDR <= alpha at every time",
        ("e-values have mean at most 1 under the null, and may depend on one another in any way",),
        "finite-sample",
        "Xu & Ramdas (2024)",
    ),
    "lord_plus_plus": Guarantee(
        "FDR <= alpha at every time",
        (_SUPER_UNIFORM, _INDEPENDENT),
        "finite-sample",
        "Ramdas, Yang, Wainwright & Jordan (2017)",
    ),
    "saffron": Guarantee(
        "FDR <= alpha at every time",
        (_SUPER_UNIFORM, _INDEPENDENT),
        "finite-sample",
        "Ramdas, Zrnic, Wainwright & Jordan (2018)",
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(("tdd.lond", f'dependence="{name}"', GUARANTEES[f"lond/{name}"]) for name in ("positive", "any")),
    *((f"tdd.{name}", "", GUARANTEES[name]) for name in ("e_lond", "lord_plus_plus", "saffron")),
]


def lond(p_values: Any, alpha: Any, *, dependence: Literal["positive", "any"] = "positive", mask: Any = None) -> Online:
    """LOND on a stream of p-values: alpha_t = alpha gamma_t (1 + discoveries so far); see `tdd.kernels.online.lond`.

    Guarantee: FDR <= alpha at every time, finite-sample: "positive" for independent or PRDS p-values (conformal ones
    are), "any" under any dependence.

    Args:
      p_values: [T] in [0, 1], in the order of arrival; NaN takes no place in the stream.
      alpha: level in (0, 1); may be traced.
      dependence: what is assumed of the p-values together.
      mask: [T] bool, True = real.

    Returns:
      `Online(reject, levels, num_rejected, num_tests)`.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), unknown `dependence`, wrong shapes.

    >>> lond([1e-7, 0.1, 0.0006], 0.05).reject.tolist()
    [True, False, True]
    """
    arrays.check_choice(dependence, ("positive", "any"), "dependence")
    return _decided("lond", p_values, alpha, mask, dependence=dependence)


def e_lond(e_values: Any, alpha: Any, *, mask: Any = None) -> Online:
    """e-LOND on a stream of e-values: reject e_t >= 1/alpha_t, alpha_t of LOND.

    Guarantee: FDR <= alpha at every time under any dependence, finite-sample. Arguments as `lond`, with
    e-values in [0, inf].
    """
    e_values = arrays.as_vector(e_values, "e_values")
    if not isinstance(e_values, Tracer) and (np.asarray(e_values) < 0).any():
        raise InputError(f"e_values must not be negative, got {float(np.nanmin(np.asarray(e_values)))!r}")
    mask = arrays.as_mask(mask, e_values, "mask")
    return _compiled("e_lond", ())(_floating(e_values), level_operand(alpha), mask, None)


def lord_plus_plus(p_values: Any, alpha: Any, *, initial_wealth: Any = None, mask: Any = None) -> Online:
    """LORD++ on a stream of p-values: every discovery earns alpha to spend; see `tdd.kernels.online.lord_plus_plus`.

    Guarantee: FDR <= alpha at every time for independent p-values, finite-sample. For conformal p-values that share a
    calibration sample take `lond`.

    Args:
      p_values: [T] in [0, 1], in the order of arrival; NaN takes no place in the stream.
      alpha: level in (0, 1); may be traced.
      initial_wealth: w0 as a share of alpha, in (0, 1); 1/10 where not given.
      mask: [T] bool, True = real.

    Returns:
      `Online`.

    Raises:
      InputError: as `lond`, and `initial_wealth` outside (0, 1).
    """
    return _decided("lord_plus_plus", p_values, alpha, mask, initial_wealth)


def saffron(p_values: Any, alpha: Any, *, lambda_: float = 0.5, initial_wealth: Any = None, mask: Any = None) -> Online:
    """SAFFRON on a stream of p-values: LORD++ that spends nothing on candidates; see `tdd.kernels.online.saffron`.

    Guarantee: FDR <= alpha at every time for independent p-values, finite-sample.

    Args:
      p_values: [T] in [0, 1], in the order of arrival; NaN takes no place in the stream.
      alpha: level in (0, 1); may be traced.
      lambda_: candidates are p_t <= lambda_; in (0, 1).
      initial_wealth: w0 as a share of alpha, in (0, 1); 1/2 where not given.
      mask: [T] bool, True = real.

    Returns:
      `Online`.

    Raises:
      InputError: as `lond`, and `lambda_` or `initial_wealth` outside (0, 1).
    """
    if not isinstance(lambda_, (int, float, np.number)) or isinstance(lambda_, bool) or not 0 < lambda_ < 1:
        raise InputError(f"lambda_ must be one number in (0, 1), got {lambda_!r}")
    return _decided("saffron", p_values, alpha, mask, initial_wealth, lambda_=float(lambda_))


def _decided(name: str, p_values: Any, alpha: Any, mask: Any, initial_wealth: Any = None, **static: Any) -> Online:
    p_values = arrays.as_vector(p_values, "p_values")
    mask = arrays.as_mask(mask, p_values, "mask")
    arrays.check_p_values(p_values)
    if initial_wealth is not None:
        arrays.check_level(initial_wealth, "initial_wealth")
        initial_wealth = jnp.asarray(initial_wealth, jnp.result_type(float))
    return _compiled(name, tuple(static.items()))(_floating(p_values), level_operand(alpha), mask, initial_wealth)


@functools.cache
def _compiled(name: str, static: tuple[tuple[str, Any], ...]) -> Callable[..., Online]:
    kernel = functools.partial(getattr(online, name), **dict(static))
    if name in ("lond", "e_lond"):
        return jax.jit(lambda values, alpha, mask, _: kernel(values, alpha, mask=mask))
    return jax.jit(lambda values, alpha, mask, wealth: kernel(values, alpha, initial_wealth=wealth, mask=mask))


def _floating(values: Any) -> jax.Array:
    plain = jnp.asarray(values)
    return plain if jnp.issubdtype(plain.dtype, jnp.floating) else plain.astype(jnp.result_type(float))
