"""Blind baseline: can calibration and candidates be told apart without any language model?

A detector's guarantee assumes that calibration items and the candidates under the null are exchangeable. A
classifier that never sees the audited model, only words and length of the texts, tests the strongest form of it:
that all texts are. What separates the texts here may be what separates them under the model.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.duplicates import identifiers, strings
from tdd.audit.sampling import ROLES, SLACK, subsample, units_of
from tdd.records import Guarantee, Texts
from tdd.texts.words import unusual_space, words_and_marks
from tdd.validate import InputError

GUARANTEE = Guarantee(
    "P(a warning) <= level",
    ("calibration texts and candidates are exchangeable (groups of them, where groups are named)",),
    "finite-sample",
    "a permutation test of the whole procedure; Phipson & Smyth (2010) for the observed labelling",
)
GUARANTEE_ROWS = [("tdd.run_audit", "blind baseline", GUARANTEE)]

_NUM_PERMUTATIONS = 399
_FOLDS = 5
_MIN_UNITS = 10
_MAX_TEXTS = 2_000
_MAX_CHARACTERS = 5_000
_MAX_FEATURES = 50_000
_FORM_SCALE = 0.1
_MAX_STEPS = 100
_OF_AN_AUDIT = (
    ". If the candidates for which the null hypothesis is true are like the calibration items, and only the others "
    "differ, the error rate holds; but then the score may detect what these are about instead of training"
)
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class BlindBaseline:
    """The finding of a classifier without a language model."""

    # cross-validated AUC of candidates against calibration, the mean over all pairs of one fold; NaN where the check
    # did not run. Values below 0.5 are not evidence: cross-validation is biased that way when there is nothing to
    # find, so the AUC is not folded
    auc: float
    fold_aucs: tuple[float, ...]  # the AUC of every fold
    p_value: float  # permutation p-value of `auc` under exchangeability; 1 where the check did not run
    threshold: float  # a larger AUC raises the warning; NaN where the check did not run
    null_deviation: float  # standard deviation of the AUC under random roles
    num_calibration: int  # texts used
    num_candidates: int  # texts used
    num_permutations: int  # random relabellings behind `p_value`
    note: str  # cuts that bound the cost, or empty
    unchecked: str  # what was not tested and why, or empty
    warning: str  # empty where nothing was found
    # with a warning, ids of the calibration item and of the candidate that classifiers of the other folds tell apart
    # most clearly; else empty
    example: tuple[str, ...] = ()


class View(NamedTuple):
    """What the classifier sees of items, which are given as strings: texts, or what stands for them."""

    similarities: Callable[[Sequence[str]], np.ndarray]  # inner products of the features of N items, [N, N] float32
    items: str  # what it needs, as "texts with words"
    features: str  # what it sees, as "words and length"
    enough: Callable[[Sequence[str]], bool] = bool  # whether these items have anything to see
    note: Callable[[Sequence[str]], str] = lambda items: ""  # what of these items was left out, or ""


def blind_baseline(
    calibration: Texts | Sequence[str],
    candidates: Texts | Sequence[str],
    *,
    seed: int,
    level: float = 0.01,
    groups: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    view: View | None = None,
    roles: tuple[str, str] = ROLES,
) -> BlindBaseline:
    """Test whether words and length alone (or what a `view` sees) tell candidates from calibration items.

    Features of texts: TF-IDF (scikit-learn; sublinear, L2-normalised rows) of 1- and 2-grams of words in their own
    case, punctuation marks and unusual white space; and two numbers of form, standardised and times 0.1: the
    logarithm of the number of characters and the fraction of white space that is not one blank between words. (Rows of
    unit length are blind to a shift of length, and a line end is lost among the words of a text; either moves every
    score.)
    Classifier: logistic regression (L2, C = 1, free intercept). Statistic: AUC over the pairs of texts of one fold,
    with the classifier of the others of 5 folds, or of as many as a role has units, roles stratified over them. Test:
    the roles are shuffled among the units (texts, or groups) of each fold, 399 times, everything is fitted again, and
    p = (1 + #{AUC of a shuffle >= AUC}) / 400. The warning is raised at p <= level, whatever the size of the AUC.

    Guarantee: P(a warning) <= level at every sample size, ties and duplicates included, if units
    are exchangeable. (Fold AUCs share training texts: formulas for independent ones raise false alarms.)

    Args:
      seed: seed of folds, shuffles and subsample; the same seed gives the same result.
      level: a warning is raised at p-values up to this, at least 1/400.
      groups: group of every calibration text and of every candidate (the paper of a passage). A group is never
        split over folds, and roles are shuffled among groups; the parts of a group with both roles count as two.
      view: what is seen of items that are no texts; by default words and length.
      roles: what the finding calls the two.

    Returns:
      The finding. With fewer than 10 units in a role the check does not run, and `unchecked` says so.

    Raises:
      InputError: `groups` of other lengths than the texts.

    Cost: bounded: at most 2,000 texts (a random sample, balanced as far as possible) of at most 5,000 characters are
    used.
    """
    view = view or _OF_TEXTS
    texts = [*strings(calibration), *strings(candidates)]
    role = np.repeat([0, 1], [len(calibration), len(candidates)])
    group: list[Hashable] = list(range(len(texts)))
    if groups is not None:
        sizes, expected = tuple(len(part) for part in groups), (len(calibration), len(candidates))
        if sizes != expected:
            raise InputError(f"groups must be a pair with one group a text: expected lengths {expected}, got {sizes}")
        group = [*groups[0], *groups[1]]
    generator = np.random.default_rng(seed)
    kept = subsample(role, _MAX_TEXTS, generator, None if groups is None else group)
    drawn = _note(role, kept)
    texts, role, group = [texts[index] for index in kept], role[kept], [group[index] for index in kept]
    names = [*identifiers(calibration), *identifiers(candidates)]
    note = "; ".join(filter(None, [drawn, view.note(texts)]))
    counts = (int(np.count_nonzero(role == 0)), int(np.count_nonzero(role == 1)))

    unit_of_text, unit_role, unit_fold = _units(role, group, generator)
    smallest = min(np.count_nonzero(unit_role == 0), np.count_nonzero(unit_role == 1))
    if smallest < _MIN_UNITS or not view.enough(texts):
        kind = view.items if groups is None else f"groups of {view.items}"
        reason = (
            f"whether {view.features} alone tell {roles[0]} from {roles[1]} (at least {_MIN_UNITS} {kind} are "
            f"needed in each role, and the smaller has {smallest})"
        )
        warning = f"not tested: {reason}"
        return BlindBaseline(math.nan, (), 1.0, math.nan, math.nan, *counts, 0, note, reason, warning)

    shuffled = _shuffled_roles(unit_role, unit_fold, generator)
    similarities = view.similarities(texts)
    wins, pairs = fold_wins(similarities, shuffled[unit_of_text], unit_fold[unit_of_text])
    aucs = wins.sum(axis=0) / pairs.sum(axis=0)
    auc, null = float(aucs[0]), np.sort(aucs[1:])
    num_above = int(np.count_nonzero(null >= auc - 1e-12))
    p_value = (1 + num_above) / (1 + null.size)
    allowed = max(1, math.floor(level * (1 + null.size) * SLACK))  # labellings that may reach the observed AUC
    threshold = float(null[-allowed])
    significant = 1 + num_above <= level * (1 + null.size) * SLACK
    clearest = _clearest(similarities, role, unit_fold[unit_of_text]) if significant else ()
    return BlindBaseline(
        auc=auc,
        fold_aucs=tuple((wins[:, 0] / pairs[:, 0]).tolist()),
        p_value=p_value,
        threshold=threshold,
        null_deviation=float(null.std()),
        num_calibration=counts[0],
        num_candidates=counts[1],
        num_permutations=null.size,
        note=note,
        unchecked="",
        warning=_warning(view.features, auc, threshold, p_value, level, roles) if significant else "",
        example=tuple(str(names[kept[row]]) for row in clearest),
    )


def _clearest(similarities: np.ndarray, role: np.ndarray, fold: np.ndarray) -> tuple[int, int]:
    """Rows of the calibration item and of the candidate that held-out classifiers call so most surely."""
    scores = np.empty(role.size)
    for held_out in np.unique(fold):
        test, train = np.flatnonzero(fold == held_out), np.flatnonzero(fold != held_out)
        within, across = similarities[np.ix_(train, train)], similarities[np.ix_(test, train)]
        scores[test] = logistic_scores(within, role[train][:, None], across)[:, 0]
    least, most = np.where(role == 0, scores, np.inf), np.where(role == 1, scores, -np.inf)
    return int(np.argmin(least)), int(np.argmax(most))


def _note(role: np.ndarray, kept: np.ndarray) -> str:
    if kept.size == role.size:
        return ""
    sizes = [f"{np.count_nonzero(role[kept] == v):,} of {np.count_nonzero(role == v):,}" for v in (0, 1)]
    return f"a random sample was used: {sizes[0]} calibration items and {sizes[1]} candidates"


def _long_texts(texts: Sequence[str]) -> str:
    num_long = sum(len(text) > _MAX_CHARACTERS for text in texts)
    if not num_long:
        return ""
    return f"of {num_long:,} texts only the first {_MAX_CHARACTERS:,} characters were read for words"


def _units(
    role: np.ndarray, group: Sequence[Hashable], generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit of every text [N], role of every unit [U], fold of every unit [U]; a unit is a group within a role."""
    unit_of_text, unit_role = units_of(role, group)
    name_of = [group[row] for row in np.unique(unit_of_text, return_index=True)[1]]
    calibration, candidate = (
        [name for name, value in zip(name_of, unit_role, strict=True) if value == wanted] for wanted in (0, 1)
    )
    both = set(calibration) & set(candidate)
    shared = [calibration[i] for i in generator.permutation(len(calibration)) if calibration[i] in both]
    num_folds = max(2, min(_FOLDS, len(calibration), len(candidate)))
    fold_of: dict[Hashable, int] = {}
    for names in (calibration, candidate):
        alone = [names[i] for i in generator.permutation(len(names)) if names[i] not in both]
        fold_of |= {name: position % num_folds for position, name in enumerate([*shared, *alone])}
    unit_fold = np.array([fold_of[name] for name in name_of], dtype=np.int64)
    return unit_of_text, unit_role, unit_fold


def _shuffled_roles(unit_role: np.ndarray, unit_fold: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Roles [U, 1 + permutations]: as they are, then shuffled within each fold."""
    roles = np.repeat(unit_role[:, None], 1 + _NUM_PERMUTATIONS, axis=1)
    for fold in np.unique(unit_fold):
        inside = np.flatnonzero(unit_fold == fold)
        roles[inside, 1:] = generator.permuted(roles[inside, 1:], axis=0)
    return roles


def _similarities(texts: Sequence[str]) -> np.ndarray:
    """Inner products of the texts' features: [N, N] float32."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = {"analyzer": _grams, "sublinear_tf": True, "dtype": np.float32}
    vectoriser = TfidfVectorizer(max_features=_MAX_FEATURES, **options)
    features = vectoriser.fit_transform([text[:_MAX_CHARACTERS] for text in texts])
    form = np.array([[math.log1p(len(text)), unusual_space(text)] for text in texts])
    spread = form.std(axis=0)
    form = _FORM_SCALE * (form - form.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return (features @ features.T).toarray() + (form @ form.T).astype(np.float32)


def _grams(text: str) -> list[str]:
    words = words_and_marks(text)
    return words + [f"{first} {second}" for first, second in itertools.pairwise(words)]


def _have_words(texts: Sequence[str]) -> bool:
    return any(words_and_marks(text[:_MAX_CHARACTERS]) for text in texts)


_OF_TEXTS = View(_similarities, "texts with words", "words and length", _have_words, _long_texts)


def _warning(features: str, auc: float, threshold: float, p_value: float, level: float, roles: tuple[str, str]) -> str:
    how = "slightly" if auc < 0.6 else "clearly" if auc < 0.8 else "grossly"
    return (
        f"{roles[0]} and {roles[1]} differ {how} even without the model: {features} alone tell them "
        f"apart with AUC {auc:.3f} (0.5 is chance, 1 is always right; values above {threshold:.3f} are significant at "
        f"level {100 * level:.3g}%; p = {p_value:.3g}). Low scores may then come from a difference of date, source or "
        f"format instead of training{_OF_AN_AUDIT if roles == ROLES else ''}"
    )


def fold_wins(similarities: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that the logistic classifier of the other folds orders correctly, by fold and labelling.

    Of similarities [N, N], labels 0 and 1 [N, P] (a column a labelling) and folds [N]: wins [folds, P], a tie counting
    one half, and pairs [folds, P], none in a fold without both labels; AUC = wins / pairs.

    Cost: for each fold one inverse of size N and up to 100 products [N, N] x [N, P].
    """
    from scipy.stats import rankdata

    wins, pairs = [], []
    for held_out in np.unique(fold):
        test, train = np.flatnonzero(fold == held_out), np.flatnonzero(fold != held_out)
        scores = logistic_scores(similarities[np.ix_(train, train)], labels[train], similarities[np.ix_(test, train)])
        positive = labels[test] == 1
        num_positive = positive.sum(axis=0).astype(np.float64)
        rank_sum = np.where(positive, rankdata(scores, axis=0), 0.0).sum(axis=0)
        wins.append(rank_sum - num_positive * (num_positive + 1) / 2)
        pairs.append(num_positive * (test.size - num_positive))
    return np.stack(wins), np.stack(pairs)


def logistic_scores(train: np.ndarray, labels: np.ndarray, test: np.ndarray, *, penalty: float = 1.0) -> np.ndarray:
    """Log-odds of label 1 for test rows under penalised logistic regression with a free intercept.

    Minimises sum of log-losses + penalty/2 ||w||^2 (scikit-learn's C is 1/penalty) for every column of `labels`. In the
    dual, f = G a + b; the loss log(1 + exp(-+f)) lies below a parabola of curvature 1/4 (Böhning & Lindsay 1988), so
    iterating the ridge regression of z = f + 4 (y - sigmoid(f)) on the features converges to the logistic fit. All
    labellings share one factorisation, and a step for all of them is one matrix product: of inner products of the
    training rows [N, N], labels 0 and 1 [N, P], and inner products of test with training rows [M, N], log-odds [M, P].
    """
    from scipy.special import expit

    column_mean = train.mean(axis=0)
    grand_mean = column_mean.mean()
    centred = train - column_mean - column_mean[:, None] + grand_mean
    centred_test = test - column_mean - test.mean(axis=1, keepdims=True) + grand_mean
    ridge = 4.0 * penalty
    inverse = np.linalg.inv(centred.astype(np.float64) + ridge * np.eye(len(train))).astype(train.dtype)
    smoother = np.eye(len(train), dtype=train.dtype) - train.dtype.type(ridge) * inverse

    labels = labels.astype(train.dtype)
    log_odds = np.zeros_like(labels)
    for _ in range(_MAX_STEPS):
        target = log_odds + 4 * (labels - expit(log_odds))
        intercept = target.mean(axis=0)
        updated = smoother @ (target - intercept) + intercept
        change = np.max(np.abs(updated - log_odds))
        log_odds = updated
        if change < _TOLERANCE:
            break
    target = log_odds + 4 * (labels - expit(log_odds))
    intercept = target.mean(axis=0)
    return centred_test @ (inverse @ (target - intercept)) + intercept
