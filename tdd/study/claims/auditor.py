"""Data of an auditor: one calibration sample, drawn from another law than the candidates, or in clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conditional, conformal, weighted
from tdd.procedures.clusters import cluster_ptdi
from tdd.procedures.ptdi import ptdi
from tdd.procedures.weighted import weighted_conformal_selection
from tdd.study.baselines import threshold
from tdd.study.claims import Claim, Setting, false_discovery_proportion
from tdd.study.designs import NormalShift

_ALPHA = 0.1

# --- one calibration sample ------------------------------------------------------------------------------------------


def exceeds_somewhere(key: jax.Array, table: jax.Array, num_calibration: int) -> jax.Array:
    """Whether, given a calibration sample of uniform scores, P(p <= t | calibration) > t for some t.

    A new uniform score has rank at most r with the conditional probability U_(r), the r-th smallest calibration score.
    """
    return jnp.any(jnp.sort(jax.random.uniform(key, (num_calibration,))) > table[1 : num_calibration + 1])


def _exceeds(key: jax.Array, rule: str, n: int) -> jax.Array:
    own, draws = jax.random.split(key)
    size: dict[str, int] = {"max_rank": n + 1}
    tables: dict[str, Callable[[], jax.Array]] = {
        "plain": lambda: jnp.arange(n + 2) / (n + 1),
        "simes": lambda: conditional.simes_bounds(n, _ALPHA, **size),
        "smaller": lambda: conditional.hybrid_bounds(n, _ALPHA, 0.0, **size),
        "monte_carlo": lambda: conditional.monte_carlo_bounds(n, _ALPHA, **size, key=draws, num_draws=19),
    }
    return exceeds_somewhere(own, tables[rule](), n)


# --- members whose scores follow those of the others -----------------------------------------------------------------

_FEW = 5


def _placed(key: jax.Array, rule: str) -> jax.Array:
    """False discovery proportion where members have the lowest or the highest score of all.

    How many have the lowest is "drawn", or, "knowing" the other scores, is what makes most of the selected wrong.
    """
    drawn, scores = jax.random.split(key)
    own, other = jnp.split(jax.random.normal(scores, (99 + _FEW,)), [99])
    count = jnp.arange(_FEW + 1)

    def fdp(low: jax.Array) -> jax.Array:
        members = jnp.where(jnp.arange(_FEW) < low, -10.0, 10.0)
        selected = ptdi(own, jnp.concatenate([other, members]), alpha=2 * _ALPHA, proportion="none").selected
        return jnp.sum(selected[:_FEW]) / jnp.maximum(jnp.sum(selected), 1)

    proportions = jax.vmap(fdp)(count)
    return jnp.max(proportions) if rule == "knowing" else proportions[jax.random.randint(drawn, (), 0, _FEW + 1)]


# --- candidates that a rule flagged -----------------------------------------------------------------------------------


def flagged_scores(key: jax.Array, *, size: int, members: bool) -> tuple[jax.Array, jax.Array]:
    """Scores, and whether the item is flagged for the n-grams that it shares with the training data: [size] each.

    With the overlap U ~ N(0, 1) of a non-member, flagged above 1, the score is N(0, 1) - U: shared passages are
    predicted better. A member has the overlap 2 + U and scores lower by 3.
    """
    overlap, noise = jax.random.normal(key, (2, size))
    overlap = overlap + 2.0 * members
    return noise - overlap - 3.0 * members, overlap > 1.0


def _flagged(key: jax.Array, rule: str) -> jax.Array:
    keys = jax.random.split(key, 3)
    known, flags = flagged_scores(keys[0], size=400, members=False)
    parts = [flagged_scores(keys[1], size=200, members=False), flagged_scores(keys[2], size=30, members=True)]
    scores, candidates = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    calibrating = flags if rule == "alike" else jnp.ones_like(flags)
    selection = ptdi(known, scores, alpha=_ALPHA, calibration_mask=calibrating, mask=candidates)
    return false_discovery_proportion(selection.selected & candidates, jnp.arange(230) < 200)


# --- clusters --------------------------------------------------------------------------------------------------------


def clustered_scores(key: jax.Array, *, sizes: Sequence[int], fraction: float) -> tuple[jax.Array, jax.Array]:
    """Scores of non-member clusters of the given sizes in random order; a fraction of the variance is between clusters.

    Returns:
      [C, S] scores, S the largest size, and [C, S] which of them are real. Clusters are exchangeable.
    """
    common, own, order = jax.random.split(key, 3)
    many, most = len(sizes), max(sizes)
    between, within = jax.random.normal(common, (many, 1)), jax.random.normal(own, (many, most))
    scores = fraction**0.5 * between + (1 - fraction) ** 0.5 * within
    return scores, jnp.arange(most) < jax.random.permutation(order, jnp.asarray(sizes))[:, None]


_BOOKS = (30,) * 3 + (2,) * 18
_CALIBRATING = 19


def _clusters(key: jax.Array, rule: str) -> jax.Array:
    draw, own = jax.random.split(key)
    scores, real = clustered_scores(draw, sizes=_BOOKS, fraction=0.9)
    labels = np.arange(len(_BOOKS)).repeat(scores.shape[1])
    scores, real, cut = scores.ravel(), real.ravel(), _CALIBRATING * scores.shape[1]
    items = scores[:cut], scores[cut:]
    options: dict[str, Any] = {"proportion": "none", "calibration_mask": real[:cut], "mask": real[cut:]}
    if rule == "ignored":
        return jnp.any(ptdi(*items, alpha=_ALPHA, **options).selected)
    options |= {"unit": rule, "key": own}
    return jnp.any(cluster_ptdi(*items, labels[:cut], labels[cut:], alpha=_ALPHA, **options).selected)


_LONG = (80,) * 4 + (1,) * 196


def _long_clusters(key: jax.Array, rule: Any) -> jax.Array:
    """Whether an item of a non-member is selected where long books score lower, and tell nothing else."""
    draw, order = jax.random.split(key)
    labels = np.arange(len(_LONG)).repeat(_LONG)
    scores = jax.random.normal(draw, labels.shape) - 10.0 * (labels < 4)
    known = (jax.random.permutation(order, len(_LONG)) < 50)[labels]
    selection = cluster_ptdi(
        scores,
        scores,
        labels,
        labels + len(_LONG),
        alpha=2 * _ALPHA,
        unit="item",
        sizes=rule,
        calibration_mask=known,
        mask=~known,
    )
    return jnp.any(selection.selected)


# --- covariate shift -------------------------------------------------------------------------------------------------


def shifted_scores(
    key: jax.Array, *, calibration: int, nulls: int, alternatives: int, tilt: float = 1.0
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Scores that depend on a covariate X, N(0, 1) among calibration items and N(tilt, 1) among candidates.

    The score is -X + noise, members score lower by 3; the weight exp(tilt·X) is the density ratio up to a factor.

    Returns:
      calibration and test scores, calibration and test weights.
    """
    draw, noise = jax.random.split(key)
    many = calibration + nulls + alternatives
    test = jnp.arange(many) >= calibration
    covariate = jax.random.normal(draw, (many,)) + tilt * test
    scores = -covariate + jax.random.normal(noise, (many,)) - 3.0 * (jnp.arange(many) >= calibration + nulls)
    weights = jnp.exp(tilt * covariate)
    return scores[:calibration], scores[calibration:], weights[:calibration], weights[calibration:]


def _shifted(key: jax.Array, rule: str) -> jax.Array:
    draw, own = jax.random.split(key)
    data = shifted_scores(draw, calibration=200, nulls=30, alternatives=10)
    if rule == "ignored":
        selection: Any = ptdi(data[0], data[1], alpha=_ALPHA, proportion="none")
    else:
        prune, _, one_key = rule.partition(", ")
        options: dict[str, Any] = {"prune": prune, "key": jax.random.key(0) if one_key else own}
        selection = weighted_conformal_selection(*data, alpha=_ALPHA, null="nonmember", **options)
    return false_discovery_proportion(selection.selected, jnp.arange(40) < 30)


def _shifted_size(key: jax.Array, rule: str) -> jax.Array:
    data = shifted_scores(key, calibration=50, nulls=1, alternatives=0)
    if rule == "ignored":
        p = conformal.p_values(conformal.rank(data[0], data[1], null="nonmember"))
    else:
        p = weighted.p_values(*data, null="nonmember")
    return p[0] <= _ALPHA


# --- a threshold from validation items --------------------------------------------------------------------------------


def _validated(key: jax.Array, rule: str, fraction: float) -> jax.Array:
    """FDP among 200 candidates of a threshold from 100 labelled items, or of PTDI calibrated on those not members."""
    first, second = jax.random.split(key)
    own = NormalShift(num_calibration=1, num_tests=100, signal=1.0).draw(first)
    test = NormalShift(num_calibration=1, num_tests=200, signal=1.0, target_share=fraction).draw(second)
    if rule == "threshold":
        chosen = threshold(own.scores, own.target, test.scores, null="nonmember", rule="fdr", alpha=_ALPHA).selected
    else:
        chosen = ptdi(own.scores, test.scores, alpha=_ALPHA, calibration_mask=~own.target).selected
    return false_discovery_proportion(chosen, ~test.target)


def _sample(n: int) -> Setting:
    words = f"{n} calibration scores, continuous; does P(p <= t | calibration) exceed t for some t? delta = {_ALPHA}"
    return Setting(words, "miss", _ALPHA, partial(_exceeds, n=n))


def _labelled(fraction: float) -> Setting:
    words = (
        f"100 items with known labels, half of them members; 200 candidates, {fraction:.0%} of them members; "
        f"members 1 sd lower; alpha = {_ALPHA}"
    )
    return Setting(words, "FDR", _ALPHA, partial(_validated, fraction=fraction))


_HUNDRED, _TWENTY = _sample(100), _sample(20)
_HALF, _TENTH = _labelled(0.5), _labelled(0.1)
_MEMBERS = Setting(f"5 members, 5 non-members, 99 calibration items, level {2 * _ALPHA}", "FDR", 2 * _ALPHA, _placed)
_FLAGGED = Setting(
    "200 non-members of overlap N(0, 1) and 30 members of overlap N(2, 1), of whom those with overlap above 1 are "
    "candidates; score = noise - overlap, members 3 lower; 400 calibration items of the non-members' law; "
    f"level {_ALPHA}",
    "FDR",
    _ALPHA,
    _flagged,
)
_CLUSTERS = Setting(
    "21 non-member clusters, 3 of 30 items and 18 of 2, of which 19 drawn at random calibrate and 2 are tested; "
    f"90% of the variance of a score is between clusters; level {_ALPHA}",
    "FDR",
    _ALPHA,
    _clusters,
)
_UNEQUAL = Setting(
    "200 non-member clusters, 4 of 80 items whose scores are 10 sd lower and 196 of one item, 50 drawn at random "
    f"calibrate; level {2 * _ALPHA}",
    "FDR",
    2 * _ALPHA,
    _long_clusters,
    batch=100,
)
_SHIFT = (
    "covariate N(0, 1) among {} calibration items, N(1, 1) among {} candidates, {} of them members; "
    "score = noise - covariate; level 0.1"
)
_ONE_SHIFTED = Setting(_SHIFT.format(50, 1, "none"), "size", _ALPHA, _shifted_size)
_SHIFTED = Setting(_SHIFT.format(200, 40, 10), "FDR", _ALPHA, _shifted)
_BEST = "the threshold with FDP <= alpha and the highest power on them (KTD's baselines)"
_SMALLER = "the smaller of the Simes and the asymptotic bound at one delta (asymptotic, held to n = 100)"
_WEIGHTED = "weighted_conformal_selection with the true density ratio"
_CONDITIONAL = "calibration_conditional_p_values, method="

CLAIMS: tuple[Claim, ...] = (
    _HUNDRED.claim("one-sample/plain", "conformal p-values, read as valid for the calibration sample at hand", False,
                   "plain"),
    _HUNDRED.claim("one-sample/smaller", _SMALLER, False, "smaller"),
    _HUNDRED.claim("one-sample/simes", f'{_CONDITIONAL}"simes"', True, "simes"),
    _TWENTY.claim("one-sample/monte_carlo", f'{_CONDITIONAL}"monte_carlo", 19 draws', True, "monte_carlo"),
    _HALF.claim("validation/threshold-50", _BEST, False, "threshold"),
    _TENTH.claim("validation/threshold-10", _BEST, False, "threshold"),
    _TENTH.claim("validation/ptdi-10", "PTDI, calibrated on the non-members among them", True, "ptdi"),
    _MEMBERS.claim("members/placed", 'PTDI, proportion="none", scores of members given', True, "drawn"),
    _MEMBERS.claim("members/knowing", "the same, where scores of members depend on those of the others", False,
                   "knowing"),
    _FLAGGED.claim("flagged/apart", "PTDI on the flagged, calibrated on all calibration items", False, "apart"),
    _FLAGGED.claim("flagged/alike", "PTDI on the flagged, calibrated on the calibration items that the same rule flags",
                   True, "alike"),
    _CLUSTERS.claim("clusters/ignored", 'PTDI on items, clusters ignored, proportion="none"', False, "ignored"),
    *(
        _CLUSTERS.claim(f"clusters/{unit}", f'cluster_ptdi, unit="{unit}"', True, unit)
        for unit in ("cluster", "item", "drawn")
    ),
    *(
        _UNEQUAL.claim(f"clusters/long-{sizes}", f'cluster_ptdi, unit="item", sizes="{sizes}"', holds, sizes)
        for sizes, holds in (("uninformative", False), ("informative", True))
    ),
    _ONE_SHIFTED.claim("shift/p-value-ignored", "conformal p-value, shift ignored", False, "ignored"),
    _ONE_SHIFTED.claim("shift/p-value-weighted", "weighted_conformal_p_values with the true density ratio", True,
                       "weighted"),
    _SHIFTED.claim("shift/ignored", 'PTDI, shift ignored, proportion="none"', False, "ignored"),
    _SHIFTED.claim("shift/weighted", f'{_WEIGHTED}, prune="homogeneous"', True, "homogeneous"),
    *(
        _SHIFTED.claim(f"shift/weighted-{prune}-one-key", f'{_WEIGHTED}, prune="{prune}", key(0) in every audit', True,
                       f"{prune}, one key")
        for prune in ("homogeneous", "heterogeneous")
    ),
)  # fmt: skip
