"""Claims about combinations of detectors: what the weights by rejections break, and what holds beside them.

Scores are normal, large ones evidence of being clean; alternatives (clean items) are shifted up. Detectors are
correlated through one common factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, pooled_ranks, stepup
from tdd.procedures.td4eval import td4eval
from tdd.study.claims.claim import Claim

__all__ = ["CLAIMS", "detector_scores", "pooled_by_rejections"]

_ALPHA = 0.2
_Select = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def detector_scores(
    key: jax.Array, num_calibration: int, shifts: jax.Array, correlation: float
) -> tuple[jax.Array, jax.Array]:
    """Scores [K, n] and [K, m] of K detectors with pairwise correlation; `shifts` [K, m] is added to the second."""
    num_detectors, num_tests = shifts.shape
    own, common = jax.random.split(key)
    size = num_calibration + num_tests
    shared = jax.random.normal(common, (1, size))
    draw = correlation**0.5 * shared + (1 - correlation) ** 0.5 * jax.random.normal(own, (num_detectors, size))
    return draw[:, :num_calibration], draw[:, num_calibration:] + shifts


def pooled_by_rejections(calibration: jax.Array, scores: jax.Array, alpha: Any = _ALPHA) -> jax.Array:
    """Pooled ranks with the numbers of rejections as weights: those tell calibration and test items apart."""
    bound = calibration.shape[1] + 1

    def rejections(own: jax.Array, test: jax.Array) -> jax.Array:
        ranked = conformal.rank(own, test, null="member")
        return stepup.bh_ranks(ranked.rank, ranked.num_calibration, alpha, max_rank=bound).num_rejected

    counts = jax.vmap(rejections)(calibration, scores)
    weights = jnp.where(jnp.any(counts > 0), counts, 1).astype(scores.dtype)
    ranked = pooled_ranks.rank(calibration, scores, null="member", rule="cauchy", weights=weights)
    return stepup.bh_ranks(ranked.combined.rank, bound - 1, alpha, max_rank=bound).reject


def _by(combine: str, *, keyed: bool = False, **options: Any) -> _Select:
    """Selection of one of td4eval's combinations; a key where it needs one, or where one is wanted."""
    keyed = keyed or combine in ("split_weights", "random")

    def select(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
        own = {"key": key} if keyed else {}
        found = td4eval(calibration, scores, alpha=_ALPHA, combine=combine, **own, **options)  # type: ignore[arg-type]
        return found.selected

    return select


def _largest_of_keys(number: int) -> _Select:
    """Randomised e-BH on averaged e-values, with the key of several that selects most."""

    def select(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, number)
        each = jax.vmap(lambda one: _by("e_values", keyed=True)(calibration, scores, one))(keys)
        return each[jnp.argmax(jnp.sum(each, axis=1))]

    return select


def _fdp(
    select: _Select, num_calibration: int, members: int, clean: int, shifts: list[float], correlation: float
) -> Callable[[jax.Array], jax.Array]:
    """False discovery proportion with `members` nulls and `clean` items that detector k shifts by shifts[k]."""

    def one(key: jax.Array) -> jax.Array:
        data, own = jax.random.split(key)
        null = jnp.arange(members + clean) < members
        moved = jnp.asarray(shifts)[:, None] * (~null)[None, :]
        selected = select(*detector_scores(data, num_calibration, moved, correlation), own)
        return jnp.sum(selected & null) / jnp.maximum(jnp.sum(selected), 1)

    return one


def _size(
    select: str, num_calibration: int, num_detectors: int, correlation: float
) -> Callable[[jax.Array], jax.Array]:
    """Whether the combined p-value of one member is at most the level."""

    def one(key: jax.Array) -> jax.Array:
        calibration, scores = detector_scores(key, num_calibration, jnp.zeros((num_detectors, 1)), correlation)
        found = td4eval(calibration, scores, alpha=_ALPHA, combine=select)  # type: ignore[arg-type]
        return (found.p_values[0] <= _ALPHA).astype(jnp.float32)

    return one


_NULL_5 = (99, 20, 0, [0.0] * 5, 0.0)
_NULL_10 = (99, 20, 0, [0.0] * 10, 0.3)
_ONE_GOOD = (99, 18, 2, [3.0, 0.0, 0.0, 0.0, 0.0], 0.0)
_SETTINGS = {
    "members-5": ("20 members, none clean, 99 calibration items, 5 independent detectors", _NULL_5),
    "members-10": ("20 members, none clean, 99 calibration items, 10 detectors with correlation .3", _NULL_10),
    "one-good": ("18 members, 2 clean, 99 calibration items, one good detector of 5 (shift 3)", _ONE_GOOD),
}
_ALL = tuple(_SETTINGS)
_PROCEDURES: tuple[tuple[str, str, bool, _Select, tuple[str, ...]], ...] = (
    ("cauchy", "Cauchy combination with weights by rejections (TD4Eval), BH", False, _by("cauchy"), _ALL),
    (
        "pooled-by-rejections",
        "pooled ranks with weights by rejections, BH",
        False,
        lambda calibration, scores, key: pooled_by_rejections(calibration, scores),
        _ALL[:2],
    ),
    ("max", "the detector with most rejections, BH", False, _by("max"), _ALL[:1]),
    ("bh-max", "the smallest of an item's p-values (TD4Eval's BH-Max as written), BH", False, _by("bh_max"), _ALL[:1]),
    ("pooled-rank", "pooled ranks with equal weights, BH", True, _by("pooled_rank"), _ALL),
    (
        "split-weights",
        "pooled ranks with weights from a split of the calibration items, BH",
        True,
        _by("split_weights"),
        _ALL[::2],
    ),
    ("hommel", "Hommel's merged p-values, Benjamini-Yekutieli", True, _by("hommel"), _ALL[:1]),
    ("e-values", "averaged conformal e-values, e-BH", True, _by("e_values"), _ALL[:1]),
    ("closed-e-values", "averaged conformal e-values, closed e-BH", True, _by("closed_e_values"), _ALL[2:]),
    ("best-score", "the detector that is best without the item, e-BH", True, _by("best_score"), _ALL[::2]),
    (
        "best-score-randomised",
        "the detector that is best without the item, randomised e-BH",
        True,
        _by("best_score", keyed=True),
        _ALL[:1],
    ),
    (
        "e-values-randomised",
        "averaged conformal e-values, randomised e-BH",
        True,
        _by("e_values", keyed=True),
        _ALL[:1],
    ),
    (
        "e-values-key-of-20",
        "the same, with that of 20 keys which selects most",
        False,
        _largest_of_keys(20),
        _ALL[:1],
    ),
)


def _claims() -> tuple[Claim, ...]:
    claims = [
        Claim(
            f"combination/{name}-{setting}",
            words,
            f"{where}, level {_ALPHA}",
            "FDR",
            _ALPHA,
            holds,
            _fdp(select, *sizes),
        )
        for setting, (where, sizes) in _SETTINGS.items()
        for name, words, holds, select, settings in _PROCEDURES
        if setting in settings
    ]
    size = "one member, 199 calibration items, 10 detectors with correlation .3, level 0.2"
    for name, words, holds in (
        ("average", "Cauchy combination with equal weights (an asymptotic guarantee, held to n = 199)", False),
        ("pooled_rank", "pooled ranks with equal weights", True),
        ("hommel", "Hommel's merged p-values", True),
    ):
        claims.append(
            Claim(
                f"combination/size-{name.replace('_', '-')}",
                words,
                size,
                "size",
                _ALPHA,
                holds,
                _size(name, 199, 10, 0.3),
            )
        )
    return tuple(claims)


CLAIMS: tuple[Claim, ...] = _claims()
