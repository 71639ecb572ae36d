"""Checks of a power plan: sizes, shares, levels, scores with labels, laws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "as_counts",
    "as_labelled_scores",
    "as_shares",
    "check_auc",
    "check_binormal_method",
    "check_calibrated",
    "check_labels_given",
    "check_name",
    "check_null",
    "check_one_source",
    "check_option",
    "check_pool_suffices",
    "check_proportion",
    "check_some_targets",
]


def check_name(argument: str, value: Any, known: Sequence[str]) -> str:
    """One of a fixed set of names."""
    if value not in known:
        raise InputError(f"{argument} must be one of {', '.join(known)}; got {value!r}")
    return value


def check_option(argument: str, value: Any, owner: str, method: str) -> None:
    """An option of one method is given with that method only."""
    if value is not None and owner != method:
        raise InputError(f'{argument} is an option of method "{owner}", not of "{method}"; leave it out, got {value!r}')


def check_null(method: str, null: Any, own: str | None) -> None:
    """The null that a method tests."""
    if null is None:
        return
    check_name("null", null, ("nonmember", "member"))
    if own is not None and null != own:
        raise InputError(f'{method} tests the null "{own}", got null={null!r}; leave it out, or take method "bh"')


def check_one_source(given: dict[str, bool]) -> str:
    """Exactly one of several sources."""
    names = [name for name, there in given.items() if there]
    if len(names) != 1:
        found = " and ".join(names) or "none of them"
        raise InputError(f"give exactly one of {', '.join(given)}; got {found}")
    return names[0]


def as_counts(argument: str, value: Any) -> tuple[int, ...]:
    """One whole number of at least 1, or several, each once, in order."""
    given = [value] if np.ndim(value) == 0 else list(value)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)) or each < 1:
            raise InputError(f"{argument} must be whole numbers of at least 1, got {each!r}")
        if each >= 2**24:
            raise InputError(f"{argument} must be below {2**24:,}, got {each:,}")
    if not given:
        raise InputError(f"{argument} is empty; give at least one number, for example 1000")
    return tuple(dict.fromkeys(int(each) for each in given))


def as_shares(argument: str, value: Any) -> tuple[float, ...]:
    """One share in (0, 1], or several, in increasing order."""
    given = [value] if np.ndim(value) == 0 else list(value)
    out = []
    for each in given:
        number = math.nan if isinstance(each, (bool, str)) else float(each)
        if not 0 <= number <= 1:
            raise InputError(f"{argument} must lie from 0 to 1, got {each!r}; 0.1 stands for 10 %")
        out.append(number)
    if not out:
        raise InputError(f"{argument} is empty; give at least one share, for example 0.1")
    return tuple(sorted(set(out)))


def check_some_targets(argument: str, share: float, num_tests: int, targets: str, found: int) -> None:
    """A share of the candidates of at least one item."""
    if found < 1:
        raise InputError(
            f"{argument}={share:g} of {num_tests} candidates leaves no {targets} to be found, and power is the share "
            f"of them that is selected; at least one of {num_tests} is needed"
        )


def check_auc(auc: Any, sd_ratio: Any) -> tuple[float, float]:
    """An AUC between one half and 1, and a positive ratio of standard deviations."""
    number = math.nan if isinstance(auc, (bool, str)) else float(auc)
    if not 0.5 < number < 1:
        raise InputError(
            f"auc must lie strictly between 0.5 (no signal) and 1, got {auc!r}; it is the probability that a member "
            "scores lower (more member-like) than a non-member"
        )
    ratio = math.nan if isinstance(sd_ratio, (bool, str)) else float(sd_ratio)
    if not (math.isfinite(ratio) and ratio > 0):
        raise InputError(
            f"sd_ratio must be a positive number, the standard deviation of the members' scores in those of the "
            f"non-members'; got {sd_ratio!r}"
        )
    return number, ratio


def check_proportion(argument: str, value: Any) -> float:
    """A wanted probability."""
    number = math.nan if isinstance(value, (bool, str)) else float(value)
    if not 0 < number < 1:
        raise InputError(f"{argument} must lie strictly between 0 and 1, got {value!r}")
    return number


def as_labelled_scores(scores: Any, is_member: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores [K, N], finite, and labels [N] bool with both values.

    Args:
      scores: [N], or [K, N].
      is_member: [N] True and False, or 1 and 0.
      kind: "one" (K = 1), "several" (K >= 1) or "knockoffs" (K >= 2).
    """
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"scores must be numbers, [items] or [detectors, items]: {error}") from error
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] < 2:
        raise InputError(f"scores must be [items] or [detectors, items] with at least two items, got {values.shape}")
    if kind == "one" and len(values) > 1:
        raise InputError(f"scores has {len(values)} rows; this method decides on one score an item: choose a row")
    if kind == "knockoffs" and len(values) < 2:
        raise InputError("knockoffs are missing: ktd needs the scores of at least one paraphrase of each item")
    bad = int((~np.isfinite(values)).any(axis=0).sum())
    if bad:
        raise InputError(f"scores: {bad} of {values.shape[1]} items have a missing or infinite score; leave them out")
    labels = np.asarray(is_member)
    if labels.shape != values.shape[1:]:
        raise InputError(f"is_member must be one label an item, shape {values.shape[1:]}; got {labels.shape}")
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
    labels = labels.astype(bool)
    for word, count in (("member", int(labels.sum())), ("non-member", int((~labels).sum()))):
        if not count:
            raise InputError(
                f"no {word} among the {labels.size} labelled items; power is measured on items of both kinds: known "
                "members and known non-members of the same kind of text"
            )
    return values, labels


def check_pool_suffices(
    n: int, num_null: int, num_targets: int, nulls: int, targets: int, words: Iterable[str]
) -> None:
    """A pool that can give what is drawn without replacement."""
    null_word, target_word = words
    if n + num_null > nulls or num_targets > targets:
        raise InputError(
            f"without replacement the pool cannot give {n + num_null} {null_word} ({n} to calibrate, {num_null} among "
            f"the candidates) and {num_targets} {target_word}: it has {nulls} and {targets}. Ask for fewer, or let "
            'such draws be extrapolated, draw="auto"'
        )


def check_labels_given(is_member: Any) -> None:
    """Labels come with scores."""
    if is_member is None:
        raise InputError("is_member is missing: one label an item, True where it was in the training data")


def check_binormal_method(label: str, kind: str) -> None:
    """A method that decides on one score."""
    if kind != "one":
        others = "those of several detectors" if kind == "several" else "those of its knockoffs"
        raise InputError(f"auc describes one score an item; {label} needs {others}: give scores with labels")


def check_calibrated(label: str, kind: str) -> None:
    """A method that has calibration items."""
    if kind == "knockoffs":
        raise InputError(f"{label} has no calibration items; leave num_calibration out")
