"""Hits of a decontamination tool as candidates: which of the flagged items was the model trained on?

Such a tool flags items of a benchmark that share n-grams with the training data. Many of its hits are false:
quotations, names, boilerplate. An audit of the flagged items alone bounds the false discoveries among them.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.inputs import Inputs, Role
from tdd.records import Guarantee, Null, Texts
from tdd.texts import hash_texts, read_rows
from tdd.texts.rows import Rows, fields_found, number_of, shown
from tdd.validate import InputError

_IDS = ("id", "doc_id", "doc_hash")
_FLAGS = ("flagged", "contaminated")
_COUNTS = ("overlap", "num_overlaps", "ngrams", "hits", "count")
_WORDS = {"true": True, "yes": True, "false": False, "no": False}

_ALIKE = (
    "one rule, fixed before any score was seen, flagged candidates and calibration items, each by itself; the flagged "
    "items for which the null holds are exchangeable"
)
_APART = (
    "flags tell nothing of the scores of items for which the null holds: flagged ones score as calibration items do, "
    "which were not flagged"
)

INDEPENDENT = "independent"
"""`calibration_flagged` of somebody who asserts that flags tell nothing of scores under the null."""

_ASSERTED = (
    "the rule that flagged the candidates was not applied to the calibration items; that its flags are independent of "
    "the scores of items for which the null holds is asserted by whoever ran the audit"
)
_WARNING: dict[Null, str] = {
    "nonmember": "the rule that flagged the candidates was not applied to the calibration items. Items that share "
    "n-grams with the training data score lower than others, trained on or not, so that more of the selected can be "
    "wrong than the level says; flag the calibration items by the same rule (--calibration-flagged FILE), or assert "
    "that flags are independent of scores (--calibration-flagged independent)",
    "member": "the rule that flagged the candidates was not applied to the calibration items, and flagged members may "
    "score otherwise than these; flag the calibration items by the same rule (--calibration-flagged FILE), or assert "
    "that flags are independent of scores (--calibration-flagged independent)",
}

GUARANTEE_ROWS = [
    (
        "tdd.run_audit",
        "flagged, calibration_flagged" + ("" if both else f"={INDEPENDENT!r}"),
        Guarantee.finite_sample(
            "FDR <= alpha among the flagged, given which items were flagged",
            (assumption, "and what the procedure assumes, for the flagged items"),
            "exchangeability given the flags: permutations of the items that keep the flags",
        ),
    )
    for both, assumption in ((True, _ALIKE), (False, _APART))
]


@dataclasses.dataclass(frozen=True)
class Flags:
    """Items that a rule flagged without a look at the model."""

    num_candidates: int  # candidates given
    num_flagged: int  # flagged ones, which are decided on
    num_calibration: int  # calibration items given
    num_calibration_flagged: int | None  # flagged ones, which calibrate; None where the rule was not applied to them
    independent: bool  # whether somebody asserts that flags tell nothing of scores under the null
    warning: str  # empty where the rule was applied to them


class Restricted(NamedTuple):
    """Inputs without the items that were not flagged, the finding, what is assumed of the flags, and their hashes."""

    inputs: Inputs
    flags: Flags
    assumes: str
    options: Mapping[str, str]


def restrict_to_flagged(inputs: Inputs, flagged: Any, calibration_flagged: Any, null: Null) -> Restricted:
    """Leave out all items that were not flagged.

    Guarantee: if the pairs (score, flag) of calibration items and of candidates for which the null holds are
    exchangeable, so are the scores of the flagged ones given all flags, because a permutation of the items that maps
    flagged ones to flagged ones leaves the law of the pairs unchanged. The guarantee of the procedure then holds for
    the flagged items, given the flags, and so on average. A flag that one rule computes from the text alone keeps the
    premise. If calibration items were not flagged, flags must be independent of the scores of those candidates: n-gram
    hits are not, since a text that shares passages with the training data scores lower than others, seen or not.

    Args:
      flagged: ids of the flagged candidates: a path, a list, or a table with a field id, doc_id or doc_hash. Several
        lines an item are one. All lines are hits if the table has none of the following fields; otherwise the first
        of them decides: flagged, contaminated, overlap, num_overlaps, ngrams, hits, count. A line is a hit by true,
        yes, a number above 0 or a list that is not empty, and none by false, no, 0 or an empty list.
      calibration_flagged: those of the calibration items, flagged by the same rule; None if it was not applied, and
        "independent" where the caller asserts that flags are independent of the scores under the null. With None an
        audit withholds its verdict.
      null: null hypothesis of the procedure.

    Raises:
      InputError: an unreadable list, any other value in that field, flagged and contaminated that contradict each
        other, ids that are not among the items, nothing flagged.
    """
    independent = isinstance(calibration_flagged, str) and calibration_flagged == INDEPENDENT
    keep, hashes = {}, {"calibration_flagged": INDEPENDENT} if independent else {}
    for owner, source in (("candidate", flagged), ("calibration", calibration_flagged)):
        if source is None or (independent and owner == "calibration"):
            continue
        texts = inputs.roles.get(Role(owner))
        if texts is None:
            raise InputError("calibration_flagged was given without calibration, the items that it is about")
        argument = "flagged" if owner == "candidate" else "calibration_flagged"
        keep[owner] = _flags(argument, source, texts)
        hashes[argument] = hash_texts(("",), (keep[owner].tobytes().hex(),))
    roles = {role: _take(texts, keep.get(role.owner)) for role, texts in inputs.roles.items()}
    clusters, calibration_clusters = (
        tuple(np.array(names, object)[keep[owner]]) if names and owner in keep else names
        for owner, names in (("candidate", inputs.clusters), ("calibration", inputs.calibration_clusters))
    )
    decided = [role for role in (Role("candidate"), Role("calibration")) if role in inputs.roles]
    everything = [keep.get(role.owner, np.ones(len(inputs.roles[role]), bool)) for role in decided]
    groups = inputs.ignored_groups
    if groups:
        groups = tuple(np.array(groups, object)[np.concatenate(everything)])
    calibration = inputs.calibration
    both = calibration is None or "calibration" in keep
    warning = "" if both else _ASSERTED if independent else _WARNING[null]
    flags = Flags(
        len(inputs.candidates),
        int(keep["candidate"].sum()),
        0 if calibration is None else len(calibration),
        int(keep["calibration"].sum()) if "calibration" in keep else None,
        independent,
        warning,
    )
    return Restricted(Inputs(roles, clusters, calibration_clusters, groups), flags, _ALIKE if both else _APART, hashes)


def _take(texts: Texts, keep: np.ndarray | None) -> Texts:
    """The texts that are kept, under a hash of their own."""
    if keep is None:
        return texts
    ids, kept = (tuple(np.array(column, object)[keep]) for column in (texts.ids, texts.texts))
    labels = tuple(np.array(texts.labels)[keep].tolist()) if texts.labels else ()
    return dataclasses.replace(texts, ids=ids, texts=kept, labels=labels, sha256=hash_texts(ids, kept))


def _flags(argument: str, source: Any, texts: Texts) -> np.ndarray:
    """Which items a list names, by their ids or, for samples of lm-evaluation-harness, by their doc_id: [N] bool."""
    rows = read_rows(source)
    field = next((name for name in _IDS if name in rows.fields), "" if not rows.fields else None)
    if field is None:
        raise InputError(
            f"{argument}: {rows.source} has no field {', '.join(_IDS[:-1])} or {_IDS[-1]}; {fields_found(rows.fields)}"
        )
    identifiers = [str(name).strip() for name in rows.column(field)]
    named = [name for name, hit in zip(identifiers, _hits(argument, rows, identifiers), strict=True) if hit]
    places = {name: place for place, name in enumerate(texts.ids)}
    short = [name.rpartition("/")[2] for name in texts.ids]
    repeated = {name for name, count in Counter(short).items() if count > 1}
    for place, name in enumerate(short):
        if name not in repeated:
            places.setdefault(name, place)
    if unknown := [name for name in named if name not in places]:
        raise InputError(
            f"{argument}: {len(unknown)} ids of {rows.source} are of no item, the first is {shown(unknown[0])}; items "
            f"have ids such as {shown(texts.ids[0])}; name the field of the items' ids with id_field (--id-field)"
        )
    if not named:
        raise InputError(f"{argument}: {rows.source} flags no item, so there is nothing to decide on")
    keep = np.zeros(len(texts), bool)
    keep[[places[name] for name in named]] = True
    return keep


def _hits(argument: str, rows: Rows, identifiers: Sequence[str]) -> list[bool]:
    """Whether each row is a hit, by the first field that says so; rows of a table without such a field all are."""
    known = [name for name in (*_FLAGS, *_COUNTS) if name in rows.fields]
    if not known:
        return [True] * rows.num_rows
    flags = [name for name in _FLAGS if name in rows.fields]
    found: dict[str, list[bool]] = {}
    for field in flags or known[:1]:
        found[field] = []
        for index, value in enumerate(rows.column(field)):
            hit = _as_hit(value)
            if hit is None:
                raise InputError(
                    f"{argument}: {rows.source}: {rows.place(index)}, id {shown(identifiers[index])}: {field}="
                    f"{shown(value)} is neither a hit nor none; write true or false, yes or no, a number from 0 on, or "
                    "a list of the overlaps"
                )
            found[field].append(hit)
    for index, said in enumerate(zip(*found.values(), strict=True)):
        if len(set(said)) > 1:
            raise InputError(
                f"{argument}: {rows.source}: {rows.place(index)}, id {shown(identifiers[index])}: {flags[0]} and "
                f"{flags[1]} contradict each other; remove one of the two fields"
            )
    return found[known[0]]


def _as_hit(value: Any) -> bool | None:
    """Whether a flag, a number of overlaps or a list of them is a hit; None if the value is none of these."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return len(value) > 0
    if isinstance(value, str) and (word := value.strip().lower()) in _WORDS:
        return _WORDS[word]
    if not isinstance(value, (str, numbers.Real, decimal.Decimal)):
        return None
    try:
        number = number_of(value)
    except (ValueError, OverflowError):
        return None
    return number > 0 if math.isfinite(number) and number >= 0 else None
