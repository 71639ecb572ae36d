"""Test whether a model knows the order of a data set's examples, and the shuffles that the test needs.

A model that never saw the data set finds its canonical order as likely as any shuffle. The tests take log-probabilities
of shards in canonical order and shuffled, and give one p-value.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import betting, permutation, randomization, rank_sum, student
from tdd.procedures.calls import key_of, operand, tracing
from tdd.records import Difference, Guarantee, TestResult, pytree
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

TestName = Literal["combined", "rank_sum", "exact", "t", "permutation"]
TESTS = ("combined", "rank_sum", "exact", "t", "permutation")

_ORDER = (
    "the examples were published in a random order: if the model does not depend on it, any other would have been as "
    "likely (exchangeable)",
    "shards, statistic and shuffles were fixed before any log-probability was seen",
    "shuffles are drawn uniformly and independently, and may repeat the published order (or all orders are distinct)",
)
_SIZE = "P(p <= alpha) <= alpha if the model is independent of the order"

GUARANTEES: dict[str, Guarantee] = {
    "combined": Guarantee.finite_sample(_SIZE, _ORDER, "Bonferroni over rank_sum and exact"),
    "rank_sum": Guarantee.finite_sample(_SIZE, _ORDER, "Lehmann & Romano (2005), theorem 15.2.2, in each shard"),
    "exact": Guarantee.finite_sample(_SIZE, _ORDER, "Lehmann & Romano (2005), theorems 15.2.1 and 15.2.2"),
    "t": Guarantee(
        "P(p <= alpha) <= alpha in the limit of many shards",
        (
            *_ORDER,
            "shard statistics are independent and identically distributed",
            "there are many shards, and their statistics have no long left tail",
        ),
        "asymptotic",
        "the sharded exchangeability test, theorem 2 (with ddof = 1)",
    ),
    "permutation": Guarantee.finite_sample(
        _SIZE,
        (*_ORDER, "column b of the shuffles is one order of the whole data set"),
        "the sharded exchangeability test, proposition 1 and section 3.1 (with >= in place of >)",
    ),
}

GUARANTEE_ROWS = [
    *[("tdd.exchangeability", f'test="{name}"', guarantee) for name, guarantee in GUARANTEES.items()],
    ("tdd.run_exchange", "each data set", GUARANTEES["combined"]),
]

DIFFERENCES = [
    Difference(
        "tdd.exchangeability", "Exchangeability", "section 3.1", "shuffles that are more likely count, by <",
        "shuffles that are as likely count too, within rounding",
        "else a model that finds all orders equally likely has p = 1/(k + 1)",
    ),
    Difference(
        "tdd.exchangeability", "Exchangeability", "algorithm 1", "a one-sided t-test over shards",
        'offered as test="t"; the default is "combined", of two exact tests on the same log-probabilities',
        "the t-test is asymptotic: on left-skewed shards its size at .01 is .030 for 50 of them and .055 for 10",
    ),
]  # fmt: skip

_SKEW = 0.1  # the t-test's size at .01 exceeds .015 if -skewness/sqrt(r) exceeds this (to second order)
_MOST_SHUFFLES = 10**9
_INFINITE = (
    "{count} of {size} log-probabilities are infinite. A model that gives a text probability 0 (or 1 to an overflow) "
    "cannot be tested; use NaN for a value that is missing: its shard is left out and counted"
)


@pytree("method", "guarantee")
class ExchangeabilityResult(TestResult):
    """A test of canonical order, with the contribution of each shard whichever test was run.

    Attributes:
      shard_ranks: [r] int32, shuffles that the canonical order of each shard beats; -1 if it is left out.
      shard_statistic: [r] canonical minus mean shuffled log-probability; NaN if it is left out.
      skewness: [] skewness of the shard statistics.
      skewed: [] bool, whether their left tail is so long for the number of shards that the t-test rejects too often
        (its size at .01 exceeds .015): use the exact tests.
      num_shards: [] int32, shards that were used.
      num_masked: [] int32, shards that were masked out or have a NaN.
      log_smallest_p: [] logarithm of the smallest p-value that the test can give at these sizes (-inf for "t"). If it
        exceeds log(alpha), the test cannot reject. With a mask that is traced, that of all shards.
    """

    shard_ranks: jax.Array
    shard_statistic: jax.Array
    skewness: jax.Array
    skewed: jax.Array
    num_shards: jax.Array
    num_masked: jax.Array
    log_smallest_p: jax.Array


@in_own_settings()
def exchangeability(
    canonical: Any,
    shuffled: Any,
    *,
    test: TestName = "combined",
    key: jax.Array | None = None,
    num_draws: int = 99_999,
    tie_break: Literal["conservative", "randomized"] = "conservative",
    mask: Any = None,
) -> ExchangeabilityResult:
    """Test whether the canonical order of a data set is more likely under a model than its shuffles.

    l_i0 is shard i in canonical order, l_i1..l_ik its shuffles, s_i = l_i0 - mean of l_i1..l_ik (the sharded
    exchangeability test, algorithm 1).

    Guarantee: P(p <= alpha) <= alpha for a model that does not depend on the order, by `test`:
      "combined": min(1, 2 min(p of "rank_sum", p of "exact")); finite-sample. The default.
      "rank_sum": how many shuffles each canonical order beats, summed, against its exact law; finite-sample. Smallest
        possible p-value (k + 1)^-r.
      "exact": the sum of l_i0 against sums with a random one of the k + 1 orders in each shard as the canonical one
        (all of them where (k + 1)^r <= num_draws + 1); finite-sample. Smallest possible 1/(num_draws + 1).
      "t": one-sided t-test of s_1..s_r, the paper's; asymptotic, and above its level for left-skewed s (`skewed`). p =
        1 for one shard and if all s are equal: there is no spread to compare with.
      "permutation": the sum of l_i0 against the sum of l_ib over shards, b = 1..k; finite-sample, for one shard too.
        Smallest possible 1/(k + 1) (Phipson & Smyth 2010).

    Differs from the paper (`DIFFERENCES`): section 3.1, where ties count against the canonical order; algorithm 1,
    whose t-test is an option.

    Power at level .01 with r = k = 50 (2,000 repetitions, standard errors up to .011): all shards shifted by 0.4 sd,
    log-probabilities -Exp(1): rank_sum .92, combined .88, exact .74, t .63. Three of 50 normal shards shifted by 6 sd:
    exact .54, combined .43, t .06, rank_sum .05. "combined" loses little if either test is strong.

    Args:
      canonical: [r] log-probabilities (sums over tokens, nats), higher = more likely. Log-densities may be positive.
      shuffled: [r, k] log-probabilities of the shuffles.
      test: which test.
      key: PRNG key for "exact" and "combined" (unless all relabellings are listed) and for randomised ties. The draws
        depend on it and on a hash of the ranks within shards, so that one constant key does not serve all data sets
        (`jax.random.key(0)` alone: randomised ties of 20 shards and 3 shuffles rejected in .089 of them at level .05).
      num_draws: random relabellings.
      tie_break: ties of the ranks: "conservative" counts them against the canonical order, "randomized" breaks them at
        random ("rank_sum" and "combined").
      mask: [r] bool, True = real shard. A shard with a NaN is left out and counted as masked; inside a trace it is left
        out if a mask is given and makes the p-value NaN otherwise. There "exact" draws for masked shards too, so that
        its p-value is another one than without their rows, with the same guarantee.

    Returns:
      `ExchangeabilityResult`. Concrete input is tested in float64 (ties: within 100 epsilons of the sum of magnitudes,
      4 epsilons of the narrower type for float32 input); traced input in its own type. Cost: O(r k) and O(num_draws r)
      for the draws.

    Raises:
      InputError: wrong shapes, infinite values, no shard or shuffle, unknown options, a missing key.

    >>> result = exchangeability([3.0, 5.0, 2.0], [[1.0, 2.0], [4.0, 1.0], [2.0, 0.0]], test="exact")
    >>> round(27 * float(result.p_value), 4)
    2.0
    """
    arrays.check_choice(test, TESTS, "test")
    arrays.check_choice(tie_break, ("conservative", "randomized"), "tie_break")
    if tie_break == "randomized" and test not in ("combined", "rank_sum"):
        raise InputError(f'tie_break="randomized" is for test="rank_sum" and "combined", not for {test!r}')
    canonical, shuffled, mask = as_shards(canonical, shuffled, mask)
    num_draws = arrays.as_count(num_draws, "num_draws")
    if tracing(canonical, shuffled, mask, key):
        return _traced(canonical, shuffled, mask, key, test, num_draws, tie_break)
    tolerance = tie_tolerance(canonical, shuffled)
    canonical, shuffled = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float)
    real = ~(np.isnan(canonical) | np.isnan(shuffled).any(axis=1)) & (True if mask is None else np.asarray(mask))
    _check_randomness(test, tie_break, key, int(real.sum()), shuffled.shape[1], num_draws)
    try:
        with jax.enable_x64(True):
            result = _test(
                canonical[real], shuffled[real], None, key, tolerance, test=test, num_draws=num_draws, ties=tie_break
            )
            result = jax.tree.map(np.asarray, result)
    except ValueError as error:
        raise InputError(str(error)) from error
    return _restored(result, real)


def _traced(canonical, shuffled, mask, key, test, num_draws, tie_break) -> ExchangeabilityResult:
    """Run the test inside a trace, in the floating type of what is traced."""
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer):
        known = ~(np.isnan(np.asarray(canonical, float)) | np.isnan(np.asarray(shuffled, float)).any(axis=1))
        mask = mask if known.all() else known if mask is None else operand(mask) & known
    canonical, shuffled = centred(canonical, shuffled)
    mask = None if mask is None else operand(mask)
    _check_randomness(test, tie_break, key, shuffled.shape[0], shuffled.shape[1], num_draws)
    try:
        return _test(canonical, shuffled, mask, key, None, test=test, num_draws=num_draws, ties=tie_break)
    except ValueError as error:
        raise InputError(str(error)) from error


def centred(canonical: Any, shuffled: Any) -> tuple[Any, Any]:
    """Return the operands of a traced test; only differences count: known values are centred in double precision."""
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer):
        canonical, shuffled = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float)
        canonical, shuffled = canonical - canonical, shuffled - canonical[:, None]
    dtype = jnp.result_type(canonical, shuffled, jnp.float32)
    return operand(canonical, dtype), operand(shuffled, dtype)


def _check_randomness(test: str, tie_break: str, key: Any, r: int, k: int, num_draws: int) -> None:
    if test in ("combined", "exact") and not randomization.is_enumerable(r, k, num_draws):
        arrays.check_key(
            key, f"test={test!r} with {k + 1}^{r} relabellings, more than num_draws + 1 = {num_draws + 1},"
        )
    elif tie_break == "randomized":
        arrays.check_key(key, 'tie_break="randomized"')


@functools.partial(jax.jit, static_argnames=("test", "num_draws", "ties"))
def _test(canonical, shuffled, mask, key, tolerance, *, test, num_draws, ties) -> ExchangeabilityResult:
    """Run any of the tests on real or masked shards, in one program."""
    r, k = shuffled.shape
    options = {"mask": mask, "tolerance": tolerance}
    drawn = ties == "randomized" or (test in ("combined", "exact") and not randomization.is_enumerable(r, k, num_draws))
    rank_key = draw_key = None
    if key is not None and drawn:
        rank_key, draw_key = jax.random.split(_key_of_orders(key, canonical, shuffled, mask))
    rank_key = rank_key if ties == "randomized" else None
    ranks = rank_sum.shard_ranks(canonical, shuffled, key=rank_key, **options)
    real = ranks >= 0
    s = jnp.where(real, -jnp.mean(shuffled - canonical[:, None], axis=1), jnp.nan)
    relative = permutation.tie_tolerance(s.dtype) if tolerance is None else tolerance
    largest = jnp.max(jnp.maximum(jnp.abs(canonical), jnp.max(jnp.abs(shuffled), axis=1)), where=real, initial=0)
    by_t = student.one_sample(s, noise=relative * largest)
    used = by_t.num_values
    size = used.astype(s.dtype)
    total = jnp.sum(s, where=real)
    floor_ranks, floor_draws = -size * math.log(k + 1), jnp.full((), -math.log(num_draws + 1), s.dtype)
    if randomization.is_enumerable(r, k, num_draws):
        floor_draws = floor_ranks
    if test in ("combined", "rank_sum"):
        same = None if rank_key is None else jax.random.clone(rank_key)  # the same draw, so that both rank alike
        by_ranks = rank_sum.rank_sum(canonical, shuffled, key=same, **options)
    if test in ("combined", "exact"):
        by_draws = randomization.shard_randomization(canonical, shuffled, num_draws=num_draws, key=draw_key, **options)
    if test == "combined":
        log_p = jnp.minimum(jnp.minimum(by_ranks.log_p_value, by_draws.log_p_value) + math.log(2), 0)
        p = jnp.minimum(2 * jnp.minimum(by_ranks.p_value, by_draws.p_value), 1)
        statistic, floor = p / 2, jnp.minimum(jnp.minimum(floor_ranks, floor_draws) + math.log(2), 0)
    elif test == "rank_sum":
        p, log_p, statistic, floor = by_ranks.p_value, by_ranks.log_p_value, by_ranks.statistic, floor_ranks
    elif test == "exact":
        p, log_p, statistic, floor = by_draws.p_value, by_draws.log_p_value, total, floor_draws
    elif test == "t":
        known = real.all() if mask is None else True
        p, log_p = (jnp.where(known, value, jnp.nan) for value in (by_t.p_value, by_t.log_p_value))
        statistic = by_t.statistic
        floor = jnp.where(used >= 2, -jnp.inf, 0)
    else:
        whole = randomization.shard_permutation(canonical, shuffled, **options)
        p, log_p, statistic, floor = whole.p_value, whole.log_p_value, total, jnp.full((), -math.log(k + 1))
    return ExchangeabilityResult(
        p_value=p,
        log_p_value=log_p,
        statistic=statistic.astype(s.dtype),
        method=f"exchangeability/{test}",
        guarantee=GUARANTEES[test],
        shard_ranks=ranks,
        shard_statistic=s,
        skewness=by_t.skewness,
        skewed=by_t.skewness < -_SKEW * jnp.sqrt(size),
        num_shards=used,
        num_masked=jnp.int32(r) - used,
        log_smallest_p=floor.astype(s.dtype),
    )


def _key_of_orders(key: jax.Array, canonical: jax.Array, shuffled: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Return `key_of` the place of each order among those of its shard, which neither unit nor origin changes."""
    every = jnp.concatenate([canonical[:, None], shuffled], axis=1)
    places = jax.vmap(jnp.searchsorted)(jnp.sort(every, axis=1), every)
    real = ~jnp.isnan(every).any(axis=1)
    return key_of(key, (places.T, real if mask is None else real & mask))


def _restored(result: ExchangeabilityResult, real: np.ndarray) -> ExchangeabilityResult:
    """Return the result in JAX's default types, its shards in their places among those that were left out."""
    ranks, statistic = np.full(real.shape, -1, np.int32), np.full(real.shape, np.nan)
    ranks[real], statistic[real] = result.shard_ranks, result.shard_statistic
    tiny = np.finfo(jnp.result_type(float)).tiny
    fields = {
        **vars(result),
        "p_value": np.where(result.p_value < tiny, tiny, result.p_value),
        "shard_ranks": ranks,
        "shard_statistic": statistic,
        "num_masked": np.int32((~real).sum()),
    }
    return jax.device_put(ExchangeabilityResult(**fields))


def shuffles_needed(num_shards: int, alpha: float, test: str = "combined", *, num_draws: int = 99_999) -> int:
    """Return the smallest number k of shuffles with which a test can reach the level; fewer can detect no data set.

    Real data sets need more: the level is reached by a canonical order that beats every shuffle of every shard.

    Args:
      num_shards: r.
      alpha: level, taken as the decimal that it is written as.
      test: test of `exchangeability`, or "e_process" of `exchangeability_sequence`.
      num_draws: random relabellings of "exact" and "combined".

    Raises:
      InputError: arguments out of range, or no number of shuffles suffices: "exact" with too few draws, "t" with one
        shard.

    >>> [shuffles_needed(r, 0.001) for r in (1, 2, 5, 50)], shuffles_needed(50, 0.001, "permutation")
    ([1999, 44, 4, 1], 999)
    """
    r = arrays.as_count(num_shards, "num_shards", 10**6)
    arrays.check_level(alpha)
    arrays.check_choice(test, (*TESTS, "e_process"), "test")
    draws = arrays.as_count(num_draws, "num_draws")
    level = Fraction(repr(float(alpha)))
    if test == "t":
        if r == 1:
            raise InputError('num_shards=1: test="t" needs at least two shards; cut the data set into more')
        return 1
    if test == "exact" and level * (draws + 1) < 1:
        needed = math.ceil(1 / level) - 1
        raise InputError(
            f'num_draws={draws}: test="exact" cannot reach alpha={alpha!r} with any number of shuffles, its p-values '
            f'are at least 1/{draws + 1}; give num_draws={needed} or more, or test="rank_sum"'
        )

    shards, factor = (1 if test == "permutation" else r), (2 if test == "combined" else 1)
    wanted = -math.log(level)

    def reaches(k: int) -> bool:
        if test == "e_process":
            return betting.largest_log_e(r, k) >= wanted * (1 - 1e-12)
        return shards * math.log(k + 1) > wanted + 1 or Fraction(factor, (k + 1) ** shards) <= level

    return _smallest(reaches)


def _smallest(reaches: Callable[[int], bool]) -> int:
    """Return the smallest k >= 1 with reaches(k), which is monotone in k."""
    high = 1
    while not reaches(high):
        high *= 2
        if high > _MOST_SHUFFLES:
            raise InputError(f"no number of shuffles up to {_MOST_SHUFFLES:,} reaches alpha; use more shards")
    low = high // 2 + 1  # high // 2 does not reach it
    return low + bisect.bisect_left(range(low, high), True, key=reaches)


def tie_tolerance(canonical: Any, shuffled: Any) -> float:
    """Return the relative tolerance of ties between log-probabilities of concrete input."""
    types = [np.asarray(sample).dtype for sample in (canonical, shuffled)]
    own = [dtype for dtype in types if dtype.kind == "V"]  # bfloat16, which NumPy promotes with no integer
    dtype = np.result_type(*(own or types))
    return permutation.tie_tolerance(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float64)


def as_shards(canonical: Any, shuffled: Any, mask: Any, *, complete: bool = True) -> tuple[Any, Any, Any]:
    """Check log-probabilities [r] and [r, k] and a mask [r] or None; one real shard must have all shuffles, or one."""
    canonical = arrays.as_vector(canonical, "canonical")
    _check_axes(canonical, shuffled)
    shuffled = arrays.as_matrix(shuffled, "shuffled", "[shards, shuffles]")
    r, (rows, k) = canonical.shape[0], shuffled.shape
    if r == 0:
        raise InputError("canonical is empty; at least one shard is needed")
    if rows != r:
        turned = "; it looks transposed: pass shuffled.T" if k == r else ""
        raise InputError(
            f"canonical has {r} shards and shuffled has shape {(rows, k)}; shuffled needs one row a shard and one "
            f"column a shuffle, [{r}, shuffles]{turned}"
        )
    if k == 0:
        raise InputError(f"shuffled has shape {(rows, k)}: at least one shuffle a shard is needed")
    for name, values in (("canonical", canonical), ("shuffled", shuffled)):
        arrays.check_finite(values, name, _INFINITE)
    mask = arrays.as_mask(mask, canonical, "mask")
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer) and not isinstance(mask, Tracer):
        missing = np.isnan(np.asarray(shuffled, float))
        unknown = np.isnan(np.asarray(canonical, float)) | (missing.any(axis=1) if complete else missing.all(axis=1))
        if not (~unknown if mask is None else ~unknown & np.asarray(mask)).any():
            raise InputError(
                f"no shard is left: {int(unknown.sum())} of {r} have a NaN in canonical or shuffled, the others are "
                "masked out"
            )
    return canonical, shuffled, mask


def _check_axes(canonical: Any, shuffled: Any) -> None:
    """Refuse one axis too few, and name the brackets that each of its two meanings needs."""
    if arrays.num_axes(shuffled) == 1:
        length, r = np.shape(shuffled)[0], canonical.shape[0]
        fix = "shuffled[:, None] for one shuffle of each shard" if length == r else "one row a shard"
        if r == 1:
            fix = "[shuffled] for the shuffles of the only shard"
        raise InputError(f"shuffled must have two axes, [shards, shuffles]; got shape ({length},): pass {fix}")
