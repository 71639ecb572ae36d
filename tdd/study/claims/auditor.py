"""What an auditor meets: one calibration sample, drawn from elsewhere, in clumps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conditional, conformal, weighted
from tdd.procedures.clusters import cluster_ptdi
from tdd.procedures.ptdi import ptdi
from tdd.procedures.weighted import weighted_conformal_selection
from tdd.study.baselines import threshold
from tdd.study.claims.claim import Claim
from tdd.study.designs import NormalShift

__all__ = ["CLAIMS", "clustered_scores", "exceeds_somewhere", "shifted_scores"]

# --- one calibration sample ------------------------------------------------------------------------------------------


def exceeds_somewhere(key: jax.Array, table: jax.Array, num_calibration: int) -> jax.Array:
    """Whether, given a calibration sample of uniform scores, P(p <= t | calibration) > t for some t.

    A new uniform score has rank at most r with the conditional probability U_(r), the r-th smallest calibration score.
    """
    return jnp.any(jnp.sort(jax.random.uniform(key, (num_calibration,))) > table[1 : num_calibration + 1])


def _exceeds(key: jax.Array, how: str, num_calibration: int, delta: float) -> jax.Array:
    n = num_calibration
    own, draws = jax.random.split(key)
    size: dict[str, int] = {"max_rank": n + 1}
    if how == "plain":
        table = jnp.arange(n + 2) / (n + 1)
    elif how == "simes":
        table = conditional.simes_bounds(n, delta, **size)
    elif how == "smaller":
        table = conditional.hybrid_bounds(n, delta, 0.0, **size)
    else:
        table = conditional.monte_carlo_bounds(n, delta, **size, key=draws, num_draws=19)
    return exceeds_somewhere(own, table, n)


# --- members whose scores follow those of the others -----------------------------------------------------------------

_FEW = 5


def _placed(key: jax.Array, *, knowing: bool) -> jax.Array:
    """False discovery proportion where members have the lowest or the highest score of all.

    How many have the lowest is drawn, or, knowing the other scores, is what makes most of the selected wrong.
    """
    drawn, scores = jax.random.split(key)
    own, other = jnp.split(jax.random.normal(scores, (99 + _FEW,)), [99])
    count = jnp.arange(_FEW + 1)

    def fdp(low: jax.Array) -> jax.Array:
        members = jnp.where(jnp.arange(_FEW) < low, -10.0, 10.0)
        selected = ptdi(own, jnp.concatenate([other, members]), alpha=2 * _ALPHA, proportion="none").selected
        return jnp.sum(selected[:_FEW]) / jnp.maximum(jnp.sum(selected), 1)

    proportions = jax.vmap(fdp)(count)
    return jnp.max(proportions) if knowing else proportions[jax.random.randint(drawn, (), 0, _FEW + 1)]


# --- clusters --------------------------------------------------------------------------------------------------------


def clustered_scores(key: jax.Array, *, sizes: Sequence[int], share: float) -> tuple[jax.Array, jax.Array]:
    """Scores of non-member clusters, of the given sizes in random order; items share a part of their variance.

    Returns:
      [C, S] scores, S the largest size, and [C, S] which of them are real. Clusters are exchangeable.
    """
    common, own, order = jax.random.split(key, 3)
    many, most = len(sizes), max(sizes)
    scores = share**0.5 * jax.random.normal(common, (many, 1)) + (1 - share) ** 0.5 * jax.random.normal(
        own, (many, most)
    )
    return scores, jnp.arange(most) < jax.random.permutation(order, jnp.asarray(sizes))[:, None]


_BOOKS = (30,) * 3 + (2,) * 18
_CALIBRATING = 19
_BOOK_WORDS = (
    "21 non-member clusters, 3 of 30 items and 18 of 2, of which 19 drawn at random calibrate and 2 are tested; "
    "90 % of the variance of a score is between clusters; level {alpha}"
)


def _clusters(key: jax.Array, how: str, alpha: float) -> jax.Array:
    draw, own = jax.random.split(key)
    scores, real = clustered_scores(draw, sizes=_BOOKS, share=0.9)
    labels = np.arange(len(_BOOKS)).repeat(scores.shape[1])
    scores, real, cut = scores.ravel(), real.ravel(), _CALIBRATING * scores.shape[1]
    if how == "ignored":
        found = ptdi(
            scores[:cut],
            scores[cut:],
            alpha=alpha,
            proportion="none",
            calibration_mask=real[:cut],
            mask=real[cut:],
        )
    else:
        found = cluster_ptdi(
            scores[:cut],
            scores[cut:],
            labels[:cut],
            labels[cut:],
            alpha=alpha,
            unit=how,  # type: ignore[arg-type]
            proportion="none",
            key=own,
            calibration_mask=real[:cut],
            mask=real[cut:],
        )
    return jnp.any(found.selected)


_LONG = (80,) * 4 + (1,) * 196
_LONG_WORDS = (
    "200 non-member clusters, 4 of 80 items whose scores are 10 sd lower and 196 of one item, 50 drawn at random "
    "calibrate; level {alpha}"
)


def _long_clusters(key: jax.Array, sizes: str, alpha: float) -> jax.Array:
    """Long books score lower, and say nothing else."""
    draw, order = jax.random.split(key)
    labels = np.arange(len(_LONG)).repeat(_LONG)
    scores = jax.random.normal(draw, labels.shape) - 10.0 * (labels < 4)
    known = (jax.random.permutation(order, len(_LONG)) < 50)[labels]
    found = cluster_ptdi(
        scores,
        scores,
        labels,
        labels + len(_LONG),
        alpha=alpha,
        unit="item",
        sizes=sizes,  # type: ignore[arg-type]
        calibration_mask=known,
        mask=~known,
    )
    return jnp.any(found.selected)


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


def _fdp(selected: jax.Array, null: jax.Array) -> jax.Array:
    return jnp.sum(selected & null) / jnp.maximum(jnp.sum(selected), 1)


def _shifted(key: jax.Array, how: str, alpha: float) -> jax.Array:
    draw, own = jax.random.split(key)
    data = shifted_scores(draw, calibration=200, nulls=30, alternatives=10)
    null = jnp.arange(40) < 30
    if how == "ignored":
        return _fdp(ptdi(data[0], data[1], alpha=alpha, proportion="none").selected, null)
    found = weighted_conformal_selection(*data, alpha=alpha, null="nonmember", key=own)
    return _fdp(found.selected, null)


def _shifted_size(key: jax.Array, how: str, level: float) -> jax.Array:
    data = shifted_scores(key, calibration=50, nulls=1, alternatives=0)
    if how == "ignored":
        p = conformal.p_values(conformal.rank(data[0], data[1], null="nonmember"))
    else:
        p = weighted.p_values(*data, null="nonmember")
    return p[0] <= level


_ALPHA = 0.1
# --- a threshold from validation items --------------------------------------------------------------------------------


def _validated(key: jax.Array, how: str, share: float, alpha: float) -> jax.Array:
    """FDP among 200 candidates of a threshold from 100 labelled items, or of PTDI calibrated on those not members."""
    first, second = jax.random.split(key)
    own = NormalShift(num_calibration=1, num_tests=100, signal=1.0).draw(first)
    test = NormalShift(num_calibration=1, num_tests=200, signal=1.0, target_share=share).draw(second)
    if how == "threshold":
        found = threshold(own.scores, own.target, test.scores, null="nonmember", rule="fdr", alpha=alpha)
    else:
        found = ptdi(own.scores, test.scores, alpha=alpha, calibration_mask=~own.target)
    return jnp.sum(found.selected & ~test.target) / jnp.maximum(jnp.sum(found.selected), 1)


_VALIDATED_WORDS = (
    "100 items with known labels, half of them members; 200 candidates, {share} % of them members; members 1 sd lower; "
    "alpha = {alpha}"
)

_SAMPLE_WORDS = "{n} calibration scores, continuous; does P(p <= t | calibration) exceed t for some t? delta = {delta}"
_SHIFT_WORDS = (
    "covariate N(0, 1) among {n} calibration items, N(1, 1) among {m} candidates, {members} of them members; score = "
    "noise - covariate; level {alpha}"
)

CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"one-sample/{how}",
            words,
            _SAMPLE_WORDS.format(n=n, delta=_ALPHA),
            "miss",
            _ALPHA,
            holds,
            partial(_exceeds, how=how, num_calibration=n, delta=_ALPHA),
        )
        for how, words, n, holds in (
            ("plain", "conformal p-values, read as valid for the calibration sample at hand", 100, False),
            (
                "smaller",
                "the smaller of the Simes and the asymptotic bound at one delta (asymptotic, held to n = 100)",
                100,
                False,
            ),
            ("simes", 'calibration_conditional_p_values, method="simes"', 100, True),
            ("monte_carlo", 'calibration_conditional_p_values, method="monte_carlo", 19 draws', 20, True),
        )
    ),
    *(
        Claim(
            f"validation/{how}-{share}",
            words,
            _VALIDATED_WORDS.format(share=share, alpha=_ALPHA),
            "FDR",
            _ALPHA,
            holds,
            partial(_validated, how=how, share=share / 100, alpha=_ALPHA),
        )
        for how, words, holds, shares in (
            (
                "threshold",
                "the threshold with FDP <= alpha and the highest power on them (KTD's baselines)",
                False,
                (50, 10),
            ),
            ("ptdi", "PTDI, calibrated on the non-members among them", True, (10,)),
        )
        for share in shares
    ),
    *(
        Claim(
            f"members/{how}",
            words,
            f"5 members, 5 non-members, 99 calibration items, level {2 * _ALPHA}",
            "FDR",
            2 * _ALPHA,
            not knowing,
            partial(_placed, knowing=knowing),
        )
        for how, words, knowing in (
            ("placed", 'PTDI, proportion="none", scores of members given', False),
            ("knowing", "the same, where scores of members depend on those of the others", True),
        )
    ),
    *(
        Claim(
            f"clusters/{how}",
            words,
            _BOOK_WORDS.format(alpha=_ALPHA),
            "FDR",
            _ALPHA,
            holds,
            partial(_clusters, how=how, alpha=_ALPHA),
        )
        for how, words, holds in (
            ("ignored", 'PTDI on items, clusters ignored, proportion="none"', False),
            ("cluster", 'cluster_ptdi, unit="cluster"', True),
            ("item", 'cluster_ptdi, unit="item"', True),
            ("drawn", 'cluster_ptdi, unit="drawn"', True),
        )
    ),
    *(
        Claim(
            f"clusters/long-{sizes}",
            f'cluster_ptdi, unit="item", sizes="{sizes}"',
            _LONG_WORDS.format(alpha=0.2),
            "FDR",
            0.2,
            holds,
            partial(_long_clusters, sizes=sizes, alpha=0.2),
            batch=100,
        )
        for sizes, holds in (("uninformative", False), ("informative", True))
    ),
    *(
        Claim(
            f"shift/p-value-{how}",
            words,
            _SHIFT_WORDS.format(n=50, m=1, members="none", alpha=_ALPHA),
            "size",
            _ALPHA,
            holds,
            partial(_shifted_size, how=how, level=_ALPHA),
        )
        for how, words, holds in (
            ("ignored", "conformal p-value, shift ignored", False),
            ("weighted", "weighted_conformal_p_values with the true density ratio", True),
        )
    ),
    *(
        Claim(
            f"shift/{how}",
            words,
            _SHIFT_WORDS.format(n=200, m=40, members=10, alpha=_ALPHA),
            "FDR",
            _ALPHA,
            holds,
            partial(_shifted, how=how, alpha=_ALPHA),
        )
        for how, words, holds in (
            ("ignored", 'PTDI, shift ignored, proportion="none"', False),
            ("weighted", "weighted_conformal_selection with the true density ratio", True),
        )
    ),
)
