"""Knockoff selections under skewed scores: averaging loses the error rate, and so do two habits of existing code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import knockoff
from tdd.kernels.knockoff import path
from tdd.procedures.ktd import ktd
from tdd.study.claims import Claim, Setting, false_discovery_proportion

_ALPHA = 0.2
_ITEMS = 200
_HALF = 30


def skewed_scores(key: jax.Array, num_items: int, num_knockoffs: int) -> tuple[jax.Array, jax.Array]:
    """Scores [n] and [n, k] of non-members and of their knockoffs: exchangeable, with a long lower tail."""
    scores = -jax.random.exponential(key, (num_items, num_knockoffs + 1))
    return scores[:, 0], scores[:, 1:]


def tied_statistics(key: jax.Array) -> jax.Array:
    """W on few integers: positive for members, who stand first, and symmetric about 0 for non-members."""
    size, sign = jax.random.split(key)
    magnitude = jax.random.randint(size, (2 * _HALF,), 1, 4)
    signs = jax.random.rademacher(sign, (2 * _HALF,)).at[:_HALF].set(1)
    return (magnitude * signs).astype(jnp.float32)


def best_threshold(w: jax.Array) -> jax.Array:
    """[n] the selection if the threshold with the smallest ratio stands in where none qualifies."""
    exact = knockoff.select(w, _ALPHA)
    along = path(w)
    ratio = (1 + along.against) / jnp.maximum(along.favourable, 1)
    best = along.cut[jnp.argmin(jnp.where(along.start, ratio, jnp.inf))]
    return jnp.where(jnp.isfinite(exact.threshold), exact.reject, w >= best)


def prefix_threshold(w: jax.Array) -> jax.Array:
    """[n] the selection if a prefix of the order of |W| is counted that may stop inside a tie.

    Equal |W| stay in input order: a table with its members first has them counted before the non-members they tie with.
    """
    order = jnp.argsort(-jnp.abs(w), stable=True)
    positive = w[order] > 0
    against, favourable = jnp.cumsum(~positive), jnp.cumsum(positive)
    qualifies = (1 + against) <= _ALPHA * jnp.maximum(favourable, 1) * (1 + 1e-6)
    cut = jnp.min(jnp.where(qualifies, jnp.abs(w[order]), jnp.inf))
    return w >= cut


def _any(selected: jax.Array) -> jax.Array:
    """The false-discovery proportion where every item is a non-member."""
    return jnp.any(selected).astype(jnp.float32)


def _on_skewed(key: jax.Array, rule: tuple[Any, int]) -> jax.Array:
    """A rule of `tdd.ktd` with a number of knockoffs."""
    how, num_knockoffs = rule
    test, known = jax.random.split(key)
    extra: dict[str, Any] = {}
    if how == "conformal":
        own, copies = skewed_scores(known, _ITEMS, num_knockoffs)
        extra = {"calibration": own, "calibration_knockoffs": copies}
    original, knockoffs = skewed_scores(test, _ITEMS, num_knockoffs)
    return _any(ktd(original, knockoffs, alpha=_ALPHA, rule=how, **extra).selected)


def _on_skewed_w(key: jax.Array, rule: Callable[[jax.Array], jax.Array]) -> jax.Array:
    return _any(rule(knockoff.w_statistics(*skewed_scores(key, _ITEMS, 1))))


def _on_ties(key: jax.Array, rule: Callable[[jax.Array], jax.Array]) -> jax.Array:
    return false_discovery_proportion(rule(tied_statistics(key)), jnp.arange(2 * _HALF) >= _HALF)


_WORDS = f"{_ITEMS} non-members, no members; scores of a text and of its knockoffs -Exp(1), independent"
_SKEWED = Setting(_WORDS, "FDR", _ALPHA, _on_skewed)
_KNOWN = _SKEWED._replace(setting=f"{_WORDS}; {_ITEMS} known non-members with knockoffs")
_TIED = Setting(
    f"{_HALF} members, then {_HALF} non-members; |W| in 1, 2, 3, positive for members, symmetric for the others",
    "FDR",
    _ALPHA,
    _on_ties,
)
_AVERAGED = "KTD: knockoff+ on the mean of {} knockoffs minus the original"

CLAIMS: tuple[Claim, ...] = (
    _SKEWED.claim("knockoffs/averaged-1", "KTD: knockoff+ on one knockoff minus the original", True, ("ktd", 1)),
    *(_SKEWED.claim(f"knockoffs/averaged-{k}", _AVERAGED.format(k), False, ("ktd", k)) for k in (2, 5, 20)),
    _SKEWED.claim("knockoffs/multi-20", "multiple knockoffs: winner and gap, 20 knockoffs", True, ("multi", 20)),
    _SKEWED.claim("knockoffs/derandomized-5", "e-values of each knockoff averaged, e-BH, 5 knockoffs", True,
                  ("derandomized", 5)),
    _KNOWN.claim("knockoffs/conformal-20", "PTDI on the averaged statistic, 20 knockoffs", True, ("conformal", 20)),
    _SKEWED._replace(experiment=_on_skewed_w).claim(
        "knockoffs/best-threshold", "knockoff+ that takes the best threshold where none qualifies", False,
        best_threshold),
    _TIED.claim("knockoffs/prefix-of-ties", "knockoff+ that counts a prefix of the sorted order, inside ties too",
                False, prefix_threshold),
    _TIED.claim("knockoffs/whole-ties", "knockoff+ that counts whole groups of ties", True,
                lambda w: knockoff.select(w, _ALPHA).reject),
)  # fmt: skip
