"""Claims about tests of canonical order: tails, ties, and what may be drawn as a shuffle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import betting, permutation, randomization, rank_sum, sequential, student
from tdd.study.claims import Claim, Setting

Draw = Callable[[jax.Array], tuple[jax.Array, jax.Array]]
Decide = Callable[[jax.Array, jax.Array, jax.Array, float], jax.Array]
"""(canonical [r], shuffled [r, k], key, level) -> [] bool, whether the true null is rejected."""

_ORDERS = np.array(list(itertools.permutations(range(4))))
_NEIGHBOURS = [1, 2, 6]  # of the first order, 0123: 0132, 0213, 1023


def _independent(law: Callable[[jax.Array, tuple[int, int]], jax.Array], r: int, k: int) -> Draw:
    """Log-probabilities of one law, exchangeable within every shard."""

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = law(key, (r, k + 1))
        return values[:, 0], values[:, 1:]

    return draw


def _left_skewed(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return -jax.random.exponential(key, shape)


def _integers(low: int, high: int) -> Callable[[jax.Array, tuple[int, int]], jax.Array]:
    return lambda key, shape: jax.random.randint(key, shape, low, high).astype(jnp.float32)


def _pairs(r: int, k: int, *, with_identity: bool) -> Draw:
    """Shards of two examples: the k shuffles are the one swap, or each is one of the two orders at random."""

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        values_key, order_key = jax.random.split(key)
        orders = jax.random.normal(values_key, (r, 2))
        swapped = jax.random.bernoulli(order_key, 0.5, (r, k)) | (not with_identity)
        return orders[:, 0], jnp.where(swapped, orders[:, 1:], orders[:, :1])

    return draw


def _four_examples(*, adjacent: bool) -> Draw:
    """One shard of four examples, scored by a weight of each example after each other; 19 shuffles."""

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights_key, order_key = jax.random.split(key)
        weights = jax.random.normal(weights_key, (4, 4))
        values = jnp.sum(weights[_ORDERS[:, :-1], _ORDERS[:, 1:]], axis=1)
        allowed = jnp.asarray(_NEIGHBOURS if adjacent else range(len(_ORDERS)))
        return values[:1], values[jax.random.choice(order_key, allowed, (1, 19))]

    return draw


def _t(canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float, *, ddof: int = 1) -> jax.Array:
    s = canonical - shuffled.mean(axis=1)
    if ddof == 1:
        return student.one_sample(s).p_value <= level
    r = s.shape[0]
    return student.sf(s.mean() / (s.std() / jnp.sqrt(r)), r - 1) <= level


def _rank_sum(
    canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float, *, random_ties: bool = False
) -> jax.Array:
    return rank_sum.rank_sum(canonical, shuffled, key=key if random_ties else None).p_value <= level


def _exact(canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float) -> jax.Array:
    return randomization.shard_randomization(canonical, shuffled, num_draws=399, key=key).p_value <= level


def _combined(canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float) -> jax.Array:
    return _rank_sum(canonical, shuffled, key, level / 2) | _exact(canonical, shuffled, key, level / 2)


def _permutation(
    canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float, *, strict: bool = False
) -> jax.Array:
    if strict:
        return 1 + jnp.sum(shuffled[0] > canonical[0]) <= level * (1 + shuffled.shape[1]) * (1 + 1e-6)
    return permutation.p_value(canonical[0], shuffled[0]).p_value <= level * (1 + 1e-6)


def _at_looks(canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float, *, spent: bool) -> jax.Array:
    """The rank sum at several looks, each at its part of the level or at the whole."""
    looks = sequential.default_looks(shuffled.shape[1])
    log_p = jnp.stack([rank_sum.rank_sum(canonical, shuffled[:, :look]).log_p_value for look in looks])
    p = sequential.spend(log_p, sequential.look_weights(looks))[0] if spent else jnp.exp(log_p)
    return jnp.min(p) <= level


def _bets(
    canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float, *, tolerance: float | None = None
) -> jax.Array:
    """Betting, looked at after every shuffle; a negative tolerance takes ties for the canonical order."""
    return betting.e_process(sequential.exceedances(canonical, shuffled, tolerance=tolerance)).p_value[-1] <= level


def _best_shard(canonical: jax.Array, shuffled: jax.Array, key: jax.Array, level: float) -> jax.Array:
    """The bet of the shard that wins most, as if it had been the only one."""
    counts = sequential.exceedances(canonical, shuffled)
    log_e = betting.log_urn_bet(counts.shards, counts.shard_draws, 0.05, 8.0, horizon=shuffled.shape[1])
    return -jnp.max(log_e) <= jnp.log(level)


def _setting(words: str, level: float, draw: Draw) -> Setting:
    def experiment(key: jax.Array, rule: Decide) -> jax.Array:
        data, own = jax.random.split(key)
        return rule(*draw(data), own, level).astype(jnp.float32)

    return Setting(f"{words}; level {level}", "size", level, experiment)


_SKEWED = "log-probabilities -Exp(1), r = {} shards, {} shuffles"
_PAIRS = "shards of two examples, r = 50, 20 shuffles"
_SWAPS = "four examples, 19 shuffles"
_WATCHED = "log-probabilities {}, r = 10 shards, 20 shuffles; stops when it rejects"
_WIDE = _setting(_SKEWED.format(50, 25), 0.01, _independent(_left_skewed, 50, 25))
_NARROW = _setting(_SKEWED.format(10, 25), 0.01, _independent(_left_skewed, 10, 25))
_FEW = _setting("normal, r = 5 shards, 3 shuffles", 0.01, _independent(jax.random.normal, 5, 3))
_REDRAWN, _KEPT = (_setting(_PAIRS, 0.01, _pairs(50, 20, with_identity=identity)) for identity in (False, True))
_TEN = _setting("one shard, log-probabilities in {0, ..., 9}, 19 shuffles", 0.05, _independent(_integers(0, 10), 1, 19))
_ADJACENT, _ANY_ORDER = (_setting(_SWAPS, 0.05, _four_examples(adjacent=adjacent)) for adjacent in (True, False))
_NORMAL, _LOOSE = (
    _setting(_WATCHED.format("N(0, 1)"), level, _independent(jax.random.normal, 10, 20)) for level in (0.05, 0.1)
)
_TIES = _setting(_WATCHED.format("in {-3, -2, -1}"), 0.05, _independent(_integers(-3, 0), 10, 20))

_IDENTITY = "rank_sum, shuffles"
_PERMUTATION = "permutation test"

CLAIMS: tuple[Claim, ...] = (
    _WIDE.claim("order/t-skewed-50", "sharded t-test", False, _t),
    _NARROW.claim("order/t-skewed-10", "sharded t-test", False, _t),
    _WIDE.claim("order/rank-sum-skewed-50", "rank_sum", True, _rank_sum),
    _NARROW.claim("order/rank-sum-skewed-10", "rank_sum", True, _rank_sum),
    _NARROW.claim("order/exact-skewed-10", "exact, 399 draws", True, _exact),
    _NARROW.claim("order/combined-skewed-10", "combined, 399 draws", True, _combined),
    _FEW.claim("order/t-ddof-0", "sharded t-test with ddof = 0", False, partial(_t, ddof=0)),
    _FEW.claim("order/t-ddof-1", "sharded t-test with ddof = 1", True, _t),
    _REDRAWN.claim("order/identity-drawn-again", f"{_IDENTITY} drawn again whenever they are the identity", False,
                   _rank_sum),
    _KEPT.claim("order/identity-kept", f"{_IDENTITY} may be the identity, ties at random", True,
                partial(_rank_sum, random_ties=True)),
    _TEN.claim("order/strict", f"{_PERMUTATION} that counts only L_b > L", False, partial(_permutation, strict=True)),
    _TEN.claim("order/ties-counted", f"{_PERMUTATION} that counts L_b >= L", True, _permutation),
    _ADJACENT.claim("order/adjacent-swaps", f"{_PERMUTATION} on random adjacent swaps (no group)", False, _permutation),
    _ANY_ORDER.claim("order/whole-group", f"{_PERMUTATION} on random orders", True, _permutation),
    _NORMAL.claim("order/looks-unspent", "rank_sum read after 1, 2, 5, 10, 20 shuffles", False,
                  partial(_at_looks, spent=False)),
    _NORMAL.claim("order/looks-spent", "spending on rank_sum", True, partial(_at_looks, spent=True)),
    _NORMAL.claim("order/bets", "e_process", True, _bets),
    _LOOSE.claim("order/bets-best-shard", "e_process of the best shard alone", False, _best_shard),
    _TIES.claim("order/bets-strict", "e_process that counts only l_b > l", False, partial(_bets, tolerance=-1e-6)),
    _TIES.claim("order/bets-ties-counted", "e_process that counts l_b >= l", True, _bets),
)  # fmt: skip
