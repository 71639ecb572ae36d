"""The texts of an audit by role: read and checked, joined into one sequence for scoring, and split again afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Texts
from tdd.texts import TextColumns, hash_texts, load_text_columns, load_texts
from tdd.validate import InputError, as_names

_DECIDED = ("candidate", "calibration")

Tables = dict[str, dict[str, np.ndarray]]
"""Owner -> column -> [texts] scores."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the tables of an audit are read, and which of their items count; see `tdd.run_audit`."""

    text_field: str | None = None
    id_field: str | None = None
    label_field: str | None = None
    group_field: str | None = None
    knockoff_fields: str | Sequence[str] = ()
    format: str | None = None
    image_field: str | None = None
    knockoffs: Sequence[Any] = ()
    calibration_knockoffs: Sequence[Any] = ()
    flagged: Any = None
    calibration_flagged: Any = None


class Role(NamedTuple):
    """The role of a collection of texts."""

    owner: str  # "candidate", "calibration" or "member"
    knockoff: int = 0  # 0 for the texts themselves, j for their j-th knockoffs, which belong to them one by one

    def __str__(self) -> str:
        if not self.knockoff:
            return self.owner
        return f"knockoff {self.knockoff}" if self.owner == "candidate" else f"{self.owner} knockoff {self.knockoff}"


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The texts of an audit."""

    # the texts of every role: candidates, then calibration texts and members where given, then knockoffs
    roles: Mapping[Role, Texts]
    clusters: tuple[str, ...] = ()  # cluster of each candidate where the procedure decides by cluster, else empty
    calibration_clusters: tuple[str, ...] = ()  # cluster of each calibration text, or empty
    # group of every text where there are groups and the procedure ignores them, else empty
    ignored_groups: tuple[str, ...] = ()

    @property
    def candidates(self) -> Texts:
        """The texts to decide on."""
        return self.roles[Role("candidate")]

    @property
    def calibration(self) -> Texts | None:
        """The texts for which the null holds."""
        return self.roles.get(Role("calibration"))

    def knockoffs(self, owner: str) -> list[Texts]:
        """The knockoffs of the texts of a role, the j-th of all of them together."""
        return [texts for role, texts in self.roles.items() if role.owner == owner and role.knockoff]

    @property
    def beside(self) -> dict[str, dict[str, tuple[Any, ...]]]:
        """Role -> what its texts came with that the report rests on: "labels", "groups", where there are some."""
        candidates, groups = len(self.candidates), self.clusters or self.ignored_groups
        of_role = {
            "candidate": groups[:candidates],
            "calibration": self.calibration_clusters or self.ignored_groups[candidates:],
        }
        return {
            str(role): {
                name: values
                for name, values in (("labels", texts.labels), ("groups", of_role.get(str(role), ())))
                if values
            }
            for role, texts in self.roles.items()
        }

    def joined(self) -> tuple[Texts, np.ndarray]:
        """All texts in one sequence, so that one layout serves every role, equal ones once: their scores are equal.

        Returns:
          The distinct texts, named by role and id of their first appearance, and for each text of all roles in turn
          its place among them.
        """
        places: dict[str, int] = {}
        ids: list[str] = []
        index = []
        for role, texts in self.roles.items():
            for name, text in zip(texts.ids, texts.texts, strict=True):
                if text not in places:
                    places[text] = len(ids)
                    ids.append(f"{role}/{name}")
                index.append(places[text])
        source = " + ".join(dict.fromkeys(texts.source for texts in self.roles.values()))
        distinct = Texts(ids=tuple(ids), texts=tuple(places), source=source, sha256=hash_texts(ids, tuple(places)))
        return distinct, np.array(index)

    def split(self, values: Mapping[str, np.ndarray], index: np.ndarray) -> Tables:
        """Columns over the distinct texts, and the place of each text among them → columns by owner.

        The scores of the j-th knockoffs stand beside those of their owners, as `knockoff_column` calls them.
        """
        places = np.split(index, np.cumsum([len(texts) for texts in self.roles.values()])[:-1])
        tables: Tables = {}
        for role, place in zip(self.roles, places, strict=True):
            table = tables.setdefault(role.owner, {})
            for name, column in values.items():
                table[knockoff_column(name, role.knockoff) if role.knockoff else name] = column[place]
        return tables


def knockoff_column(name: str, knockoff: int) -> str:
    """The column with the scores of the j-th knockoffs."""
    return f"{name} (knockoff {knockoff})"


def check_roles(procedure: Procedure, calibration: Any, members: Any) -> None:
    """Check that there are calibration texts if the procedure needs them, and known members if and only if it does."""
    if (members is None) == ("members" in procedure.needs):
        raise InputError(
            f"members is missing: method {procedure.name!r} with these options needs known members"
            if members is None
            else "members are used only by proportion=moment and moment_paper of ptdi and ktd:rule=conformal, and by "
            "combined_score:learn_from=members; leave them out"
        )
    if calibration is None and "calibration" in procedure.needs:
        raise InputError(
            f"calibration is missing: {procedure.name} compares candidates with texts for which the null holds"
        )


def read_inputs(procedure: Procedure, given: Sequence[Any], reading: Reading) -> Inputs:
    """Read all texts, arguments of `tdd.run_audit`, and check that the procedure can use them.

    Raises:
      InputError: as `load_text_columns`; texts that the procedure lacks or would ignore; knockoffs that do not belong
        to their items one by one; calibration texts labelled against the null.
    """
    candidates, calibration, members = given
    name, needs = procedure.name, procedure.needs
    knockoffs, calibration_knockoffs = reading.knockoffs, reading.calibration_knockoffs
    knockoff_fields = as_names(reading.knockoff_fields, "knockoff_fields")
    collections = {"knockoffs": knockoffs or None, "calibration_knockoffs": calibration_knockoffs or None}
    collections["knockoff_fields"] = knockoff_fields or None
    check_used(name, name if "knockoffs" in needs else "ktd", **collections)
    check_knockoffs(procedure, knockoffs or knockoff_fields)
    if "weights" in needs:
        raise InputError(f"method {name!r} needs a density ratio of each item: score the texts and use tdd select")
    clustered = reading.group_field is not None and isinstance(procedure, PTDI)
    check_clusters_named(procedure, clustered)
    check_roles(procedure, calibration, members)
    if calibration is None and calibration_knockoffs:
        raise InputError("calibration_knockoffs were given without calibration, the texts that they paraphrase")
    if knockoff_fields and (knockoffs or calibration_knockoffs):
        given = "knockoffs" if knockoffs else "calibration_knockoffs"
        raise InputError(
            f"{given} and knockoff_fields={list(knockoff_fields)!r} were both given; name the columns of one table, "
            "or give collections of texts, not both"
        )

    fields: dict[str, Any] = {name: getattr(reading, name) for name in ("text_field", "id_field", "format")}
    columns = {"label_field": reading.label_field, "group_field": reading.group_field, **fields}
    tables = {"candidate": load_text_columns(candidates, knockoff_fields=knockoff_fields, **columns)}
    if calibration is not None:
        paraphrases = () if isinstance(calibration, Texts) else knockoff_fields
        tables["calibration"] = load_text_columns(calibration, knockoff_fields=paraphrases, **columns)
    roles = {Role(owner): table.texts for owner, table in tables.items()}
    if members is not None:
        paraphrases = knockoff_fields if "members_knockoffs" in needs else ()
        if "members_knockoffs" in needs and not paraphrases:
            raise InputError(
                f"method {name!r} with these options needs knockoffs of the known members too: name the columns of the "
                "paraphrases (knockoff_fields), which the tables of candidates, calibration texts and members all have"
            )
        tables["member"] = load_text_columns(members, knockoff_fields=paraphrases, **fields)
        roles[Role("member")] = tables["member"].texts
    for owner, copies in (("candidate", knockoffs), ("calibration", calibration_knockoffs), ("member", ())):
        table = tables.get(owner, TextColumns(Texts((), ()), (), ()))
        for number, texts in enumerate([load_texts(copy) for copy in copies] or table.knockoffs, start=1):
            _check_paraphrases(texts, table.texts, Role(owner, number))
            roles[Role(owner, number)] = texts
    groups, calibration_groups = (tables[owner].groups if owner in tables else () for owner in _DECIDED)
    if clustered:
        inputs = Inputs(roles, groups, calibration_groups)
    else:
        inputs = Inputs(roles, ignored_groups=(*groups, *calibration_groups))
    _check_numbers_of_knockoffs(inputs, "calibration_knockoffs" in needs)
    if inputs.calibration is not None:
        check_known_labels(inputs.calibration.labels, inputs.calibration.ids, procedure.null)
    return inputs


def check_used(method: str, owner: str, **options: Any) -> None:
    """Refuse inputs that belong to another method and would be ignored; None stands for not given."""
    for name, value in options.items():
        if value is not None and method != owner:
            raise InputError(
                f"{name}={value!r} belongs to method {owner!r}, and {method!r} does not use it; leave it out"
            )


def check_knockoffs(procedure: Procedure, knockoffs: Sequence[Any]) -> None:
    """Check that there are knockoffs if the procedure needs them."""
    if "knockoffs" in procedure.needs and not knockoffs:
        raise InputError(
            f"knockoffs are missing: method {procedure.name!r} compares each item with its knockoff paraphrases; name "
            "the columns or fields that hold them (--knockoffs; in Python knockoff_fields of run_audit, knockoffs of "
            "select)"
        )


def check_clusters_named(procedure: Procedure, clustered: bool) -> None:
    """Check that clusters are named if the unit of decision is not the default."""
    unit = getattr(procedure, "unit", "cluster")
    if unit != "cluster" and not clustered:
        raise InputError(f"unit={unit!r} needs clusters: name their column (group_field) and use method 'ptdi'")


def check_known_labels(labels: Sequence[int] | np.ndarray, ids: Sequence[str] | np.ndarray, null: str) -> None:
    """Check that calibration items whose truth is known are on the null's side."""
    known = np.asarray(labels, dtype=np.int64)
    wrong = np.flatnonzero(known == (1 if null == "nonmember" else 0))
    if wrong.size:
        other = "member (label 1)" if null == "nonmember" else "non-member (label 0)"
        raise InputError(
            f"{wrong.size} of {known.size} calibration items are labelled as {other}, the first is "
            f'{ids[int(wrong[0])]!r}; the null "{null}" is calibrated on known {null}s. Remove them or exchange the '
            "roles of the two inputs"
        )


def _check_numbers_of_knockoffs(inputs: Inputs, needed: bool) -> None:
    """Check that calibration items have as many knockoffs each as candidates, or none if the rule needs none."""
    of_candidates, of_calibration = (len(inputs.knockoffs(owner)) for owner in _DECIDED)
    if needed and not of_calibration:
        raise InputError(
            "rule 'conformal' needs knockoffs of the calibration texts too, made as those of the candidates; name "
            "their columns (knockoff_fields, with calibration a table that has them) or give calibration_knockoffs"
        )
    if of_candidates and of_calibration and of_candidates != of_calibration:
        raise InputError(
            f"candidates have {of_candidates} knockoffs each and calibration items {of_calibration}; both need the "
            "same number, made the same way"
        )


def _check_paraphrases(texts: Texts, owners: Texts, role: Role) -> None:
    """Check that there is one paraphrase an item, in the same order."""
    if len(texts) != len(owners):
        raise InputError(f"{role} has {len(texts)} texts for {len(owners)} items; one paraphrase an item is needed")
    apart = next((i for i, (a, b) in enumerate(zip(texts.ids, owners.ids, strict=True)) if a != b), None)
    if apart is not None:
        raise InputError(
            f"{role} is in another order: its id {texts.ids[apart]!r} stands where the items have "
            f"{owners.ids[apart]!r}; give the paraphrases the ids and the order of their items"
        )
