"""Score tables: where an audit starts from scores that somebody else computed, with no model at hand."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tdd.texts.read import read_rows
from tdd.texts.rows import Rows
from tdd.validate import tables as checks
from tdd.validate import texts as text_checks
from tdd.validate.errors import InputError

__all__ = ["Role", "ScoreTable", "load_score_table"]

Role = Literal["calibration", "candidate", "member"]
"""What an item is for: calibration under the null, a decision, known membership (for the moment estimate)."""

_HASHED_TOGETHER = 2**16


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
        """How many items with a role have no score."""
        return int(np.count_nonzero(np.isnan(self.values(name, role))))


def load_score_table(
    source: Any,
    *,
    scores: str | Sequence[str] | None = None,
    calibration: Any = None,
    members: Any = None,
    role_field: str | None = None,
    calibration_role: str = "calibration",
    candidate_role: str | None = "candidate",
    member_role: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    group_field: str | None = None,
    higher_is_member: Sequence[str] = (),
    calibrated: bool = True,
    optional: Sequence[str] = (),
    format: str | None = None,
) -> ScoreTable:
    """Read and check a table of scores.

    The roles are given in one of two ways. *One table*: `source` has a role column. A column of known labels
    is one too: `role_field="label", calibration_role="0", candidate_role=None` calibrates on the rows with
    label 0 and makes all others candidates. *Separate tables*: `source` has the candidates and `calibration`
    the calibration items (`members` the known members, if any).

    Args:
      source: a path or a Python table as in `tdd.texts.load_texts`; its rows have named columns.
      scores: score columns to read; without it, the only column that has no other purpose.
      calibration: table of the calibration items, where they are not rows of `source`.
      members: table of known members, likewise.
      role_field: column of the roles in a single table, "role" unless given.
      calibration_role: word of calibration items in that column.
      candidate_role: word of candidates, or None: every row that is nothing else.
      member_role: word of known members, or None: there are none.
      id_field: column of unique identifiers. Without it: "id" where there is one, else row numbers from 1
        (with the role before them outside the table of the candidates).
      label_field: column of known truth, 1 member, 0 non-member, blank where not known.
      group_field: column of clusters (the book of a passage).
      higher_is_member: score columns in which HIGHER means more member-like; their sign is changed here.
      calibrated: whether calibration items must be there. With False (knockoffs need none), a table without a role
        column is a table of candidates.
      optional: score columns that may be blank for all items of a role.
      format: format of the files, where their extension does not tell.

    Returns:
      The table; separate tables are joined in the order candidates, calibration, members.

    Raises:
      InputError: unreadable source; unknown column; a score that is no number or is infinite; a role that is
        not expected; no calibration items or no candidates; repeated ids. A missing score is NaN, not an
        error, unless a role has no score at all.
    """
    _check_sources(role_field, calibration, members)
    sources: dict[str, Any] = {"candidate": source}
    if calibration is not None:
        sources["calibration"] = calibration
    if members is not None:
        sources["member"] = members
    words: dict[str, str | None] = {"calibration": calibration_role, "candidate": candidate_role}
    if member_role is not None:
        words["member"] = member_role
    fields = {"id_field": id_field, "label_field": label_field, "group_field": group_field}
    if calibration is None and (calibrated or role_field is not None):
        fields["role_field"] = role_field or "role"
    flipped = (higher_is_member,) if isinstance(higher_is_member, str) else tuple(higher_is_member)

    parts: list[ScoreTable] = []
    names = scores
    for role, table in sources.items():
        rows = read_rows(table, format=format)
        if not calibrated and calibration is None and role_field is None and "role" in rows.fields:
            fields["role_field"] = "role"
        part = _read_part(rows, role, names, fields, words, flipped, calibrated)
        names = tuple(part.scores)
        parts.append(part)
        del rows
        _release_unused()
    if len(parts) > 1:
        checks.check_ids_apart([(role, part.source, part.ids) for role, part in zip(sources, parts, strict=True)])
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
    _check_fields(source, rows.fields)
    for argument, field in fields.items():
        if field is not None:
            text_checks.existing_field(source, argument, field, rows.fields)
    id_field = fields["id_field"] or ("id" if "id" in rows.fields else None)
    role_field, label_field, group_field = (fields.get(f"{name}_field") for name in ("role", "label", "group"))
    taken = {field for field in (id_field, role_field, label_field, group_field) if field is not None}
    names = checks.score_names(source, scores, rows.fields, taken)
    checks.check_flipped(flipped, names)

    if id_field is None:
        prefix = "" if role == "candidate" else f"{role}-"
        ids = tuple(f"{prefix}{number}" for number in range(1, rows.num_rows + 1))
    else:
        ids = text_checks.identifier_column(source, rows.column(id_field), place)
    columns = {name: checks.score_column(source, name, rows.column(name), place) for name in names}
    roles = np.full(rows.num_rows, role, dtype=object)
    if role_field is not None:
        roles = checks.role_column(source, role_field, rows.column(role_field), place, words, calibrated)
    labels: Sequence[int] | np.ndarray = np.full(rows.num_rows, -1)
    if label_field is not None:
        labels = text_checks.label_column(source, rows.column(label_field), place, missing=-1)
    groups: tuple[str, ...] = ()
    if group_field is not None:
        groups = checks.group_column(source, group_field, rows.column(group_field), place)
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
            encoded = [word.encode() for word in words[start : start + _HASHED_TOGETHER]]
            digest.update(b"".join([len(data).to_bytes(8, "little") + data for data in encoded]))
    for column in (table.labels.astype("<i8"), *(scores.astype("<f8") for scores in table.scores.values())):
        digest.update(column.tobytes())
    return digest.hexdigest()


def _release_unused() -> None:
    """Give the memory of columns that are gone back to the system: Arrow keeps it for its own use."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def _check_sources(role_field: str | None, calibration: Any, members: Any) -> None:
    """Roles come from a column or from separate tables, not from both."""
    if calibration is not None and role_field is not None:
        raise InputError(f"role_field={role_field!r} and calibration=... both say which rows calibrate; give one")
    if calibration is None and members is not None:
        raise InputError("members=... needs calibration=...; in a single table use member_role=")


def _check_fields(source: str, fields: Sequence[str]) -> None:
    """Rows with named fields."""
    if not fields:
        raise InputError(f"{source}: a score table needs named columns, these rows are bare values")


def _check_scored(source: str, scores: Mapping[str, np.ndarray], roles: np.ndarray, calibrated: bool = True) -> None:
    """At least one score in every column for candidates, and for calibration items where they are needed."""
    for name, values in scores.items():
        for role, word in (("calibration", "calibration item"), ("candidate", "candidate")):
            if (calibrated or role == "candidate") and np.all(np.isnan(values[roles == role])):
                raise InputError(f"{source}: score column {name!r} has no value for any {word}")
