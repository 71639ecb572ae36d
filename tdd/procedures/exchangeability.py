"""Was a data set in the training data? A test of whether the model knows the order of its examples.

A model that never saw the data set finds its canonical order as likely as any shuffle. Log-probabilities in (of
shards in canonical order and shuffled), one p-value out.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import permutation, randomization, rank_sum, student
from tdd.procedures.calls import tracing
from tdd.records import Guarantee, TestResult, pytree
from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.shards import as_draws, as_shards

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "TESTS", "ExchangeabilityResult", "exchangeability"]

TestName = Literal["combined", "rank_sum", "exact", "t", "permutation"]
TESTS = ("combined", "rank_sum", "exact", "t", "permutation")

_ORDER = (
    "the examples were published in an order that means nothing (exchangeable), and the model does not depend on it",
    "shards, statistic and shuffles were fixed before any log-probability was seen",
    "shuffles are independent uniform draws that may repeat the canonical order (or distinct orders without it)",
)
_SIZE = "P(p <= alpha) <= alpha if the model is independent of the order"

GUARANTEES: dict[str, Guarantee] = {
    "combined": Guarantee(_SIZE, _ORDER, "finite-sample", "Bonferroni over rank_sum and exact"),
    "rank_sum": Guarantee(_SIZE, _ORDER, "finite-sample", "Lehmann & Romano (2005), theorem 15.2.2, in each shard"),
    "exact": Guarantee(_SIZE, _ORDER, "finite-sample", "Lehmann & Romano (2005), theorems 15.2.1 and 15.2.2"),
    "t": Guarantee(
        "P(p <= alpha) <= alpha in the limit of many shards",
        (
            *_ORDER,
            "shard statistics are independent and alike",
            "they are many, and their law has no long left tail",
        ),
        "asymptotic",
        "the sharded exchangeability test, theorem 2 (with ddof = 1)",
    ),
    "permutation": Guarantee(
        _SIZE,
        (*_ORDER, "column b of the shuffles is one order of the whole data set"),
        "finite-sample",
        "the sharded exchangeability test, proposition 1 and section 3.1 (with >= in place of >)",
    ),
}

GUARANTEE_ROWS = [
    *[("tdd.exchangeability", f'test="{name}"', guarantee) for name, guarantee in GUARANTEES.items()],
    ("tdd.run_exchange", "each data set", GUARANTEES["combined"]),
]

_SKEW = 0.1  # the t-test's size at .01 exceeds .015 where -skewness/sqrt(r) exceeds this (to second order)


@pytree("method", "guarantee")
class ExchangeabilityResult(TestResult):
    """A test of canonical order, with what each shard contributes whichever test was run.

    Attributes:
      shard_ranks: [r] int32, shuffles that the canonical order of each shard beats; -1 where it is left out.
      shard_statistic: [r] canonical minus mean shuffled log-probability; NaN where it is left out.
      skewness: [] of the shard statistics.
      skewed: [] bool, a left tail so long for the number of shards that the t-test rejects too often (its size at .01
        exceeds .015): look at the exact tests.
      num_shards: [] int32, shards that were used.
      num_masked: [] int32, shards that were masked out or have a NaN.
      log_smallest_p: [] logarithm of the smallest p-value that the test could have given on these sizes (-inf for
        "t"): above log(alpha), it cannot reject.
    """

    shard_ranks: jax.Array
    shard_statistic: jax.Array
    skewness: jax.Array
    skewed: jax.Array
    num_shards: jax.Array
    num_masked: jax.Array
    log_smallest_p: jax.Array


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

    l_i0 is shard i in canonical order, l_i1..l_ik its shuffles, s_i = l_i0 - mean of l_i1..l_ik.

    Guarantee: P(p <= alpha) <= alpha for a model that does not depend on the order, by `test`:
      "combined": min(1, 2 min(p of "rank_sum", p of "exact")); finite-sample. The default.
      "rank_sum": how many shuffles each canonical order beats, summed, against its exact law; finite-sample. Smallest
        possible p-value (k + 1)^-r.
      "exact": the sum of l_i0 against sums with a random one of the k + 1 orders in each shard as the canonical one
        (all of them where (k + 1)^r <= num_draws + 1); finite-sample. Smallest possible 1/(num_draws + 1).
      "t": one-sided t-test of s_1..s_r, the paper's; asymptotic, and above its level for left-skewed s (`skewed`).
        p = 1 (no test) for one shard and where all s are equal: there is no spread to compare with.
      "permutation": the sum of l_i0 against the sum of l_ib over shards, b = 1..k; finite-sample, for one shard too.
        Smallest possible 1/(k + 1).

    Power at level .01 with r = k = 50 (2,000 repetitions, standard errors up to .011): all shards shifted by 0.4 sd,
    log-probabilities -Exp(1): rank_sum .92, combined .88, exact .74, t .63. Three of 50 normal shards shifted by 6 sd:
    exact .54, combined .43, t .06, rank_sum .05. "combined" loses little where either test is strong.

    Args:
      canonical: [r] log-probabilities (sums over tokens, nats), higher = more likely. Log-densities may be positive.
      shuffled: [r, k] log-probabilities of the shuffles.
      test: which test.
      key: PRNG key for "exact" and "combined" (unless all relabellings are listed) and for randomised ties.
      num_draws: random relabellings.
      tie_break: of the ranks: "conservative" counts ties against the canonical order, "randomized" breaks them by
        chance ("rank_sum" and "combined").
      mask: [r] bool, True = real shard. A shard with a NaN is left out and counted besides; inside a trace, where that
        cannot be seen beforehand, it is left out if a mask is given and makes the p-value NaN otherwise.

    Returns:
      `ExchangeabilityResult`. Concrete input is tested in float64 (ties: within 100 epsilons of the sum of magnitudes,
      4 epsilons of the narrower type for float32 input); traced input in its own type.

    Raises:
      InputError: shapes that do not fit, infinite values, no shard or shuffle, unknown options, a missing key.

    Cost: O(r k) and O(num_draws r) for the draws: 15 ms for 99,999 draws at r = k = 50 on two CPU cores.

    >>> result = exchangeability([3.0, 5.0, 2.0], [[1.0, 2.0], [4.0, 1.0], [2.0, 0.0]], test="exact")
    >>> round(27 * float(result.p_value), 4)
    2.0

    References: the sharded exchangeability test, algorithm 1; Phipson & Smyth (2010).
    """
    arrays.check_choice(test, TESTS, "test")
    arrays.check_choice(tie_break, ("conservative", "randomized"), "tie_break")
    if tie_break == "randomized" and test not in ("combined", "rank_sum"):
        raise InputError(f'tie_break="randomized" is for test="rank_sum" and "combined", not for {test!r}')
    canonical, shuffled, mask = as_shards(canonical, shuffled, mask)
    num_draws = as_draws(num_draws)
    if tracing(canonical, shuffled, mask, key):
        return _traced(canonical, shuffled, mask, key, test, num_draws, tie_break)
    given = np.result_type(np.asarray(canonical).dtype, np.asarray(shuffled).dtype)
    tolerance = permutation.tie_tolerance(given if jnp.issubdtype(given, jnp.floating) else np.float64)
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
    """The call inside a trace, in the floating type of what is traced. Every test depends on differences only:
    log-probabilities that are known beforehand are centred in double precision first."""
    if not isinstance(canonical, Tracer) and not isinstance(shuffled, Tracer):
        canonical, shuffled = np.asarray(canonical).astype(float), np.asarray(shuffled).astype(float)
        canonical, shuffled = np.zeros_like(canonical), shuffled - canonical[:, None]
        known = ~np.isnan(shuffled).any(axis=1)
        mask = mask if known.all() else known if mask is None else jnp.asarray(mask) & known
    dtype = jnp.result_type(canonical, shuffled, jnp.float32)
    canonical, shuffled = jnp.asarray(canonical, dtype), jnp.asarray(shuffled, dtype)
    mask = None if mask is None else jnp.asarray(mask)
    _check_randomness(test, tie_break, key, shuffled.shape[0], shuffled.shape[1], num_draws)
    try:
        return _test(canonical, shuffled, mask, key, None, test=test, num_draws=num_draws, ties=tie_break)
    except ValueError as error:
        raise InputError(str(error)) from error


def _check_randomness(test: str, tie_break: str, key: Any, r: int, k: int, num_draws: int) -> None:
    draws = test in ("combined", "exact") and not randomization.is_enumerable(r, k, num_draws)
    if draws:
        arrays.check_key(
            key, f"test={test!r} with {k + 1}^{r} relabellings, more than num_draws + 1 = {num_draws + 1},"
        )
    elif tie_break == "randomized":
        arrays.check_key(key, 'tie_break="randomized"')


@functools.partial(jax.jit, static_argnames=("test", "num_draws", "ties"))
def _test(canonical, shuffled, mask, key, tolerance, *, test, num_draws, ties) -> ExchangeabilityResult:
    """Every test on real or masked shards, in one program."""
    r, k = shuffled.shape
    options = {"mask": mask, "tolerance": tolerance}
    rank_key, draw_key = (None, None) if key is None else jax.random.split(key)
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
        by_ranks = rank_sum.rank_sum(canonical, shuffled, key=rank_key, **options)
    if test in ("combined", "exact"):
        drawn = randomization.shard_randomization(canonical, shuffled, num_draws=num_draws, key=draw_key, **options)
    if test == "combined":
        log_p = jnp.minimum(jnp.minimum(by_ranks.log_p_value, drawn.log_p_value) + math.log(2), 0)
        p = jnp.minimum(2 * jnp.minimum(by_ranks.p_value, drawn.p_value), 1)
        statistic, floor = p / 2, jnp.minimum(jnp.minimum(floor_ranks, floor_draws) + math.log(2), 0)
    elif test == "rank_sum":
        p, log_p, statistic, floor = by_ranks.p_value, by_ranks.log_p_value, by_ranks.statistic, floor_ranks
    elif test == "exact":
        p, log_p, statistic, floor = drawn.p_value, drawn.log_p_value, total, floor_draws
    elif test == "t":
        known = real.all() if mask is None else True
        p, log_p = (jnp.where(known, value, jnp.nan) for value in (by_t.p_value, by_t.log_p_value))
        statistic = by_t.statistic
        floor = jnp.where(used >= 2, -jnp.inf, 0)
    else:
        found = randomization.shard_permutation(canonical, shuffled, **options)
        p, log_p, statistic, floor = found.p_value, found.log_p_value, total, jnp.full((), -math.log(k + 1))
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


def _restored(result: ExchangeabilityResult, real: np.ndarray) -> ExchangeabilityResult:
    """The result in JAX's default types, its shards in their places among those that were left out."""
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
    return jax.tree.map(jnp.asarray, ExchangeabilityResult(**fields))
