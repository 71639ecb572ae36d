"""What an audit is given → texts by role, in one sequence for scoring and apart again afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.records import Texts
from tdd.texts import TextColumns, hash_texts, load_text_columns, load_texts
from tdd.validate.errors import InputError

__all__ = ["Inputs", "joined", "read_inputs", "scores_of_knockoffs", "split", "with_knockoffs"]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The texts of an audit.

    Attributes:
      roles: "candidate", then where given "calibration", "member", "knockoff 1", ..., "calibration knockoff 1", ...;
        knockoffs belong to the items of their role one by one.
      groups: cluster of each candidate, or an empty tuple.
      calibration_groups: cluster of each calibration item, or an empty tuple.
    """

    roles: Mapping[str, Texts]
    groups: tuple[str, ...]
    calibration_groups: tuple[str, ...]

    def knockoffs(self, owner: str) -> list[Texts]:
        """The knockoffs of the candidates ("candidate") or of the calibration items ("calibration")."""
        name = _role_of_knockoffs(owner)
        return [texts for role, texts in self.roles.items() if role.rpartition(" ")[0] == name]


def read_inputs(
    candidates: Any,
    calibration: Any,
    members: Any,
    knockoffs: Sequence[Any],
    calibration_knockoffs: Sequence[Any],
    *,
    knockoff_fields: Sequence[str],
    label_field: str | None,
    group_field: str | None,
    conformal: bool,
    **fields: Any,
) -> Inputs:
    """Read and check all texts.

    Args:
      candidates: texts to decide on, or a table that has their knockoffs as columns.
      calibration: texts for which the null holds, or None; a table with the same columns where knockoffs are columns.
      members: known members, or None.
      knockoffs: k collections, one paraphrase a candidate each; empty where `knockoff_fields` names columns.
      calibration_knockoffs: likewise of the calibration items.
      knockoff_fields: columns with the paraphrases.
      label_field: column with the known truth of candidates and calibration items.
      group_field: column with their clusters.
      conformal: whether the rule ranks candidates among calibration items with knockoffs of their own.
      **fields: text_field, id_field and format.

    Raises:
      InputError: as `load_text_columns`; knockoffs that do not belong to their items one by one.
    """
    _check_knockoffs_once(knockoffs, calibration_knockoffs, knockoff_fields)
    own: dict[str, Any] = {"label_field": label_field, "group_field": group_field, **fields}
    read = {"candidate": load_text_columns(candidates, knockoff_fields=knockoff_fields, **own)}
    if calibration is not None:
        columns = () if isinstance(calibration, Texts) else knockoff_fields
        read["calibration"] = load_text_columns(calibration, knockoff_fields=columns, **own)
    _check_paraphrased(calibration is not None, calibration_knockoffs)
    roles = {role: found.texts for role, found in read.items()}
    if members is not None:
        roles["member"] = load_texts(members, **fields)
    for owner, collections in (("candidate", knockoffs), ("calibration", calibration_knockoffs)):
        name = _role_of_knockoffs(owner)
        found = [load_texts(collection) for collection in collections]
        for number, texts in enumerate(found or read.get(owner, _NOTHING).knockoffs, start=1):
            _check_paraphrases(texts, roles[owner], f"{name} {number}")
            roles[f"{name} {number}"] = texts
    groups = [read.get(owner, _NOTHING).groups for owner in ("candidate", "calibration")]
    inputs = Inputs(roles, *groups)
    _check_knockoff_numbers(len(inputs.knockoffs("candidate")), len(inputs.knockoffs("calibration")), conformal)
    return inputs


def joined(roles: Mapping[str, Texts]) -> tuple[Texts, np.ndarray]:
    """All texts in one sequence, so that one layout serves every role, equal ones once: their scores are equal exactly.

    Returns:
      The distinct texts, called by role and id of their first appearance, and for each text of all roles in turn its
      place among them.
    """
    places: dict[str, int] = {}
    ids: list[str] = []
    index = []
    for role, texts in roles.items():
        for name, text in zip(texts.ids, texts.texts, strict=True):
            if text not in places:
                places[text] = len(ids)
                ids.append(f"{role}/{name}")
            index.append(places[text])
    source = " + ".join(dict.fromkeys(texts.source for texts in roles.values()))
    distinct = Texts(ids=tuple(ids), texts=tuple(places), source=source, sha256=hash_texts(ids, tuple(places)))
    return distinct, np.array(index)


def split(
    values: Mapping[str, np.ndarray], index: np.ndarray, roles: Mapping[str, Texts]
) -> dict[str, dict[str, np.ndarray]]:
    """Columns over the distinct texts, and where each text stands among them → columns by role."""
    ends = np.cumsum([len(texts) for texts in roles.values()])[:-1]
    parts = {name: np.split(column[index], ends) for name, column in values.items()}
    return {role: {name: part[i] for name, part in parts.items()} for i, role in enumerate(roles)}


def scores_of_knockoffs(
    columns: Mapping[str, Mapping[str, np.ndarray]], owner: str, name: str, count: int
) -> np.ndarray:
    """[items, k] scores of the knockoffs of a role."""
    role = _role_of_knockoffs(owner)
    parts = [scores[name] for key, scores in columns.items() if key.rpartition(" ")[0] == role]
    return np.stack(parts, axis=1) if parts else np.zeros((count, 0))


def with_knockoffs(columns: Mapping[str, Mapping[str, np.ndarray]], owner: str) -> dict[str, np.ndarray]:
    """The score columns of the items of a role, their knockoffs' beside them."""
    role = _role_of_knockoffs(owner)
    return dict(columns[owner]) | {
        f"{name} (knockoff {key.rpartition(' ')[2]})": column
        for key, scores in columns.items()
        if key.rpartition(" ")[0] == role
        for name, column in scores.items()
    }


_NOTHING = TextColumns(Texts((), ()), (), ())


def _role_of_knockoffs(owner: str) -> str:
    return "knockoff" if owner == "candidate" else f"{owner} knockoff"


def _check_knockoffs_once(
    knockoffs: Sequence[Any], calibration_knockoffs: Sequence[Any], fields: Sequence[str]
) -> None:
    """Knockoffs are columns of the texts' own tables or collections of their own, not both."""
    if fields and (knockoffs or calibration_knockoffs):
        given = "knockoffs" if knockoffs else "calibration_knockoffs"
        raise InputError(
            f"{given} and knockoff_fields={list(fields)!r} were both given; name the columns of one table, or give "
            "collections of texts, not both"
        )


def _check_paraphrased(calibrated: bool, calibration_knockoffs: Sequence[Any]) -> None:
    """Calibration texts where there are knockoffs of them."""
    if calibration_knockoffs and not calibrated:
        raise InputError("calibration_knockoffs were given without calibration, the texts that they paraphrase")


def _check_knockoff_numbers(own: int, calibration: int, conformal: bool) -> None:
    """Calibration items have as many knockoffs each as candidates, or none where the rule needs none."""
    if conformal and not calibration:
        raise InputError(
            "rule 'conformal' needs knockoffs of the calibration texts too, made as those of the candidates; name "
            "their columns (knockoff_fields, with calibration a table that has them) or give calibration_knockoffs"
        )
    if own and calibration and own != calibration:
        raise InputError(
            f"candidates have {own} knockoffs each and calibration items {calibration}; both need the same number, "
            "made the same way"
        )


def _check_paraphrases(texts: Any, owners: Any, role: str) -> None:
    """One paraphrase an item, in the same order."""
    if len(texts) != len(owners):
        raise InputError(f"{role} has {len(texts)} texts for {len(owners)} items; one paraphrase an item is needed")
    apart = next((i for i, (a, b) in enumerate(zip(texts.ids, owners.ids, strict=True)) if a != b), None)
    if apart is not None:
        raise InputError(
            f"{role} is in another order: its id {texts.ids[apart]!r} stands where the items have "
            f"{owners.ids[apart]!r}; give the paraphrases the ids and the order of their items"
        )
