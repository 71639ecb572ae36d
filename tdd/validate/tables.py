"""Checks of score tables: score columns, roles, groups."""

from __future__ import annotations

import decimal
import logging
import numbers
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError
from tdd.validate.string_columns import StringColumn, coded_words
from tdd.validate.texts import Place, is_absent

__all__ = [
    "check_flipped",
    "check_ids_apart",
    "check_roles_present",
    "group_column",
    "number_of",
    "role_column",
    "score_column",
    "score_names",
]

_logger = logging.getLogger("tdd")
_SHOWN = 8
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


def score_names(
    source: str, scores: str | Sequence[str] | None, fields: Sequence[str], taken: Collection[str]
) -> tuple[str, ...]:
    """Names of the score columns: the given ones, or the only column that has no other purpose."""
    free = [field for field in fields if field not in taken]
    if scores is None:
        if len(free) != 1:
            raise InputError(f"{source}: name the score columns with scores=; columns left: {_list(free)}")
        return tuple(free)
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError(f"{source}: scores= is empty; columns left: {_list(free)}")
    for name in names:
        if name not in fields:
            raise InputError(f"{source}: there is no score column {name!r}; columns found: {_list(fields)}")
        if name in taken:
            raise InputError(f"{source}: column {name!r} is used for ids, roles, labels or groups, not as a score")
        if names.count(name) > 1:
            raise InputError(f"{source}: score column {name!r} is named twice in scores=")
    return names


def score_column(source: str, name: str, values: Sequence[Any], place: Place) -> np.ndarray:
    """Scores: [N] float64, NaN where there is none; neither infinite nor anything but a number."""
    if isinstance(values, StringColumn):
        column, others = values.decimals()
    elif set(map(type, values)) == {float}:
        column, others = np.array(values, np.float64), np.zeros(len(values), bool)
    else:
        column, others = np.empty(len(values)), np.ones(len(values), bool)
    indices = np.flatnonzero(others)
    left = values.take(indices) if isinstance(values, StringColumn) else [values[i] for i in indices.tolist()]
    for index, value in zip(indices.tolist(), left, strict=True):
        number = _number(value)
        if number is None:
            raise InputError(f"{source}: score column {name!r} holds {value!r} at {place(index)}, no number")
        column[index] = number
    infinite = np.flatnonzero(np.isinf(column))
    if infinite.size:
        index = int(infinite[0])
        raise InputError(
            f"{source}: score column {name!r} is infinite at {place(index)} ({infinite.size} such rows); "
            "remove the value (leave it blank) or clip it before"
        )
    return column


def role_column(
    source: str,
    field: str,
    values: Sequence[Any],
    place: Place,
    roles: Mapping[str, str | None],
    calibrated: bool = True,
) -> np.ndarray:
    """Roles: [N] str, keys of `roles`, each mapped to its word in the table (None: all others)."""
    words, codes = coded_words(values, lambda value: "" if is_absent(value) else str(value).strip())
    counts = dict(zip(words, np.bincount(codes, minlength=len(words)).tolist(), strict=True))
    known = {word: role for role, word in roles.items() if word is not None}
    if len(known) != sum(word is not None for word in roles.values()):
        raise InputError(f"two roles have the same word in column {field!r}: {dict(roles)}")
    rest = next((role for role, word in roles.items() if word is None), None)
    found = ", ".join(f"{word!r} ({count} rows)" for word, count in Counter(counts).most_common(_SHOWN))
    expected = ", ".join(f"{word!r} for {role}" for word, role in known.items())

    def first(number: int) -> str:
        return place(int(np.argmax(codes == number)))

    if rest is None:
        for number, word in enumerate(words):
            if word not in known:
                raise InputError(
                    f"{source}: role column {field!r} holds {word!r} at {first(number)}; expected {expected}; "
                    f"found: {found}"
                )
    else:
        _check_other_roles(source, field, counts, first, known)
    result = np.array([known.get(word, rest) for word in words], dtype=object)[codes]
    check_roles_present(source, result, f"role column {field!r} holds {found}; expected {expected}", calibrated)
    return result


def _check_other_roles(
    source: str, field: str, counts: Mapping[str, int], first: Place, known: Mapping[str, str]
) -> None:
    """Where every other word means a candidate: none is a known word in other letters; blank ones are reported.

    `counts` tells how many rows have a word; `first` leads from the number of a word to the first of these rows.
    """
    spelt = {word.casefold(): word for word in known}
    if blank := sum(count for word, count in counts.items() if not word and word not in known):
        _logger.warning("%s: %d rows have no role in column %r and are taken as candidates", source, blank, field)
    for number, word in enumerate(counts):
        meant = spelt.get(word.casefold(), word)
        if meant != word:
            raise InputError(
                f"{source}: role column {field!r} holds {word!r} at {first(number)} where {meant!r} is the word for "
                f"{known[meant]}; spell it alike, or name both roles"
            )


def check_roles_present(source: str, roles: np.ndarray, detail: str, calibrated: bool = True) -> None:
    """At least one candidate, and one calibration item where they are needed."""
    if calibrated and not np.any(roles == "calibration"):
        raise InputError(f"{source}: no calibration items: {detail}")
    if not np.any(roles == "candidate"):
        raise InputError(f"{source}: no candidates: {detail}")


def check_ids_apart(tables: Iterable[tuple[str, str, Sequence[str]]]) -> None:
    """No id in two of the tables, each given as role, source and ids."""
    owner: dict[str, str] = {}
    for role, source, ids in tables:
        shared = [name for name in ids if name in owner]
        if shared:
            raise InputError(
                f"{source}: {len(shared)} ids of {role} items are also ids of {owner[shared[0]]} items "
                f"({_list([repr(name) for name in shared])}); an item can have one role only"
            )
        owner.update(dict.fromkeys(ids, role))


def check_flipped(flipped: Sequence[str], names: Sequence[str]) -> None:
    """Columns whose sign is to change are score columns that are read."""
    for name in flipped:
        if name not in names:
            raise InputError(f"higher_is_member names {name!r}, which is not among the scores: {_list(names)}")


def group_column(source: str, field: str, values: Sequence[Any], place: Place) -> tuple[str, ...]:
    """Groups: one non-empty word a row."""
    values = [*values]
    if set(map(type, values)) == {str} and all(values):
        return tuple(values)
    for index, value in enumerate(values):
        if is_absent(value) or value == "":
            raise InputError(f"{source}: group column {field!r} is empty at {place(index)}")
    return tuple(str(value) for value in values)


def number_of(value: Any) -> float:
    """`float(value)`, but neither of words with an underscore, as 1_000, nor of digits of other scripts.

    Raises:
      ValueError: no number.
    """
    if isinstance(value, str) and ("_" in value or not value.strip().isascii()):
        raise ValueError(f"could not convert string to float: {value!r}")
    return float(value)


def _number(value: Any) -> float | None:
    """The value as a float, NaN where it is missing, None where it is no number."""
    if is_absent(value):
        return float("nan")
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _MISSING:
            return float("nan")
    elif not isinstance(value, (numbers.Real, decimal.Decimal)) or isinstance(value, bool):
        return None
    try:
        return number_of(value)
    except OverflowError:
        return float("inf")
    except (ValueError, TypeError):
        return None


def _list(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more
