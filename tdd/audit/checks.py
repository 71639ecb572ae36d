"""Diagnostics of scores and knockoffs: what the sizes can resolve, and whether clusters and knockoffs keep what their
procedures assume."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.decide import complete_items
from tdd.audit.inputs import Inputs
from tdd.audit.sampling import LEVEL, OF_EACH, SLACK
from tdd.procedures.procedure import Procedure
from tdd.records import Evidence, Null, Texts
from tdd.runs.units import counted
from tdd.texts.words import normalise

_DRAWS = 999
_LARGE = 1 / 20
_MANY_CUT = 0.1
_NAMED = 3
_FEWEST = 5
_REVERSED, _LEAST = 0.001, 1e-300


@dataclasses.dataclass(frozen=True)
class Resolution:
    """The resolution of n calibration items among m tests at level alpha."""

    smallest_p_value: float | None  # that a candidate can have; None where it is unknown
    min_selections: int  # smallest k that can be selected; m + 1: nothing can be
    # calibration items, as they are given, without which a single item cannot be selected; None where it is unknown
    calibration_for_one: int | None
    warning: str  # empty where at most one item, or at most 5% of the items, are needed for a selection


@dataclasses.dataclass(frozen=True)
class EffectiveCalibration:
    """The calibration items that carry information."""

    num_given: int  # calibration items given
    num_missing: int  # items without a score (NaN)
    num_repeated: int  # items with a score that are exact duplicates of an earlier one
    size: int  # num_given - num_missing - num_repeated
    num_distinct: int  # different values among the scores; fewer than scores means ties
    warning: str  # empty where every item counts and ties are rare


def resolution(
    procedure: Procedure,
    num_calibration: int,
    num_tests: int,
    alpha: float,
    null_proportion: float,
    min_selections: int,
    num_learned: int = 0,
) -> Resolution:
    """The fewest items that a procedure can select, and how many calibration items a single selection needs.

    Args:
      procedure: the procedure, which knows both.
      num_calibration, num_tests: n and m, items with a score, those among them that the p-values rest on.
      alpha: level, in (0, 1).
      null_proportion: estimated proportion of candidates under the null that scales the p-values; may exceed 1.
      min_selections: the smallest k, as the procedure computes it from the exact estimate.
      num_learned: further calibration items, that the procedure learned from.

    >>> from tdd.procedures.values import PTDI
    >>> resolution(PTDI(), 99, 1000, 0.1, 1, min_selections=100).calibration_for_one
    9999
    """
    smallest = procedure.smallest_p_value(num_calibration)
    for_any, for_one = (
        procedure.least_calibration(k, num_tests, alpha, null_proportion) if num_tests else None for k in (num_tests, 1)
    )
    learned = ", those included that are learned from" if num_learned else ""
    same = "with the same estimate of the null proportion, " if null_proportion != 1 else ""  # it depends on n
    warning = ""
    if min_selections > num_tests > 0:
        scaled = f" after the estimate of the null proportion multiplies p-values by {null_proportion:.3g}"
        at_level = f"at level {alpha:g}{scaled if null_proportion != 1 else ''}"
        floor = "are too few" if smallest is None else f"give no p-value below {smallest:.3g}"
        warning = f"nothing can be selected: {num_calibration} calibration items {floor} {at_level}"
        if for_any is not None and for_one is not None:
            warning += (
                f"; {same}at least {for_any} are needed to select all {num_tests} candidates, {for_one} to select a "
                f"single one{learned}"
            )
    elif min_selections > 1 and min_selections > _LARGE * num_tests:
        found = "members" if procedure.null == "nonmember" else "clean items"
        warning = (
            f"with {num_calibration} calibration items either none or at least {min_selections} of {num_tests} "
            f"candidates are selected at level {alpha:g}, so that fewer {found} are likely to be missed"
        )
        if for_one is not None:
            warning += f"; {same}a single selection needs at least {for_one} calibration items{learned}"
    return Resolution(smallest, min(min_selections, num_tests + 1), for_one, warning)


def _scored(evidence: Evidence) -> list[np.ndarray]:
    """Scores [K, n] of calibration items and [K, m] of candidates, NaN where an item has none or is padding."""
    own = evidence.calibration if evidence.calibration is not None else np.zeros((len(evidence.names), 0))
    sides = (own, evidence.calibration_mask), (evidence.scores, evidence.mask)
    panels = [(np.atleast_2d(np.asarray(panel, np.float64)), mask) for panel, mask in sides]
    return [panel if mask is None else np.where(np.asarray(mask, bool), panel, np.nan) for panel, mask in panels]


@dataclasses.dataclass(frozen=True)
class RepeatedValue:
    """A score that one value of which most items of a role have: it says nothing about them."""

    score: str  # its name
    role: str  # "calibration items" or "candidates"
    value: float  # the value
    count: int  # items that have it
    total: int  # items of the role with a score
    warning: str  # the finding in words


def repeated_value(evidence: Evidence) -> RepeatedValue | None:
    """The first score one value of which more than half of the items of a role have; None without one.

    Roles with fewer than five scored items are left out.
    """
    for role, panel in zip(("calibration items", "candidates"), _scored(evidence), strict=True):
        for name, column in zip(evidence.names, panel, strict=True):
            values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            total = int(counts.sum())
            if total < _FEWEST or 2 * counts.max() <= total:
                continue
            value, count = float(values[np.argmax(counts)]), int(counts.max())
            warning = (
                f"{count} of {total} {role} have the same {name}, {value:g}, so it cannot tell them apart: such "
                "numbers come from a scorer that failed or a server that computed nothing"
            )
            return RepeatedValue(name, role, value, count, total, warning)
    return None


@dataclasses.dataclass(frozen=True)
class Direction:
    """A score by which candidates lie on the wrong side of the calibration items."""

    score: str  # its name
    share: float  # of pairs in which the candidate lies on that side, ties as halves
    p_value: float  # of the rank-sum test, one-sided
    warning: str  # the finding in words


def direction(evidence: Evidence, null: Null) -> Direction | None:
    """The first score by which candidates look less like members than known non-members; None without one.

    Or, where the null is "member", more like members than known members. Members among candidates cannot cause either;
    a reversed score does. Clusters, weights, data without calibration items, and scores one value of which most items
    have are left out.

    Guarantee: where candidates and calibration items are exchangeable, or some candidates lie on the right side, a
    score is named in about .1% of data sets at most, by the normal approximation with the correction for ties (Mann &
    Whitney 1947).
    """
    if evidence.calibration is None or evidence.clusters or evidence.weights is not None:
        return None
    sign = 1 if null == "nonmember" else -1
    for name, *columns in zip(evidence.names, *_scored(evidence), strict=True):
        known, tested = (sign * column[~np.isnan(column)] for column in columns)
        n, m = known.size, tested.size
        if min(n, m) < _FEWEST:
            continue
        known.sort()
        above = (np.searchsorted(known, tested, "left") + np.searchsorted(known, tested, "right")).sum() / 2
        ties = np.unique(np.concatenate([known, tested]), return_counts=True)[1].astype(float)
        if 2 * ties.max() > n + m:  # the approximation does not hold; `repeated_value` is about such scores
            continue
        variance = n * m / 12 * (n + m + 1 - ((ties**3 - ties) / (n + m) / (n + m - 1)).sum())
        p_value = math.erfc((above - n * m / 2) / math.sqrt(2 * variance)) / 2
        if p_value <= _REVERSED / len(evidence.names):
            less, known_as = ("less", "non-members") if null == "nonmember" else ("more", "members")
            warning = (
                f"by {name} candidates look {less} like members than the known {known_as} (in {above / n / m:.0%} of "
                f"pairs; p = {max(p_value, _LEAST):.1g} if they are alike): is its direction right? Only "
                "scores whose higher values mean a member need higher_is_member (--higher-is-member). If it is right, "
                "the calibration items are not like the candidates"
            )
            return Direction(name, float(above / n / m), p_value, warning)
    return None


def effective_calibration_size(scores: np.ndarray, texts: Texts | None = None) -> EffectiveCalibration:
    """Calibration items that carry information: with one of the scores [n] that is not NaN, and no copy of another one.

    Differences of case, Unicode composition and white space are ignored; without texts no item counts as repeated.
    """
    values = np.asarray(scores, dtype=np.float64)
    scored = ~np.isnan(values)
    num_scored = int(np.count_nonzero(scored))
    num_repeated = 0
    if texts is not None:
        num_repeated = num_scored - len({normalise(texts.texts[row]) for row in np.flatnonzero(scored)})
    num_distinct = int(np.unique(values[scored]).size)
    num_missing = values.size - num_scored
    size = num_scored - num_repeated
    parts = []
    if size == 0:
        parts.append("no calibration item has a score")
    elif num_missing:
        parts.append(f"{num_missing} of {values.size} calibration items have no score and do not count")
    if num_repeated:
        copies = ("calibration item is a copy of another and adds", "calibration items are copies of others and add")
        parts.append(f"{counted(num_repeated, copies)} no information")
    if 2 * num_distinct < size:
        different = counted(num_distinct, ("different value", "different values"))
        parts.append(
            f"the {num_scored} calibration scores take only {different}: p-values lose power, and are valid if the "
            "ties come from rounding; with copies of items they are not: keep one of each"
        )
    return EffectiveCalibration(values.size, num_missing, num_repeated, size, num_distinct, "; ".join(parts))


@dataclasses.dataclass(frozen=True)
class CopiedScores:
    """A score whose values repeat within one role alone, as those of copied items do."""

    score: str  # its name
    role: str  # "calibration items" or "candidates"
    count: int  # items that have a value which another one of the role has
    total: int  # items of the role with a score
    num_values: int  # values that they have
    warning: str  # the finding in words


def copied_scores(evidence: Evidence) -> CopiedScores | None:
    """The first score by which items of a role look like copies of one another; None without one.

    Values that repeat because they are rounded, or few, are met by the other role as well; those of copied items are
    not: its scores lie between them. Named is a role where, between neighbouring values that repeat, more places hold
    an item of the other role than values are met by it, and at least five. Both roles must take such values from one
    law for the known non-members among them; clusters, whose items may share a score, are left out.

    Guarantee: none proven. In 540,000 draws of sound data (rounded to 1/2 to 1/1000 of their standard deviation, in
    single and half precision, counts, ratios, mixtures; without members, with members, and of members alone) three were
    named, of 30 + 30 items each; of 100 values twice each, beside 100 others, every one.
    """
    if evidence.calibration is None or evidence.clusters:
        return None
    for name, *columns in zip(evidence.names, *_scored(evidence), strict=True):
        known, tested = (column[~np.isnan(column)] for column in columns)
        for role, own, other in (("calibration items", known, tested), ("candidates", tested, known)):
            values, counts = np.unique(own, return_counts=True)
            between, met = _between_and_met(values, counts > 1, np.unique(other))
            if between < _FEWEST or between <= met:
                continue
            count, num_values = int(counts[counts > 1].sum()), int((counts > 1).sum())
            warning = (
                f"{count} of {own.size} {role} have one of {num_values} values of {name} that repeat among them and "
                "hardly occur in the other role, as copies of items do: with copies p-values are not valid; keep one "
                "of each item"
            )
            return CopiedScores(name, role, count, own.size, num_values, warning)
    return None


def _between_and_met(values: np.ndarray, repeated: np.ndarray, others: np.ndarray) -> tuple[int, int]:
    """Places between neighbouring repeated values that hold one of the others, and values that are one of them."""
    if not values.size:
        return 0, 0
    place = np.searchsorted(values, others)
    inside = (place > 0) & (place < values.size)
    place = np.minimum(place, values.size - 1)
    met = values[place] == others
    gaps = np.unique(place[inside & ~met])
    return int((repeated[gaps - 1] & repeated[gaps]).sum()), int(met.sum())


@dataclasses.dataclass(frozen=True)
class ClusterSizes:
    """Sizes of clusters against their scores, and between the roles."""

    mean_calibration: float  # mean number of scored items in a calibration cluster
    mean_candidates: float  # mean number of scored items in a cluster of candidates
    # Spearman's rank correlation of size and mean score over calibration clusters; 0 where all sizes or all scores
    # are equal
    correlation: float
    # two-sided permutation p-value that size and mean score are independent, over calibration clusters
    p_related: float
    p_differ: float  # two-sided permutation p-value of the rank sum that sizes in both roles have one distribution
    # small where sizes differ between the roles and that matters: p_differ where items are decided on, whose rule
    # takes sizes as exchangeable, else the larger of the two
    p_value: float
    warning: str  # empty where p_value > 0.0025


def cluster_sizes(evidence: Evidence, unit: str, seed: int) -> ClusterSizes | None:
    """Compare the clusters of calibration items and of candidates in size; None unless both roles come in clusters.

    Guarantee: if the clusters of both roles are exchangeable, their sizes included, P(p_value <= t) <= t, for any
    number of draws: the observed order counts as one of them. `unit` is what is decided on; see `Decision`.
    """
    if not evidence.clusters or not evidence.calibration_clusters:
        return None
    calibration_sizes, means = _by_cluster(evidence.calibration_clusters, evidence.calibration)
    candidate_sizes, _ = _by_cluster(evidence.clusters, evidence.scores)
    if not calibration_sizes.size or not candidate_sizes.size:
        return None
    rng = np.random.default_rng((seed, 0x51E5))
    ranks, scores = _centred_ranks(calibration_sizes), _centred_ranks(means)
    spread = np.sqrt((ranks**2).sum() * (scores**2).sum())
    p_related = _permutation_p(ranks, scores, rng)
    both = _centred_ranks(np.concatenate([calibration_sizes, candidate_sizes]))
    role = np.arange(both.size) < calibration_sizes.size
    p_differ = _permutation_p(both, role - role.mean(), rng)
    p_value = p_differ if unit == "item" else max(p_related, p_differ)
    correlation = float(ranks @ scores / spread) if spread else 0.0
    warning = ""
    if p_value <= OF_EACH * SLACK:
        warning = (
            f"clusters of calibration items hold {calibration_sizes.mean():.3g} items and clusters of candidates "
            f"{candidate_sizes.mean():.3g} on average (p = {p_differ:.3g}; rank correlation of size and score "
            f"{correlation:.2f}, p = {p_related:.3g}): the clusters are not exchangeable"
        )
    means_of_sizes = float(calibration_sizes.mean()), float(candidate_sizes.mean())
    return ClusterSizes(*means_of_sizes, correlation, p_related, p_differ, p_value, warning)


def _by_cluster(clusters: Sequence[Any], scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scored items and mean score of each cluster that has one."""
    number = np.unique(clusters, return_inverse=True)[1]
    known = ~np.isnan(scores)
    sizes = np.bincount(number[known], minlength=number.max() + 1)
    sums = np.bincount(number[known], weights=scores[known], minlength=sizes.size)
    return sizes[sizes > 0], sums[sizes > 0] / sizes[sizes > 0]


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks with ties at their mean, minus their mean."""
    from scipy.stats import rankdata

    return rankdata(values) - (values.size + 1) / 2


def _permutation_p(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> float:
    """Two-sided, of the sum of products of centred numbers; 1 where one of them is constant."""
    observed = abs(first @ second)
    slack = 1e-9 * np.sqrt((first**2).sum() * (second**2).sum())
    reached = sum(abs(rng.permutation(first) @ second) >= observed - slack for _ in range(_DRAWS))
    return (1 + reached) / (1 + _DRAWS)


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """The symmetry test on known non-members."""

    p_value: float  # p-value of the null that original and knockoff scores of a non-member are exchangeable
    num_items: int  # known non-members with their knockoffs
    method: str  # name of the test
    # items that look like members: W > 0 for rule="ktd", for the others those whose own score is the lowest of the k
    # + 1
    num_leaning: int
    expected: float  # their expected number under the null, num_items / 2 or num_items / (k + 1)
    warning: str  # empty where nothing was found; that it is empty proves nothing for the candidates


def symmetry(evidence: Evidence, rule: str) -> Symmetry | None:
    """Test what a knockoff rule assumes, on known non-members; None unless some have knockoffs.

    Tested is what the rule assumes: for "ktd" that the averaged statistic is symmetric, for the others that the copies
    of a text are exchangeable.
    """
    scores, copies = evidence.calibration, evidence.calibration_knockoffs
    known = complete_items(scores, copies)
    if copies is None or not known.any():
        return None
    from tdd.procedures.knockoff_symmetry import knockoff_symmetry

    averaged = rule == "ktd"
    result = knockoff_symmetry(scores, copies, rule="ktd" if averaged else "multi")
    rival = copies[known].mean(axis=1) if averaged else copies[known].min(axis=1)
    num_leaning, num_items = int((scores[known] < rival).sum()), int(known.sum())
    expected = num_items / (2 if averaged else copies.shape[1] + 1)
    p_value = float(result.p_value) or math.exp(float(result.log_p_value))  # too small for single precision
    warning = ""
    if p_value <= LEVEL:
        finding = (
            "the averaged statistic of known non-members is not symmetric"
            if averaged
            else "the scores of known non-members and of their knockoffs differ"
        )
        warning = (
            f"{finding} (symmetry test, p = {p_value:.3g}): {num_leaning} of {num_items} look like members, about "
            f"{expected:.0f} would by chance"
        )
        if rule != "conformal":
            warning += f'; rule="{rule}" is not valid here, and rule="conformal" needs no symmetry'
    return Symmetry(p_value, num_items, result.method, num_leaning, expected, warning)


@dataclasses.dataclass(frozen=True)
class KnockoffTexts:
    """Knockoffs of candidates and calibration items that are not paraphrases; texts are compared as they are."""

    num_items: int  # items with knockoffs
    num_unchanged: int  # items with a knockoff that is the text itself
    num_repeated: int  # items of which two knockoffs are the same
    num_foreign: int  # items with a knockoff that is the text of another item: a sign of misaligned columns
    warning: str  # empty where nothing was found


def knockoff_texts(inputs: Inputs) -> KnockoffTexts:
    """Find knockoffs that equal their text, one another, or another item's text."""
    unchanged, repeated, foreign, total = [], [], [], 0
    owners = [(inputs.candidates, inputs.knockoffs("candidate")), (inputs.calibration, inputs.knockoffs("calibration"))]
    paraphrased = [(items, knockoffs) for items, knockoffs in owners if items is not None and knockoffs]
    originals = {text for items, _ in paraphrased for text in items.texts}
    for items, knockoffs in paraphrased:
        total += len(items)
        versions = zip(*(texts.texts for texts in knockoffs), strict=True)
        for name, text, copies in zip(items.ids, items.texts, versions, strict=True):
            if text in copies:
                unchanged.append(name)
            if len(set(copies)) < len(copies):
                repeated.append(name)
            if any(copy in originals and copy != text for copy in copies):
                foreign.append(name)
    findings = (
        (
            unchanged,
            "have a knockoff that is the text itself: both score the same, W = 0, and where it is the only knockoff, "
            "or with rule=multi, such an item is never selected",
        ),
        (repeated, "have two knockoffs that are the same text, which say no more than one"),
        (foreign, "have a knockoff that is the text of another item: check that the columns belong to the same rows"),
    )
    parts = [f"{_some_of(names, total)} {what}" for names, what in findings if names]
    return KnockoffTexts(total, len(unchanged), len(repeated), len(foreign), "; ".join(parts))


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """Texts that exceed the context of the model."""

    num_texts: int  # distinct texts, knockoffs included
    num_cut: int  # texts that were cut where the context ends
    warning: str  # empty where at most one text in ten was cut


def cut_texts(details: Sequence[Mapping[str, Any]], total: int) -> LongTexts | None:
    """Count the texts that were cut, by the provenance of the scores under each model; None where none may be cut."""
    counts = [detail["num_truncated"] for detail in details if "num_truncated" in detail]
    if not counts:
        return None
    num_cut = max(counts)
    warning = ""
    if num_cut > _MANY_CUT * total:
        warning = (
            f"{num_cut} of {total} texts are longer than the model's context and were cut there, originals and "
            "knockoffs alike: what lies beyond was not looked at"
        )
    return LongTexts(total, num_cut, warning)


def _some_of(names: Sequence[str], total: int) -> str:
    """ "2 of 40 items ('a', 'b')"."""
    more = ", ..." if len(names) > _NAMED else ""
    return f"{len(names)} of {total} items ({', '.join(map(repr, names[:_NAMED]))}{more})"
