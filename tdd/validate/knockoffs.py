"""Checks of knockoffs: the fields that hold them, and the scores of items and of their knockoffs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.core import Tracer

from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.texts import fields_found, is_absent

__all__ = [
    "as_calibration",
    "as_scores_with_knockoffs",
    "check_complete_knockoffs",
    "check_knockoff_fields",
    "check_offset",
    "check_only_conformal",
    "check_some_complete",
]

_NAMED = 5


def as_scores_with_knockoffs(original: Any, knockoffs: Any, mask: Any, prefix: str = "") -> tuple[Any, Any, Any]:
    """Scores [n] and [n, k] and a mask [n] or None, of one item a row.

    Args:
      original: scores of the items.
      knockoffs: scores of their knockoffs.
      mask: True = real item, or None.
      prefix: "" or "calibration", for the names in messages.

    Raises:
      InputError: wrong shapes, no knockoffs, infinite scores.
    """
    names = ("original", "knockoffs", "mask") if not prefix else (prefix, f"{prefix}_knockoffs", f"{prefix}_mask")
    original = arrays.as_vector(original, names[0])
    knockoffs = arrays.as_matrix(knockoffs, names[1], "[items, knockoffs of an item]")
    if knockoffs.shape[1] == 0:
        raise InputError(f"{names[1]} has shape {tuple(knockoffs.shape)}: every item needs at least one knockoff")
    if knockoffs.shape[0] != original.shape[0]:
        turned = "; it looks transposed" if knockoffs.shape[1] == original.shape[0] else ""
        raise InputError(
            f"{names[1]} has {knockoffs.shape[0]} rows and {names[0]} has {original.shape[0]} items; give one row of "
            f"knockoff scores an item, in the same order{turned}"
        )
    mask = arrays.as_mask(mask, original, names[2])
    arrays.check_finite(original, names[0])
    arrays.check_finite(knockoffs, names[1])
    return original, knockoffs, mask


def as_calibration(calibration: Any, knockoffs: Any, mask: Any, num_knockoffs: int) -> tuple[Any, Any, Any]:
    """Scores of known non-members and of their knockoffs, as many an item as the candidates have; one item is real."""
    calibration, knockoffs, mask = as_scores_with_knockoffs(calibration, knockoffs, mask, "calibration")
    if knockoffs.shape[1] != num_knockoffs:
        raise InputError(
            f"calibration_knockoffs has {knockoffs.shape[1]} knockoffs an item and knockoffs has {num_knockoffs}: "
            "their means are comparable only where both have the same number"
        )
    check_some_complete(calibration, knockoffs, mask, "calibration", "at least one known non-member is needed")
    return calibration, knockoffs, mask


def check_some_complete(original: Any, knockoffs: Any, mask: Any, name: str, why: str) -> None:
    """At least one item is not masked out and has all its scores."""
    arrays.check_some(original, mask, name, why)
    if any(isinstance(value, Tracer) for value in (original, knockoffs, mask)):
        return
    complete = ~np.isnan(np.asarray(original, float)) & ~np.isnan(np.asarray(knockoffs, float)).any(axis=1)
    arrays.check_some(np.where(complete, 0.0, np.nan), mask, f"{name} with its knockoffs", why)


def check_offset(offset: Any, rule: str) -> None:
    """The offset is 1 or 0, and 0 only where the rule has a threshold with an offset."""
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)) or offset not in (0, 1):
        raise InputError(f"offset must be 1 (controls the FDR) or 0 (a modified FDR only), got {offset!r}")
    if offset == 0 and rule not in ("ktd", "multi"):
        raise InputError(f'offset=0 is used by rule="ktd" and rule="multi" only, not by rule="{rule}"; leave it out')


def check_only_conformal(rule: str, given: Mapping[str, Any]) -> None:
    """Known non-members with knockoffs for rule="conformal", and nothing of the kind for the others."""
    needed = ("calibration", "calibration_knockoffs")
    if rule == "conformal":
        for name in needed:
            if given[name] is None:
                raise InputError(
                    f'rule="conformal" needs {name}: scores of known non-members and of their knockoffs, made and '
                    "scored as those of the candidates"
                )
        return
    for name, value in given.items():
        if value is not None:
            raise InputError(f'{name} is used by rule="conformal" only, not by rule="{rule}"; leave it out')


def check_knockoff_fields(source: str, wanted: Sequence[str], text_field: str, fields: Sequence[str]) -> None:
    """The fields of the paraphrases: there, different, and none of them the text's own."""
    absent = [field for field in wanted if field not in fields]
    if absent:
        raise InputError(
            f"{source}: there is no knockoff field {', '.join(map(repr, absent))}; {fields_found(fields)}; name the "
            "fields that hold the paraphrases (knockoff_fields)"
        )
    for field in wanted:
        if field == text_field:
            raise InputError(f"knockoff_fields names {field!r}, the field of the texts themselves; leave it out")
        if list(wanted).count(field) > 1:
            raise InputError(f"knockoff_fields names {field!r} twice; leave one out")


def check_complete_knockoffs(
    source: str, columns: Mapping[str, Sequence[Any]], ids: Sequence[str], place: Callable[[int], str]
) -> None:
    """Every row has all its paraphrases.

    Args:
      source: what messages call the table.
      columns: values by knockoff field.
      ids: identifier of each row.
      place: row index to words such as "line 7".

    Raises:
      InputError: some rows lack a paraphrase; how many in each field, and the first of them.
    """
    found = []
    for field, values in columns.items():
        rows = [
            i for i, value in enumerate(values) if is_absent(value) or (isinstance(value, str) and not value.strip())
        ]
        if rows:
            named = ", ".join(f"{ids[i]!r} ({place(i)})" for i in rows[:_NAMED])
            more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
            found.append(f"field {field!r} has none for {len(rows)} of {len(ids)} rows: ids {named}{more}")
    if found:
        raise InputError(
            f"{source}: knockoffs are missing (absent, null or blank): {'; '.join(found)}. Every text needs a "
            "paraphrase in each knockoff field: fill them in, remove the rows, or leave the field out"
        )
