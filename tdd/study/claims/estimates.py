"""Estimates of the proportion of nulls: which of them leave BH its error rate.

The frame runs BH at alpha/pi0 on conformal ranks; the rules that count presumed nulls differ by one flaw each, and the
right one stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, local_fdr, proportion, stepup
from tdd.procedures.ptdi import ptdi
from tdd.study.claims import Claim, Setting, false_discovery_proportion

Draw = Callable[[jax.Array, int, int, int], tuple[jax.Array, jax.Array]]
Select = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def normal_scores(
    key: jax.Array, n: int, nulls: int, alternatives: int, shift: float = 2.0
) -> tuple[jax.Array, jax.Array]:
    """Continuous scores: n calibration items, nulls like them, alternatives shifted down."""
    draw = jax.random.normal(key, (n + nulls + alternatives,))
    return draw[:n], draw[n:].at[nulls:].add(-shift)


def integer_scores(
    key: jax.Array, n: int, nulls: int, alternatives: int, values: int = 4
) -> tuple[jax.Array, jax.Array]:
    """Tie-heavy scores on a few integers."""
    low, high = jax.random.split(key)
    null = jax.random.randint(low, (n + nulls,), 0, values).astype(jnp.float32)
    other = jax.random.randint(high, (alternatives,), -1, 2).astype(jnp.float32)
    return null[:n], jnp.concatenate([null[n:], other])


def selected(name: str, alpha: float = 0.1, eta: float = 0.05) -> Select:
    """The selection of `tdd.ptdi` with the named estimate."""
    return lambda calibration, scores, key: (
        ptdi(calibration, scores, alpha=alpha, proportion=name, eta=eta).selected  # type: ignore[arg-type]
    )


def storey_with(
    alpha: float = 0.1, *, strict: bool = False, plus_one: int = 1, cap: bool = False, eta: float = 0.05
) -> Select:
    """BH at alpha/pi0 with pi0 = (plus_one + #{p >= lambda})/(m (1 - lambda)). Flaws: strict counts p > lambda,
    plus_one is 0, cap limits pi0 to 1."""

    def select(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
        rank = conformal.rank(calibration, scores, null="nonmember").rank
        n, m = calibration.shape[0], scores.shape[0]
        tail = proportion.tail_size(n, eta, n)
        first = n - tail + 1
        above = plus_one + jnp.sum(rank > first if strict else rank >= first)
        if cap:
            above = jnp.minimum(above * (n + 1), m * tail) / (n + 1)
        scale = ((above.astype(jnp.float32),), (tail,))
        return stepup.bh_ranks(rank, n, alpha, max_rank=n + 1, scale=scale).reject

    return select


def storey_on_randomized(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
    """Flaw: Storey's procedure on randomised p-values, lambda = .95 and alpha = .1."""
    p = conformal.randomized_p_values(calibration, scores, null="nonmember", key=key)
    return stepup.storey_bh(p, 0.1, lambda_=0.95).reject


def subtraction_with_nominal_size(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
    """Flaw: the subtraction estimate at alpha = .1 divided by eta·n instead of by what is really in the region."""
    n, m = calibration.shape[0], scores.shape[0]
    ranked = conformal.rank(calibration, scores, null="nonmember")
    tail = proportion.tail_size(n, 0.05, n)
    tau = jnp.sort(calibration)[n - tail - 1]
    scale = ((1 + jnp.sum(scores > tau), n, m), (m + 1, tail, n + 1))
    return stepup.bh_ranks(ranked.rank, n, 0.1, max_rank=n + 1, scale=scale).reject


def by_moments(name: str, alpha: float = 0.1, eta: float = 0.05) -> Select:
    """The selection of `tdd.ptdi` with a moment estimate."""
    return lambda members, calibration, scores: (
        ptdi(calibration, scores, alpha=alpha, proportion=name, eta=eta, members=members).selected  # type: ignore[arg-type]
    )


def _fdp(chosen: jax.Array, nulls: int) -> jax.Array:
    """False discovery proportion; the nulls stand first."""
    return false_discovery_proportion(chosen, jnp.arange(chosen.shape[0]) < nulls)


def _of_uniforms(key: jax.Array, rule: bool) -> jax.Array:
    return _fdp(stepup.storey_bh(jax.random.uniform(key, (5,)), 0.2, cap=rule).reject, 5)


def _of_weak_scores(key: jax.Array, rule: Select) -> jax.Array:
    """FDP with a score that hardly separates: 20 known members, 20 calibration items, ten nulls, ten members."""
    own, shared = jax.random.split(key)
    calibration, scores = normal_scores(shared, 20, 10, 10, shift=0.5)
    return _fdp(rule(jax.random.normal(own, (20,)) - 0.5, calibration, scores), 10)


def _of_five_nulls(key: jax.Array, rule: Select) -> jax.Array:
    """FDP among five candidates, none a member, beside 199 known members and 199 calibration items."""
    own, shared = jax.random.split(key)
    return _fdp(rule(jax.random.normal(own, (199,)) - 2, *normal_scores(shared, 199, 5, 0)), 5)


def moment_or_none(members: jax.Array, calibration: jax.Array, scores: jax.Array) -> jax.Array:
    """Flaw: pi0 = 1 where the moment estimate shows no member, alpha = .2."""
    rank, n, m = conformal.rank(calibration, scores, null="nonmember").rank, calibration.shape[0], scores.shape[0]
    scale = ((proportion.moment(members, calibration, scores).null_proportion, m), (n + 1,))
    return stepup.bh_ranks(rank, n, 0.2, max_rank=n + 1, scale=scale).reject


def _at_the_margin(key: jax.Array, rule: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Whether the least extreme selected item is a null; ten nulls stand before ten strong alternatives."""
    null, other = jax.random.split(key)
    z = 3 + jax.random.normal(other, (10,))
    p = jnp.concatenate([jax.random.uniform(null, (10,)), jax.scipy.stats.norm.sf(z)])
    chosen = rule(p)
    return (chosen.any() & (jnp.argmax(jnp.where(chosen, p, -1)) < 10)).astype(jnp.float32)


_ETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)


def _settings(calibration: jax.Array, scores: jax.Array, level: float) -> jax.Array:
    """[7, m] selections under each of seven settings."""
    selections = [selected("storey", level, eta)(calibration, scores, jax.random.key(0)) for eta in _ETAS]
    return jnp.stack([*selections, selected("none", level)(calibration, scores, jax.random.key(0))])


def largest_of_settings(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
    """Flaw: the largest of the selections of seven settings at alpha = .2."""
    selections = _settings(calibration, scores, 0.2)
    return selections[jnp.argmax(selections.sum(axis=1))]


def union_of_settings(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
    """The union of the selections of seven settings at alpha/7 each: its FDR is at most the sum of theirs."""
    return _settings(calibration, scores, 0.2 / 7).any(axis=0)


def _setting(
    words: str, level: float, sizes: tuple[int, int, int], draw: Draw = normal_scores, batch: int = 2_000
) -> Setting:
    """FDP of a rule on n calibration scores, then null and other candidates."""

    def experiment(key: jax.Array, rule: Select) -> jax.Array:
        data, own = jax.random.split(key)
        return _fdp(rule(*draw(data, *sizes), own), sizes[1])

    return Setting(words, "FDR", level, experiment, batch)


_NONE = _setting("n = 99, ten candidates, none a member, alpha = .2", 0.2, (99, 10, 0))
_FIVE = _setting("n = 199, five candidates, none a member, lambda = 1/2, alpha = .2", 0.2, (199, 5, 0))
_FEW = _setting(
    "n = 39, m = 400, half of them members 4 sd away, lambda = .95, alpha = .1",
    0.1,
    (39, 200, 200),
    partial(normal_scores, shift=4.0),
    batch=500,
)
_BALANCED = _setting("n = 39, m = 40, half of them members, region of 5%, alpha = .2", 0.2, (39, 20, 20))
_TIES = _setting(
    "integer scores of 20 values, n = 199, m = 200, half of them members, alpha = .1",
    0.1 * (1 + 1 / 200) * (1 + 1 / 199),
    (199, 100, 100),
    partial(integer_scores, values=20),
)
_LEAST = "the least extreme selected item"
_MOMENT = 'tdd.ptdi, proportion="moment" (Storey\'s estimate where theta <= 1; asymptotic)'
_RIGHT = 'tdd.ptdi, proportion="storey"'


_UNIFORM = Setting("five independent uniform p-values, lambda = 1/2, alpha = .2", "FDR", 0.2, _of_uniforms)
_WEAK = Setting("n0 = n1 = m = 20, members half a standard deviation away, alpha = .1", "FDR", 0.1, _of_weak_scores)
_NO_MEMBERS = Setting(
    "five candidates, none a member, n0 = n1 = 199, known members 2 sd away, lambda = 1/2, alpha = .2",
    "FDR",
    0.2,
    _of_five_nulls,
)
_MARGIN = Setting(
    "20 independent p-values, half of them null, the others' z 3 sd away, alpha = .2",
    "margin",
    0.2 * 10 / 20,
    _at_the_margin,
)

CLAIMS: tuple[Claim, ...] = (
    _UNIFORM.claim("storey/capped-uniform", "Storey-BH, pi0 capped at 1", False, True),
    _UNIFORM.claim("storey/uniform", "Storey-BH, uncapped", True, False),
    _FIVE.claim("storey/capped-conformal", "Storey on conformal p-values, pi0 capped at 1", False,
                storey_with(0.2, cap=True, eta=0.5)),
    _FIVE.claim("storey/conformal", _RIGHT, True, selected("storey", 0.2, 0.5)),
    _FEW.claim("storey/strict", "Storey on conformal p-values with p > lambda", False,
               storey_with(strict=True, eta=0.06)),
    _FEW.claim("storey/randomized", "Storey-BH on randomised conformal p-values", False, storey_on_randomized),
    _FEW.claim("storey/at-least", f"{_RIGHT} (p >= lambda, conservative ranks)", True, selected("storey", eta=0.06)),
    _BALANCED.claim("storey/no-plus-one", "Storey on conformal p-values without the + 1", False,
                    storey_with(0.2, plus_one=0)),
    _BALANCED.claim("storey/plus-one", _RIGHT, True, selected("storey", 0.2)),
    _TIES.claim("subtraction/nominal-size", "subtraction estimate divided by eta under ties", False,
                subtraction_with_nominal_size),
    _TIES.claim("subtraction/actual-size", 'tdd.ptdi, proportion="subtraction" (divided by the actual fraction)', True,
                selected("subtraction")),
    _WEAK.claim("moment/unguarded", 'tdd.ptdi, proportion="moment_paper" (pi clipped to [0, 1 - eps])', False,
                by_moments("moment_paper")),
    _WEAK.claim("moment/guarded", _MOMENT, True, by_moments("moment")),
    _NO_MEMBERS.claim("moment/or-none", "moment estimate, pi = 0 where it shows no member", False, moment_or_none),
    _NO_MEMBERS.claim("moment/or-storey", _MOMENT, True, by_moments("moment", 0.2, 0.5)),
    _NONE.claim("settings/largest", "tdd.ptdi, the largest selection of seven settings of proportion and eta", False,
                largest_of_settings),
    _NONE.claim("settings/union", "tdd.ptdi at alpha/7 under each of seven settings, all that any selects", True,
                union_of_settings),
    _MARGIN.claim("margin/bh", f"tdd.bh, {_LEAST}", False, lambda p: stepup.bh(p, 0.2).reject),
    _MARGIN.claim("margin/local-fdr", f"tdd.local_fdr <= alpha, {_LEAST}", True,
                  lambda p: local_fdr.local_fdr(p).local_fdr <= 0.2),
)  # fmt: skip
