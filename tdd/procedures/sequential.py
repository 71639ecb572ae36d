"""The sequential test of canonical order: a valid p-value at each look while the shuffles are computed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import betting, sequential
from tdd.procedures.calls import operand, tracing
from tdd.procedures.exchangeability import GUARANTEES as TEST_GUARANTEES
from tdd.procedures.exchangeability import TESTS, TestName, as_shards, centred, exchangeability, tie_tolerance
from tdd.records import Guarantee, pytree
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count
from tdd.validate.settings import in_own_settings

Rule = Literal["e_process", "spending", "besag_clifford"]
RULES = ("e_process", "spending", "besag_clifford")

_ORDER = TEST_GUARANTEES["exact"].assumes
_SCHEDULE = "the looks and the horizon were fixed before any log-probability was seen"
_ANY_LOOK = "P(p <= alpha at some look) <= alpha if the model is independent of the order"

GUARANTEES: dict[str, Guarantee] = {
    "e_process": Guarantee.finite_sample(
        "P(p <= alpha at some time) <= alpha if the model is independent of the order",
        _ORDER,
        "Fischer & Ramdas (2024); Ville's inequality",
    ),
    "spending": Guarantee.finite_sample(_ANY_LOOK, (*_ORDER, _SCHEDULE), "union bound over the looks"),
    "besag_clifford": Guarantee.finite_sample(
        "P(p <= alpha) <= alpha at one look that was fixed beforehand, if the model is independent of the order",
        (
            *_ORDER,
            "column b of the shuffles is one order of the whole data set",
            "sampling stops at num_exceedances exceedances or at that look, not because p is small",
        ),
        "Besag & Clifford (1991), section 3",
    ),
}
_IN_THE_LIMIT = Guarantee(
    f"{_ANY_LOOK}, in the limit of many shards",
    (*TEST_GUARANTEES["t"].assumes, _SCHEDULE),
    "asymptotic",
    "union bound over the looks",
)

GUARANTEE_ROWS = [
    *(("tdd.exchangeability_sequence", f'rule="{name}"', guarantee) for name, guarantee in GUARANTEES.items()),
    ("tdd.exchangeability_sequence", 'rule="spending", test="t"', _IN_THE_LIMIT),
]

_MAX_PADDED = 1_024  # shuffles


@pytree("looks", "method", "guarantee")
class SequentialResult:
    """A sequential test of canonical order at each of its looks.

    Attributes:
      looks: numbers of shuffles at the looks of the schedule that have been reached.
      p_value: [L] valid as `guarantee` states; it never rises from look to look, except by "besag_clifford".
      log_p_value: [L] its logarithm.
      log_e_value: [L] logarithm of the e-value, NaN unless the rule is "e_process". It may fall again, and its mean is
        at most 1 only at a look fixed beforehand: after stopping on evidence, use the p-value.
      num_exceedances: [L] int32, shuffles of the whole data set that reach the sum over shards of the canonical orders.
      num_shards: [] int32, shards that were used.
      num_masked: [] int32, shards that were masked out or whose canonical order is NaN.
      method: name of the rule.
      guarantee: guarantee of the p-value.
    """

    looks: tuple[int, ...]
    p_value: jax.Array
    log_p_value: jax.Array
    log_e_value: jax.Array
    num_exceedances: jax.Array
    num_shards: jax.Array
    num_masked: jax.Array
    method: str
    guarantee: Guarantee


@in_own_settings()
def exchangeability_sequence(
    canonical: Any,
    shuffled: Any,
    *,
    rule: Rule = "e_process",
    looks: Any = None,
    horizon: int | None = None,
    test: TestName = "combined",
    num_exceedances: int = 10,
    key: jax.Array | None = None,
    num_draws: int = 99_999,
    mask: Any = None,
) -> SequentialResult:
    """Test at each look whether the canonical order of a data set is more likely under a model than its shuffles.

    The results at a look depend on its shuffles only: the same call with more columns continues the test ("spending":
    with the same horizon=, over which it spends the level).

    Guarantee, for a model that does not depend on the order, by `rule`:
      "e_process": P(p <= alpha at some time) <= alpha under any stopping rule, and the looks need not be fixed. Bets on
        how often shuffles beat the canonical order, shard by shard (Fischer & Ramdas 2024). Finite-sample.
      "spending": P(p <= alpha at some look) <= alpha for a schedule fixed beforehand: each look has a fraction of the
        level, in proportion to its shuffles, and p is the smallest p-value of `test` so far over its fraction.
        Finite-sample, asymptotic for test="t".
      "besag_clifford": P(p <= alpha) <= alpha at one look fixed beforehand, whatever the sum over shards did earlier:
        h/l if the h-th exceedance of the sum came at draw l, (1 + x)/(1 + b) before (Besag & Clifford 1991). It stops
        early if there is nothing to detect (h exceedances), never because p is small. Finite-sample.

    Power at level .001 with 50 normal shards and at most 50 shuffles (2,000 repetitions, standard errors up to .011).
    All shards shifted by 2 sd: one shuffle suffices for "e_process" and "spending". By 0.4 sd: .33 by all shuffles
    without stopping, .29 by "spending", .10 by "e_process"; three of 50 by 6 sd: .16, .11, .01. With a long left tail
    (lognormal) and 0.4 sd: .98, .97 after 7 shuffles on average, 1.00 after 3. Under the null, giving up at 10
    exceedances of the sum saves a third of the shuffles; it keeps every guarantee and cost no power above.

    Args:
      canonical: [r] log-probabilities (sums over tokens, nats), higher = more likely.
      shuffled: [r, b] log-probabilities of the shuffles in the order in which they were drawn.
      rule: rule of the p-values.
      looks: numbers of shuffles at which the test is evaluated; default 1, 2, 5, 10, 20, 50, ... and the horizon.
      horizon: largest number of shuffles, fixed beforehand; default the last look, else b.
      test: test of `exchangeability`, for "spending".
      num_exceedances: h, for "besag_clifford".
      key: PRNG key for "spending" with test "combined" or "exact"; each look draws its own relabellings.
      num_draws: random relabellings of a look.
      mask: [r] bool, True = real shard. A shard whose canonical order is NaN is left out. A shuffle that is NaN does
        not count ("spending": its shard is left out at looks that include it).

    Returns:
      `SequentialResult`, in the precision of `exchangeability`. Cost: O(r b); "spending": `exchangeability`, and a
      compilation, once a look.

    Raises:
      InputError: as `exchangeability`, looks that do not rise or lie beyond the horizon, more shuffles than the
        horizon, no look reached.

    >>> rows = [[1.0, 2.0, 0.5], [4.0, 1.0, 3.0], [2.0, 0.0, 1.0], [6.0, 5.5, 3.0]]
    >>> result = exchangeability_sequence([3.0, 5.0, 2.5, 7.0], rows, looks=(1, 3))
    >>> result.looks, [round(float(p), 3) for p in result.p_value]
    ((1, 3), [0.189, 0.019])
    """
    arrays.check_choice(rule, RULES, "rule")
    arrays.check_choice(test, TESTS, "test")
    canonical, shuffled, mask = as_shards(canonical, shuffled, mask, complete=rule == "spending")
    num_draws, num_exceedances = as_count(num_draws, "num_draws"), as_count(num_exceedances, "num_exceedances")
    schedule, num_reached = _schedule(looks, horizon, shuffled.shape[1])
    reached = schedule[:num_reached]
    shuffled = shuffled[:, : reached[-1]]
    if tracing(canonical, shuffled, mask, key):
        operands = centred(canonical, shuffled)
        result = _counted(
            *operands,
            None if mask is None else operand(mask),
            None,
            rule=rule,
            looks=reached,
            num_exceedances=num_exceedances,
        )
    else:
        tolerance = tie_tolerance(canonical, shuffled)
        operands = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float)
        all_looks = schedule if schedule[-1] <= _MAX_PADDED else reached
        padding = ((0, 0), (0, all_looks[-1] - reached[-1]))  # one program for a schedule: NaN never counts
        padded = operands[0], np.pad(operands[1], padding, constant_values=np.nan), mask
        with jax.enable_x64(True):
            result = _counted(*padded, tolerance, rule=rule, looks=all_looks, num_exceedances=num_exceedances)
            result = jax.tree.map(np.asarray, result)
        result = _first(result, num_reached)
    if rule != "spending":
        return result
    log_p = [
        exchangeability(
            operands[0],
            operands[1][:, :look],
            test=test,
            key=None if key is None else jax.random.fold_in(key, look),
            num_draws=num_draws,
            mask=mask,
        ).log_p_value
        for look in reached
    ]
    p, log_p = sequential.spend(jnp.stack(log_p), sequential.look_weights(schedule)[:num_reached])
    guarantee = _IN_THE_LIMIT if test == "t" else GUARANTEES[rule]
    return dataclasses.replace(
        result, p_value=p, log_p_value=log_p, method=f"exchangeability/spending/{test}", guarantee=guarantee
    )


def _schedule(looks: Any, horizon: Any, num_shuffles: int) -> tuple[tuple[int, ...], int]:
    """Return the schedule and how many of its looks have been reached."""
    horizon = None if horizon is None else as_count(horizon, "horizon")
    schedule = sequential.default_looks(horizon or num_shuffles) if looks is None else _as_looks(looks, horizon)
    horizon = horizon or schedule[-1]
    if num_shuffles > horizon:
        raise InputError(
            f"shuffled has {num_shuffles} columns, more than horizon={horizon}: a horizon is fixed before the "
            f"shuffles are seen; pass shuffled[:, :{horizon}]"
        )
    if num_shuffles < schedule[0]:
        raise InputError(
            f"shuffled has {num_shuffles} columns, fewer than the first look at {schedule[0]} shuffles; score more "
            "shuffles, or give an earlier look"
        )
    return schedule, sum(look <= num_shuffles for look in schedule)


@functools.partial(jax.jit, static_argnames=("rule", "looks", "num_exceedances"))
def _counted(canonical, shuffled, mask, tolerance, *, rule, looks, num_exceedances) -> SequentialResult:
    """Run the rules that count exceedances; for "spending" only count."""
    counts = sequential.exceedances(canonical, shuffled, mask=mask, tolerance=tolerance)
    at, dtype = np.asarray(looks) - 1, shuffled.dtype
    log_e = jnp.full(len(looks), jnp.nan, dtype)
    p = log_p = log_e
    if rule == "e_process":
        bets = betting.e_process(counts, dtype)
        p, log_p, log_e = bets.p_value[at], bets.log_p_value[at], bets.log_e[at]
    elif rule == "besag_clifford":
        p, log_p = (value[at] for value in sequential.besag_clifford(counts, num_exceedances, dtype))
    return SequentialResult(
        looks=looks,
        p_value=p,
        log_p_value=log_p,
        log_e_value=log_e,
        num_exceedances=counts.total[at],
        num_shards=counts.num_shards,
        num_masked=jnp.int32(canonical.shape[0]) - counts.num_shards,
        method=f"exchangeability/{rule}",
        guarantee=GUARANTEES[rule],
    )


def _first(result: SequentialResult, count: int) -> SequentialResult:
    """Return the first looks in JAX's default types, with p-values that do not underflow."""
    tiny = np.finfo(jnp.result_type(float)).tiny
    fields = {name: getattr(result, name)[:count] for name in ("log_p_value", "log_e_value", "num_exceedances")}
    fields["p_value"] = np.maximum(result.p_value[:count], tiny)
    return jax.device_put(dataclasses.replace(result, looks=result.looks[:count], **fields))


def _as_looks(looks: Any, horizon: int | None) -> tuple[int, ...]:
    """Check looks that rise from 1 or more, up to the horizon if there is one."""
    if isinstance(looks, (str, bytes)) or not isinstance(looks, (Sequence, np.ndarray)) or len(looks) == 0:
        raise InputError(f"looks must be whole numbers of shuffles in rising order, as (1, 5, 25); got {looks!r}")
    wanted = tuple(as_count(look, f"looks[{i}]") for i, look in enumerate(looks))
    for before, after in itertools.pairwise(wanted):
        if after <= before:
            raise InputError(f"looks must rise, got {after} after {before}; name each number of shuffles once")
    if horizon is not None and wanted[-1] > horizon:
        raise InputError(
            f"the last look is at {wanted[-1]} shuffles, beyond horizon={horizon}; raise horizon, or leave it out"
        )
    return wanted
