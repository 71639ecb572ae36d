"""A guard on the order of the training data: whether the stream is shuffled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import martingale, online_conformal
from tdd.probe.evidence import AlarmHistory, as_bytes, as_step, as_text, check_same, one_at_a_time
from tdd.records import Guarantee
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count, in_whole
from tdd.validate.settings import in_own_settings, on_own_devices

GUARANTEE = Guarantee(
    "P(the alarm ever goes off) <= alpha",
    ('the numbers are exchangeable in their order of arrival; against="batch": in their order within each batch',),
    "finite-sample",
    "Ville (1939); Vovk et al. (2021), algorithm 1; Vovk, Gammerman & Shafer (2005), theorem 8.1",
)
GUARANTEE_ROWS = [("tdd.probe.OrderGuard", "", GUARANTEE)]


class OrderState(NamedTuple):
    """State of the stream; a pytree of fixed shape."""

    held: online_conformal.State  # numbers of earlier examples that the next one is compared with
    wealth: martingale.State
    num_examples: jax.Array  # [] int32
    crossed_at: jax.Array  # [] int32, index of the example at which the alarm went off, from 0; -1 not yet
    key: jax.Array


class OrderEvidence(NamedTuple):
    """Evidence after each of the B examples of a batch."""

    p_value: jax.Array  # rank among those before it, uniform where the stream is exchangeable; NaN = masked
    log_martingale: jax.Array  # logarithm of the wealth
    anytime_p_value: jax.Array  # 1 / the largest wealth so far


@dataclasses.dataclass(frozen=True)
class OrderRecord:
    """The stream up to and including one batch."""

    step: int
    num_examples: int
    log_martingale: float  # logarithm of the wealth
    anytime_p_value: float  # 1 / the largest wealth so far
    alarm: bool  # whether that has been alpha or less, now or before
    crossed_at: int  # index of the example at which the alarm went off, from 0; -1 not yet

    def scalars(self, prefix: str = "tdd/order/") -> dict[str, float]:
        """Numbers for a metric writer."""
        names = ("log_martingale", "anytime_p_value", "alarm")
        return {prefix + name: float(getattr(self, name)) for name in names}


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What is static about a guard; guards that are alike share compiled programs."""

    alpha: float
    against: str
    memory: int

    def nothing_held(self) -> online_conformal.State:
        return online_conformal.start(self.memory, null="nonmember", dtype=jnp.float32)

    def observe(self, state: OrderState, values: jax.Array, mask: jax.Array | None) -> tuple[OrderState, OrderEvidence]:
        """See `OrderGuard.observe`."""
        values, mask = in_whole(jnp.asarray(values, jnp.float32)), None if mask is None else in_whole(jnp.asarray(mask))
        real = ~jnp.isnan(values) if mask is None else mask & ~jnp.isnan(values)
        held = self.nothing_held() if self.against == "batch" else state.held

        def example(carry: Any, item: Any) -> Any:
            held, wealth, count, crossed, key = carry
            value, keep = item
            key = online_conformal.key_after(key, value, keep)
            uniform, leaves = online_conformal.draw(key, self.memory)
            held, p = online_conformal.advance(held, value, uniform, leaves, keep)
            wealth, now = martingale.advance(wealth, jnp.log(p), keep)
            crossed = jnp.where((crossed < 0) & (now.anytime_p_value <= self.alpha), count, crossed)
            return (held, wealth, count + keep, crossed, key), OrderEvidence(p, now.log_martingale, now.anytime_p_value)

        carry, evidence = jax.lax.scan(
            example, (held, state.wealth, state.num_examples, state.crossed_at, state.key), (values, real)
        )
        return OrderState(*carry), evidence


_observe = jax.jit(_Rule.observe, static_argnums=0)


class OrderGuard(AlarmHistory):
    """Watch one number an example, in order of arrival, for anything but a random order.

    Each example is ranked among those before it (ties at random). In an exchangeable stream these ranks are
    independent and uniform; the guard bets against that, on ranks that stay low or stay high, and its wealth is a
    martingale.

    **Guarantee**: P(the alarm ever goes off) <= alpha if the stream of numbers is exchangeable, however long it is and
    however often one looks; finite-sample.

    Watch a property of the example, not of the model: its length, the number of its source, a feature of its content.
    **Losses fall while the model trains, so those of a shuffled stream are not exchangeable**; with against="batch" an
    example is compared with the earlier ones of its own batch alone, all under the same parameters, which sees an order
    within batches and none from batch to batch. Batches that were sorted by length to save padding are not in random
    order of their lengths: watch another number. The guard cannot see an order in which ranks are balanced at every
    time, as sources that take turns.

    Args:
      alpha: level in (0, 1).
      against: "stream": all earlier examples; "batch": the earlier ones of the same batch.
      memory: w, number of earlier examples that are held; beyond w, a random one leaves for each that comes.
      seed: random seed of ties and of the examples that leave.

    Attributes:
      history: an `OrderRecord` of each call.
      guarantee: the guarantee with its assumptions.

    Raises:
      InputError: alpha outside (0, 1), an unknown `against`, `memory` below 1.

    Cost: O(w) an example.

    References: Vovk, Petej, Nouretdinov, Ahlberg, Carlsson & Gammerman (2021), algorithm 1, the simple jumper; Vovk,
    Gammerman & Shafer (2005), theorem 8.1, for the ranks.

    >>> guard = OrderGuard(alpha=0.01)
    >>> [guard(step, range(10 * step, 10 * step + 10)).alarm for step in range(3)]  # sorted
    [False, True, True]
    """

    guarantee = GUARANTEE

    @on_own_devices()
    def __init__(
        self,
        *,
        alpha: float = 0.05,
        against: Literal["stream", "batch"] = "stream",
        memory: int = 1_024,
        seed: int = 0,
    ) -> None:
        arrays.check_level(alpha)
        arrays.check_choice(against, ("stream", "batch"), "against")
        self.alpha, self.against, self.memory = float(alpha), against, as_count(memory, "memory")
        self.seed = seed
        self.history: list[OrderRecord] = []
        self._rule = _Rule(self.alpha, self.against, self.memory)
        self._state = self.init()

    @in_own_settings()
    def init(self, key: jax.Array | None = None) -> OrderState:
        """The state before the first example; `key` in place of the seed's."""
        if key is not None:
            arrays.check_key(key, "the draw of ties")
        return OrderState(
            self._rule.nothing_held(),
            martingale.start("simple_jumper"),
            jnp.int32(0),
            jnp.int32(-1),
            arrays.key_of_seed(self.seed) if key is None else key,
        )

    @in_own_settings()
    def observe(
        self, state: OrderState, values: jax.Array, mask: jax.Array | None = None
    ) -> tuple[OrderState, OrderEvidence]:
        """Take in the numbers of a batch; pure.

        Args:
          state: state of `init` or of the batch before.
          values: [B] in order of arrival, at least one; NaN is left out.
          mask: [B] bool, True = real example.
        """
        return _observe(self._rule, state, values, mask)

    @on_own_devices()
    @one_at_a_time
    def __call__(self, step: int, values: Any) -> OrderRecord:
        """Take in the batch of a training step.

        Args:
          step: of training; several batches may have the same one, none an earlier one.
          values: [B] one number an example in order of arrival; NaN is left out.

        Raises:
          InputError: another shape or type, or a step before the last one.
        """
        step, array = as_step(step, self.history[-1].step if self.history else None), np.asarray(values)
        if array.ndim != 1 or not array.size or array.dtype.kind not in "fiub":
            raise InputError(
                "values must be one number an example [B] in order of arrival, got "
                f"{array.dtype} of shape {array.shape}"
            )
        numbers: Any = array.astype(np.float32)
        self._state, evidence = self.observe(self._state, numbers)
        count, crossed_at, evidence = jax.device_get((self._state.num_examples, self._state.crossed_at, evidence))
        log_martingale, anytime_p_value = float(evidence.log_martingale[-1]), float(evidence.anytime_p_value[-1])
        alarm = bool(crossed_at >= 0)
        record = OrderRecord(step, int(count), log_martingale, anytime_p_value, alarm, int(crossed_at))
        self.history.append(record)
        return record

    @in_own_settings()
    @one_at_a_time
    def state_dict(self) -> dict[str, Any]:
        """Arrays and numbers to save with a checkpoint of the run, none of the arrays empty."""
        state = self._state._replace(key=jax.random.key_data(self._state.key))
        saved = {
            "alpha": np.float64(self.alpha),
            "against": as_bytes(self.against),
            "memory": self.memory,
            "generator": as_bytes(str(jax.random.key_impl(self._state.key))),
        }
        saved |= {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        if self.history:
            saved |= {f"history/{name}": np.array([vars(record)[name] for record in self.history]) for name in _FIELDS}
        return saved

    @on_own_devices()
    @one_at_a_time
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
          InputError: it is of a guard with other options.
        """
        saved = _as_saved_today(saved) if "options" in saved else saved
        check_same("alpha", float(saved["alpha"]), self.alpha)
        check_same("against", as_text(saved["against"]), self.against)
        check_same("memory", int(saved["memory"]), self.memory)
        structure = jax.tree.structure(self._state)
        leaves = [jnp.asarray(np.asarray(saved[f"state/{i}"])) for i in range(structure.num_leaves)]
        leaves[-1] = jax.random.wrap_key_data(leaves[-1], impl=as_text(saved["generator"]))
        columns = [np.asarray(saved.get(f"history/{name}", ())).tolist() for name in _FIELDS]
        self._state = jax.tree.unflatten(structure, leaves)
        self.history = [OrderRecord(*values) for values in zip(*columns, strict=True)]


_FIELDS = tuple(field.name for field in dataclasses.fields(OrderRecord))


def _as_saved_today(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A state in the form of earlier versions: options, leaves and records under one name each."""
    leaves, records = (
        [*part.values()] if isinstance(part, Mapping) else part for part in (saved["state"], saved["history"])
    )
    return {
        **saved["options"],
        "generator": saved.get("generator", "threefry2x32"),
        **{f"state/{i}": leaf for i, leaf in enumerate(leaves)},
        **{f"history/{name}": [record[name] for record in records] for name in _FIELDS},
    }
