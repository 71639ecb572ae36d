"""Several scores of an item: combinations of detectors and what their weights break, knockoffs and skewed scores.

Detectors' scores are normal, large ones evidence of being clean; alternatives (clean items) are shifted up, and the
detectors are correlated through one common factor. Knockoffs' scores are skewed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import conformal, discriminant, evalues, knockoff, pooled_ranks, stepup, student
from tdd.kernels.knockoff import path
from tdd.procedures.evalues import conformal_e_values, drawn_uniform
from tdd.procedures.ktd import ktd
from tdd.procedures.owner import split_p_value
from tdd.procedures.several_scores import combined_score
from tdd.procedures.td4eval import td4eval
from tdd.study.claims import Claim, Setting, false_discovery_proportion

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


def learned_without_split(calibration: jax.Array, scores: jax.Array, alpha: Any = _ALPHA) -> jax.Array:
    """A score learned with all calibration items in one class, the candidates in the other, then ranks among them."""
    n, m = calibration.shape[1], scores.shape[1]
    label = (jnp.arange(n + m) >= n).astype(jnp.int32)
    g = discriminant.discriminant(jnp.concatenate([calibration, scores], axis=1), label, null="member", sparse=True)
    ranked = conformal.rank(g.statistic[:n], g.statistic[n:], null="member")
    return stepup.bh_ranks(ranked.rank, n, alpha, max_rank=n + 1).reject


def _by(combine: str, *, keyed: bool = False, **options: Any) -> _Select:
    """Selection of one of td4eval's combinations; a key where it needs one, or where one is wanted."""
    keyed = keyed or combine in ("split_weights", "random")

    def select(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
        given = options | ({"key": key} if keyed else {})
        return td4eval(calibration, scores, alpha=_ALPHA, combine=combine, **given).selected  # type: ignore[arg-type]

    return select


def _one_key(combine: str) -> _Select:
    """One of td4eval's combinations with the same key in every repetition."""
    select = _by(combine, keyed=True)
    return lambda calibration, scores, key: select(calibration, scores, jax.random.key(0))


def _one_uniform(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
    """Randomised e-BH on averaged e-values that divides by the same uniform in every repetition."""
    half = partial(conformal_e_values, alpha=_ALPHA / 2, null="member")
    e_values = jnp.mean(jax.vmap(half)(calibration, scores), axis=0)
    return evalues.e_bh(e_values, _ALPHA, uniform=drawn_uniform(jax.random.key(0))).reject


def _largest_of_keys(number: int) -> _Select:
    """Randomised e-BH on averaged e-values, with the key of several that selects most."""

    def select(calibration: jax.Array, scores: jax.Array, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, number)
        selections = jax.vmap(lambda key: _by("e_values", keyed=True)(calibration, scores, key))(keys)
        return selections[jnp.argmax(jnp.sum(selections, axis=1))]

    return select


def _fdp(
    key: jax.Array, rule: _Select, num_calibration: int, members: int, clean: int, shifts: list[float], rho: float
) -> jax.Array:
    """FDP with `members` nulls and `clean` items that detector k shifts by shifts[k]; rho is the correlation."""
    data, own = jax.random.split(key)
    null = jnp.arange(members + clean) < members
    moved = jnp.asarray(shifts)[:, None] * (~null)[None, :]
    return false_discovery_proportion(rule(*detector_scores(data, num_calibration, moved, rho), own), null)


def _size(key: jax.Array, rule: Any) -> jax.Array:
    """Whether the combined p-value of one member is at most the level: 199 calibration items, ten detectors."""
    calibration, scores = detector_scores(key, 199, jnp.zeros((10, 1)), 0.3)
    p_values = td4eval(calibration, scores, alpha=_ALPHA, combine=rule).p_values
    return (p_values[0] <= _ALPHA).astype(jnp.float32)


def _setting(words: str, members: int, clean: int, shifts: list[float], rho: float) -> Setting:
    fdp = partial(_fdp, num_calibration=99, members=members, clean=clean, shifts=shifts, rho=rho)
    return Setting(f"{words}, level {_ALPHA}", "FDR", _ALPHA, fdp)


_SETS = 0.05
"""Level of the tests of one set against another."""


def _sets(key: jax.Array, rule: str) -> jax.Array:
    """Whether 20 suspect items are told from 20 held-out ones of one law, three scores with correlation .3.

    "same": the score is learned from all items and tested on them, else learned from half of them.
    """
    same = rule == "same"
    data, own = jax.random.split(key)
    pooled = jnp.concatenate(detector_scores(data, 20, jnp.zeros((3, 20)), 0.3), axis=1)
    fitted = jnp.ones(40, bool) if same else jnp.arange(40) % 2 == 0
    tested = fitted if same else ~fitted
    options: dict[str, Any] = {"test": "t" if same else "permutation", "num_draws": 19, "key": own}
    log_p, *_ = split_p_value(pooled, jnp.arange(40) >= 20, fitted, tested, **options)
    return (log_p <= jnp.log(_SETS) + 1e-6).astype(jnp.float32)


def _sets_without_outliers(key: jax.Array, rule: Any) -> jax.Array:
    """Welch's t-test of one fixed score, 100 items a set, after the 2 largest and smallest of each set are removed."""
    low, high = jnp.sort(jax.random.normal(key, (2, 100)), axis=1)[:, 2:-2]
    error = (jnp.var(low, ddof=1) + jnp.var(high, ddof=1)) / 96
    log_p = student.log_sf((jnp.mean(high) - jnp.mean(low)) / jnp.sqrt(error), 2 * 95.0)
    return (log_p <= jnp.log(_SETS)).astype(jnp.float32)


_SETTINGS = {
    "members-5": _setting(
        "20 members, none clean, 99 calibration items, 5 independent detectors", 20, 0, [0.0] * 5, 0.0
    ),
    "members-10": _setting(
        "20 members, none clean, 99 calibration items, 10 detectors with correlation .3", 20, 0, [0.0] * 10, 0.3
    ),
    "one-good": _setting(
        "18 members, 2 clean, 99 calibration items, one good detector of 5 (shift 3)",
        18,
        2,
        [3.0, 0.0, 0.0, 0.0, 0.0],
        0.0,
    ),
}
_ALL = tuple(_SETTINGS)
_FIRST, _SECOND, _THIRD = ((name,) for name in _ALL)
_BEST = "the detector that is best without the item"
_E_VALUES = "averaged conformal e-values"
_ROWS: tuple[tuple[str, str, bool, _Select, tuple[str, ...]], ...] = (
    ("cauchy", "Cauchy combination with weights by rejections (TD4Eval), BH", False, _by("cauchy"), _ALL),
    ("pooled-by-rejections", "pooled ranks with weights by rejections, BH", False,
     lambda calibration, scores, key: pooled_by_rejections(calibration, scores), _FIRST + _SECOND),
    ("max", "the detector with most rejections, BH", False, _by("max"), _FIRST),
    ("bh-max", "the smallest of an item's p-values (TD4Eval's BH-Max as written), BH", False, _by("bh_max"), _FIRST),
    ("pooled-rank", "pooled ranks with equal weights, BH", True, _by("pooled_rank"), _ALL),
    ("split-weights", "pooled ranks with weights from a split of the calibration items, BH", True, _by("split_weights"),
     _FIRST + _THIRD),
    ("hommel", "Hommel's merged p-values, Benjamini-Yekutieli", True, _by("hommel"), _FIRST),
    ("e-values", f"{_E_VALUES}, e-BH", True, _by("e_values"), _FIRST),
    ("closed-e-values", f"{_E_VALUES}, closed e-BH", True, _by("closed_e_values"), _THIRD),
    ("best-score", f"{_BEST}, e-BH", True, _by("best_score"), _FIRST + _THIRD),
    ("best-score-randomised", f"{_BEST}, randomised e-BH", True, _by("best_score", keyed=True), _FIRST),
    ("e-values-randomised", f"{_E_VALUES}, randomised e-BH", True, _by("e_values", keyed=True), _FIRST),
    ("best-score-one-key", f"{_BEST}, randomised e-BH, key(0) in every audit", True, _one_key("best_score"), _FIRST),
    ("e-values-one-key", f"{_E_VALUES}, randomised e-BH, key(0) in every audit", True, _one_key("e_values"), _FIRST),
    ("e-values-one-uniform", f"{_E_VALUES}, randomised e-BH, that key's uniform in every audit", False, _one_uniform,
     _FIRST),
    ("e-values-key-of-20", "the same, with that of 20 keys which selects most", False, _largest_of_keys(20), _FIRST),
)  # fmt: skip
"""(name, procedure, holds, rule, settings)"""


_LEARNED = Setting(
    f"10 members, none clean, 29 calibration items, 3 detectors with correlation .3, level {_ALPHA}",
    "FDR",
    _ALPHA,
    partial(_fdp, num_calibration=29, members=10, clean=0, shifts=[0.0] * 3, rho=0.3),
)
_TWO_SETS = Setting(
    f"20 suspect and 20 held-out items of one law, three scores with correlation .3, level {_SETS}",
    "size",
    _SETS,
    _sets,
)
_ONE_LAW = Setting(
    f"100 suspect and 100 held-out values of one normal law, level {_SETS}", "size", _SETS, _sets_without_outliers
)
_ONE_MEMBER = Setting(
    "one member, 199 calibration items, 10 detectors with correlation .3, level 0.2", "size", _ALPHA, _size
)

# --- knockoffs --------------------------------------------------------------------------------------------------------

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
    *(
        setting.claim(f"combination/{label}-{name}", procedure, holds, select)
        for name, setting in _SETTINGS.items()
        for label, procedure, holds, select, settings in _ROWS
        if name in settings
    ),
    _ONE_MEMBER.claim(
        "combination/size-average", "Cauchy combination with equal weights (an asymptotic guarantee, held to n = 199)",
        False, "average"),
    _ONE_MEMBER.claim("combination/size-pooled-rank", "pooled ranks with equal weights", True, "pooled_rank"),
    _ONE_MEMBER.claim("combination/size-hommel", "Hommel's merged p-values", True, "hommel"),
    _LEARNED.claim(
        "combination/learned-on-all", "a score learned with all calibration items against the candidates, BH", False,
        lambda calibration, scores, key: learned_without_split(calibration, scores)),
    _LEARNED.claim(
        "combination/combined-score", "tdd.combined_score: learned with half of the calibration items, BH", True,
        lambda calibration, scores, key: combined_score(calibration, scores, alpha=_ALPHA, null="member").selected),
    _TWO_SETS.claim("sets/one-half", "a score fitted and tested on the same items, Welch's t-test", False, "same"),
    _TWO_SETS.claim(
        "sets/permutation", "tdd.dataset_inference: fitted on half, permutation test on the other", True, "halves"),
    _ONE_LAW.claim(
        "sets/outliers", "t-test without the largest and smallest 2% of each set (Maini et al.)", False, None),
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
