"""Several models at once: which joint selections keep the global contamination rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tdd.procedures.jecs import jecs, jmcs
from tdd.study import baselines
from tdd.study.claims import Claim
from tdd.study.designs import JointLabels
from tdd.study.sample import Sample

__all__ = ["CLAIMS", "antithetic_pair", "one_model_each"]

Select = Callable[[jax.Array, jax.Array], jax.Array]


def one_model_each(
    key: jax.Array, *, num_calibration: int, contaminated: int, pure: int, num_models: int = 2, signal: float = 4.0
) -> Sample:
    """Contaminated items stand first and are members of exactly one model, in turn: the least favourable labels.

    Their largest p-value is then nearly uniform: a convex null distribution, at the edge of what JECS assumes. Members
    score N(0, 1) and non-members N(signal, 1).
    """
    tests = contaminated + pure
    own, other = jax.random.split(key)
    turn = jnp.arange(num_models, dtype=jnp.int32)[:, None] == jnp.arange(tests, dtype=jnp.int32)[None] % num_models
    member = turn & (jnp.arange(tests)[None] < contaminated)
    return Sample(
        jax.random.normal(own, (num_models, num_calibration)),
        jax.random.normal(other, (num_models, tests)) + signal * ~member,
        jnp.arange(tests) >= contaminated,
        extra={"member": member},
    )


def shared_difficulty(key: jax.Array, *, correlation: float, **sizes: int) -> Sample:
    """`one_model_each` whose items are easy or difficult for all models alike, calibration items included."""
    own, common = jax.random.split(key)
    sample = one_model_each(own, **sizes)
    n, m = sample.calibration.shape[1], sample.scores.shape[1]
    difficulty = correlation**0.5 * jax.random.normal(common, (n + m,))
    left = (1 - correlation) ** 0.5
    signal = 4.0 * ~sample.extra["member"]
    return sample._replace(
        calibration=left * sample.calibration + difficulty[:n],
        scores=left * (sample.scores - signal) + signal + difficulty[n:],
    )


def antithetic_pair(key: jax.Array, *, num_calibration: int = 9, tests: int = 6) -> Sample:
    """Two models that disagree on every calibration item: one scores it as high as the other scores it low.

    All items are contaminated, one half by each model, and look as clean as can be to the other one.
    """
    own, other = jax.random.split(key)
    first = jax.random.uniform(own, (num_calibration,))
    member = (jnp.arange(tests) < tests // 2)[None] == jnp.array([[True], [False]])
    scores = jnp.where(member, jax.random.uniform(other, (2, tests)), 2.0)
    return Sample(jnp.stack([first, 1 - first]), scores, jnp.zeros(tests, bool), extra={"member": member})


def _composed(how: str, alpha: float) -> Select:
    def select(calibration: jax.Array, scores: jax.Array) -> jax.Array:
        return baselines.composed(baselines.selected_by_each(calibration, scores, alpha=alpha), how)  # type: ignore[arg-type]

    return select


def _jmcs(alpha: float | Fraction, rule: str = "bh") -> Select:
    return lambda calibration, scores: jmcs(calibration, scores, alpha=alpha, rule=rule).selected  # type: ignore[arg-type]


def _jecs(alpha: float, neighbours: Callable[[int], int] | None = None) -> Select:
    return lambda calibration, scores: jecs(calibration, scores, alpha=alpha, neighbours=neighbours).selected


class _Setting(NamedTuple):
    """A law of data, and the level that is claimed for it."""

    words: str
    draw: Callable[[jax.Array], Sample]
    level: float
    batch: int = 500


def _paper(alpha: float, signal: float) -> _Setting:
    words = f"K = 5, labels Bernoulli(.25), n = 60, m = 140, members {signal:g} sd away, alpha = {alpha}"
    return _Setting(words, JointLabels(num_calibration=60, num_tests=140, signal=signal).draw, alpha)


def _shared(correlation: float) -> _Setting:
    words = f"n = 99, m = 100, {_HALF}, scores of an item correlated {correlation} over models, alpha = .1"
    sizes = {"num_calibration": 99, "contaminated": 50, "pure": 50}
    return _Setting(words, partial(shared_difficulty, correlation=correlation, **sizes), 0.1)


_HALF = "every contaminated item a member of one model of two, half of the items pure"
_SMALL = _Setting(
    f"n = 100, m = 200, {_HALF}, alpha = .1",
    partial(one_model_each, num_calibration=100, contaminated=100, pure=100),
    0.1,
)
_MEDIUM = _Setting(
    f"n = 300, m = 700, {_HALF}, alpha = .1",
    partial(one_model_each, num_calibration=300, contaminated=350, pure=350),
    0.1,
    batch=200,
)
_DISAGREE = _Setting(
    "n = 2, m = 2, all contaminated, two models with opposite calibration scores, alpha = 2/3",
    partial(antithetic_pair, num_calibration=2, tests=2),
    2 / 3,
    batch=5_000,
)
_FAR = _paper(0.2, 4)
_THIRDS = Fraction(2, 3)
_ASYMPTOTIC = "an asymptotic guarantee, held to small n"
_STOREY = 'tdd.jmcs, rule="storey"'


def _claim(name: str, procedure: str, setting: _Setting, holds: bool, select: Select) -> Claim:
    def one(key: jax.Array) -> jax.Array:
        sample = setting.draw(key)
        return baselines.joint_metrics(select(sample.calibration, sample.scores), sample.target).gcp

    return Claim(f"joint/{name}", procedure, setting.words, "GCR", setting.level, holds, one, batch=setting.batch)


CLAIMS: tuple[Claim, ...] = (
    *(
        _claim(f"{how}-{a}", f"{how} of the models' Storey-BH selections", _paper(a, 2), False, _composed(how, a))
        for how, a in (("union", 0.3), ("intersection", 0.1), ("intersection", 0.3))
    ),
    _claim("jmcs-0.3", "tdd.jmcs", _paper(0.3, 3), True, _jmcs(0.3)),
    _claim("jecs-100", f"tdd.jecs ({_ASYMPTOTIC})", _SMALL, False, _jecs(0.1)),
    _claim("storey-100", _STOREY, _SMALL, True, _jmcs(0.1, "storey")),
    _claim("jecs-300", f"tdd.jecs ({_ASYMPTOTIC})", _MEDIUM, False, _jecs(0.1)),
    _claim("storey-300", _STOREY, _MEDIUM, True, _jmcs(0.1, "storey")),
    _claim(
        "jecs-neighbours",
        f"tdd.jecs, neighbours = N^(3/4) ({_ASYMPTOTIC})",
        _FAR,
        True,
        _jecs(0.2, lambda above: math.ceil(above**0.75)),
    ),
    _claim("jecs-nearest", "tdd.jecs, neighbours = 1, which does not grow", _FAR, False, _jecs(0.2, lambda above: 1)),
    *(
        _claim(f"{rule}-shared-difficulty-{rho}", f'tdd.jmcs, rule="{rule}"', _shared(rho), True, _jmcs(0.1, rule))
        for rule in ("bh", "storey")
        for rho in (0.5, 0.9)
    ),
    _claim("jmcs-dependent", "tdd.jmcs", _DISAGREE, False, _jmcs(_THIRDS)),
    _claim("by-dependent", 'tdd.jmcs, rule="by"', _DISAGREE, True, _jmcs(_THIRDS, "by")),
)
