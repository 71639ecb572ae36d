"""Several models at once: which joint selections keep the global contamination rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp

from tdd.procedures.jecs import jecs, jmcs
from tdd.study import baselines
from tdd.study.claims import Claim, Setting
from tdd.study.designs import JointLabels, Sample

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


def _setting(words: str, level: float, draw: Callable[[jax.Array], Sample], batch: int = 500) -> Setting:
    def experiment(key: jax.Array, rule: Select) -> jax.Array:
        sample = draw(key)
        return baselines.joint_metrics(rule(sample.calibration, sample.scores), sample.target).gcp

    return Setting(words, "GCR", level, experiment, batch)


def _paper(alpha: float, signal: float) -> Setting:
    words = f"K = 5, labels Bernoulli(.25), n = 60, m = 140, members {signal:g} sd away, alpha = {alpha}"
    return _setting(words, alpha, JointLabels(num_calibration=60, num_tests=140, signal=signal).draw)


def _shared(correlation: float) -> Setting:
    words = f"n = 99, m = 100, {_HALF}, scores of an item correlated {correlation} over models, alpha = .1"
    sizes = {"num_calibration": 99, "contaminated": 50, "pure": 50}
    return _setting(words, 0.1, partial(shared_difficulty, correlation=correlation, **sizes))


_HALF = "every contaminated item a member of one model of two, half of the items pure"
_SMALL = _setting(
    f"n = 100, m = 200, {_HALF}, alpha = .1",
    0.1,
    partial(one_model_each, num_calibration=100, contaminated=100, pure=100),
)
_MEDIUM = _setting(
    f"n = 300, m = 700, {_HALF}, alpha = .1",
    0.1,
    partial(one_model_each, num_calibration=300, contaminated=350, pure=350),
    batch=200,
)
_DISAGREE = _setting(
    "n = 2, m = 2, all contaminated, two models with opposite calibration scores, alpha = 2/3",
    2 / 3,
    partial(antithetic_pair, num_calibration=2, tests=2),
    batch=5_000,
)
_FAR = _paper(0.2, 4)
_THIRDS = Fraction(2, 3)
_ASYMPTOTIC = "an asymptotic guarantee, held to small n"
_STOREY = 'tdd.jmcs, rule="storey"'


CLAIMS: tuple[Claim, ...] = (
    *(
        _paper(a, 2).claim(f"joint/{how}-{a}", f"{how} of the models' Storey-BH selections", False, _composed(how, a))
        for how, a in (("union", 0.3), ("intersection", 0.1), ("intersection", 0.3))
    ),
    _paper(0.3, 3).claim("joint/jmcs-0.3", "tdd.jmcs", True, _jmcs(0.3)),
    _SMALL.claim("joint/jecs-100", f"tdd.jecs ({_ASYMPTOTIC})", False, _jecs(0.1)),
    _SMALL.claim("joint/storey-100", _STOREY, True, _jmcs(0.1, "storey")),
    _MEDIUM.claim("joint/jecs-300", f"tdd.jecs ({_ASYMPTOTIC})", False, _jecs(0.1)),
    _MEDIUM.claim("joint/storey-300", _STOREY, True, _jmcs(0.1, "storey")),
    _FAR.claim("joint/jecs-neighbours", f"tdd.jecs, neighbours = N^(3/4) ({_ASYMPTOTIC})", True,
               _jecs(0.2, lambda above: math.ceil(above**0.75))),
    _FAR.claim("joint/jecs-nearest", "tdd.jecs, neighbours = 1, which does not grow", False,
               _jecs(0.2, lambda above: 1)),
    *(
        _shared(rho).claim(f"joint/{rule}-shared-difficulty-{rho}", f'tdd.jmcs, rule="{rule}"', True, _jmcs(0.1, rule))
        for rule in ("bh", "storey")
        for rho in (0.5, 0.9)
    ),
    _DISAGREE.claim("joint/jmcs-dependent", "tdd.jmcs", False, _jmcs(_THIRDS)),
    _DISAGREE.claim("joint/by-dependent", 'tdd.jmcs, rule="by"', True, _jmcs(_THIRDS, "by")),
)  # fmt: skip
