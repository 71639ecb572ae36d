"""Online FDR control on checked input: whole streams (`tdd.lond` and its neighbours) or one hypothesis at a time."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import online
from tdd.kernels.online import METHODS, WEALTH_FRACTION, Decision, Method, Online, State
from tdd.procedures.calls import as_floating, at_common_size, level_operand, operand
from tdd.records import Guarantee
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_MAX_HORIZON = 10**7

_EVERY_TIME = "FDR <= alpha at every time"
_SUPER_UNIFORM = "p-values are super-uniform under the null"
_INDEPENDENT = (_SUPER_UNIFORM, "p-values are independent; conformal ones that share a calibration sample are not")

GUARANTEES: dict[str, Guarantee] = {
    "lond/positive": Guarantee.finite_sample(
        _EVERY_TIME,
        (_SUPER_UNIFORM, "p-values are independent or PRDS; conformal p-values are"),
        "Javanmard & Montanari (2018); Zrnic, Ramdas & Jordan (2021)",
    ),
    "lond/any": Guarantee.finite_sample(
        _EVERY_TIME,
        (_SUPER_UNIFORM, "the p-values may depend on one another in any way"),
        "Javanmard & Montanari (2018)",
    ),
    "e_lond": Guarantee.finite_sample(
        _EVERY_TIME,
        ("e-values have mean at most 1 under the null, and may depend on one another in any way",),
        "Xu & Ramdas (2024)",
    ),
    "lord_plus_plus": Guarantee.finite_sample(_EVERY_TIME, _INDEPENDENT, "Ramdas, Yang, Wainwright & Jordan (2017)"),
    "saffron": Guarantee.finite_sample(_EVERY_TIME, _INDEPENDENT, "Ramdas, Zrnic, Wainwright & Jordan (2018)"),
}
_BY_METHOD = {name: GUARANTEES["lond/positive" if name == "lond" else name] for name in METHODS}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(("tdd.lond", f'dependence="{name}"', GUARANTEES[f"lond/{name}"]) for name in ("positive", "any")),
    *((f"tdd.{name}", "", GUARANTEES[name]) for name in ("e_lond", "lord_plus_plus", "saffron")),
    *(("tdd.online_test", f'method="{name}"', guarantee) for name, guarantee in _BY_METHOD.items()),
]


@in_own_settings()
def lond(p_values: Any, alpha: Any, *, dependence: Literal["positive", "any"] = "positive", mask: Any = None) -> Online:
    """LOND on a stream of p-values: alpha_t = alpha gamma_t (1 + discoveries so far); see `tdd.kernels.online.lond`.

    Guarantee: FDR <= alpha at every time, finite-sample: "positive" for independent or PRDS p-values (conformal ones
    are), "any" under any dependence.

    Args:
      p_values: [T] in [0, 1], in order of arrival; NaN is skipped.
      alpha: level in (0, 1); may be traced.
      dependence: assumption on the joint distribution of the p-values.
      mask: [T] bool, True = real.

    Returns:
      `Online(reject, levels, num_rejected, num_tests)`.

    Raises:
      InputError: p outside [0, 1], alpha outside (0, 1), unknown `dependence`, wrong shapes.

    >>> lond([1e-7, 0.1, 0.0006], 0.05).reject.tolist()
    [True, False, True]
    """
    arrays.check_choice(dependence, ("positive", "any"), "dependence")
    return _decided(_lond, p_values, alpha, mask, dependence=dependence)


@in_own_settings()
def e_lond(e_values: Any, alpha: Any, *, mask: Any = None) -> Online:
    """e-LOND on a stream of e-values: reject e_t >= 1/alpha_t, alpha_t of LOND.

    Guarantee: FDR <= alpha at every time under any dependence, finite-sample.

    Args:
      e_values: [T] in [0, inf], in order of arrival; NaN is skipped.
      alpha: level in (0, 1); may be traced.
      mask: [T] bool, True = real.

    Raises:
      InputError: a negative e-value, alpha outside (0, 1), wrong shapes.
    """
    e_values = arrays.as_vector(e_values, "e_values")
    arrays.check_e_values(e_values)
    mask = arrays.as_mask(mask, e_values, "mask")
    return _in_order(_e_lond, e_values, alpha, mask)


@in_own_settings()
def lord_plus_plus(p_values: Any, alpha: Any, *, initial_wealth: Any = None, mask: Any = None) -> Online:
    """LORD++ on a stream of p-values: every discovery earns alpha; see `tdd.kernels.online.lord_plus_plus`.

    Guarantee: FDR <= alpha at every time for independent p-values, finite-sample. For conformal p-values that share a
    calibration sample use `lond`.

    Args:
      p_values: [T] in [0, 1], in order of arrival; NaN is skipped.
      alpha: level in (0, 1); may be traced.
      initial_wealth: w0 as a fraction of alpha, in (0, 1); default 1/10.
      mask: [T] bool, True = real.

    Raises:
      InputError: as `lond`, and `initial_wealth` outside (0, 1).
    """
    return _decided(_lord_plus_plus, p_values, alpha, mask, initial_wealth)


@in_own_settings()
def saffron(p_values: Any, alpha: Any, *, lambda_: float = 0.5, initial_wealth: Any = None, mask: Any = None) -> Online:
    """SAFFRON on a stream of p-values: LORD++ that spends nothing on candidates; see `tdd.kernels.online.saffron`.

    Guarantee: FDR <= alpha at every time for independent p-values, finite-sample.

    Args:
      p_values: [T] in [0, 1], in order of arrival; NaN is skipped.
      alpha: level in (0, 1); may be traced.
      lambda_: candidates are p_t <= lambda_; in (0, 1).
      initial_wealth: w0 as a fraction of alpha, in (0, 1); default 1/2.
      mask: [T] bool, True = real.

    Raises:
      InputError: as `lond`, and `lambda_` or `initial_wealth` outside (0, 1).
    """
    if not isinstance(lambda_, numbers.Real) or isinstance(lambda_, bool) or not 0 < lambda_ < 1:
        raise InputError(f"lambda_ must be one number in (0, 1), got {lambda_!r}")
    return _decided(_saffron, p_values, alpha, mask, initial_wealth, lambda_=float(lambda_))


def _decided(kernel: Any, p_values: Any, alpha: Any, mask: Any, initial_wealth: Any = None, **options: Any) -> Online:
    """Check the p-values and run the compiled kernel."""
    p_values = arrays.as_vector(p_values, "p_values")
    mask = arrays.as_mask(mask, p_values, "mask")
    arrays.check_p_values(p_values)
    if initial_wealth is not None:
        arrays.check_level(initial_wealth, "initial_wealth")
        options["initial_wealth"] = operand(initial_wealth, jnp.result_type(float))
    return _in_order(kernel, p_values, alpha, mask, **options)


def _in_order(kernel: Any, values: Any, alpha: Any, mask: Any, **options: Any) -> Online:
    """Decide a checked stream by a compiled kernel."""
    level = level_operand(alpha)

    def run(values: Any, real: Any) -> Online:
        return kernel(values, level, mask=real, **options)

    traced = (alpha, options.get("initial_wealth"))
    return at_common_size(run, as_floating(values), mask, *traced, coarse=False)


_lond = jax.jit(online.lond, static_argnames="dependence")
_e_lond = jax.jit(online.e_lond)
_lord_plus_plus = jax.jit(online.lord_plus_plus)
_saffron = jax.jit(online.saffron, static_argnames="lambda_")
_decide = jax.jit(online.decide)


@dataclasses.dataclass(frozen=True)
class OnlineTest:
    """A rule that decides hypotheses as they arrive. Pure and hashable: everything that changes is in the state.

    Attributes:
      method: name of the rule.
      alpha: level.
      horizon: number of hypotheses that can be tested.
      initial_wealth: w0 as a fraction of alpha; None for the rule's default, or if it has none.
      lambda_: candidates of "saffron" are p <= lambda_.
      guarantee: the guarantee and its assumptions.
    """

    method: Method
    alpha: float
    horizon: int
    initial_wealth: float | None
    lambda_: float
    guarantee: Guarantee

    def init(self) -> State:
        """Return the state before the first hypothesis: a pytree of five arrays, whose shapes never change."""
        options = {"initial_wealth": self.initial_wealth, "lambda_": self.lambda_}
        return online.start(self.method, self.alpha, horizon=self.horizon, **options)

    def step(self, state: State, value: Any, mask: Any = True) -> tuple[State, Decision]:
        """Decide the next hypothesis.

        Args:
          state: the state returned by `init` or by the previous step.
          value: one p-value in [0, 1], or for "e_lond" one e-value in [0, inf]; may be traced. NaN is skipped.
          mask: one bool, False for a hypothesis to skip; may be traced.

        Returns:
          The new state and `Decision(reject, level)`. Beyond the horizon the level is 0 and nothing is rejected.

        Raises:
          InputError: a value out of range or not a single number, a state of another test.
        """
        _check_state(state, self.horizon, self.method)
        _check_step(value, mask, e_value=self.method == "e_lond")
        return _decide(state, operand(value, jnp.result_type(float)), mask)


@in_own_settings()
def online_test(
    method: Method, alpha: float, *, horizon: int, initial_wealth: float | None = None, lambda_: float | None = None
) -> OnlineTest:
    """Online FDR control as a state machine, for streams that are decided while they arrive.

    `step` decides exactly as `tdd.lond`, `tdd.e_lond`, `tdd.lord_plus_plus` and `tdd.saffron` decide the whole stream,
    whatever the horizon; a step costs O(1), for the last two O(horizon). Both methods may be traced. A state is saved
    as `jax.tree.leaves(state)` and restored by `jax.tree.unflatten(jax.tree.structure(test.init()), leaves)`.

    Guarantee: FDR <= alpha at every time, finite-sample, by `method`:
      "lond": independent or PRDS p-values; conformal p-values are, even with a shared calibration sample.
      "lond/any": any dependence.
      "e_lond": e-values under any dependence.
      "lord_plus_plus", "saffron": independent p-values, unlike conformal ones with a shared calibration sample.

    Args:
      method: name of the rule.
      alpha: level in (0, 1).
      horizon: number of hypotheses that can be tested. Later ones are never rejected, so that the guarantee always
        holds; no earlier decision depends on it.
      initial_wealth: w0 as a fraction of alpha, in (0, 1), for the last two methods; default 1/10 and 1/2.
      lambda_: bound of the candidates of "saffron", in (0, 1); default 1/2.

    Raises:
      InputError: unknown `method`, numbers out of range, options of another method.

    >>> test = online_test("lond", 0.05, horizon=1_000)
    >>> state, decision = test.step(test.init(), 1e-7)
    >>> bool(decision.reject), bool(test.step(state, 0.1)[1].reject)
    (True, False)
    """
    arrays.check_choice(method, METHODS, "method")
    if isinstance(alpha, jax.Array):
        raise InputError("alpha must be a Python number here: the test is fixed when it is made; use float(alpha)")
    arrays.check_level(alpha)
    _check_fraction(initial_wealth, "initial_wealth", method, tuple(WEALTH_FRACTION))
    _check_fraction(lambda_, "lambda_", method, ("saffron",))
    horizon = arrays.as_count(horizon, "horizon", _MAX_HORIZON, "how many hypotheses may be tested")
    return OnlineTest(method, alpha, horizon, initial_wealth, 0.5 if lambda_ is None else lambda_, _BY_METHOD[method])


def _check_fraction(value: Any, name: str, method: str, only: tuple[str, ...]) -> None:
    """Check a number in (0, 1) or None for the methods that have one, None for the others."""
    if value is None:
        return
    if method not in only:
        raise InputError(f"{name} belongs to {' and '.join(map(repr, only))}; method={method!r} has none: leave it out")
    if isinstance(value, jax.Array):
        raise InputError(f"{name} must be a Python number here: the test is fixed when it is made; use float({name})")
    arrays.check_level(value, name)


def _check_state(state: Any, horizon: int, method: str) -> None:
    """Check that a state is of the same test."""
    if not isinstance(state, State):
        raise InputError(f"state must come from init() or step() of this test, got {type(state).__name__}")
    shape = jnp.shape(state.levels)[-1:]
    if (shape, state.method) != ((horizon,), method):
        raise InputError(
            f"state is of method={state.method!r} with horizon={shape[0] if shape else 0}, this test of "
            f"method={method!r} with horizon={horizon}; take the state of init()"
        )


def _check_step(value: Any, mask: Any, *, e_value: bool) -> None:
    if np.ndim(value) != 0 or np.ndim(mask) != 0:
        raise InputError(
            f"value and mask must be single, got shapes {np.shape(value)} and {np.shape(mask)}; scan over step, or "
            "decide a whole array with tdd.lond and its neighbours"
        )
    if isinstance(value, Tracer):
        return
    try:
        number = float(value)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"value must be a number, got {value!r}") from error
    if number < 0 or (number > 1 and not e_value):
        rule = "an e-value is not negative" if e_value else "a p-value lies in [0, 1]"
        raise InputError(f"value is {number!r}; {rule}")
