"""Several models at once: which joint selections keep the global contamination rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp

from tdd.procedures.jecs import jecs, jmcs
from tdd.study import compositions, joint_labels
from tdd.study.claims.claim import Claim
from tdd.study.compositions import joint_metrics

__all__ = ["CLAIMS", "antithetic_pair", "one_model_each"]

Select = Callable[[jax.Array, jax.Array], jax.Array]


def one_model_each(
    key: jax.Array, *, num_calibration: int, contaminated: int, pure: int, num_models: int = 2, signal: float = 4.0
) -> joint_labels.JointSample:
    """Contaminated items stand first and are members of exactly one model, in turn: the least favourable labels.

    Their largest p-value is then nearly uniform: a convex null distribution, at the edge of what JECS assumes. Members
    score N(0, 1) and non-members N(signal, 1).
    """
    tests = contaminated + pure
    own, other = jax.random.split(key)
    turn = jnp.arange(num_models, dtype=jnp.int32)[:, None] == jnp.arange(tests, dtype=jnp.int32)[None] % num_models
    member = turn & (jnp.arange(tests)[None] < contaminated)
    return joint_labels.JointSample(
        jax.random.normal(own, (num_models, num_calibration)),
        jax.random.normal(other, (num_models, tests)) + signal * ~member,
        member,
        jnp.arange(tests) < contaminated,
    )


def shared_difficulty(key: jax.Array, *, correlation: float, **sizes: int) -> joint_labels.JointSample:
    """`one_model_each` whose items are easy or difficult for all models alike, calibration items included."""
    own, common = jax.random.split(key)
    sample = one_model_each(own, **sizes)
    n, m = sample.calibration.shape[1], sample.scores.shape[1]
    difficulty = correlation**0.5 * jax.random.normal(common, (n + m,))
    left = (1 - correlation) ** 0.5
    signal = 4.0 * ~sample.member
    return sample._replace(
        calibration=left * sample.calibration + difficulty[:n],
        scores=left * (sample.scores - signal) + signal + difficulty[n:],
    )


def antithetic_pair(key: jax.Array, *, num_calibration: int = 9, tests: int = 6) -> joint_labels.JointSample:
    """Two models that disagree on every calibration item: one scores it as high as the other scores it low.

    All items are contaminated, one half by each model, and look as clean as can be to the other one.
    """
    own, other = jax.random.split(key)
    first = jax.random.uniform(own, (num_calibration,))
    member = (jnp.arange(tests) < tests // 2)[None] == jnp.array([[True], [False]])
    scores = jnp.where(member, jax.random.uniform(other, (2, tests)), 2.0)
    return joint_labels.JointSample(jnp.stack([first, 1 - first]), scores, member, jnp.ones(tests, bool))


def _gcp(select: Select, draw: Callable[[jax.Array], joint_labels.JointSample]) -> Callable[[jax.Array], jax.Array]:
    def one(key: jax.Array) -> jax.Array:
        sample = draw(key)
        return joint_metrics(select(sample.calibration, sample.scores), sample.contaminated).gcp

    return one


def _composed(how: str, alpha: float) -> Select:
    def select(calibration: jax.Array, scores: jax.Array) -> jax.Array:
        return compositions.composed(compositions.selected_by_each(calibration, scores, alpha=alpha), how)  # type: ignore[arg-type]

    return select


def _jmcs(alpha: float | Fraction, rule: str = "bh") -> Select:
    return lambda calibration, scores: jmcs(calibration, scores, alpha=alpha, rule=rule).selected  # type: ignore[arg-type]


def _jecs(alpha: float, neighbours: Callable[[int], int] | None = None) -> Select:
    return lambda calibration, scores: jecs(calibration, scores, alpha=alpha, neighbours=neighbours).selected


_PAPER = "K = 5, labels Bernoulli(.25), n = 60, m = 140, members 2 sd away"
_HALF = "every contaminated item a member of one model of two, half of the items pure"
_DISAGREE = "n = 2, m = 2, all contaminated, two models with opposite calibration scores, alpha = 2/3"
_THIRDS = Fraction(2, 3)

_paper = partial(joint_labels.draw, num_calibration=60, num_tests=140)
_far = partial(_paper, signal=4.0)
_small = partial(one_model_each, num_calibration=100, contaminated=100, pure=100)
_medium = partial(one_model_each, num_calibration=300, contaminated=350, pure=350)
_shared = {
    correlation: partial(shared_difficulty, correlation=correlation, num_calibration=99, contaminated=50, pure=50)
    for correlation in (0.5, 0.9)
}
_opposite = partial(antithetic_pair, num_calibration=2, tests=2)

CLAIMS: tuple[Claim, ...] = (
    *[
        Claim(
            f"joint/{how}-{alpha}",
            f"{how} of the models' Storey-BH selections",
            f"{_PAPER}, alpha = {alpha}",
            "GCR",
            alpha,
            False,
            _gcp(_composed(how, alpha), _paper),
            batch=500,
        )
        for how, alpha in (("union", 0.3), ("intersection", 0.1), ("intersection", 0.3))
    ],
    Claim(
        "joint/jmcs-0.3",
        "tdd.jmcs",
        f"{_PAPER.replace('2 sd', '3 sd')}, alpha = 0.3",
        "GCR",
        0.3,
        True,
        _gcp(_jmcs(0.3), partial(_paper, signal=3.0)),
        batch=500,
    ),
    Claim(
        "joint/jecs-100", "tdd.jecs (an asymptotic guarantee, held to small n)",
        f"n = 100, m = 200, {_HALF}, alpha = .1", "GCR", 0.1, False,
        _gcp(_jecs(0.1), _small), batch=500,
    ),
    Claim(
        "joint/storey-100", 'tdd.jmcs, rule="storey"', f"n = 100, m = 200, {_HALF}, alpha = .1", "GCR", 0.1, True,
        _gcp(_jmcs(0.1, "storey"), _small), batch=500,
    ),
    Claim(
        "joint/jecs-300", "tdd.jecs (an asymptotic guarantee, held to small n)",
        f"n = 300, m = 700, {_HALF}, alpha = .1", "GCR", 0.1, False,
        _gcp(_jecs(0.1), _medium), batch=200,
    ),
    Claim(
        "joint/storey-300", 'tdd.jmcs, rule="storey"', f"n = 300, m = 700, {_HALF}, alpha = .1", "GCR", 0.1, True,
        _gcp(_jmcs(0.1, "storey"), _medium), batch=200,
    ),
    Claim(
        "joint/jecs-neighbours", "tdd.jecs, neighbours = N^(3/4) (an asymptotic guarantee, held to small n)",
        f"{_PAPER.replace('2 sd', '4 sd')}, alpha = 0.2", "GCR", 0.2, True,
        _gcp(_jecs(0.2, lambda above: math.ceil(above**0.75)), _far), batch=500,
    ),
    Claim(
        "joint/jecs-nearest", "tdd.jecs, neighbours = 1, which does not grow",
        f"{_PAPER.replace('2 sd', '4 sd')}, alpha = 0.2", "GCR", 0.2, False,
        _gcp(_jecs(0.2, lambda above: 1), _far), batch=500,
    ),
    *[
        Claim(
            f"joint/{rule}-shared-difficulty-{correlation}", f'tdd.jmcs, rule="{rule}"',
            f"n = 99, m = 100, {_HALF}, scores of an item correlated {correlation} over models, alpha = .1", "GCR", 0.1,
            True, _gcp(_jmcs(0.1, rule), _shared[correlation]), batch=500,
        )
        for rule in ("bh", "storey")
        for correlation in (0.5, 0.9)
    ],
    Claim(
        "joint/jmcs-dependent", "tdd.jmcs", _DISAGREE, "GCR", 2 / 3, False,
        _gcp(_jmcs(_THIRDS), _opposite), batch=5_000,
    ),
    Claim(
        "joint/by-dependent", 'tdd.jmcs, rule="by"', _DISAGREE, "GCR", 2 / 3, True,
        _gcp(_jmcs(_THIRDS, "by"), _opposite), batch=5_000,
    ),
)  # fmt: skip
