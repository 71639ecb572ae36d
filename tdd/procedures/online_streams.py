"""Online control of the false discovery rate one hypothesis at a time: what `tdd.online_test` is."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import online
from tdd.kernels.online import METHODS, WEALTH_FRACTION, Decision, Method, State
from tdd.procedures.online import GUARANTEES
from tdd.records import Guarantee
from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.streams import as_size

__all__ = ["GUARANTEE_ROWS", "OnlineTest", "online_test"]

_RECORDS = {name: GUARANTEES["lond/positive" if name == "lond" else name] for name in METHODS}
GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    ("tdd.online_test", f'method="{name}"', guarantee) for name, guarantee in _RECORDS.items()
]

_decide = jax.jit(online.decide)


@dataclasses.dataclass(frozen=True)
class OnlineTest:
    """A rule that decides hypotheses as they arrive. Pure and hashable: all that changes is in the state.

    Attributes:
      method: name of the rule.
      alpha: level.
      horizon: how many hypotheses may be tested.
      initial_wealth: w0 as a share of alpha; None for the rule's own, or where it has none.
      lambda_: candidates of "saffron" are p <= lambda_.
      guarantee: what holds, under which assumptions.
    """

    method: Method
    alpha: float
    horizon: int
    initial_wealth: float | None
    lambda_: float
    guarantee: Guarantee

    def init(self) -> State:
        """The state before the first hypothesis: a pytree of five arrays, whose shapes never change."""
        return online.start(
            self.method,
            self.alpha,
            horizon=self.horizon,
            initial_wealth=self.initial_wealth,
            lambda_=self.lambda_,
        )

    def step(self, state: State, value: Any, mask: Any = True) -> tuple[State, Decision]:
        """Decide the next hypothesis.

        Args:
          state: of `init` or of the step before.
          value: one p-value in [0, 1], or for "e_lond" one e-value in [0, inf]; may be traced. NaN takes no place.
          mask: one bool, False for a hypothesis that takes no place; may be traced.

        Returns:
          The new state and `Decision(reject, level)`. Beyond the horizon the level is 0 and nothing is rejected.

        Raises:
          InputError: a value out of range or no single number, a state of another test.
        """
        _check_state(state, State, self.horizon, self.method)
        _check_step(value, mask, e_value=self.method == "e_lond")
        return _decide(state, jnp.asarray(value, jnp.result_type(float)), mask)


def online_test(
    method: Method, alpha: float, *, horizon: int, initial_wealth: float | None = None, lambda_: float | None = None
) -> OnlineTest:
    """Online FDR control as a state machine, for streams that are decided while they arrive.

    `step` gives what `tdd.lond`, `tdd.e_lond`, `tdd.lord_plus_plus` and `tdd.saffron` give for the whole stream, to the
    bit, whatever the horizon. Both methods may be traced, and work under `jax.jit`, `jax.vmap`, `jax.lax.scan` and
    `jax.lax.cond` inside a training step. A state is saved as `jax.tree.leaves(state)` and comes back by
    `jax.tree.unflatten(jax.tree.structure(test.init()), leaves)`.

    Guarantee: FDR <= alpha at every time, finite-sample, by `method`:
      "lond": independent or PRDS p-values; conformal ones that share a calibration sample are.
      "lond/any": any dependence.
      "e_lond": e-values under any dependence.
      "lord_plus_plus", "saffron": independent p-values; conformal ones that share a calibration sample are not.

    Args:
      method: which rule.
      alpha: level in (0, 1).
      horizon: how many hypotheses may be tested; the memory grows with it. Those after are never rejected, so the
        guarantee holds for ever; no decision before depends on it.
      initial_wealth: w0 as a share of alpha, in (0, 1), for the last two methods; 1/10 and 1/2 where not given.
      lambda_: of "saffron", in (0, 1); 1/2 where not given.

    Returns:
      `OnlineTest`, with `init()` and `step(state, value)`.

    Raises:
      InputError: unknown `method`, numbers out of range, options of another method.

    Cost of a step: O(1), for "lord_plus_plus" and "saffron" O(horizon).

    >>> test = online_test("lond", 0.05, horizon=1_000)
    >>> state, found = test.step(test.init(), 1e-7)
    >>> bool(found.reject), bool(test.step(state, 0.1)[1].reject)
    (True, False)

    References: as the four calls.
    """
    arrays.check_choice(method, METHODS, "method")
    if isinstance(alpha, jax.Array):
        raise InputError("alpha must be a Python number here: the test is fixed when it is made; use float(alpha)")
    arrays.check_level(alpha)
    _check_share(initial_wealth, "initial_wealth", method, tuple(WEALTH_FRACTION))
    _check_share(lambda_, "lambda_", method, ("saffron",))
    horizon = as_size(horizon, "horizon", "how many hypotheses may be tested")
    return OnlineTest(method, alpha, horizon, initial_wealth, 0.5 if lambda_ is None else lambda_, _RECORDS[method])


def _check_share(value: Any, name: str, method: str, only: tuple[str, ...]) -> None:
    """A number in (0, 1) or None for the methods that have one; None for the others."""
    if value is None:
        return
    if method not in only:
        raise InputError(f"{name} belongs to {' and '.join(map(repr, only))}; method={method!r} has none: leave it out")
    if isinstance(value, jax.Array):
        raise InputError(f"{name} must be a Python number here: the test is fixed when it is made; use float({name})")
    arrays.check_level(value, name)


def _check_state(state: Any, kind: type, horizon: int, method: str) -> None:
    """A state of the same test."""
    if not isinstance(state, kind):
        raise InputError(f"state must come from init() or step() of this test, got {type(state).__name__}")
    found = jnp.shape(state.levels)[-1:], state.method  # type: ignore[attr-defined]
    if found != ((horizon,), method):
        raise InputError(
            f"state is of method={found[1]!r} with horizon={found[0][0] if found[0] else 0}, this test of "
            f"method={method!r} with horizon={horizon}; take the state of init()"
        )


def _check_step(value: Any, mask: Any, *, e_value: bool) -> None:
    """One p-value or e-value, and whether it is real."""
    if np.ndim(value) != 0 or np.ndim(mask) != 0:
        raise InputError(
            f"value and mask must be single, got shapes {np.shape(value)} and {np.shape(mask)}; scan over step, or "
            "decide a whole array with tdd.lond and its neighbours"
        )
    if isinstance(value, Tracer):
        return
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"value must be a number, got {value!r}") from error
    if number < 0 or (number > 1 and not e_value):
        rule = "an e-value is not negative" if e_value else "a p-value lies in [0, 1]"
        raise InputError(f"value is {number!r}; {rule}")
