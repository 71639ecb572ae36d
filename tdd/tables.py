"""Score tables: where an audit starts from scores that somebody else computed, with no model at hand."""

from __future__ import annotations

import dataclasses
import decimal
import hashlib
import logging
import numbers
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from tdd.runs.plain_csv import StringColumn, coded_words
from tdd.texts import read_rows
from tdd.texts import rows as text_checks
from tdd.texts.rows import Place, Rows, is_absent, number_of
from tdd.validate import InputError, as_names, some
from tdd.validate.options import KnownFields

Role = Literal["calibration", "candidate", "member", "nonmember"]
"""The role of an item: calibration under the null, a decision, known membership (for the moment estimate), or known
non-membership (for thresholds of the highest accuracy, beside calibration on members)."""

_HASHED_TOGETHER = 2**16
_SHOWN = 8
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
_logger = logging.getLogger("tdd")


@dataclasses.dataclass(frozen=True)
class ScoreTable:
    """Loss-like scores of N items with their roles: LOWER = MORE member-like in every column.

    Attributes:
      ids: N unique identifiers.
      scores: score name -> [N] float64, NaN where an item has no score.
      roles: [N] objects of type str, each a `Role`.
      labels: [N] int64 known truth, 1 member, 0 non-member, -1 where it is not known.
      groups: N cluster names, or an empty tuple.
      flipped: score columns whose sign was changed on reading, because higher meant more member-like.
      source: where the table came from; of several tables, joined by " + ".
      sha256: hash of ids, roles, labels, groups and scores.
    """

    ids: tuple[str, ...]
    scores: Mapping[str, np.ndarray]
    roles: np.ndarray
    labels: np.ndarray
    groups: tuple[str, ...]
    flipped: tuple[str, ...]
    source: str = "memory"
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, role: Role) -> np.ndarray:
        """Indices of the items with a role, in the order of the table: [count] int64."""
        return np.flatnonzero(self.roles == role)

    def values(self, name: str, role: Role) -> np.ndarray:
        """Scores of the items with a role: [count] float64."""
        return self.scores[name][self.rows(role)]

    def num_missing(self, name: str, role: Role) -> int:
        """The number of items with a role that have no score."""
        return int(np.count_nonzero(np.isnan(self.values(name, role))))


class RoleOptions(TypedDict, total=False):
    """The fields of `Roles` as keywords of a call."""

    role_field: str | None
    calibration_role: str
    candidate_role: str | None
    member_role: str | None
    nonmember_role: str | None


@dataclasses.dataclass(frozen=True)
class Roles(KnownFields):
    """The column of the roles in a single table and its words; see `load_score_table`."""

    role_field: str | None = None
    calibration_role: str = "calibration"
    candidate_role: str | None = "candidate"
    member_role: str | None = None
    nonmember_role: str | None = None

    def words(self) -> dict[str, str | None]:
        """Role -> its word; None for what is nothing else. Known items are there only where they have a word."""
        known = {"member": self.member_role, "nonmember": self.nonmember_role}
        words = {"calibration": self.calibration_role, "candidate": self.candidate_role}
        return words | {role: word for role, word in known.items() if word is not None}


def load_score_table(
    source: Any,
    *,
    scores: str | Sequence[str] | None = None,
    calibration: Any = None,
    members: Any = None,
    id_field: str | None = None,
    label_field: str | None = None,
    group_field: str | None = None,
    higher_is_member: Sequence[str] = (),
    calibrated: bool = True,
    optional: Sequence[str] = (),
    format: str | None = None,
    **roles: Unpack[RoleOptions],
) -> ScoreTable:
    """Read and check a table of scores.

    The roles are given in one of two ways. *One table*: `source` has a role column. A column of known labels
    is one too: `role_field="label", calibration_role="0", candidate_role=None` calibrates on the rows with
    label 0 and makes all others candidates. *Separate tables*: `source` has the candidates and `calibration`
    the calibration items (`members` the known members, if any).

    Args:
      source: a path or a Python table as in `tdd.texts.load_texts`; its rows have named columns.
      scores: score columns to read; without it, the only column that has no other purpose.
      calibration: table of the calibration items, if they are not rows of `source`.
      members: table of the known members, if there are any outside `source`.
      id_field: column of unique identifiers. Without it: "id" where there is one, else row numbers from 1
        (with the role before them outside the table of the candidates).
      label_field: column of known truth, 1 member, 0 non-member, blank where not known.
      group_field: column of clusters (the book of a passage).
      higher_is_member: score columns in which HIGHER means more member-like; their sign is changed here.
      calibrated: whether calibration items must be there. With False (knockoffs need none), a table without a role
        column is a table of candidates.
      optional: score columns that may be blank for all items of a role.
      format: format of the files, if not that of their extension.
      **roles: the roles in a single table:

        - role_field: their column, "role" unless given.
        - calibration_role: word of calibration items in that column ("calibration").
        - candidate_role: word of candidates ("candidate"), or None: every row that is nothing else.
        - member_role: word of known members, or None: there are none.
        - nonmember_role: word of known non-members beside calibration items that are members, or None.

    Returns:
      The table; separate tables are joined in the order candidates, calibration, members.

    Raises:
      InputError: unreadable source; unknown column; a score that is not a number or is infinite; a role that is
        not expected; no calibration items or no candidates; repeated ids. A missing score is NaN, not an
        error, unless a role has no score at all.
    """
    single = Roles(**roles)
    role_field = single.role_field
    if calibration is not None and role_field is not None:
        raise InputError(f"role_field={role_field!r} and calibration=... both say which rows calibrate; give one")
    if calibration is None and members is not None:
        raise InputError("members=... needs calibration=...; in a single table use member_role=")
    sources: dict[str, Any] = {"candidate": source}
    if calibration is not None:
        sources["calibration"] = calibration
    if members is not None:
        sources["member"] = members
    fields = {"id_field": id_field, "label_field": label_field, "group_field": group_field}
    if calibration is None and (calibrated or role_field is not None):
        fields["role_field"] = role_field or "role"
    flipped = as_names(higher_is_member, "higher_is_member")

    parts: list[ScoreTable] = []
    names = scores
    for role, table in sources.items():
        rows = read_rows(table, format=format)
        if not calibrated and calibration is None and role_field is None and "role" in rows.fields:
            fields["role_field"] = "role"
        part = _read_part(rows, role, names, fields, single.words(), flipped, calibrated)
        names = tuple(part.scores)
        parts.append(part)
        del rows
        _release_unused()
    if len(parts) > 1:
        _check_ids_apart(dict(zip(sources, parts, strict=True)))
    table = _join(parts)
    needed = {name: values for name, values in table.scores.items() if name not in optional}
    _check_scored(table.source, needed, table.roles, calibrated)
    return table


def _read_part(
    rows: Rows,
    role: str,
    scores: str | Sequence[str] | None,
    fields: Mapping[str, str | None],
    words: Mapping[str, str | None],
    flipped: tuple[str, ...],
    calibrated: bool,
) -> ScoreTable:
    """One source as a table; every row has `role` unless `fields` names a role column."""
    source, place = rows.source, rows.place
    if not rows.fields:
        raise InputError(f"{source}: a score table needs named columns, these rows are bare values")
    for argument, field in fields.items():
        if field is not None:
            text_checks.existing_field(source, argument, field, rows.fields)
    id_field = fields["id_field"] or ("id" if "id" in rows.fields else None)
    role_field, label_field, group_field = (fields.get(f"{name}_field") for name in ("role", "label", "group"))
    taken = {field for field in (id_field, role_field, label_field, group_field) if field is not None}
    names = _score_names(source, scores, rows.fields, taken)
    for name in flipped:
        if name not in names:
            raise InputError(f"higher_is_member names {name!r}, which is not among the scores: {some(names, _SHOWN)}")

    if id_field is None:
        prefix = "" if role == "candidate" else f"{role}-"
        ids = tuple(f"{prefix}{number}" for number in range(1, rows.num_rows + 1))
    else:
        ids = text_checks.identifier_column(source, rows.column(id_field), place)
    columns = {name: _score_column(source, name, rows.column(name), place) for name in names}
    roles = np.full(rows.num_rows, role, dtype=object)
    if role_field is not None:
        roles = _role_column(source, role_field, rows.column(role_field), place, words, calibrated)
    labels: Sequence[int] | np.ndarray = np.full(rows.num_rows, -1)
    if label_field is not None:
        labels = text_checks.label_column(source, rows.column(label_field), place, missing=-1)
    groups: tuple[str, ...] = ()
    if group_field is not None:
        groups = text_checks.group_column(source, group_field, rows.column(group_field), place)
    return ScoreTable(
        ids=ids,
        scores={name: -column if name in flipped else column for name, column in columns.items()},
        roles=roles,
        labels=np.array(labels, dtype=np.int64),
        groups=groups,
        flipped=flipped,
        source=source,
    )


def _join(parts: Sequence[ScoreTable]) -> ScoreTable:
    """The rows of all parts one below the other, hashed."""
    first = parts[0]
    if len(parts) == 1:
        return dataclasses.replace(first, sha256=_hash(first))
    table = ScoreTable(
        ids=tuple(name for part in parts for name in part.ids),
        scores={name: np.concatenate([part.scores[name] for part in parts]) for name in first.scores},
        roles=np.concatenate([part.roles for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        groups=tuple(group for part in parts for group in part.groups),
        flipped=first.flipped,
        source=" + ".join(part.source for part in parts),
    )
    return dataclasses.replace(table, sha256=_hash(table))


def _hash(table: ScoreTable) -> str:
    """SHA-256 of everything a decision depends on; little-endian numbers, length-prefixed strings."""
    digest = hashlib.sha256()
    for words in (table.ids, table.roles.tolist(), table.groups, tuple(table.scores)):
        digest.update(len(words).to_bytes(8, "little"))
        for start in range(0, len(words), _HASHED_TOGETHER):
            digest.update(_prefixed(words[start : start + _HASHED_TOGETHER]))
    for column in (table.labels.astype("<i8"), *(scores.astype("<f8") for scores in table.scores.values())):
        digest.update(column.tobytes())
    return digest.hexdigest()


def _prefixed(words: Sequence[str]) -> bytes:
    """Each word in UTF-8 after the number of its bytes, eight bytes little-endian."""
    text = "".join(words)
    encoded = words if text.isascii() else [word.encode() for word in words]
    lengths = np.fromiter(map(len, encoded), "<u8", len(words))
    starts = np.cumsum(lengths.astype(np.int64) + 8) - lengths.astype(np.int64) - 8
    result = np.empty(8 * len(words) + int(lengths.sum()), np.uint8)
    is_length = np.zeros(result.size, bool)
    is_length[(starts[:, None] + np.arange(8)).ravel()] = True
    result[is_length] = lengths.view(np.uint8)
    result[~is_length] = np.frombuffer(text.encode(), np.uint8)
    return result.tobytes()


def _release_unused() -> None:
    """Give the memory of columns that are gone back to the system: Arrow keeps it for its own use."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def _check_scored(source: str, scores: Mapping[str, np.ndarray], roles: np.ndarray, calibrated: bool) -> None:
    """Check that every column has a score of a candidate, and of a calibration item where those are needed."""
    for name, values in scores.items():
        for role, word in (("calibration", "calibration item"), ("candidate", "candidate")):
            if (calibrated or role == "candidate") and np.all(np.isnan(values[roles == role])):
                raise InputError(f"{source}: score column {name!r} has no value for any {word}")


def _score_names(
    source: str, scores: str | Sequence[str] | None, fields: Sequence[str], taken: Collection[str]
) -> tuple[str, ...]:
    """Names of the score columns: the given ones, or the only column that has no other purpose."""
    free = [field for field in fields if field not in taken]
    if scores is None:
        if len(free) != 1:
            raise InputError(f"{source}: name the score columns (--score); columns left: {some(free, _SHOWN)}")
        return tuple(free)
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError(f"{source}: no score column is named; columns left: {some(free, _SHOWN)}")
    for name in names:
        if name not in fields:
            hint = text_checks.one_column(fields)
            raise InputError(
                f"{source}: there is no score column {name!r}; columns found: {some(fields, _SHOWN)}{hint}"
            )
        if name in taken:
            raise InputError(f"{source}: column {name!r} is used for ids, roles, labels or groups, not as a score")
        if names.count(name) > 1:
            raise InputError(f"{source}: score column {name!r} is named twice")
    return names


def _score_column(source: str, name: str, values: Sequence[Any], place: Place) -> np.ndarray:
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
            raise InputError(
                f"{source}: score column {name!r} holds {value!r} at {place(index)}, no number; leave the cell blank "
                "where there is no score"
            )
        column[index] = number
    infinite = np.flatnonzero(np.isinf(column))
    if infinite.size:
        index = int(infinite[0])
        raise InputError(
            f"{source}: score column {name!r} is infinite at {place(index)} ({infinite.size} such rows); "
            "remove the value (leave it blank) or clip it before"
        )
    return column


def _role_column(
    source: str, field: str, values: Sequence[Any], place: Place, roles: Mapping[str, str | None], calibrated: bool
) -> np.ndarray:
    """Roles: [N] str, keys of `roles`, each mapped to its word in the table (None: all others)."""
    words, codes = coded_words(values, lambda value: "" if is_absent(value) else str(value).strip())
    counts = dict(zip(words, np.bincount(codes, minlength=len(words)).tolist(), strict=True))
    known = {word: role for role, word in roles.items() if word is not None}
    if len(known) != sum(word is not None for word in roles.values()):
        raise InputError(f"two roles have the same word in column {field!r}: {dict(roles)}")
    rest = next((role for role, word in roles.items() if word is None), None)
    listing = ", ".join(f"{word!r} ({count} rows)" for word, count in Counter(counts).most_common(_SHOWN))
    expected = ", ".join(f"{word!r} for {role}" for word, role in known.items())

    def first(number: int) -> str:
        return place(int(np.argmax(codes == number)))

    if rest is None:
        for number, word in enumerate(words):
            if word not in known:
                raise InputError(
                    f"{source}: role column {field!r} holds {word!r} at {first(number)}; expected {expected}; "
                    f"found: {listing}"
                )
    else:
        _check_other_roles(source, field, counts, first, known)
    result = np.array([known.get(word, rest) for word in words], dtype=object)[codes]
    for role, words_for in (("calibration", "calibration items"), ("candidate", "candidates")):
        if (calibrated or role == "candidate") and not np.any(result == role):
            raise InputError(f"{source}: no {words_for}: role column {field!r} holds {listing}; expected {expected}")
    return result


def _check_other_roles(
    source: str, field: str, counts: Mapping[str, int], first: Place, known: Mapping[str, str]
) -> None:
    """Check the words that mean candidates because they mean nothing else: no misspelt roles; blanks are logged.

    `counts` maps each word to its number of rows, `first` the index of a word to the place of its first row.
    """
    spelt = {word.casefold(): word for word in known}
    if blank := sum(count for word, count in counts.items() if not word and word not in known):
        _logger.warning("%s: %d rows have no role in column %r and are taken as candidates", source, blank, field)
    for number, word in enumerate(counts):
        meant = word if word in known else spelt.get(word.casefold(), word)
        if meant != word:
            raise InputError(
                f"{source}: role column {field!r} holds {word!r} at {first(number)} where {meant!r} is the word for "
                f"{known[meant]}; spell it alike, or name both roles"
            )


def _check_ids_apart(parts: Mapping[str, ScoreTable]) -> None:
    """Check that no id is in the tables of two roles."""
    owner: dict[str, str] = {}
    for role, part in parts.items():
        shared = [name for name in part.ids if name in owner]
        if shared:
            raise InputError(
                f"{part.source}: {len(shared)} ids of {role} items are also ids of {owner[shared[0]]} items "
                f"({some([*map(repr, shared)], _SHOWN)}); an item can have one role only"
            )
        owner.update(dict.fromkeys(part.ids, role))


def _number(value: Any) -> float | None:
    """The value as a float; NaN if it is missing, None if it is not a number."""
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
