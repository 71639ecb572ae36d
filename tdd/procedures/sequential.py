"""The test of canonical order, read while the shuffles come in: clear cases stop early, at no cost in validity.

Log-probabilities in (of shards in canonical order and shuffled, as far as they have been computed), a p-value for each
look out.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import betting, permutation, sequential
from tdd.procedures.calls import tracing
from tdd.procedures.exchangeability import GUARANTEES as TEST_GUARANTEES
from tdd.procedures.exchangeability import TESTS, TestName, exchangeability
from tdd.records import Guarantee, pytree
from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.sequential import as_count
from tdd.validate.shards import as_draws, as_shards

__all__ = [
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "RULES",
    "SequentialResult",
    "exchangeability_sequence",
]

Rule = Literal["e_process", "spending", "besag_clifford"]
RULES = ("e_process", "spending", "besag_clifford")

_ORDER = TEST_GUARANTEES["exact"].assumes
_SCHEDULE = "the looks and the horizon were fixed before any log-probability was seen"
_ANY_LOOK = "P(the p-value of some look <= alpha) <= alpha if the model is independent of the order"

GUARANTEES: dict[str, Guarantee] = {
    "e_process": Guarantee(
        "P(p <= alpha at some time) <= alpha if the model is independent of the order",
        _ORDER,
        "finite-sample",
        "Fischer & Ramdas (2024); Ville's inequality",
    ),
    "spending": Guarantee(_ANY_LOOK, (*_ORDER, _SCHEDULE), "finite-sample", "union bound over the looks"),
    "besag_clifford": Guarantee(
        "P(p <= alpha) <= alpha at one look that was fixed beforehand, if the model is independent of the order",
        (
            *_ORDER,
            "column b of the shuffles is one order of the whole data set",
            "one stops at num_exceedances exceedances or at that look, not because p is small",
        ),
        "finite-sample",
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

_PADDED = 1_024  # shuffles


@pytree("looks", "method", "guarantee")
class SequentialResult:
    """A sequential test of canonical order at each of its looks.

    Attributes:
      looks: numbers of shuffles, those of the schedule that have been reached.
      p_value: [L] valid as `guarantee` says; it never rises from look to look ("besag_clifford": it may).
      log_p_value: [L] its logarithm.
      log_e_value: [L] logarithm of the e-value, NaN unless the rule is "e_process". It may fall again, and has mean at
        most 1 at a look fixed beforehand only: where one stopped on evidence, use the p-value.
      num_exceedances: [L] int32, how many shuffles of the whole reach the sum over shards of the canonical orders.
      num_shards: [] int32, shards that were used.
      num_masked: [] int32, shards that were masked out or whose canonical order is NaN.
      method: name of the rule.
      guarantee: what the p-value promises.
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

    What stands at a look depends on the first so many shuffles alone: the same call with more columns continues, for
    "spending" with the same horizon=, over which it spends the level.

    Guarantee, for a model that does not depend on the order, by `rule`:
      "e_process": P(p <= alpha at some time) <= alpha, whatever makes one stop, and the looks need not be fixed. Bets
        on how often shuffles beat the canonical order, shard by shard. Finite-sample.
      "spending": P(p <= alpha at some look) <= alpha for a schedule fixed beforehand: each look has a share of the
        level, in proportion to its shuffles, and p is the smallest p-value of `test` so far over its share.
        Finite-sample, asymptotic for test="t".
      "besag_clifford": P(p <= alpha) <= alpha at one look fixed beforehand, whatever the sum over shards did on the
        way: h/l if the h-th exceedance of the sum came at draw l, (1 + x)/(1 + b) before. It stops early where there
        is nothing to find (h exceedances), never because p is small. Finite-sample.

    Which rule: 50 normal shards, 50 shuffles at most, level .001 (2,000 repetitions, standard errors up to .011). All
    shards shifted by 2 sd: one shuffle is enough for "e_process" and "spending". By 0.4 sd: all shuffles without
    stopping find .33, "spending" .29, "e_process" .10; three of 50 by 6 sd: .16, .11, .01. With a long left tail
    (lognormal) and 0.4 sd: .98, .97 after 7 shuffles on average, 1.00 after 3. Where nothing is planted, giving up at
    10 exceedances of the sum saves a third of the shuffles; it keeps every guarantee and cost no power above.

    Args:
      canonical: [r] log-probabilities (sums over tokens, nats), higher = more likely.
      shuffled: [r, b] log-probabilities of the shuffles in the order in which they were drawn.
      rule: which rule.
      looks: numbers of shuffles at which the test is read; default 1, 2, 5, 10, 20, 50, ... and the horizon.
      horizon: largest number of shuffles, fixed beforehand; default the last look, else b.
      test: of `exchangeability`, for "spending".
      num_exceedances: h, for "besag_clifford".
      key: PRNG key for "spending" with test "combined" or "exact"; each look draws its own relabellings.
      num_draws: random relabellings of a look.
      mask: [r] bool, True = real shard. A shard whose canonical order is NaN is left out. A shuffle that is NaN does
        not count ("spending": at looks that include it, its shard is left out).

    Returns:
      `SequentialResult`. Concrete input is tested in float64 (ties: within 100 epsilons of the magnitudes, 4 epsilons
      of the narrower type for float32 input); traced input in its own type.

    Raises:
      InputError: shapes that do not fit, infinite values, no shard or shuffle, unknown options, looks that do not
        rise or lie beyond the horizon, more shuffles than the horizon, no look reached, a missing key.

    Cost: O(r b); "spending": `exchangeability` once a look (about 15 ms each for r = b = 50, and a compilation each).

    >>> rows = [[1.0, 2.0, 0.5], [4.0, 1.0, 3.0], [2.0, 0.0, 1.0], [6.0, 5.5, 3.0]]
    >>> found = exchangeability_sequence([3.0, 5.0, 2.5, 7.0], rows, looks=(1, 3))
    >>> found.looks, [round(float(p), 3) for p in found.p_value]
    ((1, 3), [0.189, 0.019])

    References: Fischer & Ramdas (2024), sequential Monte Carlo testing by betting; Besag & Clifford (1991).
    """
    arrays.check_choice(rule, RULES, "rule")
    arrays.check_choice(test, TESTS, "test")
    canonical, shuffled, mask = as_shards(canonical, shuffled, mask)
    num_draws, num_exceedances = as_draws(num_draws), as_count(num_exceedances, "num_exceedances")
    whole, num_reached = _schedule(looks, horizon, shuffled.shape[1])
    reached = whole[:num_reached]
    shuffled = shuffled[:, : reached[-1]]
    if tracing(canonical, shuffled, mask, key):
        operands = _operands(canonical, shuffled, mask)
        found = _counted(*operands, None, rule=rule, looks=reached, num_exceedances=num_exceedances)
    else:
        given = np.result_type(np.asarray(canonical).dtype, np.asarray(shuffled).dtype)
        tolerance = permutation.tie_tolerance(given if jnp.issubdtype(given, jnp.floating) else np.float64)
        operands = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float), mask
        width, parts = (whole[-1], whole) if whole[-1] <= _PADDED else (reached[-1], reached)
        padding = ((0, 0), (0, width - reached[-1]))  # one program for every part of a schedule: NaN never counts
        padded = operands[0], np.pad(operands[1], padding, constant_values=np.nan), mask
        with jax.enable_x64(True):
            found = _counted(*padded, tolerance, rule=rule, looks=parts, num_exceedances=num_exceedances)
            found = jax.tree.map(np.asarray, found)
        found = _first(found, num_reached)
    if rule != "spending":
        return found
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
    p, log_p = sequential.spend(jnp.stack(log_p), sequential.look_weights(whole)[:num_reached])
    guarantee = _IN_THE_LIMIT if test == "t" else GUARANTEES[rule]
    return dataclasses.replace(
        found, p_value=p, log_p_value=log_p, method=f"exchangeability/spending/{test}", guarantee=guarantee
    )


def _schedule(looks: Any, horizon: Any, num_shuffles: int) -> tuple[tuple[int, ...], int]:
    """The whole schedule, and how many of its looks have been reached."""
    horizon = None if horizon is None else as_count(horizon, "horizon")
    whole = sequential.default_looks(horizon or num_shuffles) if looks is None else _as_looks(looks, horizon)
    horizon = horizon or whole[-1]
    if num_shuffles > horizon:
        raise InputError(
            f"shuffled has {num_shuffles} columns, more than horizon={horizon}: a horizon is fixed before the "
            f"shuffles are seen; pass shuffled[:, :{horizon}]"
        )
    if num_shuffles < whole[0]:
        raise InputError(
            f"shuffled has {num_shuffles} columns, fewer than the first look at {whole[0]} shuffles; score more "
            "shuffles, or give an earlier look"
        )
    return whole, sum(look <= num_shuffles for look in whole)


def _operands(canonical: Any, shuffled: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Of a traced call. Every rule depends on differences only: log-probabilities that are known beforehand are
    centred in double precision first."""
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer):
        canonical, shuffled = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float)
        canonical, shuffled = canonical - canonical, shuffled - canonical[:, None]
    dtype = jnp.result_type(canonical, shuffled, jnp.float32)
    return jnp.asarray(canonical, dtype), jnp.asarray(shuffled, dtype), None if mask is None else jnp.asarray(mask)


@functools.partial(jax.jit, static_argnames=("rule", "looks", "num_exceedances"))
def _counted(canonical, shuffled, mask, tolerance, *, rule, looks, num_exceedances) -> SequentialResult:
    """The rules that count exceedances; for "spending" only the counts."""
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


def _first(found: SequentialResult, count: int) -> SequentialResult:
    """The first looks, in JAX's default types; p-values that do not vanish there."""
    tiny = np.finfo(jnp.result_type(float)).tiny
    fields = {
        name: jnp.asarray(getattr(found, name)[:count]) for name in ("log_p_value", "log_e_value", "num_exceedances")
    }
    fields["p_value"] = jnp.asarray(np.maximum(found.p_value[:count], tiny))
    return dataclasses.replace(jax.tree.map(jnp.asarray, found), looks=found.looks[:count], **fields)


def _as_looks(looks: Any, horizon: int | None) -> tuple[int, ...]:
    """Looks that rise from 1 or more, up to the horizon where there is one."""
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
